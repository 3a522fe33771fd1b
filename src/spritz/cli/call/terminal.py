"""The caller's terminal, which commands may read only in the foreground, also in a child of the command server.

A child is in the server's session, where the caller's terminal is like any other device: nothing stops it from reading
in the background. These functions give it the manners of a process of the caller's job.

Source: proc_pid_stat(5) pgrp, session, tty_nr, tpgid; proc_pid_status(5); POSIX, "Terminal Access Control".
"""

from __future__ import annotations

import errno
import io
import os
import signal
import time

from spritz.process_identity import Process, identify, send

#: process id of the launcher; 0 where the command runs in the caller's own process
_launcher = 0
_launcher_process = Process(0, 0)
#: between two looks whether the launcher has stopped, and whether it goes on
_SOON_SECONDS, _AGAIN_SECONDS = 0.002, 0.1


def set_launcher(pid: int) -> None:
    """Record that this process is a child of the command server, which works for that launcher."""
    global _launcher, _launcher_process
    _launcher = pid
    _launcher_process = identify(pid) if pid else Process(0, 0)


def in_foreground(descriptor: int) -> bool:
    """Whether the caller may read this terminal without being stopped. True where it is not the caller's own."""
    if not _launcher:
        try:
            return os.tcgetpgrp(descriptor) == os.getpgrp()
        except OSError:
            return True
    try:
        with open(f"/proc/{_launcher}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        group, terminal, foreground = int(fields[2]), int(fields[4]), int(fields[5])
        device = os.fstat(descriptor).st_rdev
    except (OSError, ValueError, IndexError):
        return True
    # tty_nr has the minor number's upper bits elsewhere; glibc's makedev agrees below 256 and for /dev/pts.
    controlling_terminal = os.makedev(terminal >> 8 & 0xFFF, (terminal & 0xFF) | (terminal >> 12 & 0xFFF00))
    return device != controlling_terminal or group == foreground


class TerminalInput(io.RawIOBase):
    """Standard input from the caller's terminal: stops the caller's job where a read from the background would."""

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0

    def isatty(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # RawIOBase says Buffer, of 3.12
        """In the foreground only. EIO where the launcher cannot be stopped: see `_stop_launcher`."""
        while not in_foreground(0):
            if not _stop_launcher() and not in_foreground(0):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.readv(0, [buffer])


def _stop_launcher() -> bool:
    """As a read from the background would; returns when it goes on. False if it cannot be stopped.

    It ignores or blocks the signal, or its group is orphaned: no shell is there that could continue it, and the kernel
    drops the signal.
    """
    number = signal.SIGTTIN
    try:
        state, _, blocked, ignored = _status_of_launcher()
        if (blocked | ignored) >> number - 1 & 1:
            return False
        if not send(_launcher_process, number):
            return False
        pending = 1 << number - 1
        while state != "T" and (pending >> number - 1 & 1 or state != "S"):
            time.sleep(_SOON_SECONDS)
            state, pending, _, _ = _status_of_launcher()
        if state != "T":
            return False
        while _status_of_launcher()[0] == "T":
            time.sleep(_AGAIN_SECONDS)
    except OSError:
        return False  # it has gone, and this process is about to
    return True


def _status_of_launcher() -> tuple[str, int, int, int]:
    """The launcher's state as ps shows it, and its pending, blocked and ignored signals: bit n-1 is signal n."""
    with open(f"/proc/{_launcher}/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file)
    pending, blocked, ignored = (int(fields[name], 16) for name in ("ShdPnd", "SigBlk", "SigIgn"))
    return fields["State"].split()[0], pending, blocked, ignored
