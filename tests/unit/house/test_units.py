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
