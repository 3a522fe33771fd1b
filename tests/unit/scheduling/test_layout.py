"""What a job gets on an idle cluster. Figures marked 22.05 are what a real Slurm answered to the same options."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.job.record import Sharing
from spritz.model.resources import Allocation, GresCapacity, GresRequest
from tests.unit.scheduling.site import SETTINGS, Site, cpu_ids, cpus, devices, gpus, node, partition, spec


def two_nodes() -> Site:
    """The cluster of the recordings: eight CPUs and two GPUs each."""
    return Site([node(name, 8, gres=[gpus(2)]) for name in ("n3", "n4")])


def only(site: Site, *args: Any, **fields: Any) -> Allocation:
    """The allocation of one job on this site, which must start."""
    job_id = site.submit(spec(*args, **fields))
    return site.cycle()[job_id]


@pytest.mark.parametrize(
    ("options", "given", "tasks"),
    [
        ({"nodes": 2, "tasks": 4}, [3, 1], (3, 1)),
        ({"nodes": 2, "tasks": 12}, [8, 4], (8, 4)),
        ({"tasks": 10}, [8, 2], (8, 2)),
        ({"nodes": (1, 2), "tasks": 4}, [3, 1], (3, 1)),
        ({"nodes": (1, 2)}, [1, 1], (1, 1)),
        ({"nodes": 2, "tasks_per_node": 3}, [3, 3], (3, 3)),
        ({"nodes": 2}, [1, 1], (1, 1)),
    ],
)
def test_tasks_fill_node_after_node_but_leave_one_for_each_that_follows(
    options: dict[str, Any], given: list[int], tasks: tuple[int, ...]
) -> None:
    """22.05"""
    allocation = only(two_nodes(), **options)
    assert list(cpus(allocation).values()) == given
    assert allocation.tasks == tasks


@pytest.mark.parametrize(
    ("options", "indexes", "given"),
    [
        ({"nodes": 2, "gpus": 2}, [[0], [0]], [1, 1]),
        ({"nodes": 2, "gpus": 3}, [[0, 1], [0]], [1, 1]),
        ({"tasks": 2, "gpus_per_task": 1}, [[0, 1]], [2]),
        ({"gpus": 2}, [[0, 1]], [1]),
        ({"nodes": 2, "tasks": 3, "gpus_per_task": 1}, [[0, 1], [0]], [2, 1]),
        ({"gpus": 3, "cpus_per_gpu": 3}, [[0, 1], [0]], [6, 3]),
        ({"nodes": 2, "tasks_per_node": 1, "gpus_per_task": 1}, [[0], [0]], [1, 1]),
        ({"nodes": 2, "gpus_per_task": 1}, [[0], [0]], [1, 1]),
    ],
)
def test_gpus_follow_tasks_and_bring_their_cpus(
    options: dict[str, Any], indexes: list[list[int]], given: list[int]
) -> None:
    """22.05"""
    allocation = only(two_nodes(), **options)
    assert list(devices(allocation).values()) == indexes
    assert list(cpus(allocation).values()) == given


def test_tasks_do_not_straddle_nodes() -> None:
    allocation = only(two_nodes(), tasks=4, cpus_per_task=3)
    assert cpus(allocation) == {"n3": 6, "n4": 6}
    assert allocation.tasks == (2, 2)


def test_as_many_nodes_as_allowed_unless_the_fewest_are_asked_for() -> None:
    assert len(only(two_nodes(), nodes=(1, 2), tasks=4).nodes) == 2
    assert len(only(two_nodes(), nodes=(1, 2), tasks=4, use_min_nodes=True).nodes) == 1


def test_the_smallest_run_of_neighbours_that_suffices_is_taken() -> None:
    site = Site([node(f"n{number}", 1) for number in range(6)])
    blocker = site.submit(spec(1, node_list=("n4",)))
    site.cycle()
    assert only(site, nodes=1).names == ("n5",)
    site.end(blocker)
    assert only(site, nodes=2).names == ("n0", "n1")


def test_low_weight_goes_before_low_position() -> None:
    site = Site([node("n0", 4, weight=9), node("n1", 4), node("n2", 4)])
    assert only(site, nodes=1).names == ("n1",)
    assert only(site, nodes=1, sharing=Sharing.EXCLUSIVE).names == ("n2",)
    assert only(site, nodes=1, sharing=Sharing.EXCLUSIVE).names == ("n0",)


def test_whole_cores_are_given_on_nodes_with_threads() -> None:
    site = Site([node("n0", 8, threads=2)])
    assert cpu_ids(only(site, tasks=1)) == [0, 1]
    assert cpu_ids(only(site, tasks=2, tasks_per_core=1)) == [2, 3, 4, 5]


def test_single_threads_are_given_where_cpus_are_consumable() -> None:
    site = Site([node("n0", 8, threads=2)], settings=structs.replace(SETTINGS, consumable="cpu"))
    assert cpu_ids(only(site, tasks=1)) == [0]
    assert cpu_ids(only(site, tasks=2)) == [1, 2]


def test_whole_sockets_are_given_where_sockets_are_consumable() -> None:
    site = Site([node("n0", 8, sockets=2)], settings=structs.replace(SETTINGS, consumable="socket"))
    assert cpu_ids(only(site, tasks=1)) == [0, 1, 2, 3]


def test_partitions_may_share_the_same_nodes_in_other_pieces() -> None:
    """slurm.conf(5): SelectTypeParameters of a partition replaces the cluster's."""
    nodes = [node("n0", 8, sockets=2, memory=1000)]
    parts = [
        partition("cores", nodes, default=True),
        partition("sockets", nodes, consumable="socket", memory_consumable=False),
    ]
    site = Site(nodes, parts)
    by_core = site.submit(spec(1, memory_mib_per_node=900))
    by_socket = site.submit(spec(1, memory_mib_per_node=900, partitions=("sockets",)))
    another = site.submit(spec(1, memory_mib_per_node=900))
    found = site.cycle()
    assert found.keys() == {by_core, by_socket}
    assert [(part.cpus, part.memory_mib) for part in found[by_core].nodes] == [("1", 900)]
    assert [(part.cpus, part.memory_mib) for part in found[by_socket].nodes] == [("f0", 0)]
    assert site.reason(another) == "Resources"


def test_cores_are_spread_over_sockets_unless_block_is_asked_for() -> None:
    """slurm.conf(5) CR_CORE_DEFAULT_DIST_BLOCK: without it cores are allocated cyclically across the sockets."""
    assert cpu_ids(only(Site([node("n0", 8, sockets=2)]), tasks=2)) == [0, 4]
    assert cpu_ids(only(Site([node("n0", 8, sockets=2)]), tasks=2, distribution="block:block")) == [0, 1]


def test_tasks_per_socket_are_kept() -> None:
    site = Site([node("n0", 8, sockets=2)])
    assert cpu_ids(only(site, tasks=2, tasks_per_socket=1)) == [0, 4]
    assert site.submit(spec(3, tasks_per_socket=1, nodes=1)) not in site.cycle()


def test_cpus_near_the_gpus_are_taken() -> None:
    site = Site([node("n0", 8, sockets=2, gres=[gpus(1, first=0, cores="0-3"), gpus(1, first=1, cores="4-7")])])
    first, second = only(site, tasks=2, gpus_per_node=1), only(site, tasks=2, gpus_per_node=1)
    assert (devices(first), cpu_ids(first)) == ({"n0": [0]}, [0, 1])
    assert (devices(second), cpu_ids(second)) == ({"n0": [1]}, [4, 5])


def test_enforced_binding_gives_no_cpu_that_is_far_from_the_gpus() -> None:
    site = Site([node("n0", 8, sockets=2, gres=[gpus(2, cores="0-3")])])
    wide = site.submit(spec(5, gpus_per_node=1, gres_flags=("enforce-binding",)))
    fitting = site.submit(spec(4, gpus_per_node=1, gres_flags=("enforce-binding",)))
    started = site.cycle()
    assert cpu_ids(started[fitting]) == [0, 1, 2, 3]
    assert wide not in started


def test_gpus_of_a_type_are_of_that_type() -> None:
    site = Site([node("n0", 8, gres=[gpus(2, "a100"), gpus(2, "h100", first=2)])])
    allocation = only(site, gpus_per_node="h100:1")
    assert [(gres.type, gres.indexes) for gres in allocation.nodes[0].gres] == [("h100", "4")]
    both = only(site, gres_per_node=(GresRequest("gpu", "a100", 2), GresRequest("gpu", "h100", 1)))
    assert devices(both) == {"n0": [0, 1, 3]}


def test_shards_lie_on_one_gpu_which_is_no_longer_given_whole() -> None:
    shards = GresCapacity(name="shard", count=8, per_device=4)
    site = Site([node("n0", 8, gres=[gpus(2), shards])])
    three = (GresRequest("shard", "", 3),)
    assert devices(only(site, gres_per_node=three), "shard") == {"n0": [0]}
    assert devices(only(site, gpus=1)) == {"n0": [1]}
    blocked = site.submit(spec(gres_per_node=three))
    assert blocked not in site.cycle()
    assert devices(only(site, gres_per_node=(GresRequest("shard", "", 1),), time_limit_minutes=1), "shard") == {
        "n0": [0]
    }


def test_memory_is_counted_by_cpu_by_node_or_by_gpu() -> None:
    site = Site([node("n0", 8, memory=100, gres=[gpus(2)])])
    assert only(site, tasks=2, memory_mib_per_cpu=10).memory_mib == 20
    assert only(site, tasks=1, memory_mib_per_node=30).memory_mib == 30
    assert only(site, gpus=2, memory_mib_per_gpu=20).memory_mib == 40
    assert site.submit(spec(2, memory_mib_per_cpu=6)) not in site.cycle()


def test_mem_0_is_all_memory_of_the_node() -> None:
    site = Site([node("n0", 8, memory=100)])
    assert only(site, tasks=1, memory_mib_per_node=0).memory_mib == 100
    assert site.submit(spec(1)) not in site.cycle()


def test_exclusive_gives_all_cpus_and_gpus_of_an_idle_node() -> None:
    site = two_nodes()
    only(site, tasks=1)
    allocation = only(site, tasks=1, sharing=Sharing.EXCLUSIVE)
    assert cpus(allocation) == {"n4": 8}
    assert devices(allocation) == {"n4": [0, 1]}
    assert allocation.whole_nodes


def test_exclusive_to_the_user_lets_in_only_the_same_user() -> None:
    site = Site([node("n0", 8)])
    only(site, tasks=1, sharing=Sharing.USER, uid=1001)
    assert site.submit(spec(1, sharing=Sharing.USER, uid=1002)) not in site.cycle()
    assert site.submit(spec(1, sharing=Sharing.USER, uid=1001, time_limit_minutes=1)) in site.cycle()


def test_oversubscribed_cpus_are_shared_by_as_many_jobs_as_allowed() -> None:
    nodes = [node("n0", 2)]
    site = Site(nodes, [partition("p", nodes, default=True, oversubscribe="FORCE:2")])
    jobs = [site.submit(spec(2)) for _ in range(3)]
    assert sorted(site.cycle()) == jobs[:2]
    site.end(jobs[0])
    assert list(site.cycle()) == jobs[2:]


def test_contiguous_nodes_are_neighbours() -> None:
    site = Site([node(f"n{number}", 1) for number in range(5)])
    only(site, node_list=("n1",), nodes=1)
    assert only(site, nodes=3, contiguous=True).names == ("n2", "n3", "n4")


def test_features_choose_nodes() -> None:
    def fresh() -> Site:
        kinds = [("a",), ("a",), ("b",), ("b", "c")]
        return Site([node(f"n{number}", 4, features=kind) for number, kind in enumerate(kinds)])

    assert only(fresh(), features="b&c").names == ("n3",)
    assert only(fresh(), nodes=2, features="[a|b]").names == ("n0", "n1")
    assert only(fresh(), nodes=3, features="[a*2&b*1]").names == ("n0", "n1", "n2")
    assert only(fresh(), prefer="c").names == ("n3",)
    assert only(fresh(), prefer="absent").names == ("n0",)
    assert only(fresh(), exclude=("n0", "n1"), nodes=1).names == ("n2",)
    assert only(fresh(), node_list=("n2", "n0")).names == ("n0", "n2")


def test_mincpus_and_tmp_are_minima_of_every_node() -> None:
    site = Site([node("n0", 2, tmp=10), node("n1", 8, tmp=5), node("n2", 8, tmp=50)])
    assert cpus(only(site, tasks=1, cpus_per_node_min=4)) == {"n1": 4}
    assert only(site, tasks=1, tmp_mib=20).names == ("n2",)


def test_max_cpus_per_node_is_for_all_jobs_of_the_partition() -> None:
    nodes = [node("n0", 8)]
    site = Site(nodes, [partition("p", nodes, default=True, max_cpus_per_node=3), partition("q", nodes)])
    only(site, tasks=2)
    assert site.submit(spec(2)) not in site.cycle()
    assert cpus(only(site, tasks=5, partitions=("q",))) == {"n0": 5}


def test_spread_job_takes_a_task_to_every_node() -> None:
    site = Site([node(f"n{number}", 8) for number in range(4)])
    assert only(site, tasks=4, spread=True).tasks == (1, 1, 1, 1)


def test_least_loaded_nodes_come_first_with_lln() -> None:
    site = Site([node("n0", 8), node("n1", 8)], settings=structs.replace(SETTINGS, least_loaded=True))
    assert [only(site, tasks=1).names[0] for _ in range(4)] == ["n0", "n1", "n0", "n1"]


def test_overcommitted_tasks_share_a_cpu() -> None:
    allocation = only(Site([node("n0", 2)]), tasks=6, overcommit=True)
    assert (cpus(allocation), allocation.tasks) == ({"n0": 1}, (6,))


def test_reserved_cpus_and_memory_are_left_to_the_system() -> None:
    config = node("n0", 8, memory=100)
    capacity = structs.replace(config.capacity, cpus_reserved="3", memory_reserved_mib=40)
    site = Site([structs.replace(config, capacity=capacity)])
    allocation = only(site, tasks=6, memory_mib_per_node=60)
    assert cpu_ids(allocation) == [2, 3, 4, 5, 6, 7]
    assert site.submit(spec(1, memory_mib_per_node=1)) not in site.cycle()


def test_arbitrary_distribution_puts_each_task_where_it_is_named() -> None:
    """22.05, with a SLURM_HOSTFILE"""
    allocation = only(two_nodes(), tasks=4, nodes=2, distribution="arbitrary", node_list=("n4", "n3", "n4", "n4"))
    assert (cpus(allocation), allocation.tasks) == ({"n3": 1, "n4": 3}, (1, 3))


def test_the_cluster_may_fill_sockets_one_after_the_other() -> None:
    """slurm.conf(5) CR_CORE_DEFAULT_DIST_BLOCK; a --distribution of the job goes before it."""
    site = Site([node("n1", 8, sockets=2)], settings=structs.replace(SETTINGS, block_cores=True))
    plain, cyclic = site.submit(spec(2)), site.submit(spec(2, distribution="block:cyclic"))
    started = site.cycle()
    assert cpu_ids(started[plain]) == [0, 1]
    assert cpu_ids(started[cyclic]) == [2, 4]
