"""What systemd is told by a daemon that it started and waits for (`--systemd`; Type=notify in the unit).

Source: sd_notify(3); slurmctld(8), slurmd(8), slurmdbd(8) --systemd.
"""

from __future__ import annotations

import os
import socket

from spritz.model.errors import SpritzError

_VARIABLE = "NOTIFY_SOCKET"


class ServiceManager:
    """Where systemd listens, taken out of the environment: no child of the daemon's is to speak for it.

    Raises SpritzError if systemd did not say where.
    """

    def __init__(self) -> None:
        self._address = os.environ.pop(_VARIABLE, "")
        if not self._address:
            raise SpritzError(f"Missing {_VARIABLE}.", hint="--systemd is for units of Type=notify; -D is for others")

    def ready(self) -> None:
        """The daemon serves. Raises SpritzError if systemd cannot be told: it would end the daemon later."""
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto(b"READY=1\nMAINPID=%d" % os.getpid(), address)
            except OSError as error:
                raise SpritzError(f"cannot tell systemd at {self._address}: {error.strerror}") from error
