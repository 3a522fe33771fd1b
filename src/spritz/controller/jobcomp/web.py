"""JobCompType=jobcomp/elasticsearch: posts a JSON document for each ended job to the URL of JobCompLoc.

Any HTTP server will do that answers 2xx when it has stored a document. Until then documents stay on disk, across
restarts; an unreachable server is retried with growing pauses. A document that the server rejects (400, 413, 422) is
dropped.

Source: slurm.conf(5) JobCompLoc; https://slurm.schedmd.com/elasticsearch.html. Differs: a rejected document does not
block later ones, and the spool is bounded.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from spritz.controller.jobcomp.queue import EndQueue
from spritz.controller.jobcomp.record_fields import (
    dependency_of,
    exit_text,
    minutes_of,
    partitions_of,
    reservation_of,
    tres_asked,
    waited_for,
)
from spritz.controller.jobcomp.spool import Full, Spool
from spritz.controller.journal.kept import Storing
from spritz.controller.needs import Clocked, Configured, Counted, Logged, Spawning
from spritz.model.errors import SpritzError
from spritz.model.ids import INFINITE
from spritz.model.rules import job_tres
from spritz.model.states import JobState
from spritz.notation import hostlist
from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from spritz.controller.jobcomp.ended import EndedJob

#: Bytes on disk; further documents are dropped, with a line in the log.
WAITING_BYTES_MAX = 256 * 1024 * 1024
#: Seconds between attempts, doubled from the first value up to the last.
RETRY_SECONDS, RETRY_SECONDS_MAX = 1.0, 60.0
#: Seconds for the server to answer, unless JobCompParams=timeout= is set.
ANSWER_SECONDS = 30.0
#: the server will never accept this document
_FINAL = frozenset({400, 413, 422})
#: fields that a job which has just begun does not have
_OF_THE_END = frozenset(
    {"@end", "elapsed", "derived_ec", "exit_code", "state", "failed_node", "cpu_hours", "state_reason_prev"}
)
#: Longest script that goes into a document.
_SCRIPT_BYTES_MAX = 1024 * 1024


class Posting(Clocked, Configured, Counted, Logged, Spawning, Storing, Protocol):
    """What documents of jobs are made of, and when they are sent."""

    @property
    def at_end(self) -> list[Callable[[], Awaitable[None]]]: ...


class Receiver(Protocol):
    """A server that takes records of ended jobs, one request each."""

    def post(self, body: bytes) -> tuple[int, str]:
        """The HTTP status and text of the answer; status 0: no answer. Blocks."""

    def close(self) -> None: ...


class Poster:
    """Posts to `server`; `kind`, the plugin's name, is also the name of the spool's file."""

    def __init__(self, context: Posting, server: Receiver, kind: str = "elasticsearch") -> None:
        self._context = context
        self._server = server
        path = context.configuration.state_directory / f"jobcomp_{kind}"
        try:
            self._spool = Spool(str(path), WAITING_BYTES_MAX)
        except OSError as error:
            raise SpritzError(f"jobcomp/{kind}: cannot use {path}: {error.strerror}") from error
        self._news = asyncio.Event()
        self._dropped = self._sent = 0
        self._away = False
        # One thread for the spool and one for the server: neither blocks the loop or the other.
        self._disk, self._post = Worker("completion-spool"), Worker("completion-post")
        queue = EndQueue(context, "completion-spool", str(path), self._keep)
        #: takes ended and starting jobs (`Listener`) for the server
        self.take = queue.take
        context.at_end.append(queue.drain)
        context.tasks.keep_contained(self._run, name="completion-post", clock=context.clock)
        context.counters.append(
            lambda: {
                "completion.waiting_bytes": float(self._spool.waiting_bytes),
                "completion.sent_count": float(self._sent),
                "completion.dropped_count": float(self._dropped + queue.dropped),
            }
        )

    async def _keep(self, ended: EndedJob) -> None:
        cluster = self._context.configuration.settings.cluster_name
        make = start_document if ended.event.state is JobState.RUNNING else document
        record = encode(make(ended, cluster, await self._script(ended)))
        try:
            await self._disk.run(self._spool.add, [record])
        except (Full, OSError) as error:
            self._dropped += 1
            words = "too much waits for the server" if isinstance(error, Full) else str(error)
            self._context.log.error("completion.dropped", job_id=ended.job.id, error=words)
        else:
            self._news.set()

    async def _script(self, ended: EndedJob) -> str:
        key = ended.job.spec.script_key
        if not key:
            return ""
        try:
            body = await self._context.blobs.get(key)
        except SpritzError:
            return ""
        return body[:_SCRIPT_BYTES_MAX].decode("utf-8", "replace")

    async def _run(self) -> None:
        try:
            await self._post_always()
        finally:
            self._server.close()

    async def _post_always(self) -> None:
        pause = RETRY_SECONDS
        while True:
            self._news.clear()  # cleared before looking: additions meanwhile set it again
            record = await self._disk.run(self._spool.first)
            if record is None:
                await self._news.wait()
                continue
            status, problem = await self._post.run(self._server.post, record)
            if 200 <= status < 300 or status in _FINAL:
                await self._disk.run(self._spool.delivered, record)
                self._sent += 200 <= status < 300
                if status in _FINAL:
                    self._dropped += 1
                    self._context.log.error("completion.refused", status=status, error=problem)
                if self._away:
                    self._context.log.info("completion.resumed", waiting_bytes=self._spool.waiting_bytes)
                pause, self._away = RETRY_SECONDS, False
                continue
            if not self._away:
                self._context.log.error("completion.failed", status=status, error=problem)
            self._away = True
            await self._context.clock.sleep(pause)
            pause = min(RETRY_SECONDS_MAX, pause * 2)


class Server:
    """An HTTP server, `[http[s]://]host:port/index/_doc`, on a persistent connection. Raises SpritzError for an invalid
    URL.
    """

    def __init__(self, location: str, parameters: Iterable[str]) -> None:
        url = urlsplit(location if "://" in location else f"http://{location}")
        try:
            host, port = url.hostname, url.port
        except ValueError:
            host = port = None
        if url.scheme not in ("http", "https") or not host:
            raise SpritzError(
                f"JobCompLoc={location}: expected the URL of a server", hint="http://localhost:9200/slurm/_doc"
            )
        self._host, self._port, self._tls = host, port, url.scheme == "https"
        self._target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._timeout = ANSWER_SECONDS
        for word in parameters:
            name, _, value = word.partition("=")
            if name.lower() == "timeout" and value.isdecimal() and 0 < int(value[:6]) < 3600:
                self._timeout = float(value)
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes) -> tuple[int, str]:
        """The status and text of the answer; status 0: no answer. Blocks."""
        fresh = self._connection is None
        try:
            return self._post(body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not fresh:  # the server closed the idle connection
                return self.post(body)
            return 0, str(error) or type(error).__name__

    def _post(self, body: bytes) -> tuple[int, str]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout)
        self._connection.request("POST", self._target, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read(4096).decode("utf-8", "replace")
        if answer.read() or answer.will_close:
            self.close()
        return answer.status, text[:200]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def encode(fields: dict[str, object]) -> bytes:
    """The document as one line of ASCII JSON, without a newline."""
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def document(ended: EndedJob, cluster: str, script: str = "") -> dict[str, object]:
    """The document of an ended job, under Slurm's names. Times are UTC; unknown values are left out."""
    job, event, allocation = ended.job, ended.event, ended.allocation
    spec = job.spec
    cpus = allocation.cpu_count if allocation is not None else 0
    elapsed = max(0, int(event.at) - int(ended.started))
    limit = minutes_of(job)
    allocated = job_tres.allocated_pairs(allocation, job.billing) if allocation is not None else []
    document: dict[str, object] = {
        "jobid": job.id,
        "username": spec.user,
        "user_id": spec.uid,
        "groupname": spec.group,
        "group_id": spec.gid,
        "@start": _time(ended.started),
        "@end": _time(event.at),
        "elapsed": elapsed,
        "partition": partitions_of(ended),
        "alloc_node": spec.submit_host,
        "total_cpus": cpus,
        "total_nodes": len(allocation.nodes) if allocation is not None else 0,
        "derived_ec": exit_text(event.derived_exit_status),
        "exit_code": exit_text(event.exit_status),
        "state": event.state.value,
        "failed_node": event.failed_node,
        "cpu_hours": round(cpus * elapsed / 3600, 6),
        "@submit": _time(job.submitted_at),
        "@eligible": _time(job.eligible_at) if job.eligible_at else "",
        "@queue_wait": max(0, int(ended.started) - int(job.eligible_at)) if job.eligible_at else "",
        "array_job_id": job.array_job_id if job.array_task_id is not None else "",
        "array_task_id": "" if job.array_task_id is None else job.array_task_id,
        "het_job_id": job.het_job_id or "",
        "het_job_offset": job.het_offset if job.het_job_id else "",
        "work_dir": spec.work_dir,
        "std_err": spec.stderr,
        "std_in": spec.stdin,
        "std_out": spec.stdout,
        "cluster": cluster,
        "qos": spec.qos,
        "ntasks": job_tres.task_count(spec) if spec.tasks_given or spec.tasks_per_node else 0,
        "ntasks_per_node": spec.tasks_per_node or 0,
        "cpus_per_task": spec.cpus_per_task or 1,
        "orig_dependency": dependency_of(job),
        "excluded_nodes": ",".join(spec.exclude),
        "time_limit": limit * 60 if limit is not None and limit < INFINITE else "",
        "reservation_name": reservation_of(ended),
        "job_name": spec.name,
        "wc_key": spec.wckey,
        "tres_req": tres_asked(ended),
        "tres_alloc": job_tres.text(allocated) if allocated else "",
        "account": spec.account,
        "script": script,
        "state_reason_prev": waited_for(job, ran=allocation is not None),
    }
    known = {name: _clean(value) for name, value in document.items() if value != ""}
    return known | {"nodes": hostlist.compress(allocation.names) if allocation is not None else ""}


def start_document(ended: EndedJob, cluster: str, script: str = "") -> dict[str, object]:
    """The document of a starting job: without the fields about its end."""
    return {name: value for name, value in document(ended, cluster, script).items() if name not in _OF_THE_END}


def _clean(value: object) -> object:
    """Replaces text that is not UTF-8."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(at)))
