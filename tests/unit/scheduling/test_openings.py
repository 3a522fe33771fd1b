"""The compiled search for openings says what the one in numpy says, and counts what capacity says."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from spritz.model.job.record import JobSpec, Sharing
from spritz.scheduling import kernels
from spritz.scheduling.placement import scheme
from spritz.scheduling.placement.columns import capacity_columns, least_counts, needed
from spritz.scheduling.placement.earliest import earliest
from spritz.scheduling.placement.place import place
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.view.request import Grain, Request
from spritz.scheduling.view.resolve import resolve
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, spec

MEMORY = structs.replace(SETTINGS, default_memory_mib_per_cpu=50)
CPUS = structs.replace(MEMORY, consumable=Grain.CPU.value)
UNCOUNTED = structs.replace(CPUS, memory_consumable=False)


def some_spec(rng: random.Random) -> JobSpec:
    tasks, nodes = rng.randint(1, 6), rng.choice([None, 1, 2, 3])
    fields: dict[str, Any] = {"cpus_per_task": rng.choice([1, 1, 2, 3]), "time_limit_minutes": rng.randint(1, 40)}
    more: list[dict[str, Any]] = [
        {"gpus_per_node": rng.choice([1, "a:1", 3])},
        {"gpus_per_task": 1},
        {"gpus": rng.randint(1, 4)},
        {"memory_mib_per_node": rng.randint(1, 500)},
        {"memory_mib_per_node": 0},
        {"memory_mib_per_cpu": rng.randint(1, 200)},
        {"sharing": Sharing.EXCLUSIVE},
        {"tasks_per_node": rng.randint(1, 3)},
        {"cpus_per_node_min": rng.randint(1, 6)},
        {"threads_per_core": 1},
        {"gpus": 2, "cpus_per_gpu": 2},
        {"gpus_per_node": 1, "memory_mib_per_gpu": 100},
        {"tmp_mib": 50},
    ]
    for some in rng.sample(more, rng.choice([0, 1, 1, 2])):
        fields.update(some)
    return spec(max(tasks, nodes or 1), nodes, **fields)


def some_site(rng: random.Random, threads: int) -> Site:
    """Busy nodes, some with GPUs of two types, and promises to those that wait."""
    memory = rng.choice([(400, 1000), (1000,)])
    nodes = [
        node(
            f"n{number}",
            8,
            threads=threads,
            gres=[gpus(2, "a"), gpus(2, "b", first=2)] if number % 2 else [],
            memory=rng.choice(memory),
            tmp=rng.choice([0, 100]),
            weight=rng.choice([1, 1, 2]),
        )
        for number in range(7)
    ]
    site = Site(nodes, settings=rng.choice([SETTINGS, MEMORY, CPUS, UNCOUNTED]))
    for _ in range(12):
        site.submit(some_spec(rng))
    site.cycle()
    site.cycle()
    site.now += 30
    return site


def requests(site: Site, rng: random.Random) -> list[Request]:
    return [resolve(some_spec(rng), site.partitions[0], site.settings) for _ in range(12)]


@pytest.mark.skipif(not kernels.compiled, reason="installed without a C compiler")
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_and_numpy_find_the_same_starts(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(threads)
    later = 0
    for _ in range(12):
        site = some_site(rng, threads)
        snapshot = site.projection.snapshot(site.now)
        for request in requests(site, rng):
            found = []
            for compiled in (True, False):
                monkeypatch.setattr(kernels, "compiled", compiled)
                found.append(earliest(site.projection.profile, request, snapshot.eligibility, site.now))
            assert found[0] == found[1]
            later += found[0] is not None and found[0][0] > site.now
    assert later > 15


@pytest.mark.skipif(not kernels.compiled, reason="installed without a C compiler")
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_and_numpy_take_the_same_nodes(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the table as it is, among all nodes or some, and with nodes that are busy elsewhere before others."""
    rng = random.Random(threads)
    several = compared = 0
    for _ in range(25):
        site = some_site(rng, threads)
        table, eligibility = site.projection.table, site.projection.eligibility
        other = some_site(rng, threads).projection.table
        for request in requests(site, rng):
            within = rng.choice([None, np.array(sorted(rng.sample(range(7), 5)))])
            prefer = rng.choice([None, other])
            found = []
            for compiled in (True, False):
                monkeypatch.setattr(kernels, "compiled", compiled)
                found.append(place(table, request, eligibility, prefer, within))
            assert found[0] == found[1], request
            monkeypatch.setattr(kernels, "compiled", True)
            compared += scheme.scheme_for(eligibility, table, request, eligibility.choices(request)[0]) is not None
            several += found[0] is not None and len(found[0].nodes) > 1
    assert several > 15
    assert compared > 150


@pytest.mark.parametrize("threads", [1, 2])
def test_counts_that_suffice_are_those_with_which_a_node_can_serve(threads: int) -> None:
    rng = random.Random(threads)
    stated = 0
    for _ in range(12):
        site = some_site(rng, threads)
        table = site.projection.table
        every = np.arange(len(table.rows))
        columns: list[Any] = [table.cpus, table.core_cpus, table.memory, table.idle, *table.gres.values()]
        for request in requests(site, rng):
            target = target_of(request)
            tasks = target.tasks_per_node if target.tasks is None else 1
            least = least_counts(table, request, tasks)
            if least is None:
                continue
            stated += 1
            serves = capacity_columns(table, request, every)[0] >= tasks
            for column, count in needed(table, request):
                serves &= column >= count
            enough = table.up & (table.tmp >= request.tmp_mib)
            for column_place, count in least.items():
                enough &= columns[column_place] >= count
            assert enough.tolist() == serves.tolist(), request
    assert stated > 40


def test_what_more_than_counts_decides_is_left_to_the_long_way() -> None:
    site = some_site(random.Random(1), 2)
    table, home = site.projection.table, site.partitions[0]
    for some in (spec(1, overcommit=True), spec(1, tasks_per_core=1), spec(1, memory_mib_per_node=0)):
        assert least_counts(table, resolve(some, home, site.settings), 1) is None
