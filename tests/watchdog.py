"""The process that ends test runs which cannot end themselves, and what a test run has left behind.

A process that waits in the kernel takes no signal, so neither it nor pytest-timeout can end its wait. This process runs
outside of the run that it watches: in a session of its own, and waiting for nothing. `tests/conftest.py` starts it and
gives each run one directory, which is TMPDIR of all that the tests start: a process belongs to the run if its
environment or its command line contains the directory's path, or if it descends from such a process.

Usage: python -m tests.watchdog DIRECTORY PYTEST_PID SECONDS. Uses the standard library alone, and Linux's /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path

#: how long processes that have been sent SIGKILL may take to end
_KILL_SECONDS = 10.0
#: how often the command of a process that seems to have none is read, and how far apart
_EXEC_READS, _EXEC_READS_APART_SECONDS = 100, 0.005


class Limits:
    """Which test each pytest process runs, and until when (time.monotonic()): a file for each process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "running"
        self._directory.mkdir(exist_ok=True)

    def begin(self, test: str, seconds: float) -> None:
        """This process starts a test that must end within `seconds`."""
        (self._directory / str(os.getpid())).write_text(f"{time.monotonic() + seconds} {test}")

    def end(self, pid: int = 0) -> None:
        """The process (this one by default) runs no test."""
        with contextlib.suppress(FileNotFoundError):
            (self._directory / str(pid or os.getpid())).write_text("")

    def running(self) -> Iterator[tuple[int, float, str]]:
        """(process, deadline, test) of each process that runs a test."""
        for path in self._directory.iterdir():
            deadline, _, test = path.read_text().partition(" ")
            if test:
                yield int(path.name), float(deadline), test

    def pids(self) -> set[int]:
        """All processes that have run tests."""
        return {int(path.name) for path in self._directory.iterdir()}


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return b""


def _stat(pid: int) -> tuple[str, int]:
    """State letter and parent; a process that has ended is a zombie."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return (fields[0].decode(), int(fields[1])) if fields else ("Z", 0)


def _command(pid: int, parent: int) -> tuple[bytes, bytes]:
    """Environment and command line.

    Both are empty while the kernel replaces the process's program, and Popen returns before
    that is over. They are always empty in the kernel's own threads, which descend from process 2.
    """
    for _ in range(_EXEC_READS):
        environ, argv = _read(pid, "environ"), _read(pid, "cmdline")
        if environ or argv or 2 in (pid, parent) or _stat(pid)[0] in "ZX":
            break
        time.sleep(_EXEC_READS_APART_SECONDS)
    return environ, argv


def _with_descendants(found: set[int], parents: dict[int, int]) -> set[int]:
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def processes(*words: str, below: Collection[int] = (), without: Collection[int] = ()) -> dict[int, str]:
    """Living processes with all these words in environment and command line, and descendants of those or of `below`.

    The value describes the process: its name, state and parent, the test that started it, its command line.
    """
    found, parents, described = set(below), {}, {}
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        state, parent = _stat(pid)
        if state in "ZX" or pid in without:
            continue
        parents[pid] = parent
        environ, argv = _command(pid, parent)
        if words and all(os.fsencode(word) in environ + argv for word in words):
            found.add(pid)
        test = environ.partition(b"PYTEST_CURRENT_TEST=")[2].partition(b"\0")[0].decode() or "an unknown test"
        command = argv.replace(b"\0", b" ").decode(errors="replace").strip() or _read(pid, "comm").decode().strip()
        name = _read(pid, "comm").decode(errors="replace").strip()
        described[pid] = f"process {pid} ({name}, {state}, below {parent}) of {test}: {command}"
    return {pid: described[pid] for pid in sorted(_with_descendants(found, parents)) if pid in described}


def kill(*words: str, below: Collection[int] = (), without: Collection[int] = ()) -> None:
    """SIGKILL to these processes, and to those that they start meanwhile."""
    deadline = time.monotonic() + _KILL_SECONDS
    below = set(below)
    while (found := processes(*words, below=below, without=without)) and time.monotonic() < deadline:
        below |= found.keys()
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def mounts(directory: Path) -> list[str]:
    """Mount points below the directory, inner ones first. (It is read from the kernel, not from the directory.)"""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in reversed(points) if point.startswith(f"{directory}/")]


def unmount(directory: Path) -> None:
    """Unmount all below the directory. A file server's process must have ended: unmounting may ask it."""
    for point in mounts(directory):
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["umount", "--lazy", point], cwd="/", capture_output=True, timeout=_KILL_SECONDS)


def _say(text: str) -> None:
    print(f"\nwatchdog: {text}", file=sys.stderr, flush=True)


def _end_test(directory: Path, limits: Limits, worker: int, test: str) -> None:
    """Kill the pytest process that runs the test, and all that the test has started."""
    of_test = (str(directory), f"PYTEST_CURRENT_TEST={test} (")
    listed = "\n".join({**processes(below=[worker]), **processes(*of_test)}.values())
    _say(f"{test} has exceeded its limit; this ends it and its processes:\n{listed}")
    limits.end(worker)
    kill(below=[worker])
    kill(*of_test)


def main(directory: Path, pytest: int, seconds: float) -> None:
    """Watch a run until its process ends, and end whatever it leaves."""
    limits = Limits(directory)
    end = time.monotonic() + seconds
    while os.getppid() == pytest:
        now = time.monotonic()
        for worker, deadline, test in limits.running():
            if now > deadline:
                _end_test(directory, limits, worker, test)
        if now > end:
            tests = ", ".join(test for _, _, test in limits.running()) or "no test"
            _say(f"the run has exceeded its {seconds:.0f} seconds, in {tests}; this ends it")
            kill(below=[pytest], without=[os.getpid()])
            break
        time.sleep(0.5)
    else:
        _say(f"pytest has ended before its time; what its tests wrote stays in {directory}")
    kill(str(directory), without=[os.getpid()])
    unmount(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
