"""Places that the usual choice of nodes misses: found by the second try, or said not to be found."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.cluster.topology import Block, Switch, Topology
from spritz.model.resources import GresRequest
from spritz.scheduling.placement import effort as effort_module
from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.place import place
from spritz.scheduling.plan import backfill, feasible, start_now, verdicts
from spritz.scheduling.plan.feasible import check_request
from spritz.scheduling.view.resolve import resolve
from tests.unit.scheduling.site import SETTINGS, Site, cpu_ids, devices, gpus, node, partition, spec

TWO_SOCKETS = [gpus(2, "", 0, "0-3"), gpus(2, "", 2, "4-7")]
ENFORCED: dict[str, Any] = {"gres_flags": ("enforce-binding",), "nodes": 1}


def one_node() -> Site:
    """Two sockets of four cores with two GPUs each."""
    return Site([node("n0", 8, sockets=2, gres=TWO_SOCKETS)])


def started(site: Site, **fields: Any) -> dict[str, int]:
    """Node -> GPUs of the job if it starts; empty if not."""
    job = site.submit(spec(**fields))
    allocation = site.cycle().get(job)
    if allocation is None:
        return {}
    return {part.node: sum(gres.count for gres in part.gres) for part in allocation.nodes}


# -- one node


def test_bound_gpus_are_taken_from_both_sockets_if_the_job_needs_cpus_of_both() -> None:
    site = one_node()
    job = site.submit(spec(1, gpus_per_node=2, cpus_per_task=8, **ENFORCED))
    allocation = site.cycle()[job]
    assert len(cpu_ids(allocation)) == 8
    assert {index // 2 for index in devices(allocation)["n0"]} == {0, 1}


def test_bound_gpus_are_taken_where_cpus_are_free() -> None:
    """GPU 0 is the only one left on its socket, which has one free core; the other socket is empty."""
    site = one_node()
    site.submit(spec(1, gpus_per_node=1, cpus_per_task=3, **ENFORCED))
    site.cycle()
    job = site.submit(spec(1, gpus_per_node=1, cpus_per_task=2, **ENFORCED))
    allocation = site.cycle()[job]
    assert devices(allocation)["n0"][0] // 2 == cpu_ids(allocation)[0] // 4 == 1


def test_bound_gpus_of_two_types_are_chosen_together() -> None:
    """The `a` of one socket and the `b` of the other are next to all CPUs that the job needs."""
    lines = [gpus(1, "a", 0, "0-3"), gpus(1, "b", 1, "0-3"), gpus(1, "a", 2, "4-7"), gpus(1, "b", 3, "4-7")]
    site = Site([node("n0", 8, sockets=2, gres=lines)])
    both = (GresRequest("gpu", "a", 1), GresRequest("gpu", "b", 1))
    job = site.submit(spec(1, gpus_per_node=both, cpus_per_task=6, **ENFORCED))
    assert {index // 2 for index in devices(site.cycle()[job])["n0"]} == {0, 1}


def test_a_gpu_near_to_all_cpus_leaves_them_to_the_job() -> None:
    """Whatever type the other GPUs of the job have."""
    site = Site([node("n0", 8, sockets=2, gres=[gpus(1, "a", 0, "0-3"), gpus(1, "b", 1)])])
    both = (GresRequest("gpu", "a", 1), GresRequest("gpu", "b", 1))
    assert started(site, tasks=8, gpus_per_node=both, **ENFORCED) == {"n0": 2}


def test_tasks_per_socket_hold_where_gpus_bind_the_cpus() -> None:
    """The node's only GPU leaves one socket to the job, and two tasks may not lie there."""
    site = Site([node("n0", 8, sockets=2, gres=[gpus(1, "", 0, "0-3")])])
    assert not started(site, tasks=2, tasks_per_socket=1, gpus_per_node=1, **ENFORCED)
    assert started(one_node(), tasks=2, tasks_per_socket=1, gpus_per_node=2, **ENFORCED) == {"n0": 2}


@pytest.mark.parametrize(("limit", "tasks", "cores"), [(1, 2, 2), (2, 4, 2), (3, 4, 2), (3, 5, 3), (3, 6, 4)])
def test_tasks_per_socket_get_cores_on_each_socket(limit: int, tasks: int, cores: int) -> None:
    """Two tasks share a core with two threads, but not across sockets."""
    site = Site([node("n0", 12, sockets=2, threads=2)])
    job = site.submit(spec(tasks, 1, tasks_per_socket=limit))
    allocation = site.cycle()[job]
    used = {cpu // 2 for cpu in cpu_ids(allocation)}
    assert len(used) == cores
    for first in (0, 3):
        assert sum(core - first in range(3) for core in used) * 2 >= tasks - limit


def test_tasks_per_socket_get_whole_sockets_where_these_are_given_out() -> None:
    site = Site([node("n0", 8, sockets=2)], settings=replace(SETTINGS, consumable="socket"))
    job = site.submit(spec(2, 1, tasks_per_socket=1))
    assert len(cpu_ids(site.cycle()[job])) == 8
    assert not started(site, tasks=3, nodes=1, tasks_per_socket=1)


# -- GPUs and tasks of several nodes


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ({"nodes": 2, "gpus": 8, "tasks_per_gpu": 2, "cpus_per_task": 2}, [4, 4]),
        ({"nodes": 4, "gpus": 8, "tasks_per_gpu": 2, "cpus_per_task": 4}, [2, 2, 2, 2]),
        ({"gpus": 8, "tasks_per_gpu": 2, "cpus_per_task": 2}, [4, 4]),
        ({"nodes": 3, "tasks": 11, "tasks_per_gpu": 2, "cpus_per_task": 4}, [2, 2, 2]),
    ],
)
def test_gpus_are_dealt_so_that_their_tasks_fit(asked: dict[str, Any], counts: list[int]) -> None:
    site = Site([node(f"n{number}", 16, gres=[gpus(8)]) for number in range(4)])
    assert list(started(site, **asked).values()) == counts


def test_tasks_per_gpu_count_the_gpus_of_each_node() -> None:
    """sbatch(1): the number of tasks is determined from --gres too, and needs CPUs."""
    site = Site([node(f"n{number}", 16, gres=[gpus(8)]) for number in range(2)])
    job = site.submit(spec(nodes=2, gpus_per_node=2, tasks_per_gpu=3, cpus_per_task=2))
    allocation = site.cycle()[job]
    assert allocation.tasks == (6, 6)
    assert [part.cpu_count for part in allocation.nodes] == [12, 12]


def test_gpus_by_gres_are_not_counted_again_for_tasks_per_gpu() -> None:
    site = Site([node("n0", 16, gres=[gpus(2)])])
    assert started(site, tasks=4, gres_per_node=2, tasks_per_gpu=2) == {"n0": 2}


def test_more_tasks_than_the_gpus_may_have_fit_nowhere() -> None:
    """Where GPUs are placed by fragmentation too."""
    for parameters in ((), (("gpu_fragmentation", ""),)):
        site = Site([node("n0", 16, gres=[gpus(4)])], settings=replace(SETTINGS, scheduler_parameters=parameters))
        assert not started(site, tasks=2, gpus=1, tasks_per_gpu=1, nodes=1)
        assert not started(site, tasks=2, gpus=1, tasks_per_gpu=1)
        assert started(site, tasks=2, gpus=1, tasks_per_gpu=2) == {"n0": 1}


def test_types_are_found_where_the_most_useful_nodes_do_not_meet() -> None:
    """The node with most of both types is in no solution with two nodes."""
    nodes = [
        node("n0", 8, gres=[gpus(3, "a"), gpus(3, "b", 3)]),
        node("n1", 8, gres=[gpus(5, "a")]),
        node("n2", 8, gres=[gpus(5, "b")]),
    ]
    both = (GresRequest("gpu", "a", 5), GresRequest("gpu", "b", 5))
    assert started(Site(nodes), nodes=2, gpus=both) == {"n1": 5, "n2": 5}


# -- counts of features


def three(*features: str) -> Site:
    return Site([node(f"n{number}", features=tuple(text)) for number, text in enumerate(features, 1)])


def test_each_counted_feature_gets_a_node_of_its_own() -> None:
    assert list(started(three("bc", "ac", "a"), nodes=3, features="[a*1&b*1&c*1]")) == ["n1", "n2", "n3"]


@pytest.mark.parametrize("named", [(), ("n1",)])
def test_a_node_counts_for_one_feature_of_brackets_alone(named: tuple[str, ...]) -> None:
    """As in slurmctld 22.05, which refuses both. Without brackets it counts for both."""
    assert not started(three("ab", ""), nodes=2, features="[a*1&b*1]", node_list=named)
    assert list(started(three("ab", ""), nodes=2, features="a*1&b*1", node_list=named)) == ["n1", "n2"]
    assert list(started(three("ab", ""), nodes=1, features="a*1&b*1")) == ["n1"]


@pytest.mark.parametrize(("asked", "count"), [({}, 3), ({"tasks": 1}, 3), ({"tasks": 4}, 3)])
def test_counts_of_features_give_the_number_of_nodes_if_nothing_else_does(asked: dict[str, Any], count: int) -> None:
    """As in slurmctld 22.05: `-C '[b*1&a*1]'` gets two nodes, with `-n1` too."""
    site = Site([node(f"n{number}", 1, features=("a", "b")) for number in range(4)])
    assert len(started(site, features="[a*1&b*2]", **asked)) == max(count, asked.get("tasks", 0))


# -- networks


def blocks() -> Site:
    names = [f"n{number}" for number in range(8)]
    topology = Topology(
        kind="block",
        name="default",
        blocks=(Block(name="b0", nodes="n[0-3]"), Block(name="b1", nodes="n[4-7]")),
        block_sizes=(4,),
    )
    return Site([node(name, 16) for name in names], settings=replace(SETTINGS, topologies=(topology,)))


@pytest.mark.parametrize("asked", [{"tasks": 64}, {"tasks_per_node": 16}, {"tasks": 64, "tasks_per_node": 16}])
def test_segments_are_made_of_the_nodes_that_have_room(asked: dict[str, Any]) -> None:
    site = blocks()
    for name in ("n0", "n4"):
        site.submit(spec(1, cpus_per_task=12, node_list=(name,)))
    site.cycle()
    assert list(started(site, nodes=4, segment=2, **asked)) == ["n1", "n2", "n5", "n6"]


def leaves(count: int, size: int, cpus: int = 2) -> Site:
    names = [f"n{number}" for number in range(count * size)]
    switches = [
        Switch(name=f"s{leaf}", nodes=",".join(names[leaf * size : (leaf + 1) * size])) for leaf in range(count)
    ]
    top = Switch(name="top", level=1, nodes=",".join(names), switches=",".join(switch.name for switch in switches))
    topology = Topology(kind="tree", name="default", switches=(*switches, top))
    return Site([node(name, cpus) for name in names], settings=replace(SETTINGS, topologies=(topology,)))


@pytest.mark.parametrize("counts", [range(2, 65, 2), range(2, 33, 2), [16], range(15, 65)])
def test_many_numbers_of_nodes_do_not_hide_the_one_that_few_switches_hold(counts: Any) -> None:
    site = leaves(4, 16)
    numbers = tuple(counts)
    assert len(started(site, nodes=(min(numbers), max(numbers)), node_counts=numbers, switches=1)) == 16


def test_two_switches_are_found_among_many_pairs() -> None:
    """Tasks and features must meet on the same two leaves of twelve."""
    site = leaves(12, 4)
    busy = [number for number in range(48) if number not in (20, 21, 22, 23, 40, 41, 42, 43)]
    for number in busy:
        site.submit(spec(1, node_list=(f"n{number}",)))
    site.cycle()
    found = started(site, tasks=16, nodes=8, switches=2)
    assert {int(name[1:]) // 4 for name in found} == {5, 10}


# -- effort


def types_request(site: Site) -> Any:
    both = (GresRequest("gpu", "a", 5), GresRequest("gpu", "b", 5))
    return resolve(spec(nodes=2, gpus=both, partitions=("debug",)), site.partitions[0], site.settings)


def types_site() -> Site:
    return Site(
        [
            node("n0", 8, gres=[gpus(3, "a"), gpus(3, "b", 3)]),
            node("n1", 8, gres=[gpus(5, "a")]),
            node("n2", 8, gres=[gpus(5, "b")]),
        ]
    )


def test_a_search_that_gives_up_says_so() -> None:
    site = types_site()
    snapshot = site.projection.snapshot(site.now)
    table, request = site.projection.table, types_request(site)
    few = Effort(20, 20)
    assert place(table, request, snapshot.eligibility, effort=few) is None
    assert (few.unsure, few.cut) == (True, False)
    left_over = Effort(20)
    assert place(table, request, snapshot.eligibility, effort=left_over) is None
    assert (left_over.unsure, left_over.cut) == (True, True)
    enough = Effort()
    assert place(table, request, snapshot.eligibility, effort=enough) is not None
    assert 0 < enough.left < effort_module.SEARCH_STEPS_MAX


def test_nothing_is_refused_because_a_search_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits, and its reason says that not everything was tried."""
    monkeypatch.setattr(feasible, "Effort", lambda: Effort(20, 20))
    site = types_site()
    both = (GresRequest("gpu", "a", 5), GresRequest("gpu", "b", 5))
    assert check_request(spec(nodes=2, gpus=both), site.projection.snapshot(site.now)) is None
    never = (GresRequest("gpu", "a", 9), GresRequest("gpu", "b", 5))
    assert check_request(spec(nodes=2, gpus=never), site.projection.snapshot(site.now)) is not None
    for module in (start_now, backfill):
        monkeypatch.setattr(module, "CYCLE_STEPS_MAX", 20)
    monkeypatch.setattr(verdicts, "Effort", lambda: Effort(20, 20))
    job = site.submit(spec(nodes=2, gpus=both))
    assert not site.cycle()
    assert site.reason(job) == f"Resources, {verdicts.NOT_FOUND}"


def test_a_job_for_which_earlier_searches_left_no_effort_is_tried_in_the_next_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was freed since, so a failure that is remembered would keep it waiting on an idle cluster."""
    site = types_site()
    both = (GresRequest("gpu", "a", 5), GresRequest("gpu", "b", 5))
    job = site.submit(spec(nodes=2, gpus=both))
    with monkeypatch.context() as patch:
        patch.setattr(start_now, "QUICK_STEPS_MAX", 0)
        assert not site.cycle(budget=100)
    assert job in site.cycle(budget=100)


def test_a_search_that_gives_up_by_itself_is_not_repeated_while_nothing_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_now, "QUICK_STEPS_MAX", 1 << 30)
    searched: list[int] = []
    take = Effort.take

    def counted(self: Effort) -> int:
        searched.append(1)
        return take(self)

    monkeypatch.setattr(Effort, "take", counted)
    site = types_site()
    # The sums of two nodes suffice for each type and for the tasks, but no two nodes do together.
    both = (GresRequest("gpu", "a", 4), GresRequest("gpu", "b", 4))
    site.submit(spec(nodes=2, gpus=both, node_list=("n0",)))
    for _ in range(3):
        assert not site.cycle(budget=100)
    first = len(searched)
    assert first
    assert not site.cycle(budget=100)
    assert len(searched) == first


def test_the_usual_choice_needs_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where it finds a place nor where sums show that there is none."""
    searched: list[int] = []

    def counted(_self: Effort) -> int:
        searched.append(1)
        return 0

    monkeypatch.setattr(Effort, "take", counted)
    site = Site(
        [node(f"n{number}", 8, gres=[gpus(4)]) for number in range(4)],
        [partition("debug", ["n0", "n1", "n2", "n3"], default=True)],
    )
    sizes: list[dict[str, Any]] = [{"tasks": 4}, {"gpus": 6}, {"nodes": 2, "gpus": 4, "tasks_per_gpu": 2}]
    for fields in sizes:
        assert started(site, **fields)
    assert not started(site, gpus=9)
    assert not started(site, tasks=200)
    assert not searched
