"""SchedulerParameters=gpu_fragmentation: GPUs that belong together are kept together for what is usual."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.resources import GresCapacity, GresRequest
from spritz.scheduling.placement.fragment import part_of, workload_of
from spritz.scheduling.view.sharing.fragmentation import fragments
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, spec

if TYPE_CHECKING:
    from spritz.scheduling.placement.fragment import Workload
    from spritz.scheduling.view.request import Request

BY_FRAGMENT = replace(SETTINGS, scheduler_parameters=(("gpu_fragmentation", ""),))


def placed(settings: ClusterSettings, *, weights: tuple[int, int] = (1, 1)) -> str:
    """Where four GPUs are taken, of eight free ones or of four, while jobs of eight wait."""
    nodes = [node(f"n{i}", 64, gres=[gpus(8)], weight=weights[i - 1]) for i in (1, 2)]
    site = Site(nodes, settings=settings)
    site.submit(spec(1, gpus_per_node=4, node_list=("n2",)), priority=9)
    site.cycle()
    for _ in range(5):
        site.submit(spec(1, gpus_per_node=8, begin_at=1e9), priority=0)
    job = site.submit(spec(1, gpus_per_node=4), priority=5)
    return site.cycle()[job].names[0]


def test_a_whole_node_is_left_to_jobs_that_need_one() -> None:
    assert placed(SETTINGS) == "n1"
    assert placed(BY_FRAGMENT) == "n2"


def test_weight_goes_first() -> None:
    assert placed(BY_FRAGMENT, weights=(1, 5)) == "n1"


def test_a_job_without_gpus_takes_cpus_that_gpus_do_not_need() -> None:
    def where(settings: ClusterSettings) -> str:
        nodes = [node("n1", 16, gres=[gpus(4)]), node("n2", 16, gres=[gpus(4)])]
        site = Site(nodes, settings=settings)
        site.submit(spec(1, gpus_per_node=4, node_list=("n2",)), priority=9)
        site.submit(spec(1, gpus_per_node=1, cpus_per_task=4), priority=8)
        site.cycle()
        for _ in range(5):
            site.submit(spec(1, gpus_per_node=1, cpus_per_task=4, begin_at=1e9), priority=0)
        job = site.submit(spec(1, cpus_per_task=10), priority=5)
        return site.cycle()[job].names[0]

    assert where(BY_FRAGMENT) == "n2"


def test_a_share_goes_where_it_spoils_least() -> None:
    """A started GPU has room for it: none of the whole ones of the other node is touched."""

    def devices(settings: ClusterSettings) -> str:
        lines = [gpus(2), GresCapacity(name="shard", count=8, per_device=4)]
        site = Site([node(f"n{i}", 8, gres=lines) for i in (1, 2)], settings=settings)
        share = spec(1, gres_per_node=(GresRequest("shard", "", 2),))
        site.submit(replace(share, node_list=("n2",)), priority=9)
        site.cycle()
        for _ in range(3):
            site.submit(spec(1, gpus_per_node=2), priority=0)
        job = site.submit(share, priority=5)
        return site.cycle()[job].names[0]

    assert devices(SETTINGS) == "n1"
    assert devices(BY_FRAGMENT) == "n2"


def test_of_nodes_alike_the_first_is_taken() -> None:
    """Not one of the shortest run of neighbours: what is nearly alike is packed one after another."""

    def where(settings: ClusterSettings) -> str:
        site = Site([node(f"n{i}", 16, gres=[gpus(4)]) for i in range(1, 6)], settings=settings)
        site.submit(spec(1, gpus_per_node=4, node_list=("n4",)), priority=9)
        site.cycle()
        job = site.submit(spec(1, 1, gpus_per_node=1), priority=5)
        return site.cycle()[job].names[0]

    assert where(SETTINGS) == "n5"
    assert where(BY_FRAGMENT) == "n1"


def workload_now(site: Site) -> Workload | None:
    snapshot = site.projection.snapshot(site.now)
    return workload_of(snapshot.eligibility, site.projection.table)


def points_by_hand(site: Site, workload: Workload, request: Request) -> list[int | None]:
    """Of each node, from its row; None without GPUs enough."""
    table, (cpus, gpu, milli, _kind) = site.projection.table, part_of(request, {"shard": 4})
    assert workload.tasks is not None
    found: list[int | None] = []
    for index, row in enumerate(table.rows):
        left = row.shares_on_devices("shard")
        free = [left.get(device, 0) * 250 for device in range(4)]
        after = list(free)
        if sum(one >= milli for one in free) < gpu:
            found.append(None)
            continue
        if gpu and milli == 1000:
            for device in [device for device in range(4) if free[device] == 1000][:gpu]:
                after[device] = 0
        elif gpu:
            roomy = [device for device in range(4) if free[device] >= milli]
            after[min(roomy, key=free.__getitem__)] -= milli
        cpu = int(table.cpus[index]) * 1000
        now, then = (
            fragments(np.array([have]), np.array([some]), workload.model_of[index : index + 1], workload.tasks)
            for have, some in ((cpu, free), (max(0, cpu - cpus), after))
        )
        found.append(int(100 / (1 + np.exp(-(now[0] - then[0]) / 1000))))
    return found


@given(st.integers(0, 1 << 30))
@hypothesis_settings(max_examples=25, deadline=None)
def test_cached_scores_equal_recomputed_ones(seed: int) -> None:
    random = Random(seed)
    lines = [gpus(4), GresCapacity(name="shard", count=16, per_device=4)]
    site = Site([node(f"n{i}", random.choice([8, 16]), gres=lines) for i in range(6)], settings=BY_FRAGMENT)
    kinds = [
        spec(1, 1, gpus_per_node=1),
        spec(1, 1, gpus_per_node=2, cpus_per_task=3),
        spec(1, 1, gres_per_node=(GresRequest("shard", "", random.randint(1, 4)),)),
        spec(1, 1, gres_per_node=(GresRequest("shard", "", 1),), cpus_per_task=2),
        spec(1, 1, cpus_per_task=4),
    ]
    running: list[int] = []
    for _ in range(12):
        if running and random.random() < 0.3:
            site.end(running.pop(random.randrange(len(running))))
        site.submit(random.choice(kinds), priority=1)
        running += site.cycle()
        site.now += random.choice([1, 100])
        snapshot = site.projection.snapshot(site.now)
        workload = workload_of(snapshot.eligibility, site.projection.table)
        if workload is None or workload.tasks is None:
            continue
        for record in site.projection.records.values():
            if record.request is not None:
                every = np.arange(6)
                kept = workload.points(snapshot.table.fork(), record.request, every, workload.tasks).tolist()
                right = points_by_hand(site, workload, record.request)
                assert [None if point is None else one for one, point in zip(kept, right, strict=True)] == right


def test_a_workload_that_hardly_changes_stays_as_it_is() -> None:
    site = Site([node(f"n{i}", 64, gres=[gpus(8)]) for i in range(4)], settings=BY_FRAGMENT)
    for count in (1, 2):
        for _ in range(60):
            site.submit(spec(1, 1, gpus_per_node=count, begin_at=1e9), priority=0)
    before = workload_now(site)
    site.now += 100
    site.submit(spec(1, 1, gpus_per_node=2, begin_at=1e9), priority=0)
    assert workload_now(site) is before
    for _ in range(20):
        site.submit(spec(1, 1, gpus_per_node=8, begin_at=1e9), priority=0)
    site.now += 100
    assert workload_now(site) is not before


def test_one_gpu_for_two_nodes_is_not_given_on_one() -> None:
    site = Site([node(f"n{i}", 4, gres=[gpus(2)]) for i in range(2)], settings=BY_FRAGMENT)
    site.submit(spec(nodes=2, gpus=1))
    assert site.cycle() == {}
