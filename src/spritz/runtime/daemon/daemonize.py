"""Daemonizing: the command that starts a daemon returns once it serves, or reports why it does not.

Call `daemonize` before there is a loop, a thread or a lock; none of these survives a fork. Interrupting the starting
command (Ctrl-C, SIGTERM) also ends the daemon: a daemon that cannot report that it serves ends.

Source: slurmctld(8), slurmd(8): without -D they detach; daemon(7) for the double fork.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from spritz.process_identity import Process, identify, send
from spritz.runtime.daemon.systemd import ServiceManager
from spritz.runtime.log import flush, flush_standard_streams

_SERVES = b"\0serves"

#: Seconds for a daemon to end when its start is interrupted, before it is killed.
_END_SECONDS = 10.0


class Startup:
    """The daemon's side of its start: reports, once, that it serves or that it failed."""

    def __init__(self, report: int | None, manager: ServiceManager | None = None) -> None:
        self._report = report
        self._manager = manager

    def serves(self) -> None:
        """Let the starting command return 0, and release its terminal; or notify systemd."""
        flush()  # log lines so far are for the terminal, and for the process that waits for the start
        if self._manager is not None:
            self._manager.ready()
        if self._report is None:
            return
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        if not self._tell(_SERVES):
            # Handled like any other SIGTERM, so that the daemon cleans up what it has begun.
            os.kill(os.getpid(), signal.SIGTERM)

    def alive(self) -> None:
        """The daemon's loop runs: notify systemd's watchdog, if there is one."""
        if self._manager is not None:
            self._manager.alive()

    def failed(self, message: str) -> None:
        """Let the starting command print `message` (unless empty: then it was logged to standard error) and exit 1."""
        self._tell(message.encode("utf-8", "backslashreplace"))

    def _tell(self, what: bytes) -> bool:
        """False if the starting process has gone."""
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


def foreground(*, systemd: bool) -> Startup:
    """A Startup for a daemon in the foreground: it keeps the terminal, and only systemd may wait for it."""
    return Startup(None, ServiceManager() if systemd else None)


def daemonize(*, directory: str = "/") -> Startup:
    """Return in the daemon; the process that called ends when the daemon reports, with 0 if it serves and 1 if not.

    The daemon is in a session of its own, not its leader, with `directory` as its working directory. Its standard
    streams stay those of the caller until it serves, so that errors during the start are seen.
    """
    flush_standard_streams()
    receiving, sending = os.pipe()
    interrupts = _Interrupts()
    child = os.fork()
    if child != 0:
        os.close(sending)
        _wait_for_report(receiving, child, interrupts)
    interrupts.undo()
    os.close(receiving)
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.write(sending, b"%d %d\n" % identify(os.getpid()))
    os.chdir(directory)
    return Startup(sending)


class _Interrupts:
    """Records SIGINT and SIGTERM, and makes `descriptor` readable.

    A handler that raises could interrupt any statement, also between reading the daemon's pid and storing it; then an
    unknown daemon would live on. A signal that the starting process ignores stays ignored.
    """

    def __init__(self) -> None:
        self.descriptor, self._write = os.pipe()
        for end in (self.descriptor, self._write):
            os.set_blocking(end, False)
        self._woken_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _note)}
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, _note)

    def undo(self) -> None:
        """In the child: restore the handlers; the parent acts on signals that arrived meanwhile."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else handler)
        signal.set_wakeup_fd(self._woken_before)
        os.close(self.descriptor)
        os.close(self._write)


def _note(number: int, frame: FrameType | None) -> None:
    """Does nothing: the descriptor reports the signal, but Python requires a handler."""


def _wait_for_report(receiving: int, child: int, interrupts: _Interrupts) -> NoReturn:
    os.waitpid(child, 0)
    message = b""
    while True:
        ready = select.select([receiving, interrupts.descriptor], [], [])[0]
        if interrupts.descriptor in ready:
            _end(receiving, message)
            os._exit(130)
        chunk = os.read(receiving, 65536)
        if not chunk:
            break
        message += chunk
    report = message.partition(b"\n")[2]
    if report == _SERVES:
        os._exit(0)
    if report:
        sys.stderr.write(report.decode("utf-8", "replace").rstrip("\n") + "\n")
        sys.stderr.flush()
    os._exit(1)


def _end(receiving: int, output: bytes) -> None:
    """End a daemon that has not reported yet, and wait for the end of its pipe."""
    while b"\n" not in output:  # interrupted before the daemon's identity was read, which comes first
        chunk = os.read(receiving, 64)
        if not chunk:
            return
        output += chunk
    daemon = Process(*map(int, output.partition(b"\n")[0].split()))
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not send(daemon, number) or _ended(receiving):
            return


def _ended(receiving: int) -> bool:
    """Whether the daemon closes its end of the pipe in time; its remaining output is ignored."""
    deadline = time.monotonic() + _END_SECONDS
    while select.select([receiving], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not os.read(receiving, 65536):
            return True
    return False
