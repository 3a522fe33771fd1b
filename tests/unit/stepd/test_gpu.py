"""Usage of GPUs by processes, from what NVML says; NVML itself is stood in for here."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from spritz.stepd.resources.gpu import Gpus


class Nvml(ModuleType):
    """Two GPUs. `samples` are (device, pid, time, percent)."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.memory: dict[int, dict[int, int | None]] = {0: {10: 100, 11: None}, 1: {10: 50}}
        self.samples = [(0, 10, 1, 90), (0, 10, 2, 40), (1, 10, 2, 30), (1, 99, 2, 5)]
        self.broken = False

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        if self.broken:
            raise self.NVMLError
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.memory[device].items()]

    def nvmlDeviceGetProcessUtilization(self, device: int, since: int) -> list[Any]:
        found = [
            SimpleNamespace(pid=pid, timeStamp=at, smUtil=percent)
            for where, pid, at, percent in self.samples
            if where == device and at > since
        ]
        if not found:
            raise self.NVMLError("not found")
        return found


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    made = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_memory_and_the_newest_utilisation_are_added_up_over_gpus(nvml: Nvml) -> None:
    gpus = Gpus()
    assert gpus.read() == {10: (70, 150), 11: (0, 0), 99: (5, 0)}
    # Nothing new: NVML says so by an error.
    assert gpus.read() == {10: (0, 150), 11: (0, 0)}


def test_a_driver_that_fails_is_not_asked_again(nvml: Nvml) -> None:
    gpus = Gpus()
    nvml.broken = True
    assert gpus.read() == {}
    nvml.broken = False
    assert gpus.read() == {}


def test_without_a_library_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus().read() == {}
