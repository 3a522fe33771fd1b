"""Going into the background: whoever starts a daemon gets its prompt back when it serves, or learns why it does not.

Call `daemonize` before there is a loop, a thread or a lock; none of these survives a fork. Whoever interrupts the
command that starts a daemon (Ctrl-C, SIGTERM) has started none: a daemon that cannot report that it serves ends.

Source: slurmctld(8), slurmd(8): without -D they detach; daemon(7) for the double fork.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from types import FrameType
from typing import NoReturn

from spritz.runtime.log import flush_standard_streams

_SERVES = b"\0serves"

#: A daemon told to end while it starts has so long before it is killed.
_END_SECONDS = 10.0


class Startup:
    """The daemon's side of its start: say once that it serves, or that it cannot."""

    def __init__(self, report: int | None) -> None:
        self._report = report

    def serves(self) -> None:
        """Let the starting command return 0, and let go of its terminal."""
        if self._report is None:
            return
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        if not self._tell(_SERVES):
            # The signal is handled like any other that ends the daemon: what it has begun is put in order.
            os.kill(os.getpid(), signal.SIGTERM)

    def failed(self, message: str) -> None:
        """Let the starting command print `message`, unless empty (it was logged to standard error), and exit 1."""
        self._tell(message.encode("utf-8", "backslashreplace"))

    def _tell(self, what: bytes) -> bool:
        """False if whoever started us has gone."""
        if self._report is None:
            return True
        try:
            os.write(self._report, what)
        except OSError:
            return False
        finally:
            os.close(self._report)
            self._report = None
        return True


def foreground() -> Startup:
    """A Startup for a daemon that stays in the foreground (-D): nobody waits, the terminal is kept."""
    return Startup(None)


def daemonize(*, directory: str = "/") -> Startup:
    """Return in the daemon; the process that called ends when the daemon reports, with 0 if it serves and 1 if not.

    The daemon is in a session of its own, not its leader, with `directory` as its working directory. Its standard
    streams stay those of the caller until it serves, so that what goes wrong on the way is seen.
    """
    flush_standard_streams()
    receiving, sending = os.pipe()
    signal.signal(signal.SIGTERM, _interrupted)
    child = os.fork()
    if child != 0:
        os.close(sending)
        _wait_for_report(receiving, child)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(receiving)
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.write(sending, b"%d\n" % os.getpid())
    os.chdir(directory)
    return Startup(sending)


def _wait_for_report(receiving: int, child: int) -> NoReturn:
    pid, report = 0, b""
    try:
        os.waitpid(child, 0)
        while True:
            # A signal that comes just before a system call that waits is handled only after it: wait in pieces.
            while not select.select([receiving], [], [], 0.2)[0]:
                pass
            chunk = os.read(receiving, 65536)
            if not chunk:
                break
            report += chunk
            if not pid:
                first, _, report = report.partition(b"\n")
                pid = int(first)
    except KeyboardInterrupt:
        _end(pid, receiving)
        os._exit(130)
    if report == _SERVES:
        os._exit(0)
    if report:
        sys.stderr.write(report.decode("utf-8", "replace").rstrip("\n") + "\n")
        sys.stderr.flush()
    os._exit(1)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end(pid: int, receiving: int) -> None:
    """End a daemon that has not reported yet, and wait until it has: the end of the pipe tells."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while not pid:  # interrupted before the daemon's number was read; it comes first, in one piece
        first = os.read(receiving, 64).partition(b"\n")[0]
        if not first:
            return
        pid = int(first)
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except OSError:
            return
        if select.select([receiving], [], [], _END_SECONDS)[0]:
            return
