"""TCP ports that daemons can keep: outside the kernel's ephemeral range.

A free ephemeral port may belong to a client a moment later, or when the daemon starts again. Source: ip(7)
ip_local_port_range.
"""

from __future__ import annotations

import errno
import socket

from spritz.runtime.randomness import SystemRandomness

#: well above the ports that systems reserve for services
_LOWEST = 10_000
_ATTEMPTS = 10_000


def unused_ports(count: int) -> list[int]:
    """`count` different ports on which no process listens now. Raises OSError if there are none."""
    highest = max(_LOWEST + 1_000, _first_ephemeral() - 1)
    chance = SystemRandomness()
    ports: dict[int, None] = {}
    for _ in range(_ATTEMPTS):
        port = int(chance.uniform(_LOWEST, highest + 1))
        if port not in ports and _is_unused(port):
            ports[port] = None
        if len(ports) == count:
            return list(ports)
    raise OSError(errno.EADDRINUSE, "no unused TCP ports")


def _first_ephemeral() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def _is_unused(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
