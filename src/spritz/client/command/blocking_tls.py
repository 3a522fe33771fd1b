"""Blocking connections to daemons on other machines, by TLS: for daemons before they serve, and for joining.

Commands do not use this: they connect to the daemon of their machine. Imports `ssl`.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

from spritz.client.command.sync import Connection
from spritz.client.errors import ClientError, certificate_problem, unreachable
from spritz.model.queries.daemons import Ping, Pong
from spritz.runtime.tls import CONTROLLER, Machine, client_context, machine_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.client.trust.membership import Membership


def connect(
    controllers: Sequence[tuple[str, int]], context: ssl.SSLContext, *, cluster: str = "", timeout: float = 10.0
) -> Connection:
    """A connection to the first that answers, leads, and has a controller's certificate of the cluster ("": any).

    A context that checks no certificate accepts any. Raises ClientError.
    """
    problems = []
    for host, port in controllers:
        try:
            plain = socket.create_connection((host, port), timeout)
        except OSError as error:
            problems.append(f"{host}:{port}: {error.strerror or error}")
            continue
        try:
            secured = context.wrap_socket(plain)
        except OSError as error:
            plain.close()
            reason = certificate_problem(error) or getattr(error, "reason", "") or str(error)
            problems.append(f"{host}:{port}: TLS: {reason}")
            continue
        if context.verify_mode is ssl.CERT_REQUIRED and not _is_controller(machine_of(secured.getpeercert()), cluster):
            secured.close()
            problems.append(f"{host}:{port}: its certificate is not that of a controller of the cluster")
            continue
        connection = Connection(secured, timeout_seconds=timeout, role="slurmd")
        if len(controllers) == 1:
            return connection
        try:
            pong = connection.call(Ping(), Pong)
        except ClientError as error:
            problems.append(f"{host}:{port}: {error.message}")
        else:
            if pong.leading:
                return connection
            problems.append(f"{host}:{port}: {pong.host} stands by" + (f" for {pong.leader}" if pong.leader else ""))
        connection.close()
    raise unreachable("; ".join(problems) or "no address is known")


def member_context(membership: Membership, cluster: str, role: str, now: float) -> ssl.SSLContext:
    """A context with this machine's certificate. Raises ClientError."""
    try:
        return client_context(membership.keys(cluster, role, now))
    except ssl.SSLError as error:
        raise ClientError(
            f"{membership.path}: {error.reason or error}", code="SLURM_PROTOCOL_AUTHENTICATION_ERROR"
        ) from error


def _is_controller(machine: Machine | None, cluster: str) -> bool:
    return machine is not None and machine.role == CONTROLLER and cluster in ("", machine.cluster)
