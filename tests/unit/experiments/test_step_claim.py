"""A step's job that was queued twice leaves before it takes a life of the run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spritz.experiments.job import script


@pytest.mark.parametrize(("has_it", "goes_on"), [("", True), ("7", True), ("8", False)])
def test_a_job_goes_on_if_it_has_the_claim(tmp_path: Path, has_it: str, goes_on: bool) -> None:
    claim = tmp_path / "the claims" / "step.0"
    if has_it:
        claim.parent.mkdir()
        claim.write_text(has_it)
    lines = script._claim(claim) + "echo goes on\n"
    done = subprocess.run(
        ["bash", "-c", lines], env={"SLURM_JOB_ID": "7", "PATH": "/usr/bin:/bin"}, capture_output=True
    )
    assert done.returncode == 0
    assert (done.stdout == b"goes on\n") == goes_on
    assert (b"job 8 runs this step; job 7 was queued twice and leaves" in done.stderr) != goes_on
    assert claim.read_text() == (has_it or "7")
    assert [path.name for path in claim.parent.iterdir()] == ["step.0"]


def test_other_runs_have_no_claim() -> None:
    assert script._claim(None) == ""
