"""Detects this machine's own addresses.

The kernel identifies only peers on this machine. Without keys a daemon on another machine cannot be authenticated, so
it is refused with an error: at the start of a daemon, and wherever a connection would lead there.

Source: slurm.conf(5) SlurmctldHost, SlurmctldAddr, AccountingStorageHost.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from spritz.client.errors import RemoteHost
from spritz.runtime.credentials import is_same_machine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    #: The address for `connect`: host and port, and for IPv6 flow and scope.
    SocketAddress = tuple[Any, ...]


#: For addresses asked about without a service in mind; 0 would leave the probe unconnected.
_ANY_PORT = 9


def is_own_address(family: int, address: SocketAddress) -> bool:
    """Whether the kernel would reach this address without leaving the machine. Nothing is sent."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # UDP: the kernel chooses the route and the local address, which equals the peer's if both are here.
            probe.connect(address)
            return is_same_machine(probe)
    except OSError:
        return False  # unreachable; own addresses are always reachable


def plain_name(host: str) -> str | bytes:
    """The name as `getaddrinfo` takes it without the IDNA codec, which is slow to load and of no use to ASCII."""
    return host.encode() if host.isascii() else host


def own_addresses(
    host: str, resolved: Iterable[tuple[int, int, int, str, SocketAddress]]
) -> list[tuple[int, SocketAddress]]:
    """Family and address of those of a host's addresses, as `getaddrinfo` has them, that are this machine's.

    Raises RemoteHost if none is.
    """
    resolved_addresses = [(family, address) for family, _, _, _, address in resolved]
    local_addresses = [(family, address) for family, address in resolved_addresses if is_own_address(family, address)]
    if not local_addresses:
        addresses = sorted({address[0] for _, address in resolved_addresses} - {host})
        raise RemoteHost.of_host(f"{host} ({', '.join(addresses)})" if addresses else host)
    return local_addresses


def is_here(hosts: Iterable[str]) -> bool:
    """Whether one of these hosts is this machine. Resolves names."""
    for host in hosts:
        try:
            own_addresses(host, socket.getaddrinfo(plain_name(host), _ANY_PORT, type=socket.SOCK_DGRAM))
        except (RemoteHost, OSError, UnicodeError):
            continue
        return True
    return False


def refuse_remote(configured: Iterable[tuple[str, str]]) -> None:
    """Refuse a configuration that names another machine. `configured` has pairs of a key and its host.

    Resolves the names, which may take as long as the name service. A name that does not resolve passes: connecting will
    report that. Raises RemoteHost for the first that is elsewhere.
    """
    for key, host in configured:
        try:
            own_addresses(host, socket.getaddrinfo(plain_name(host), _ANY_PORT, type=socket.SOCK_DGRAM))
        except RemoteHost as error:
            raise error.naming(f"{key}={host}") from error
        except (OSError, UnicodeError):
            continue
