"""slurmrestd for the owner of a cluster: configuration, nodes with times, tokens, machines, jobs, reservations."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from spritz.http.rest import SLURM, SPRITZ, RestError, decoded
from spritz.k8s.slurm import Node, Queued, Slurm
from spritz.notation.hostlist import compress as compressed

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
        return (await self._rest.get(f"{SLURM}/nodes", _Nodes)).nodes

    async def places(self, network: str) -> dict[str, str]:
        """The leaf switch or block of the network that each node is in; "" for none."""
        found = await self._rest.get(f"{SPRITZ}/nodes", _Places)
        return {node.name: node.unit_of(network) for node in found.nodes}

    async def revision(self) -> str:
        """SlurmctldParameters=revision=… of the slurm.conf in force; "" without one."""
        found = (await self._rest.get(f"{SLURM}/conf", _Configuration)).slurm_conf.slurmctld_parameters
        for word in found.split(",") if isinstance(found, str) else found:
            if word.startswith("revision="):
                return word.removeprefix("revision=")
        return ""

    async def reconfigure(self) -> bool:
        """As `scontrol reconfigure`; False if slurmctld must start again for what has changed. Raises RestError with
        slurmctld's words about a mistake, and then nothing has changed.
        """
        try:
            await self._request("GET", f"{SLURM}/reconfigure")
        except RestError as failure:
            if failure.number != _DISABLED:
                raise
            return False
        return True

    async def create_token(self, role: str, seconds: float, *, uses: int = 0, host: str = "") -> str:
        """Create a token with which machines join."""
        body = {"role": role, "lifetime_seconds": seconds, "uses": uses, "host": host}
        return decoded(await self._request("POST", f"{SPRITZ}/tokens", body), _Token).token

    async def submit(self, job: dict[str, Any], key: str) -> int:
        """Queue a batch job; the same key makes no second one. Its number."""
        return decoded(await self._request("POST", f"{SLURM}/job/submit", {"job": job}, key=key), Queued).job_id

    async def requeue(self, job_id: int, excluded: Sequence[str]) -> bool:
        """Queue a job again, for other nodes than these; False if it can have no others, and waits for them."""
        before = await self.excluded(job_id)
        await self._request("POST", f"{SLURM}/jobs/requeue", {"jobs": [str(job_id)]})
        try:
            await self.exclude(job_id, sorted({*before, *excluded}))
        except RestError as failure:
            if failure.passing:
                raise
            return False
        return True

    async def reserve(self, name: str, nodes: Sequence[str], now: float) -> None:
        """Keep all jobs but root's, which name the reservation, from starting there; jobs that run there go on."""
        known = await self._rest.get(f"{SLURM}/reservations", _Reservations)
        nodes_by_name = {reservation.name: reservation.node_list for reservation in known.reservations}
        body: dict[str, Any] = {"name": name, "node_list": list(nodes)}
        if name not in nodes_by_name:
            body |= {"users": ["root"], "start_time": int(now), "duration": 525_600, "flags": ["MAINT", "IGNORE_JOBS"]}
        elif nodes_by_name[name] == compressed(nodes):
            return
        await self._request("POST", f"{SLURM}/reservation", body)

    async def unreserve(self, name: str) -> None:
        """A reservation that there is not is no failure."""
        try:
            await self._request("DELETE", f"{SLURM}/reservation/{name}")
        except RestError as failure:
            if failure.passing or failure.status in (401, 403):
                raise

    async def dismiss_machine(self, host: str) -> None:
        """Revoke a machine's certificate. Succeeds if the machine has not joined."""
        await self._request("DELETE", f"{SPRITZ}/machines/{host}")


def token_of(key: bytes, user: str, issued: int, until: int) -> str:
    """A token for slurmrestd. Source: RFC 7519; slurm's `sun`."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"iat": issued, "exp": until, "sun": user}]
    text = ".".join(_text(msgspec.json.encode(part)) for part in parts)
    return f"{text}.{_text(hmac.new(key, text.encode(), hashlib.sha256).digest())}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
