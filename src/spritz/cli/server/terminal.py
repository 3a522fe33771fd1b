"""A caller's terminal, seen from a child of the server.

A child is in the server's session, where the caller's terminal is like any other device: nothing stops it from reading
in the background. These functions give it the manners of a process of the caller's job.

Source: proc_pid_stat(5) pgrp, session, tty_nr, tpgid.
"""

from __future__ import annotations

import io
import os
import signal
import time

#: process id of the launcher; 0 where the command runs in the caller's own process
_launcher = 0
_AGAIN_SECONDS = 0.1


def set_launcher(pid: int) -> None:
    """This process is a child of the server that works for that launcher."""
    global _launcher
    _launcher = pid


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
    own = os.makedev(terminal >> 8 & 0xFFF, (terminal & 0xFF) | (terminal >> 12 & 0xFFF00))
    return device != own or group == foreground


class TerminalInput(io.RawIOBase):
    """Standard input from the caller's terminal: stops the caller's job where a read from the background would."""

    def readable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """0."""
        return 0

    def isatty(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # RawIOBase says Buffer, of 3.12
        """In the foreground only."""
        while not in_foreground(0):
            try:
                os.kill(_launcher, signal.SIGTTIN)
            except OSError:
                break
            time.sleep(_AGAIN_SECONDS)
        return os.readv(0, [buffer])
