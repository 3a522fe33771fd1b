"""Authentication of callers. Source: slurmrestd(8) -a; rest_auth/local, rest_auth/jwt.

- rest_auth/local: a Unix socket whose peer, according to the kernel, is slurmrestd's own user or root. The caller has
  slurmrestd's privileges, which are an ordinary user's.
- rest_auth/jwt: a token in X-SLURM-USER-TOKEN (with X-SLURM-USER-NAME, if SlurmUser acts for another user) or in
  Authorization: Bearer. slurmctld and slurmdbd verify it; slurmrestd has no key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from starlette.requests import Request

    from spritz.runtime.credentials import PeerCredentials

LOCAL, JWT = "rest_auth/local", "rest_auth/jwt"
TYPES = (LOCAL, JWT)

#: Most characters of a user's name in a header.
_NAME_LENGTH_MAX = 256


class Caller(Struct, frozen=True, kw_only=True):
    """The identity of a request: that of the token, or slurmrestd's own if the token is ""."""

    token: str = ""
    #: the user to act for, if the token may act for others
    user: str = ""
    #: origin of the request, for `meta.client.source`
    source: str = ""
    #: the peer of a Unix socket, according to the kernel
    uid: int = -1


class NotAuthenticated(SpritzError):
    """The caller is not identified. The answer gives no reason."""

    def __init__(self) -> None:
        super().__init__("Authentication failure", code="ESLURM_AUTH_CRED_INVALID")


def caller_of(
    headers: Mapping[str, str], peer: PeerCredentials | None, source: str, allowed: tuple[str, ...]
) -> Caller:
    """The caller by headers and connection; a token takes precedence over the peer. Raises NotAuthenticated."""
    token, user = headers.get("x-slurm-user-token", ""), headers.get("x-slurm-user-name", "")
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    if not token and kind.lower() == "bearer":
        token = bearer.strip()
    uid = -1 if peer is None else peer.uid
    if token:
        if JWT not in allowed or len(user) > _NAME_LENGTH_MAX:
            raise NotAuthenticated
        return Caller(token=token, user=user, source=source, uid=uid)
    if LOCAL in allowed and peer is not None and uid in (0, os.geteuid()):
        return Caller(source=source, uid=uid)
    raise NotAuthenticated


def caller_of_request(request: Request, allowed: tuple[str, ...]) -> Caller:
    """The caller of an HTTP request. Raises NotAuthenticated."""
    peer = request.scope.get("state", {}).get("peer")
    client = request.client
    if peer is not None:
        source = f"uid={peer.uid} pid={peer.pid}"
    else:
        source = f"{client.host}:{client.port}" if client is not None else ""
    for name in ("x-slurm-user-token", "x-slurm-user-name", "authorization"):
        if len(request.headers.getlist(name)) > 1:
            raise NotAuthenticated
    return caller_of(request.headers, peer, source, allowed)
