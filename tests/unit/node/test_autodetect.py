"""GPUs that are found by themselves, and what a node says of them. Source: gres.conf(5) AutoDetect, Type."""

from __future__ import annotations

import os
import sys
import types

import pytest

from spritz.model.resources import GresCapacity
from spritz.node.hardware import nvml_gpus, present_gres

H100 = "nvidia_h100_80gb_hbm3"
L4 = "nvidia_l4"


def gpus(count: int, kind: str = "", *files: str) -> GresCapacity:
    return GresCapacity(name="gpu", type=kind, count=count, files=files)


@pytest.mark.parametrize(
    ("configured", "found", "present"),
    [
        ((gpus(8),), (gpus(8, H100),), (8,)),
        ((gpus(8),), (gpus(7, H100),), (7,)),  # one fell off the bus
        ((gpus(2),), (gpus(8, H100),), (2,)),  # no more than configured
        ((gpus(8, "h100"),), (gpus(8, H100),), (8,)),  # part of the model's name
        ((gpus(8, "H100"),), (gpus(8, H100),), (8,)),
        ((gpus(8, "a100"),), (gpus(8, H100),), (0,)),
        ((gpus(2, "h100"), gpus(1, "l4")), (gpus(2, H100), gpus(1, L4)), (2, 1)),
        ((gpus(3), gpus(1, "l4")), (gpus(2, H100), gpus(1, L4)), (1, 2)),  # the typed line chooses first
        ((gpus(2, "x", "/dev/a", "/dev/b"),), (), (2,)),  # described by hand
        ((GresCapacity(name="shard", count=40),), (), (40,)),
    ],
)
def test_configured_gpus_count_as_far_as_there_are_devices_of_their_type(
    configured: tuple[GresCapacity, ...], found: tuple[GresCapacity, ...], present: tuple[int, ...]
) -> None:
    assert tuple(line.count for line in present_gres(configured, found)) == present


class FakeNvml(types.ModuleType):
    """NVML with these devices; an error to initialise if there are none."""

    class NVMLError(Exception):
        pass

    def __init__(self, *names: str | bytes) -> None:
        super().__init__("pynvml")
        self.names = names

    def nvmlInit(self) -> None:
        if not self.names:
            raise self.NVMLError

    def nvmlShutdown(self) -> None:
        self.nvmlInit()

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self.names[handle]


def test_what_nvml_finds_is_named_as_slurm_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/nvidiactl")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("NVIDIA H100 80GB HBM3", b"NVIDIA H100 80GB HBM3", "NVIDIA L4"))
    assert [(line.type, line.count, line.first_index) for line in nvml_gpus()] == [(H100, 2, 0), (L4, 1, 2)]


def test_no_gpus_are_found_where_nvml_does_not_start_or_there_is_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    for there in (True, False):
        monkeypatch.setattr(os.path, "exists", lambda path, there=there: there)
        assert nvml_gpus() == ()
