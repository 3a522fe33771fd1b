"""Weights & Biases (offline) and Aim, the real programs: a restarted run goes on with the same run of theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import until
from tests.e2e.experiments_lab import Lab, cluster, lab

__all__ = ["cluster", "lab"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.xdist_group("training")]

PROGRAMS = Path(__file__).with_name("programs")
LOSSES = """\
import sys
from aim import Run
run = Run(sys.argv[2], repo=sys.argv[1])
print([list(metric.values.sparse_list()[1]) for metric in run.metrics() if metric.name == "loss"])
"""


@pytest.mark.parametrize("tracker", ["wandb", "aim"])
def test_a_restart_goes_on_with_the_same_run(lab: Lab, tracker: str) -> None:
    python = os.environ.get("SPRITZ_TEST_TRACKERS")
    if python is None:
        pytest.skip("SPRITZ_TEST_TRACKERS names a Python with wandb and aim: `make training`")
    program, repository = f"track_{tracker}.py", lab.directory / "aim"
    shutil.copy(PROGRAMS / program, lab.project)
    if tracker == "aim":
        repository.mkdir()
        subprocess.run([python, "-c", f"from aim import Repo; Repo.from_path({str(repository)!r}, init=True)"],
                       env=lab.variables(), check=True, timeout=100)  # fmt: skip
    options = ("--resumable", "--no-track", "--env", "WANDB_MODE=offline", "--env", f"AIM_REPO={repository}")
    name = lab("run", "-d", *options, "--", python, program).strip()

    def runs() -> list[str]:
        return [line for line in lab("logs", name).splitlines() if line.startswith("run ")]

    until(lambda: len(runs()) == 1, f"{name} has its run")
    lab("pause", name)
    lab("resume", name)
    until(lambda: lab.state(name) in ("COMPLETED", "FAILED"), f"{name} ends")
    first, second = runs()
    assert first == second
    assert lab.state(name) == "COMPLETED"
    if tracker == "wandb":
        identity = first.split()[1]
        kept = [path.name for path in (lab.home / "runs" / name / "wandb").glob("offline-run-*")]
        assert [path.partition("-run-")[2].partition("-")[2] for path in kept] == [identity, identity]
    else:
        done = subprocess.run([python, "-c", LOSSES, str(repository), first.split()[1]], env=lab.variables(),
                              capture_output=True, text=True, check=True, timeout=100)  # fmt: skip
        assert done.stdout.splitlines()[-1] == "[[1.0, 0.5]]"
