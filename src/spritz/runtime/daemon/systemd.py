"""Notifications to systemd, which started the daemon and waits for it (`--systemd`; Type=notify in the unit).

Source: sd_notify(3), sd_watchdog_enabled(3); slurmctld(8), slurmd(8), slurmdbd(8) --systemd.
"""

from __future__ import annotations

import os
import socket

from spritz.model.errors import SpritzError

_VARIABLE = "NOTIFY_SOCKET"


class ServiceManager:
    """systemd's socket. Removed from the environment, so that children cannot notify in the daemon's name.

    Raises SpritzError if the environment does not have it.
    """

    def __init__(self) -> None:
        self._address = os.environ.pop(_VARIABLE, "")
        #: whether the unit has a WatchdogSec
        self._watched = bool(os.environ.pop("WATCHDOG_USEC", ""))
        os.environ.pop("WATCHDOG_PID", None)
        if not self._address:
            raise SpritzError(f"Missing {_VARIABLE}.", hint="--systemd is for units of Type=notify; -D is for others")

    def ready(self) -> None:
        """The daemon serves. Raises SpritzError if systemd cannot be notified: it would end the daemon later."""
        try:
            self._send(b"READY=1\nMAINPID=%d" % os.getpid())
        except OSError as error:
            raise SpritzError(f"cannot tell systemd at {self._address}: {error.strerror}") from error

    def alive(self) -> None:
        """The daemon's loop runs. Does not block; a lost message does no harm."""
        if self._watched:
            try:
                self._send(b"WATCHDOG=1", socket.MSG_DONTWAIT)
            except OSError:
                pass

    def _send(self, message: bytes, flags: int = 0) -> None:
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(message, flags, address)
