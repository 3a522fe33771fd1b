"""Killing all that a supervisor has below it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from spritz.stepd import processes


def test_a_process_that_the_second_look_misses_is_not_left_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's list of children may lack some while others end."""
    children = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    looks = iter([[child.pid for child in children], [children[0].pid]])
    monkeypatch.setattr(processes, "descendants", lambda pid: next(looks))
    assert processes.kill_descendants(os.getpid()) == 2
    assert [child.wait(60) for child in children] == [-signal.SIGKILL] * 2
