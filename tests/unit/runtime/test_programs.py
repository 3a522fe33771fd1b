"""Programs of the site: what ends them, and what is left of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from spritz.runtime import programs
from spritz.runtime.programs import Failure, run_programs
from spritz.runtime.tasks import run
from tests.e2e.cluster import until


def _run(tmp_path: Path, body: str, seconds: float) -> str:
    """What went wrong; "" if nothing did."""
    failure = _failure(tmp_path, body, seconds)
    return failure.problem if failure is not None else ""


def _failure(tmp_path: Path, body: str, seconds: float) -> Failure | None:
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
    failure = run(run_programs((name,), {}, 1.0))
    assert failure is not None
    assert failure.problem.startswith(f"{name}: ")


@pytest.mark.parametrize(
    ("end", "how"),
    [("exit 7", "exit status 7"), ("kill -KILL $$", "killed by signal 9 (Killed)"), ("sleep 100", "not ")],
)
def test_what_a_failed_one_printed_last_is_kept_apart_from_what_users_see(tmp_path: Path, end: str, how: str) -> None:
    failure = _failure(tmp_path, f"seq 9999; echo the disk is full >&2; {end}", 1.0)
    assert failure is not None
    assert f"program: {how}" in failure.problem
    assert failure.output.endswith("9999\nthe disk is full")
    assert len(failure.output) <= 1024
    assert "disk" not in failure.problem


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
