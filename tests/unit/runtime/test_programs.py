"""Programs of the site: what ends them, and what is left of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from spritz.runtime import programs
from spritz.runtime.programs import run_programs
from spritz.runtime.tasks import run
from tests.e2e.cluster import until


def _run(tmp_path: Path, body: str, seconds: float) -> str:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return run(run_programs((str(program),), {"PATH": "/usr/bin:/bin"}, seconds))


def _gone(path: Path) -> bool:
    """Whether the process has ended; a zombie counts as ended."""
    try:
        return Path(f"/proc/{path.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_child_that_keeps_the_output_is_waited_for_until_the_time_is_over_and_killed(tmp_path: Path) -> None:
    assert _run(tmp_path, f"sleep 100 & echo $! > {tmp_path}/pid; exit 0", 0.3) == ""
    until(lambda: _gone(tmp_path / "pid"), "the child is killed")


def test_a_child_that_has_closed_the_output_is_killed_at_once(tmp_path: Path) -> None:
    assert _run(tmp_path, f"sleep 100 >/dev/null 2>&1 & echo $! > {tmp_path}/pid; exit 3", 100).endswith(" status 3")
    until(lambda: _gone(tmp_path / "pid"), "the child is killed")


def test_a_child_in_a_session_of_its_own_stays(tmp_path: Path) -> None:
    assert _run(tmp_path, f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 100 >&- 2>&-' &", 100) == ""
    assert not _gone(tmp_path / "pid")
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_one_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    assert _run(tmp_path, "exec sleep 100", 0.1).endswith(": not done in 0.1 seconds")


@pytest.mark.parametrize("name", ["/no/such", "/dev/null"])
def test_one_that_cannot_be_run_is_a_problem(name: str) -> None:
    assert run(run_programs((name,), {}, 1.0)).startswith(f"{name}: ")


def test_a_machine_without_processes_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, refusals = programs._start, [errno.EAGAIN, errno.ENOMEM]

    def start(*given: Any) -> Any:
        if refusals:
            raise OSError(refusals[0], os.strerror(refusals.pop(0)))
        return real(*given)

    monkeypatch.setattr(programs, "_start", start)
    assert _run(tmp_path, "exit 0", 100) == ""
    assert not refusals


def test_and_given_up_when_it_stays_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*given: Any) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(programs, "_start", start)
    monkeypatch.setattr(programs, "_START_PATIENCE_SECONDS", 0.1)
    assert _run(tmp_path, "exit 0", 100).endswith("program: Resource temporarily unavailable")
