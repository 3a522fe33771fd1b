"""The parts of slurmrestd that pods need: external jobs, nodes, explanations, and the event stream.

Submissions carry a key, so repeating one whose answer was lost creates no second job. All other requests may be
repeated.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spritz.k8s.http import Http, NoAnswer
from spritz.notation.hostlist import expand

_VERSION: Final = "/slurm/v0.0.45"
_OWN: Final = "/spritz/v1"

#: Seconds for an answer; and without a heartbeat (sent every 5 s) until the event stream counts as broken.
_TIMEOUT, _SILENCE = 30.0, 20.0


class SlurmFailure(Exception):
    """A failed request, in Slurm's words; `status`: HTTP status, 0 without an answer; `number`: Slurm's error code."""

    def __init__(self, message: str, status: int = 0, number: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.number = number

    @property
    def passing(self) -> bool:
        """Whether to try again: the daemons did not answer, so that the outcome is unknown, or ask to wait."""
        return self.status in (0, 429, 502, 503, 504)


class Gres(msgspec.Struct, frozen=True):
    """A job's devices of a kind on a node; `indexes`: hexadecimal mask."""

    name: str = ""
    count: int = 0
    indexes: str = ""
    type: str = ""

    def numbers(self) -> list[int]:
        """The devices' numbers on the node; for each shard the number of its GPU."""
        mask = int(self.indexes or "0", 16)
        numbers = [number for number in range(mask.bit_length()) if mask >> number & 1]
        return numbers * self.count if self.name == "shard" else numbers


class Share(msgspec.Struct, frozen=True):
    """A job's resources on a node; `cpus`: hexadecimal mask."""

    node: str
    cpus: str = "0"
    gres: list[Gres] = []

    @property
    def cpu_count(self) -> int:
        return int(self.cpus or "0", 16).bit_count()

    def devices(self, name: str, kind: str = "") -> list[int]:
        """Numbers of the job's GPUs (`gpu`, `shard`) of the type on the node."""
        some = (gres for gres in self.gres if gres.name == name and kind in ("", gres.type))
        return [number for gres in some for number in gres.numbers()]


class Allocation(msgspec.Struct, frozen=True):
    """The resources that a job holds, by node."""

    nodes: list[Share] = []


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


class _Fault(msgspec.Struct):
    error: str = ""
    description: str = ""
    error_number: int = 0


class _Answer(msgspec.Struct):
    errors: list[_Fault] = []
    rows: list[Job] = []
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
    """A connection pool to slurmrestd. `address`: `unix:/path` or `http(s)://host:port`; `token`: an operator's."""

    def __init__(self, address: str, token: str = "") -> None:
        headers = {"X-SLURM-USER-TOKEN": token} if token else {}
        socket = address.removeprefix("unix:") if address.startswith("unix:") else ""
        base = "http://slurmrestd" if socket else address
        self._http = Http(base, socket=socket, headers=headers, timeout=_TIMEOUT)
        #: requests sent
        self.sent = 0
        #: called before every request that changes something; raises to stop it, as `Api.guard`
        self.guard: Callable[[], None] | None = None

    async def close(self) -> None:
        await self._http.close()

    # Jobs

    async def allocate(self, components: Sequence[dict[str, Any]], key: str, user: str = "") -> int:
        """Queue an external job, a heterogeneous one for several components. Returns its id. Raises SlurmFailure."""
        body: dict[str, Any] = {"job": components[0]} if len(components) == 1 else {"hetjob": list(components)}
        headers = {"Idempotency-Key": key} | ({"X-SLURM-USER-NAME": user} if user else {})
        return (await self._send("POST", f"{_VERSION}/job/allocate", body, headers=headers)).job_id

    async def complete(self, job_id: int, exit_code: int = 0) -> None:
        """Report that the job's nodes are free. Succeeds for an unknown job."""
        try:
            await self._send("POST", f"{_OWN}/job/{job_id}/complete", {"exit_code": min(exit_code, 255)})
        except SlurmFailure as failure:
            if failure.status != 404:
                raise

    async def cancel(self, job_id: int) -> None:
        """Cancel the job. Succeeds if it has ended or is unknown."""
        try:
            await self._send("DELETE", f"{_VERSION}/job/{job_id}")
        except SlurmFailure as failure:
            if failure.passing or failure.status in (401, 403):
                raise

    async def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """Replace the nodes that a waiting job excludes. Raises SlurmFailure if no other node can hold the job."""
        await self._send("POST", f"{_VERSION}/job/{job_id}", {"excluded_nodes": list(nodes)})

    async def excluded(self, job_id: int) -> frozenset[str]:
        """The nodes that a job excludes; none for an unknown job."""
        content = await self._request("GET", f"{_VERSION}/job/{job_id}")
        found = msgspec.json.decode(content, type=_Details).jobs
        return frozenset(expand(found[0].excluded_nodes)) if found and found[0].excluded_nodes else frozenset()

    async def jobs(self, ids: Iterable[int] = ()) -> list[Job]:
        """The known jobs of these ids; without ids, all jobs."""
        query = {"fields": ",".join(Job.__struct_fields__)}
        numbers = ",".join(map(str, ids))
        if numbers:
            query["ids"] = numbers
        return (await self._send("GET", f"{_OWN}/jobs", parameters=query)).rows

    async def explain(self, job_id: int) -> tuple[str, str]:
        """(why the job waits, when and where it starts), a sentence each; "" if unknown."""
        try:
            content = await self._request("GET", f"{_OWN}/explain/{job_id}")
            explanations = msgspec.json.decode(content, type=_Explanations).explanations
        except (SlurmFailure, msgspec.DecodeError):
            return "", ""
        if not explanations:
            return "", ""
        expected = explanations[0].expected
        return explanations[0].summary, expected.sentence() if expected is not None else ""

    # Nodes

    async def nodes(self) -> list[Node]:
        content = await self._request("GET", f"{_VERSION}/nodes")
        return msgspec.json.decode(content, type=_Nodes).nodes

    async def node(self, name: str) -> Node | None:
        """The node, or None if slurmctld does not have it. Raises SlurmFailure."""
        try:
            content = await self._request("GET", f"{_VERSION}/node/{name}")
        except SlurmFailure as failure:
            if failure.passing or failure.status in (401, 403):
                raise
            return None
        nodes = msgspec.json.decode(content, type=_Nodes).nodes
        return nodes[0] if nodes else None

    async def create_node(self, line: str) -> None:
        """Create a dynamic node as `scontrol create` does; `line` has the form `NodeName=NAME KEY=VALUE…`."""
        await self._send("POST", f"{_VERSION}/new/node/", {"node_conf": line})

    async def update_node(self, name: str, **fields: Any) -> None:
        await self._send("POST", f"{_VERSION}/node/{name}", fields)

    async def delete_node(self, name: str) -> None:
        await self._send("DELETE", f"{_VERSION}/node/{name}")

    # Events

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Changes of jobs and nodes from now on. The first is `{"type": "hello"}`. Raises SlurmFailure when it ends."""
        query = {"types": "job,node", "heartbeat": "5"}
        try:
            async with self._http.stream(f"{_OWN}/events", parameters=query, silence=_SILENCE) as stream:
                if stream.status != 200:
                    raise SlurmFailure(_words(await stream.read()), stream.status)
                name = ""
                async for line in stream.lines():
                    if line.startswith(b"event: "):
                        name = line[7:].decode()
                    elif line.startswith(b"data: "):
                        event: dict[str, Any] = msgspec.json.decode(line[6:])
                        yield event if "type" in event else {**event, "type": name}
        except NoAnswer as error:
            raise SlurmFailure(f"the event stream failed ({error})") from error
        except msgspec.DecodeError as error:  # the stream ended within a line, for example
            raise SlurmFailure(f"an event of the stream cannot be read ({error})") from error
        raise SlurmFailure("the event stream has ended")

    async def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Answer:
        content = await self._request(method, path, body, parameters=parameters, headers=headers)
        try:
            return msgspec.json.decode(content, type=_Answer)
        except msgspec.DecodeError as error:
            raise SlurmFailure(f"slurmrestd's answer cannot be read: {error}") from error

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        if method != "GET" and self.guard is not None:
            self.guard()
        self.sent += 1
        data = None if body is None else msgspec.json.encode(body)
        given = {"Content-Type": "application/json", **(headers or {})} if data is not None else headers
        try:
            answer = await self._http.send(method, path, parameters=parameters, body=data, headers=given)
        except NoAnswer as error:
            raise SlurmFailure(f"slurmrestd does not answer ({error})") from error
        if answer.status >= 400:
            raise SlurmFailure(_words(answer.body), answer.status, _number(answer.body))
        return answer.body


def _number(content: bytes) -> int:
    """Of the first error; 0 for an answer that is not slurmrestd's."""
    try:
        faults = msgspec.json.decode(content, type=_Answer).errors
    except msgspec.DecodeError:
        return 0
    return faults[0].error_number if faults else 0


def _words(content: bytes) -> str:
    try:
        faults = msgspec.json.decode(content, type=_Answer).errors
    except msgspec.DecodeError:
        return content[:200].decode("utf-8", "replace")
    return "; ".join(dict.fromkeys(fault.description or fault.error for fault in faults))
