"""SchedulerParameters=gpu_fragmentation: GPUs that belong together are kept together for what is usual."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.model.cluster import ClusterSettings
from spritz.model.resources import GresCapacity, GresRequest
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, spec

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
