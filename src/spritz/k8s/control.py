"""slurmrestd as the owner of a cluster uses it: nodes with times, tokens, machines, jobs of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, TypeVar

import msgspec

from spritz.k8s.slurm import Node, Slurm, SlurmFailure

T = TypeVar("T")


class Moment(msgspec.Struct, frozen=True):
    """Seconds since the epoch; 0 is never."""

    number: int = 0


class ClusterNode(Node, frozen=True):
    """A node, and since when it has its reason."""

    reason_changed_at: Moment = Moment()


class Submission(msgspec.Struct, frozen=True):
    """Of `job/submit`."""

    job_id: int = 0


class _Nodes(msgspec.Struct):
    nodes: list[ClusterNode] = []


class _Token(msgspec.Struct):
    id: str
    token: str


class Control(Slurm):
    """With the rights of root."""

    async def cluster_nodes(self) -> list[ClusterNode]:
        """All of them."""
        response = await self._request("GET", "/slurm/v0.0.45/nodes")
        return _decoded(response.content, _Nodes).nodes

    async def create_token(self, role: str, seconds: float, *, uses: int = 0, host: str = "") -> tuple[str, str]:
        """A token by which machines join, and its id."""
        body = {"role": role, "lifetime_seconds": seconds, "uses": uses, "host": host}
        response = await self._request("POST", "/spritz/v1/tokens", json=body)
        made = _decoded(response.content, _Token)
        return made.token, made.id

    async def revoke_token(self, identity: str) -> None:
        """One that is not there is no failure."""
        await self._request("DELETE", f"/spritz/v1/tokens/{identity}")

    async def dismiss_machine(self, host: str) -> None:
        """Its certificate is worth nothing from now on. A machine that has not joined is no failure."""
        await self._request("DELETE", f"/spritz/v1/machines/{host}")

    async def submit(self, script: str, job: dict[str, Any]) -> int:
        """A batch job of root's; its number."""
        response = await self._request("POST", "/slurm/v0.0.45/job/submit", json={"script": script, "job": job})
        return _decoded(response.content, Submission).job_id


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
