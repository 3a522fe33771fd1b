"""A process is its number and its start: a signal reaches that process, or none."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.process_identity import (
    Process,
    Status,
    exists,
    identify,
    lives,
    send,
    send_below,
    send_group,
    status_of,
)


def stat(proc: Path, pid: int, *, state: str = "S", parent: int = 1, started: int = 700, name: str = "sh") -> None:
    """A process in a /proc of the test's own."""
    fields = [state, str(parent), *("0" for _ in range(17)), str(started), "0", "0"]
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_a_process_is_known_by_number_and_start(tmp_path: Path) -> None:
    proc = str(tmp_path)
    stat(tmp_path, 42, name="a) S 7 (b", parent=9)
    assert status_of(42, proc=proc) == Status("S", 9, 700)
    process = identify(42, proc=proc)
    assert process == Process(42, 700)
    assert exists(process, proc=proc)
    assert lives(process, proc=proc)
    stat(tmp_path, 42, state="Z")
    assert exists(process, proc=proc), "until it is waited for, the number is its own"
    assert not lives(process, proc=proc)
    stat(tmp_path, 42, started=701)
    assert not exists(process, proc=proc), "the number was given out again"
    assert not lives(process, proc=proc)


@pytest.mark.parametrize("content", [None, "", "42 (sh)", "42 (sh) S", "42 (sh) S 1 x"])
def test_what_cannot_be_read_is_no_process(tmp_path: Path, content: str | None) -> None:
    proc = str(tmp_path)
    if content is not None:
        (tmp_path / "42").mkdir()
        (tmp_path / "42" / "stat").write_text(content)
    nothing = identify(42, proc=proc)
    assert nothing == Process(42, -1)
    assert not exists(nothing, proc=proc)
    stat(tmp_path, 42, started=0)
    assert exists(Process(42, 0), proc=proc), "a sandbox that tells no starts"
    assert not exists(nothing, proc=proc), "a process that was not there when it was asked for is never found later"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


def test_a_signal_reaches_the_process_that_was_meant_and_no_later_one(stranger: subprocess.Popen[bytes]) -> None:
    now = identify(stranger.pid)
    before = Process(stranger.pid, now.started - 1)
    assert not send(before, signal.SIGKILL)
    send_group(before, signal.SIGKILL)
    assert not send(Process(0, 0), signal.SIGKILL)
    assert not send(Process(-1, 0), signal.SIGKILL)
    assert lives(now)
    assert send(now, signal.SIGTERM)
    assert stranger.wait() == -signal.SIGTERM
    assert not send(now, signal.SIGTERM)


def test_a_number_that_was_given_out_meanwhile_has_another_parent(stranger: subprocess.Popen[bytes]) -> None:
    gone = 4_000_001  # above what the kernel gives out
    send_below(1, [gone, stranger.pid], signal.SIGKILL)
    assert lives(identify(stranger.pid)), "its parent is this process, which is not below 1 in that list"
    send_below(os.getpid(), [gone, stranger.pid], signal.SIGTERM)
    assert stranger.wait() == -signal.SIGTERM


def test_a_group_is_signalled_while_its_leader_is_not_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 1000 & echo up"], stdout=subprocess.PIPE, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"up\n"
        send_group(identify(shell.pid), signal.SIGKILL)
        assert shell.stdout.read() == b"", "sleep held the pipe"
