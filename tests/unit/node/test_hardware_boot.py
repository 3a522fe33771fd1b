"""What identifies the boot of a node: of its machine, or of the container that it runs in."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from spritz.model.node_daemon.reports import is_same_boot
from spritz.node.hardware.detection import _boot_id, uptime_seconds

FIRST = "pid:[4026531836]"


def machine(root: Path, namespace: str, started_ticks: int, uptime: float = 0.0) -> str:
    """A /proc whose first process started then."""
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/1").mkdir()
    (root / "proc/self/ns/pid").symlink_to(namespace)
    (root / "proc/sys/kernel/random/boot_id").write_text("0f-a1\n")
    (root / "proc/uptime").write_text(f"{uptime or time.clock_gettime(time.CLOCK_BOOTTIME)} 1.0\n")
    (root / "proc/1/stat").write_text(f"1 (in) it) S 0{' 0' * 17} {started_ticks} 0 0\n")
    return str(root)


def test_a_machine_is_known_by_the_kernels_id_alone(tmp_path: Path) -> None:
    root = machine(tmp_path, FIRST, 77, uptime=50.0)
    assert _boot_id(root) == "0f-a1"
    assert uptime_seconds(root) == 50.0


def test_a_container_is_known_by_its_start_too(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    root = machine(tmp_path, "pid:[4026532999]", 2 * ticks)
    assert _boot_id(root) == f"0f-a1+{2 * ticks}"
    assert 0 <= uptime_seconds(root) <= time.clock_gettime(time.CLOCK_BOOTTIME) - 2


def test_a_container_with_an_uptime_of_its_own_keeps_it(tmp_path: Path) -> None:
    assert uptime_seconds(machine(tmp_path, "pid:[4026532999]", 0)) > 0
    assert uptime_seconds(machine(tmp_path / "other", "pid:[4026532999]", 1, uptime=3.0)) <= 3.0


def test_where_proc_hides_the_first_process_the_kernels_id_remains(tmp_path: Path) -> None:
    root = machine(tmp_path, "pid:[4026532999]", 9)
    (tmp_path / "proc/1/stat").unlink()
    assert _boot_id(root) == "0f-a1"


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a+1", "a+1", True),
        ("a+1", "a+2", False),
        ("a+1", "b+1", False),
        # an upgrade, and the way back
        ("a", "a+1", True),
        ("a+1", "a", True),
        ("b", "a+1", False),
        # slurmd -b
        ("a", "a.1700000000.5", False),
        ("a+1", "a+1.1700000000.5", False),
        ("a", "a+1.1700000000.5", False),
    ],
)
def test_ids_of_one_boot(before: str, now: str, same: bool) -> None:
    assert is_same_boot(before, now) is same
