"""Some seconds of `make endurance`, so that it works when it is wanted for an hour."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines.lan import missing

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("machines")]


def test_half_a_minute_violates_no_rule(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    report = tmp_path / "report.json"
    options = ["--seconds", "30", "--seed", "7", "--pause", "3", "--report", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.endurance", *options], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    figures = json.loads(report.read_text())
    assert figures["jobs"] == figures["requests"]["submit"] - figures["requests"].get("submit unknown", 0)
    assert sum(figures["faults"].values()) > 0
