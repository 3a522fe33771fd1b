"""The parts of slurmrestd that pods need: external jobs, nodes, explanations, and the event stream.

Submissions carry a key, so repeating one whose answer was lost creates no second job. All other requests may be
repeated.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from spritz.http.records import Allocation
from spritz.http.rest import SLURM, SPRITZ, Rest, RestError, decoded
from spritz.http.stream import Bookmark, Event
from spritz.notation.hostlist import expand


class Job(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a job that pods need: a row of `GET /spritz/v1/jobs` with these columns."""

    id: int
    state: str = "PENDING"
    reason: str = "None"
    admin_comment: str = ""
    het_job_id: int = 0
    completing: list[str] = []
    allocation: Allocation | None = None
    #: what becomes of it when its grace is over; "": it is not being preempted
    preempt_action: str = ""

    @property
    def is_pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def is_running(self) -> bool:
        return self.state in ("RUNNING", "SUSPENDED")

    @property
    def is_withdrawn(self) -> bool:
        """Whether it was ended on request, so that its pods are not queued again. (A node may have failed too.)"""
        return self.state in ("CANCELLED", "DEADLINE")

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, and Slurm does not wait for its pods."""
        return not self.is_pending and not self.is_running and not self.completing


class Node(msgspec.Struct, frozen=True):
    """The parts of a node that Kubernetes needs."""

    name: str
    state: list[str] = []
    reason: str = ""
    cpus: int = 0
    real_memory: int = 0
    gres: str = ""
    features: list[str] = []


class Queued(msgspec.Struct):
    """The answer to a submission."""

    job_id: int = 0


class _Expected(msgspec.Struct):
    sure: str = ""
    start_at: float = 0.0
    nodes: str = ""

    def sentence(self) -> str:
        """The expected start in UTC, to the minute, so that the text changes only with the plan."""
        if self.start_at <= 0:
            return ""
        moment = datetime.datetime.fromtimestamp(self.start_at, datetime.UTC).strftime("%Y-%m-%dT%H:%MZ")
        where = f" on {self.nodes}" if self.nodes else ""
        return f"Starts {'by' if self.sure == 'promise' else 'about'} {moment}{where}."


class _Explanation(msgspec.Struct):
    summary: str = ""
    expected: _Expected | None = None


class _Explanations(msgspec.Struct):
    explanations: list[_Explanation] = []


class _Detail(msgspec.Struct):
    excluded_nodes: str = ""


class _Details(msgspec.Struct):
    jobs: list[_Detail] = []


class _Nodes(msgspec.Struct):
    nodes: list[Node] = []


class Slurm:
    """`address`: `unix:/path` or `http(s)://host:port`; `token`: an operator's, or what says it for each request."""

    def __init__(self, address: str, token: str | Callable[[], str] = "") -> None:
        self._rest = Rest(address, token)
        #: called before every request that changes something; raises to stop it, as `Api.guard`
        self.guard: Callable[[], None] | None = None

    async def close(self) -> None:
        await self._rest.close()

    # Jobs

    async def allocate(self, components: Sequence[dict[str, Any]], key: str, user: str = "") -> int:
        """Queue an external job, a heterogeneous one for several components. Returns its id. Raises RestError."""
        body: dict[str, Any] = {"job": components[0]} if len(components) == 1 else {"hetjob": list(components)}
        content = await self._request("POST", f"{SLURM}/job/allocate", body, key=key, user=user)
        return decoded(content, Queued).job_id

    async def complete(self, job_id: int, exit_code: int = 0) -> None:
        """Report that the job's nodes are free. Succeeds for an unknown job."""
        try:
            await self._request("POST", f"{SPRITZ}/job/{job_id}/complete", {"exit_code": min(exit_code, 255)})
        except RestError as failure:
            if failure.status != 404:
                raise

    async def cancel(self, job_id: int) -> None:
        """Cancel the job. Succeeds if it has ended or is unknown."""
        try:
            await self._request("DELETE", f"{SLURM}/job/{job_id}")
        except RestError as failure:
            if failure.passing or failure.status in (401, 403):
                raise

    async def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """Replace the nodes that a waiting job excludes. Raises RestError if no other node can hold the job."""
        await self._request("POST", f"{SLURM}/job/{job_id}", {"excluded_nodes": list(nodes)})

    async def excluded(self, job_id: int) -> frozenset[str]:
        """The nodes that a job excludes; none for an unknown job."""
        found = (await self._rest.get(f"{SLURM}/job/{job_id}", _Details)).jobs
        return frozenset(expand(found[0].excluded_nodes)) if found and found[0].excluded_nodes else frozenset()

    async def jobs(self, ids: Iterable[int] = ()) -> list[Job]:
        """The known jobs of these ids; without ids, all jobs."""
        numbers = ",".join(map(str, ids))
        return (await self._rest.rows(Job, **({"ids": numbers} if numbers else {}))).rows

    async def explain(self, job_id: int) -> tuple[str, str]:
        """(why the job waits, when and where it starts), a sentence each; "" if unknown."""
        try:
            explanations = (await self._rest.get(f"{SPRITZ}/explain/{job_id}", _Explanations)).explanations
        except RestError:
            return "", ""
        if not explanations:
            return "", ""
        expected = explanations[0].expected
        return explanations[0].summary, expected.sentence() if expected is not None else ""

    # Nodes

    async def nodes(self) -> list[Node]:
        return (await self._rest.get(f"{SLURM}/nodes", _Nodes)).nodes

    async def node(self, name: str) -> Node | None:
        """The node, or None if slurmctld does not have it. Raises RestError."""
        try:
            nodes = (await self._rest.get(f"{SLURM}/node/{name}", _Nodes)).nodes
        except RestError as failure:
            if failure.passing or failure.status in (401, 403):
                raise
            return None
        return nodes[0] if nodes else None

    async def create_node(self, line: str) -> None:
        """Create a dynamic node as `scontrol create` does; `line` has the form `NodeName=NAME KEY=VALUE…`."""
        await self._request("POST", f"{SLURM}/new/node/", {"node_conf": line})

    async def update_node(self, name: str, **fields: Any) -> None:
        await self._request("POST", f"{SLURM}/node/{name}", fields)

    async def delete_node(self, name: str) -> None:
        await self._request("DELETE", f"{SLURM}/node/{name}")

    # Events

    def events(self, bookmark: Bookmark) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Changes of jobs and nodes, as `Rest.events`."""
        return self._rest.events(bookmark, ("job", "node"))

    async def _request(self, method: str, path: str, body: Any = None, *, key: str = "", user: str = "") -> bytes:
        """A request that changes something."""
        if self.guard is not None:
            self.guard()
        return await self._rest.request(method, path, body, key=key, user=user)
