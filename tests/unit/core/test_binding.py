"""CPU and GPU masks of tasks. Sources: srun(1) --cpu-bind, --distribution, --gpu-bind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spritz.core.step.binding import Hardware, cpu_masks, gpu_masks, names_others, near_cpus
from spritz.model.commands.cluster import Configure
from spritz.model.node.partition import Partition
from spritz.model.resources import GresCapacity, NodeCapacity
from spritz_testing.builders import World

TWO_SOCKETS = Hardware(NodeCapacity(cpus=8, sockets=2, cores_per_socket=4))
THREADS = Hardware(NodeCapacity(cpus=8, sockets=1, cores_per_socket=4, threads_per_core=2))
FLAT = Hardware(NodeCapacity(cpus=8, cores_per_socket=8))


def bound(
    tasks: int, each: int, bind: str = "", distribution: str = "", hardware: Hardware = FLAT, default: str = ""
) -> list[str]:
    """Masks of all eight CPUs dealt out, in binary."""
    return [format(mask, "08b") for mask in cpu_masks(tasks, 0xFF, each, hardware, bind, distribution, default)]


def test_tasks_that_use_up_the_cpus_are_bound_and_others_are_not() -> None:
    assert bound(2, 4) == ["00001111", "11110000"]
    assert bound(2, 3) == []
    assert bound(3, 4) == []
    assert bound(2, 4, "none") == []


def test_cyclic_over_sockets_is_the_default_and_block_fills_one_first() -> None:
    assert bound(4, 2, hardware=TWO_SOCKETS) == ["00000011", "00110000", "00001100", "11000000"]
    assert bound(4, 2, distribution="block:block", hardware=TWO_SOCKETS) == [
        "00000011",
        "00001100",
        "00110000",
        "11000000",
    ]
    assert bound(4, 2, distribution="block:fcyclic", hardware=TWO_SOCKETS) == [
        "00010001",
        "00100010",
        "01000100",
        "10001000",
    ]


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ("threads", ["00000001", "00000010"]),
        ("cores", ["00000011", "00000011"]),
        ("rank", ["00000001", "00000010"]),
        ("map_cpu:7,0", ["10000000", "00000001"]),
        ("mask_cpu:0xf0,0x0f", ["11110000", "00001111"]),
        ("sockets", ["11111111", "11111111"]),
    ],
)
def test_cpu_bind_says_how_wide(bind: str, expected: list[str]) -> None:
    assert bound(2, 1, bind, hardware=THREADS) == expected


@pytest.mark.parametrize(
    ("tasks", "each", "hardware", "expected"),
    [
        (2, 1, TWO_SOCKETS, ["00001111", "11110000"]),  # as many as sockets
        (4, 1, THREADS, ["00000011", "00000011", "00001100", "00001100"]),  # as many as cores
        (8, 1, THREADS, [format(1 << cpu, "08b") for cpu in range(8)]),
        (3, 1, THREADS, []),
    ],
)
def test_tasks_as_many_as_whole_parts_are_bound_to_these(
    tasks: int, each: int, hardware: Hardware, expected: list[str]
) -> None:
    """slurm.conf(5) TaskPluginParam: automatic binding, and what `autobind=` adds."""
    assert bound(tasks, each, hardware=hardware) == expected
    fallback = ["00000001", "00000010", "00000100"]
    assert bound(tasks, each, hardware=hardware, default="autobind=threads") == (expected or fallback)
    assert bound(tasks, each, hardware=hardware, default="none") == []


def test_parts_that_the_step_has_not_whole_do_not_count() -> None:
    assert cpu_masks(2, 0b00110011, 1, TWO_SOCKETS, "", "") == ()


def test_a_default_binds_where_the_user_says_nothing() -> None:
    assert bound(2, 1, hardware=THREADS, default="cores", distribution="block:block") == ["00000011", "00000011"]
    assert bound(2, 1, "threads", hardware=THREADS, default="cores") == ["00000001", "00000010"]
    assert bound(2, 4, "none", default="cores") == []


def test_domains_are_sockets_and_one_thread_is_the_first_of_each_core() -> None:
    assert bound(2, 1, "map_ldom:1,0", hardware=TWO_SOCKETS) == ["11110000", "00001111"]
    assert bound(1, 1, "mask_ldom:0x3", hardware=TWO_SOCKETS) == ["11111111"]
    assert bound(4, 1, "one_thread,threads", hardware=THREADS) == ["00000001", "00000100", "00010000", "01000000"]


@pytest.mark.parametrize(
    ("nodes", "partition", "cluster", "expected"),
    [
        (("threads", "threads"), "sockets", "none", "1"),
        (("threads", "cores"), "sockets", "none", "ff"),
        (("threads", ""), "", "sockets", "ff"),
        (("", ""), "threads", "sockets", "1"),
    ],
)
def test_nodes_that_agree_say_how_then_the_partition_then_the_cluster(
    make_world: Callable[..., World], nodes: tuple[str, str], partition: str, cluster: str, expected: str
) -> None:
    """slurm.conf(5) CpuBind of NodeName and PartitionName, TaskPluginParam."""
    debug = Partition(name="debug", nodes=("n1", "n2"), default=True, cpu_bind=partition)
    world = make_world(nodes=2, hardware=NodeCapacity(cpus=8, cores_per_socket=8), partitions=(debug,))
    configs = tuple(replace(node, cpu_bind=bind) for node, bind in zip(world.nodes, nodes, strict=True))
    settings = replace(world.settings, cpu_bind=cluster)
    world.do(Configure(settings=settings, nodes=configs, partitions=world.partitions))
    job = world.submit(nodes_min=2, tasks=2)
    world.start(job, "n1", "n2", cpus=8)
    assert world.step(job, tasks=2, nodes_min=2).nodes[0].cpus_by_task == (expected,)


@pytest.mark.parametrize(("bind", "refused"), [("map_cpu:1,2", False), ("map_cpu:1,7", True), ("mask_cpu:0xe,2", True)])
def test_a_list_with_cpus_that_are_not_the_steps_is_known(bind: str, refused: bool) -> None:
    assert names_others(bind, 2, 0b0110) is refused
    assert names_others(f"verbose,{bind},0xff", 2, 0b0110) is refused, "what no task takes is not looked at"
    assert not names_others("rank", 2, 0b0110)


def test_a_cpu_that_is_not_the_steps_falls_back_to_all_that_is() -> None:
    assert cpu_masks(1, 0b0110, 1, FLAT, "map_cpu:7", "") == (0b0110,)


@given(
    st.integers(1, 8), st.integers(1, 8), st.integers(1, 0xFF), st.sampled_from(["", "block:block", "cyclic:fcyclic"])
)
def test_masks_are_disjoint_and_within_the_steps_cpus(tasks: int, each: int, cpus: int, distribution: str) -> None:
    masks = cpu_masks(tasks, cpus, each, TWO_SOCKETS, "threads", distribution)
    seen = 0
    for mask in masks:
        assert mask.bit_count() == each
        assert not mask & seen
        assert not mask & ~cpus
        seen |= mask
    assert masks or tasks * each > cpus.bit_count()


@pytest.mark.parametrize(
    ("bind", "per_task", "expected"),
    [
        ("", 0, ()),
        ("", 1, (0b0010, 0b1000)),
        ("none", 1, ()),
        ("single:1", 0, (0b0010, 0b1000)),
        ("single:2", 0, (0b0010, 0b0010)),
        ("per_task:1", 0, (0b0010, 0b1000)),
        ("map_gpu:1,0", 0, (0b1000, 0b0010)),
        ("mask_gpu:3,2", 0, (0b1010, 0b1000)),
        ("closest", 0, (0b0010, 0b1000)),
    ],
)
def test_gpu_bind_gives_devices_of_the_step(bind: str, per_task: int, expected: tuple[int, ...]) -> None:
    """Devices 1 and 3 are the step's; lists count them from 0, as a job sees them."""
    near = {1: 0b0001, 3: 0b1110}
    shares = [(0b1010, per_task)] if per_task else []
    assert gpu_masks(2, 0b1010, shares, bind, (0b0001, 0b0010), near) == expected


def test_each_task_gets_its_gpus_of_every_type() -> None:
    """--gpus-per-task=a100:1,h100:1 on a node whose first two devices are a100."""
    assert gpu_masks(2, 0b1111, [(0b0011, 1), (0b1100, 1)], "", (), {}) == (0b0101, 0b1010)


def test_near_cpus_come_from_gres_conf() -> None:
    gres = (GresCapacity(name="gpu", count=1, cores="0-1"), GresCapacity(name="gpu", count=1, first_index=1, cores="3"))
    capacity = NodeCapacity(cpus=8, cores_per_socket=4, threads_per_core=2, gres=gres)
    assert near_cpus(capacity) == {0: 0b1111, 1: 0b11000000}
