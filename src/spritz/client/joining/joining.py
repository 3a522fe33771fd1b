"""Joining a cluster and fetching its configuration, for `spritz join`, `slurmd` and `sackd`.

The token carries the fingerprint of the cluster's authority, so that the first contact is authenticated in both
directions: the authority's certificate is fetched, compared with the fingerprint, and only then is the token sent, over
a connection whose server has shown a certificate by that authority.

Source: docs/decisions/0175; slurmd(8), sackd(8) --conf-server; Slurm's guide to configless operation.
"""

from __future__ import annotations

import base64
import os
import re
from typing import TYPE_CHECKING

from msgspec import structs

from spritz.client.command.blocking_tls import connect, member_context
from spritz.client.errors import ClientError
from spritz.client.locate import DEFAULT_PORT
from spritz.client.trust.membership import KEY_FILE, KEYS_FILE, Joined, Membership, host_name, write_joined
from spritz.model.node.machines import (
    AuthorityCertificate,
    ConfigurationFiles,
    FetchAuthority,
    FetchConfiguration,
    JoinCluster,
    MachineJoined,
)
from spritz.runtime.privilege import current_user
from spritz.runtime.tls import stranger_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from typing import TypeVar

    from msgspec import Struct

    T = TypeVar("T")

#: parts of a token: id and secret, then the authority's fingerprint
_SECRET_BYTES, _PRINT_BYTES = 20, 16

#: Connections that are made while controllers answer that they stand by.
_CONNECTIONS = 8

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}$")
_KEY = re.compile(r"\s*([A-Za-z]+)\s*=")


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of `HOST[:PORT]` or `[ADDRESS]:PORT`. Raises ClientError."""
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port or (":" in host and not host.startswith("[")):
        host, port = text, str(DEFAULT_PORT)
    if not host or not (port.isascii() and port.isdigit() and len(port) < 6) or not 0 < int(port) < 65536:
        raise ClientError(f"not an address: {text!r} (HOST or HOST:PORT)")
    return host.strip("[]"), int(port)


def join(controller: tuple[str, int], token: str, role: str, directory: str, host: str = "") -> Joined:
    """Get a certificate for this machine, and store the membership in `directory`. Raises ClientError.

    `role` is node or login, "" for the token's own; `host` "": this machine's name.
    """
    from spritz.runtime.authority import fingerprint, new_key

    secret, wanted = _parts(token)
    authority = _answer_of_leader([controller], stranger_context(), "", FetchAuthority(), AuthorityCertificate)
    if fingerprint(authority.certificate)[:_PRINT_BYTES] != wanted:
        raise ClientError(
            f"{controller[0]}:{controller[1]} is not of the cluster that the token is for",
            code="SLURM_PROTOCOL_AUTHENTICATION_ERROR",
            hint="its authority has another fingerprint: is the address right, or is the connection intercepted?",
        )
    key, public = new_key()
    host = host or host_name()
    context = stranger_context(authority.certificate)
    request = JoinCluster(token=secret, host=host, role=role, public_key=public, user=current_user().name)
    given = _answer_of_leader([controller], context, authority.cluster, request, MachineJoined)
    joined = Joined(
        cluster=given.cluster,
        host=host,
        role=given.role,
        certificate=given.certificate,
        key=key,
        authorities=given.authorities,
        user_key=given.user_key,
        launch_keys=given.launch_keys,
        controllers=(f"{controller[0]}:{controller[1]}",),
    )
    os.makedirs(directory, mode=0o755, exist_ok=True)
    write_joined(directory, joined)
    return joined


def renewed(joined: Joined, key: str, given: MachineJoined) -> Joined:
    """The membership with its next certificate."""
    return structs.replace(
        joined,
        certificate=given.certificate,
        key=key,
        authorities=given.authorities,
        user_key=given.user_key,
        launch_keys=given.launch_keys,
    )


def cluster_of(membership: Membership, controllers: Sequence[tuple[str, int]]) -> str:
    """The cluster's name, from a controller whose certificate is by the same key. Raises ClientError."""
    if membership.joined is not None:
        return membership.joined.cluster
    context = stranger_context(membership.trusted)
    return _answer_of_leader(controllers, context, "", FetchAuthority(), AuthorityCertificate).cluster


def fetch(
    membership: Membership, controllers: Sequence[tuple[str, int]], role: str, now: float
) -> tuple[str, ConfigurationFiles]:
    """The cluster's name and configuration. Raises ClientError."""
    cluster = cluster_of(membership, controllers)
    context = member_context(membership, cluster, role, now)
    return cluster, _answer_of_leader(controllers, context, cluster, FetchConfiguration(), ConfigurationFiles)


def _answer_of_leader(
    controllers: Sequence[tuple[str, int]], context: ssl.SSLContext, cluster: str, request: Struct, answer: type[T]
) -> T:
    """The answer of a controller that leads. Raises ClientError.

    An address may be that of several controllers, as a Service's is: another connection comes to another of them.
    """
    for attempt in range(1, _CONNECTIONS + 1):
        try:
            with connect(controllers, context, cluster=cluster) as controller:
                return controller.call(request, answer)
        except ClientError as error:
            if error.code != "ESLURM_IN_STANDBY_MODE" or attempt == _CONNECTIONS:
                raise
    raise AssertionError("the last attempt returns or raises")


def write_configuration(directory: str, files: ConfigurationFiles, instead: Mapping[str, str] | None = None) -> str:
    """Store the files. Returns the path of slurm.conf. `instead`: keys of slurm.conf replaced for this machine.

    Raises ClientError for an invalid file name.
    """
    os.makedirs(directory, mode=0o755, exist_ok=True)
    for name, content in files.files.items():
        if not _NAME.match(name) or name in (".", ".."):
            raise ClientError(f"the controller has sent a file called {name[:60]!r}")
        if name == "slurm.conf" and instead:
            content = _with_own(content, instead)
        path = os.path.join(directory, name)
        temporary = path + ".new"
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    return os.path.join(directory, "slurm.conf")


def lend_keys(directory: str, places: Sequence[str]) -> None:
    """Link the cluster's key, found in one of these places, into a directory of fetched files."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    for name in (KEYS_FILE, KEY_FILE):
        link = os.path.join(directory, name)
        for place in places:
            path = os.path.join(place, name)
            if os.path.exists(path) and os.path.abspath(path) != link:
                if os.path.lexists(link):
                    os.unlink(link)
                os.symlink(path, link)
                return


def _with_own(content: bytes, instead: Mapping[str, str]) -> bytes:
    """slurm.conf with this machine's values. Replaced lines stay as comments."""
    wanted = {name.lower() for name in instead}
    lines = []
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        key = _KEY.match(line)
        lines.append(f"# of the controller: {line}" if key and key[1].lower() in wanted else line)
    lines += ["", "# Of this machine:", *(f"{name}={value}" for name, value in instead.items()), ""]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _parts(token: str) -> tuple[bytes, bytes]:
    prefix, token = token[:3], token[3:]
    try:
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError:
        data = b""
    if prefix != "spz" or len(data) != _SECRET_BYTES + _PRINT_BYTES:
        raise ClientError(
            "not a token: it is what `spritz token create` prints, whole", code="SLURM_PROTOCOL_AUTHENTICATION_ERROR"
        )
    return data[:_SECRET_BYTES], data[_SECRET_BYTES:]
