"""Faults of a machine: from logs, files and drivers to what a drain says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from spritz.node.health_check import change, main, reason_of
from spritz.node.machine_checks import disk_faults, gpu_faults, kernel_log, link_faults, log_faults

LOG = """\
6,1,0,-;Linux version 6.1
4,812,91,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=77, name=python, Graphics SM Warp Exception
4,813,92,-;NVRM: Xid (PCI:0000:3b:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error) on bank 3
4,814,93,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=77, name=python, GPU has fallen off the bus.
3,815,94,-;I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0
2,816,95,-;EXT4-fs (nvme0n1p2): Remounting filesystem read-only
"""


def test_of_the_kernels_log_faults_of_hardware_count_and_those_of_programs_do_not(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_text(LOG)
    assert log_faults(kernel_log(str(file))) == [
        ("gpu-xid", "Xid 79 on GPU 0000:3b:00 (GPU has fallen off the bus)"),
        ("disk", "EXT4-fs (nvme0n1p2): Remounting filesystem read-only"),
    ]
    assert log_faults(LOG.splitlines()[:2]) == []


def test_a_log_that_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    assert list(kernel_log(str(tmp_path / "none"))) == []


class Nvml:
    """Three GPUs: a healthy one, one with ECC errors and a failed row, one that is lost."""

    class NVMLError(Exception):
        pass

    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 2:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> None: ...

    def nvmlDeviceGetTotalEccErrors(self, gpu: int, _kind: int, _counter: int) -> int:
        return (0, 4)[gpu]

    def nvmlDeviceGetRemappedRows(self, gpu: int) -> tuple[int, int, bool, bool]:
        if gpu == 0:
            raise self.NVMLError("Not Supported")
        return (0, 1, True, True)


def test_gpus_tell_their_errors() -> None:
    nvml: Any = Nvml()
    assert gpu_faults(nvml) == [
        ("gpu-ecc", "GPU 1: 4 uncorrected ECC errors"),
        ("gpu-ecc", "GPU 1: a row of its memory could not be remapped"),
        ("gpu", "GPU 2: GPU is lost"),
    ]


def test_directories_are_written_and_left_as_they_were(tmp_path: Path) -> None:
    assert disk_faults([str(tmp_path)], 0.0) == []
    assert os.listdir(tmp_path) == []
    assert disk_faults([str(tmp_path)], 100.1)[0][0] == "disk"
    assert disk_faults([str(tmp_path / "none")], 0.0) == [("disk", f"{tmp_path}/none: No such file or directory")]


def test_root_does_not_write_through_a_link_that_a_user_could_foresee(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / f".spritz-health-check-{os.getpid()}").symlink_to(victim)
    assert disk_faults([str(shared)], 0.0) == []
    assert victim.read_text() == "kept"


def test_links_are_up(tmp_path: Path) -> None:
    for path, text in (
        ("net/eth0/operstate", "up"),
        ("net/eth1/operstate", "down"),
        ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("infiniband/mlx5_1/ports/1/state", "1: DOWN"),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(f"{text}\n")
    assert link_faults(["eth0", "mlx5_0"], tmp_path) == []
    assert link_faults(["eth1", "mlx5_1", "eth9"], tmp_path) == [
        ("network", "eth1: down"),
        ("network", "mlx5_1: DOWN"),
        ("network", "eth9: is not there"),
    ]


def test_drains_of_others_are_kept() -> None:
    fault = reason_of([("disk", "/tmp: full"), ("gpu", "GPU 2: GPU is lost")])
    assert fault == "health-check: disk: /tmp: full; gpu: GPU 2: GPU is lost"
    assert change(False, "", fault) == "DRAIN"
    assert change(True, fault, fault) == ""
    assert change(True, "health-check: disk: /tmp: full", fault) == "DRAIN"
    assert change(True, "bad fan", fault) == ""
    assert change(True, "spritz-operator: health: m1 gpu-xid", fault) == "DRAIN"
    assert change(True, "spritz-operator: update", fault) == ""
    assert change(True, fault, "") == "RESUME"
    assert change(True, "bad fan", "") == ""
    assert change(True, "spritz-operator: health: m1 gpu-xid", "") == ""


def test_faults_are_printed_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kmsg"
    file.write_text(LOG)
    assert main(["--print", "--kernel-log", str(file), "--directory", str(tmp_path)]) == 0
    assert "gpu-xid: Xid 79 on GPU 0000:3b:00" in capsys.readouterr().out
