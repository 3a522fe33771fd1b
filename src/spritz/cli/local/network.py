"""`spritz up --listen`: the cluster's files for more than one machine.

Replaces the loopback addresses that `spritz up` wrote by an address that other machines can reach, adds the keys that a
cluster of several machines needs, and creates its secret key. Lines that a user has changed stay as they are.
"""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING

from spritz.cli.local.paths import ClusterPaths
from spritz.client.locate import locate_controller
from spritz.client.trust.membership import write_private
from spritz.client.trust.same_machine import is_here
from spritz.extras import pip_install
from spritz.model.errors import SpritzError
from spritz.runtime.randomness import SystemRandomness

if TYPE_CHECKING:
    from spritz.model.node.record import NodeConfig

_KEY_BYTES = 64

#: Keys added to slurm.conf unless it has them.
_NEEDED = {
    "AuthType": "auth/slurm",
    "GresTypes": "gpu",
    "MaxNodeCount": "10000",
    "SlurmctldParameters": "enable_configless",
}

_LOOPBACK = re.compile(r"^(SlurmctldHost=[^(\n]*\(|.*\bNodeAddr=|AccountingStorageHost=|DbdAddr=)127\.0\.0\.1\b", re.M)


def open_to_machines(paths: ClusterPaths, address: str) -> None:
    """Change the files. Raises SpritzError if `address` is not this machine's, or if "" finds none."""
    address = address or _own_address()
    if address in ("127.0.0.1", "localhost", "::1") or not is_here((address,)):
        raise SpritzError(
            f"--listen: {address} is not an address of this machine that others can reach",
            hint="`ip address` lists them",
        )
    if not os.path.exists(paths.cluster_key):
        try:
            from spritz.runtime import authority  # noqa: F401  # before anything is changed
        except ImportError as error:
            raise SpritzError(
                f"--listen needs the package cryptography: {error}", hint=pip_install("machines")
            ) from error
    for path in (paths.slurm_conf, paths.slurmdbd_conf):
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            continue
        changed = _LOOPBACK.sub(lambda match: match[1] + address, text)
        if path == paths.slurm_conf:
            present = {line.partition("=")[0].strip().lower() for line in changed.splitlines()}
            missing = [f"{name}={value}" for name, value in _NEEDED.items() if name.lower() not in present]
            if missing:
                changed = "\n".join(
                    (changed.rstrip(), "", "# For other machines: `spritz token create`.", *missing, "")
                )
        if changed != text:
            _replace(path, changed)
    if not os.path.exists(paths.cluster_key):
        write_private(paths.cluster_key, SystemRandomness().token(_KEY_BYTES))


def need_same(paths: ClusterPaths, address: str) -> None:
    """Raises SpritzError if the cluster is open to machines already, at another address."""
    if not os.path.exists(paths.cluster_key):
        return
    present = locate_controller(paths.slurm_conf).hosts[0]
    if not _addresses(address) & _addresses(present):
        raise SpritzError(
            f"--listen: the cluster in {paths.root} listens on {present}",
            hint=f"`spritz down`, and write {address} for it in {paths.etc}; machines that have joined must join again",
        )


def _addresses(host: str) -> set[str]:
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return {host}


def is_own(node: NodeConfig) -> bool:
    """Whether a configured node is on this machine (not joined from another)."""
    address = node.address or node.hostname or node.name
    return is_here((address,)) or (node.hostname or node.name) == socket.gethostname().partition(".")[0]


def _own_address() -> str:
    """An address that other machines can reach: of the default route's interface, else of our host name. Raises
    SpritzError if there is none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            addresses = [str(probe.getsockname()[0])]
        except OSError:
            addresses = []
    try:
        addresses += [str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    except OSError:
        pass
    for address in addresses:
        if not address.startswith("127."):
            return address
    raise SpritzError("--listen: no address that others can reach was found", hint="name it: spritz up --listen ADDR")


def _replace(path: str, text: str) -> None:
    mode = os.stat(path).st_mode & 0o777
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
