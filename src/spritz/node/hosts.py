"""The /etc/hosts for tasks on virtual nodes (`stepd.tasks.namespaces`): the machine's own plus the cluster's nodes.

Only with `SlurmdParameters=private_hosts`, which `spritz up --nodes` writes; and only for names that nothing resolves.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from spritz.model.scarcity import UNWRITABLE
from spritz.runtime import disk

#: in a node's spool directory
FILE = "hosts"


def write(spools: list[str], addresses: Mapping[str, str]) -> None:
    """Put the file into each spool directory. `addresses`: node name → address or name of its host.

    On a disk that cannot be written an earlier file stays: the jobs that run need the daemon. Raises OSError.
    """
    text = _text(addresses)
    for spool in spools:
        os.makedirs(spool, mode=0o755, exist_ok=True)
        path = os.path.join(spool, FILE)
        try:
            disk.write_atomically(path, text, mode=0o644)
        except OSError as error:
            if error.errno not in UNWRITABLE or not os.path.exists(path):
                raise


def _text(addresses: Mapping[str, str]) -> bytes:
    try:
        with open("/etc/hosts", "rb") as file:
            hosts = file.read()
    except OSError:
        hosts = b"127.0.0.1 localhost\n"
    lines = [hosts.rstrip(b"\n"), b"", b"# nodes of this cluster"]
    by_address: dict[str, list[str]] = {}
    for name, address in addresses.items():
        by_address.setdefault(_numeric(address), []).append(name)
    for address, names in by_address.items():
        # Readers of this file may limit the length of a line.
        lines += [f"{address} {' '.join(names[at : at + 32])}".encode() for at in range(0, len(names), 32)]
    return b"\n".join(lines) + b"\n"


def _numeric(address: str) -> str:
    try:
        return socket.getaddrinfo(address, None, socket.AF_INET)[0][4][0]  # type: ignore[return-value]  # IPv4: text
    except OSError:
        return "127.0.0.1"
