"""Going into the background: whoever starts a daemon gets its prompt back when it serves, or learns why it does not.

Call `daemonize` before there is a loop, a thread or a lock; none of these survives a fork.

Source: slurmctld(8), slurmd(8): without -D they detach; daemon(7) for the double fork.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from spritz.runtime.log import flush_standard_streams

_SERVES = b"\0serves"


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
        self._tell(_SERVES)

    def failed(self, message: str) -> None:
        """Let the starting command print `message`, unless empty (it was logged to standard error), and exit 1."""
        self._tell(message.encode("utf-8", "backslashreplace"))

    def _tell(self, what: bytes) -> None:
        if self._report is None:
            return
        try:
            os.write(self._report, what)
        except OSError:
            pass  # whoever started us has gone: nobody to tell
        os.close(self._report)
        self._report = None


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
    child = os.fork()
    if child != 0:
        os.close(sending)
        _wait_for_report(receiving, child)
    os.close(receiving)
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.chdir(directory)
    return Startup(sending)


def _wait_for_report(receiving: int, child: int) -> NoReturn:
    os.waitpid(child, 0)
    report = b""
    while chunk := os.read(receiving, 65536):
        report += chunk
    if report == _SERVES:
        os._exit(0)
    if report:
        sys.stderr.write(report.decode("utf-8", "replace").rstrip("\n") + "\n")
        sys.stderr.flush()
    os._exit(1)
