"""The controller dies between the commit of a submission and its answer: the command asks again, and one job is queued.

Source: docs/decisions/0161.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.queries.jobs import JobRows, ListJobs
from tests.e2e.controller_process import ControllerProcess, until

#: dies by SIGKILL in place of its first answer to a submission, which is on disk by then
DIES = """
import os, signal
from spritz.client.channel import handling
from spritz.model.commands.job import JobSubmitted

reply = handling.Call.reply

def die(self, body=None):
    if isinstance(body, JobSubmitted):
        os.kill(os.getpid(), signal.SIGKILL)
    reply(self, body)

handling.Call.reply = die
from spritz.controller.main import entry
entry()
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path, extra="MessageTimeout=60")
    process.command = [sys.executable, "-c", DIES]
    yield process
    process.kill()


def names(controller: ControllerProcess) -> list[str]:
    """Of all jobs."""
    with controller.connect() as connection:
        request = ListJobs(fields=("spec.name",))
        return [str(row[0]) for piece in connection.stream(request, JobRows) for row in piece.rows]


def submit(controller: ControllerProcess, command: str, *arguments: str) -> subprocess.Popen[str]:
    code = f"from spritz.cli.{command} import entry; entry()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"SLURM_CONF": str(controller.conf)},
        cwd=controller.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lose_the_answer(controller: ControllerProcess) -> None:
    process = controller.process
    assert process is not None
    until(lambda: process.poll() is not None, "the controller's death")
    controller.command = ControllerProcess.command
    controller.start()


@pytest.mark.parametrize("more", [[], ["--array=0-3"], ["-n1", ":", "-n1"]], ids=["plain", "array", "het"])
def test_sbatch_asks_again(controller: ControllerProcess, more: list[str]) -> None:
    controller.start()
    sbatch = submit(controller, "sbatch", "-J", "once", *more, "--wrap", "true")
    lose_the_answer(controller)
    out, err = sbatch.communicate(timeout=100)
    assert (sbatch.returncode, out) == (0, "Submitted batch job 1\n"), err
    assert names(controller) == ["once"] * (2 if ":" in more else 1)


def test_salloc_asks_again(controller: ControllerProcess) -> None:
    controller.start()
    salloc = submit(controller, "salloc", "-J", "once", "true")
    lose_the_answer(controller)
    assert salloc.stderr is not None
    assert salloc.stderr.readline() == "salloc: Pending job allocation 1\n"
    assert names(controller) == ["once"]
    salloc.kill()
    salloc.communicate()


def test_a_command_says_so_when_it_cannot_know(controller: ControllerProcess) -> None:
    controller.write_conf("MessageTimeout=2")
    controller.start()
    sbatch = submit(controller, "sbatch", "--wrap", "true")
    out, err = sbatch.communicate(timeout=100)
    assert (sbatch.returncode, out) == (1, "")
    assert "may have been queued: see squeue" in err
