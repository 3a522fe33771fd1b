"""slurmrestd for the owner of a cluster: configuration, nodes with times, tokens, machines, jobs, reservations."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec

from spritz.k8s.slurm import Node, Slurm, SlurmFailure
from spritz.notation.hostlist import compress as compressed

T = TypeVar("T")

_VERSION: Final = "/slurm/v0.0.45"

#: ESLURM_DISABLED: slurmctld must start again for the change.
_DISABLED: Final = 2037


class Moment(msgspec.Struct, frozen=True):
    """Seconds since the epoch; 0 is never."""

    number: int = 0


class ClusterNode(Node, frozen=True):
    """A node, since when it has its reason, and when its slurmd started."""

    reason_changed_at: Moment = Moment()
    slurmd_start_time: Moment = Moment()


class _Nodes(msgspec.Struct):
    nodes: list[ClusterNode] = []


class _Place(msgspec.Struct):
    name: str
    #: `network:unit,…`
    topology: str = ""

    def unit_of(self, network: str) -> str:
        units = dict(place.split(":", 1) for place in self.topology.split(",") if ":" in place)
        return units.get(network, "")


class _Places(msgspec.Struct):
    nodes: list[_Place] = []


class _Conf(msgspec.Struct, rename="pascal"):
    slurmctld_parameters: str | list[str] = ""


class _Configuration(msgspec.Struct):
    slurm_conf: _Conf


class _Token(msgspec.Struct):
    token: str


class _Reservation(msgspec.Struct):
    name: str
    node_list: str = ""


class _Reservations(msgspec.Struct):
    reservations: list[_Reservation] = []


class Control(Slurm):
    """The client of slurmrestd with the rights of root."""

    async def cluster_nodes(self) -> list[ClusterNode]:
        """All nodes of the cluster, in any state."""
        content = await self._request("GET", f"{_VERSION}/nodes")
        return _decoded(content, _Nodes).nodes

    async def places(self, network: str) -> dict[str, str]:
        """The leaf switch or block of the network that each node is in; "" for none."""
        content = await self._request("GET", "/spritz/v1/nodes")
        return {node.name: node.unit_of(network) for node in _decoded(content, _Places).nodes}

    async def revision(self) -> str:
        """SlurmctldParameters=revision=… of the slurm.conf in force; "" without one."""
        found = _decoded(await self._request("GET", f"{_VERSION}/conf"), _Configuration).slurm_conf.slurmctld_parameters
        for word in found.split(",") if isinstance(found, str) else found:
            if word.startswith("revision="):
                return word.removeprefix("revision=")
        return ""

    async def reconfigure(self) -> bool:
        """As `scontrol reconfigure`; False if slurmctld must start again for what has changed. Raises SlurmFailure with
        slurmctld's words about a mistake, and then nothing has changed.
        """
        if self.guard is not None:
            self.guard()  # a GET that changes something
        try:
            await self._request("GET", f"{_VERSION}/reconfigure")
        except SlurmFailure as failure:
            if failure.number != _DISABLED:
                raise
            return False
        return True

    async def create_token(self, role: str, seconds: float, *, uses: int = 0, host: str = "") -> str:
        """Create a token with which machines join."""
        body = {"role": role, "lifetime_seconds": seconds, "uses": uses, "host": host}
        content = await self._request("POST", "/spritz/v1/tokens", body)
        return _decoded(content, _Token).token

    async def submit(self, job: dict[str, Any], key: str) -> int:
        """Queue a batch job; the same key makes no second one. Its number."""
        answer = await self._send("POST", f"{_VERSION}/job/submit", {"job": job}, headers={"Idempotency-Key": key})
        return answer.job_id

    async def requeue(self, job_id: int, excluded: Sequence[str]) -> bool:
        """Queue a job again, for other nodes than these; False if it can have no others, and waits for them."""
        before = await self.excluded(job_id)
        await self._request("POST", f"{_VERSION}/jobs/requeue", {"jobs": [str(job_id)]})
        try:
            await self.exclude(job_id, sorted({*before, *excluded}))
        except SlurmFailure as failure:
            if failure.passing:
                raise
            return False
        return True

    async def reserve(self, name: str, nodes: Sequence[str], now: float) -> None:
        """Keep all jobs but root's, which name the reservation, from starting there; jobs that run there go on."""
        content = await self._request("GET", f"{_VERSION}/reservations")
        nodes_by_name = {
            reservation.name: reservation.node_list for reservation in _decoded(content, _Reservations).reservations
        }
        body: dict[str, Any] = {"name": name, "node_list": list(nodes)}
        if name not in nodes_by_name:
            body |= {"users": ["root"], "start_time": int(now), "duration": 525_600, "flags": ["MAINT", "IGNORE_JOBS"]}
        elif nodes_by_name[name] == compressed(nodes):
            return
        await self._request("POST", f"{_VERSION}/reservation", body)

    async def unreserve(self, name: str) -> None:
        """A reservation that there is not is no failure."""
        try:
            await self._request("DELETE", f"{_VERSION}/reservation/{name}")
        except SlurmFailure as failure:
            if failure.passing or failure.status in (401, 403):
                raise

    async def dismiss_machine(self, host: str) -> None:
        """Revoke a machine's certificate. Succeeds if the machine has not joined."""
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
