"""What is read of GPUs for metrics, with drivers' libraries replaced, and the files for dcgm-exporter."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spritz.model.job.record import Job, JobSpec
from spritz.model.node.record import GpuSample
from spritz.model.resources import Allocation, GresAllocation, NodeAllocation
from spritz.node.metrics.gpu_use import GpuUse
from spritz.node.metrics.job_mapping import gpus_of, write_mapping


class NvmlError(Exception):
    pass


def fail(*_: object) -> None:
    raise NvmlError


def test_figures_of_both_makers_and_what_a_gpu_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=3 << 20, total=80 << 30),
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=57),
        nvmlDeviceGetPowerUsage=lambda device: 312_500,
        nvmlDeviceGetTemperature=fail,
    )
    amd = SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["a"],
        amdsmi_get_gpu_vram_usage=lambda device: {"vram_used": 5, "vram_total": 196_608},
        amdsmi_get_gpu_activity=lambda device: {"gfx_activity": 99},
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "amdsmi", amd)
    use = GpuUse()
    assert use.read() == (
        GpuSample(index=0, busy_percent=57, memory_used_mib=3, memory_mib=81_920, milliwatts=312_500),
        GpuSample(index=1, busy_percent=99, memory_used_mib=5, memory_mib=196_608),
    )
    nvml.nvmlDeviceGetCount = fail
    assert [gpu.index for gpu in use.read()] == [0], "the other driver is read although one fails"


def a_job(number: int, mask: str) -> Job:
    gpus = GresAllocation(name="gpu", count=1, indexes=mask)
    shares = (NodeAllocation(node="n1", cpus="1", gres=(gpus,)), NodeAllocation(node="n2", cpus="1"))
    return Job(id=number, spec=JobSpec(), allocation=Allocation(partition="main", nodes=shares))


def test_files_say_which_jobs_have_which_gpu_and_go_with_them(tmp_path: Path) -> None:
    jobs = [a_job(7, "3"), a_job(12, "2")]
    assert gpus_of("n1", jobs) == {0: [7], 1: [7, 12]}
    assert gpus_of("n2", jobs) == {}
    directory = tmp_path / "map"
    write_mapping(str(directory), gpus_of("n1", jobs))
    assert {path.name: path.read_text() for path in directory.iterdir()} == {"0": "7\n", "1": "7\n12\n"}
    (directory / "README").write_text("stays")
    write_mapping(str(directory), gpus_of("n1", jobs[1:]))
    assert {path.name: path.read_text() for path in directory.iterdir()} == {"1": "12\n", "README": "stays"}
