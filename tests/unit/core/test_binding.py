"""CPU and GPU masks of tasks. Sources: srun(1) --cpu-bind, --distribution, --gpu-bind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.core.binding import Hardware, cpu_masks, gpu_masks, near_cpus
from spritz.model.resources import GresCapacity, NodeCapacity

TWO_SOCKETS = Hardware(NodeCapacity(cpus=8, sockets=2, cores_per_socket=4))
THREADS = Hardware(NodeCapacity(cpus=8, sockets=1, cores_per_socket=4, threads_per_core=2))
FLAT = Hardware(NodeCapacity(cpus=8, cores_per_socket=8))


def bound(tasks: int, each: int, bind: str = "", distribution: str = "", hardware: Hardware = FLAT) -> list[str]:
    """Masks of all eight CPUs dealt out, in binary."""
    return [format(mask, "08b") for mask in cpu_masks(tasks, 0xFF, each, hardware, bind, distribution)]


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
