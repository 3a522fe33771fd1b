"""The units for systemd are what it accepts. Source: systemd.service(5)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[3] / "packaging/systemd").glob("*.service"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units() -> None:
    assert [unit.stem for unit in UNITS] == ["sackd", "slurmctld", "slurmd", "slurmdbd", "slurmrestd"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *UNITS], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_lines_in_the_journal_carry_the_daemons_name() -> None:
    """Not `env`, which starts it."""
    assert [unit.stem for unit in UNITS if f"\nSyslogIdentifier={unit.stem}\n" not in unit.read_text()] == []


def test_a_node_needs_no_file() -> None:
    """`SLURMD_OPTIONS=--conf-server HOST`, and DNS: systemd skips a unit silently whose condition is not met."""
    for unit in UNITS:
        assert ("ConditionPathExists=" in unit.read_text()) == (unit.stem not in ("sackd", "slurmd"))
