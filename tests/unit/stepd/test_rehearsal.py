"""The zygote's rehearsal runs whole steps and leaves the process as it was."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spritz.stepd import rehearsal
from spritz.stepd.supervisor import Supervisor


def test_a_rehearsal_runs_steps_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir("/")
    started: list[tuple[int, ...]] = []
    conclude = Supervisor._conclude

    def noted(self: Supervisor) -> None:
        started.append(tuple(task.status for task in self._group.tasks if task.status is not None))
        conclude(self)

    monkeypatch.setattr(Supervisor, "_conclude", noted)
    descriptors = os.listdir("/proc/self/fd")
    before = signal.getsignal(signal.SIGCHLD)
    try:
        rehearsal.rehearse()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert started == [(0,)] * rehearsal._TIMES, "each task ran and ended well"
    assert os.listdir("/proc/self/fd") == descriptors
    assert os.listdir(tmp_path) == []
    assert os.getcwd() == "/"
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_zygote_imports_nothing_that_makes_forks_dear() -> None:
    # `random` seeds itself again in each forked child; `shutil` maps two libraries of compression.
    code = "import sys, spritz.stepd.zygote; print({'random', 'shutil', 'tempfile'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "set()\n"
