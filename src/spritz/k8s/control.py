"""slurmrestd as the owner of a cluster uses it: nodes with times, tokens, machines."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import TypeVar

import msgspec

from spritz.k8s.slurm import Node, Slurm, SlurmFailure

T = TypeVar("T")


class Moment(msgspec.Struct, frozen=True):
    """Seconds since the epoch; 0 is never."""

    number: int = 0


class ClusterNode(Node, frozen=True):
    """A node, and since when it has its reason."""

    reason_changed_at: Moment = Moment()


class _Nodes(msgspec.Struct):
    nodes: list[ClusterNode] = []


class _Token(msgspec.Struct):
    token: str


class Control(Slurm):
    """With the rights of root."""

    async def cluster_nodes(self) -> list[ClusterNode]:
        """All of them."""
        response = await self._request("GET", "/slurm/v0.0.45/nodes")
        return _decoded(response.content, _Nodes).nodes

    async def create_token(self, role: str, seconds: float, *, uses: int = 0, host: str = "") -> str:
        """A token by which machines join."""
        body = {"role": role, "lifetime_seconds": seconds, "uses": uses, "host": host}
        response = await self._request("POST", "/spritz/v1/tokens", json=body)
        return _decoded(response.content, _Token).token

    async def dismiss_machine(self, host: str) -> None:
        """Its certificate is worth nothing from now on. A machine that has not joined is no failure."""
        await self._request("DELETE", f"/spritz/v1/machines/{host}")


def token_of(key: bytes, user: str, issued: int, until: int) -> str:
    """A token for slurmrestd. Source: RFC 7519; slurm's `sun`."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"iat": issued, "exp": until, "sun": user}]
    text = ".".join(_text(msgspec.json.encode(part)) for part in parts)
    return f"{text}.{_text(hmac.new(key, text.encode(), hashlib.sha256).digest())}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise SlurmFailure(f"slurmrestd's answer cannot be read: {error}") from error
