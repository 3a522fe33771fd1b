"""Jobs take the fewest leaf switches: against all subsets of nodes of small random trees."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.scheduling.checker import check_cluster
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, spec

from spritz.model.cluster.topology import Switch, Topology
from spritz.notation import hostlist
from spritz.scheduling.placement.place import place
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.view.request import Request
from spritz.scheduling.view.resolve import resolve


@st.composite
def trees(draw: st.DrawFn) -> Topology:
    """Two to five leaves of one to three nodes each, under one or two switches, under one."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=5))
    split = draw(st.integers(0, len(sizes)))
    switches: list[Switch] = []
    first = 1
    for number, size in enumerate(sizes):
        switches.append(Switch(name=f"s{number}", nodes=hostlist.compress([f"n{first + i}" for i in range(size)])))
        first += size
    tops = [switches[:split], switches[split:]] if 0 < split < len(sizes) else [list(switches)]
    for number, below in enumerate(tops):
        switches.append(_above(f"t{number}", 1, below))
    if len(tops) > 1:
        switches.append(_above("top", 2, switches[-2:]))
    return Topology(kind="tree", name="default", switches=tuple(switches))


def _above(name: str, level: int, below: list[Switch]) -> Switch:
    nodes = hostlist.compress([node for switch in below for node in hostlist.expand(switch.nodes)])
    return Switch(name=name, level=level, nodes=nodes, switches=hostlist.compress([one.name for one in below]))


@st.composite
def sizes_asked(draw: st.DrawFn) -> dict[str, Any]:
    """What a job asks for."""
    nodes = draw(st.one_of(st.none(), st.integers(1, 6), st.tuples(st.integers(1, 2), st.integers(2, 5))))
    tasks = draw(st.one_of(st.none(), st.integers(1, 12)))
    found: dict[str, Any] = {"nodes": nodes, "tasks": tasks}
    if draw(st.booleans()):
        found["gpus"] = draw(st.integers(1, 6))
    if draw(st.booleans()):
        found["switches"] = draw(st.integers(1, 3))
    return found


@settings(max_examples=120, deadline=None)
@given(trees(), sizes_asked(), st.data())
def test_a_job_gets_the_fewest_leaves_below_the_lowest_switch(
    tree: Topology, asked: dict[str, Any], data: st.DataObject
) -> None:
    names = [name for switch in tree.switches if not switch.switches for name in hostlist.expand(switch.nodes)]
    chances = st.tuples(st.integers(0, 3), st.integers(0, 2))
    shapes = data.draw(st.lists(chances, min_size=len(names), max_size=len(names)))
    configs = [
        node(name, 1 + cpus, gres=[gpus(devices)] if devices else [])
        for name, (cpus, devices) in zip(names, shapes, strict=True)
    ]
    site = Site(configs, settings=replace(SETTINGS, topologies=(tree,)))
    busy = data.draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))
    for name in sorted(busy):
        site.submit(spec(1, cpus_per_task=1, node_list=(name,)))
    site.cycle()
    projection = site.projection
    request = resolve(spec(**asked), site.partitions[0], site.settings)
    found = place(projection.table, request, projection.eligibility)
    leaves = {
        name: switch.name for switch in tree.switches if not switch.switches for name in hostlist.expand(switch.nodes)
    }
    level_of: dict[frozenset[str], int] = {}
    for switch in tree.switches:
        level_of.setdefault(frozenset(leaves[name] for name in hostlist.expand(switch.nodes)), switch.level)
    index = projection.table.index_of

    def fits(some: tuple[str, ...], flat: Request) -> bool:
        within = np.array(sorted(index[name] for name in names if leaves[name] in some), np.int64)
        return place(projection.table, flat, projection.eligibility, within=within) is not None

    every = sorted(set(leaves.values()))
    best = None
    # A range of nodes is first tried at its upper end.
    for nodes in (target_of(request).nodes_wanted, request.nodes_min):
        flat = replace(request, flat=True, nodes_min=max(nodes, request.nodes_min))
        sets = [some for count in range(1, len(every) + 1) for some in combinations(every, count) if fits(some, flat)]
        sets = [some for some in sets if not request.switches or len(some) <= request.switches]
        best = best or min(
            ((min(level for members, level in level_of.items() if members >= set(some)), len(some)) for some in sets),
            default=None,
        )
    if found is None:
        assert best is None
        return
    used = {leaves[name] for name in found.names}
    level = min(level for members, level in level_of.items() if members >= used)
    assert best == (level, len(used))
    assert place(projection.table, request, projection.eligibility) == found


@settings(max_examples=100, deadline=None)
@given(trees(), st.lists(sizes_asked(), min_size=1, max_size=8))
def test_nothing_is_given_twice_and_the_same_queue_is_planned_alike(
    tree: Topology, queue: list[dict[str, Any]]
) -> None:
    """`Site.cycle` asserts that the core accepts every start."""
    names = [name for switch in tree.switches if not switch.switches for name in hostlist.expand(switch.nodes)]
    configs = {name: node(name, 2, gres=[gpus(2)]) for name in names}
    plans = []
    for _ in range(2):
        site = Site(configs.values(), settings=replace(SETTINGS, topologies=(tree,)))
        for asked in queue:
            site.submit(spec(**asked))
        plans.append(site.cycle())
        running = [job for job in site.jobs.values() if job.allocation is not None]
        check_cluster(configs, running, {home.name: home for home in site.partitions})
        leaf_of = {
            name: switch.name
            for switch in tree.switches
            if not switch.switches
            for name in hostlist.expand(switch.nodes)
        }
        for job in running:
            assert job.allocation is not None
            leaves = {leaf_of[name] for name in job.allocation.names}
            assert job.spec.switches is None or len(leaves) <= job.spec.switches
    assert plans[0] == plans[1]
