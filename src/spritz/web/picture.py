"""The state of the cluster for one viewer: visible jobs and nodes, kept up to date by the event stream.

A Picture subscribes to `/spritz/v1/events`, lists jobs and nodes, and then requests only those that events mention.
Viewers with the same privileges share a Picture; without viewers it ends after `LINGER_SECONDS`. While slurmrestd does
not answer, the Picture keeps its contents and `error` has the reason. When it answers again, the stream goes on where
it broke, and all is listed anew, since the viewer's rights may have changed meanwhile.

Times are the controller's: `now()` follows its clock, not the local one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable

from spritz.http.rest import Rest, RestError
from spritz.http.stream import Bookmark, Event
from spritz.notation.hostlist import expand
from spritz.timeouts import within
from spritz.web.records import Expected, Job, Node, NodesAnswer

_log = logging.getLogger("spritz.web")

#: Seconds for which events are collected before their jobs and nodes are requested.
GATHER_SECONDS = 0.03

#: If more jobs or nodes than this changed, all are requested.
JOBS_AT_ONCE, NODES_AT_ONCE = 150, 300

#: Seconds between requests of nodes' samples, of expected starts, and of everything, independent of events.
SAMPLE_SECONDS, EXPECTED_SECONDS, WHOLE_SECONDS = 15.0, 5.0, 120.0

#: Seconds that a Picture outlives its last viewer, and between attempts to reach slurmrestd.
LINGER_SECONDS, AGAIN_SECONDS = 60.0, 1.0

#: Seconds for which a page waits for its first picture: the dashboard is often started before slurmrestd answers.
READY_SECONDS = 10.0

#: Topic of changes that may concern any job.
EVERY_JOB = "every-job"

#: Number of recent events kept for the start page.
RECENT = 60


class Change:
    """The changes since the viewer's last update."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.jobs: set[int] = set()


class Viewer:
    """A viewer's pending changes. They are sets, so a slow viewer loses none and does not need a queue."""

    def __init__(self) -> None:
        self.change = Change()
        self.moved = asyncio.Event()

    def tell(self, topics: Iterable[str], jobs: Iterable[int] = ()) -> None:
        """Add changes, and wake the viewer."""
        self.change.topics.update(topics)
        self.change.jobs.update(jobs)
        if len(self.change.jobs) > JOBS_AT_ONCE:  # too many to name
            self.change.jobs.clear()
            self.change.topics.add(EVERY_JOB)
        self.moved.set()

    async def next(self, seconds: float) -> Change | None:
        """Wait for changes; None after `seconds` without any."""
        try:
            async with within(seconds):
                await self.moved.wait()
        except TimeoutError:
            return None
        self.moved.clear()
        change, self.change = self.change, Change()
        return change


class Picture:
    """See the module docstring. `version` counts changes. Records in `jobs` and `nodes` are replaced, not modified."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.jobs: dict[int, Job] = {}
        self.nodes: dict[str, Node] = {}
        #: id of a waiting job -> (expected start, nodes)
        self.expected: dict[int, tuple[float, tuple[str, ...]]] = {}
        self.recent: list[dict[str, object]] = []
        self.version = 0
        #: why updates are missing; "" while they arrive
        self.error = "connecting"
        #: whether no more updates come
        self.has_ended = False
        self._ready = asyncio.Event()
        self.viewers: set[Viewer] = set()
        self.looked_at = time.monotonic()
        self._offset = 0.0
        self._dirty_jobs: set[int] = set()
        self._dirty_nodes: set[str] = set()
        self._whole = False
        self._bookmark = Bookmark()
        self._news = asyncio.Event()
        self.cache: dict[str, tuple[int, bytes]] = {}

    def now(self) -> float:
        """The controller's time, in seconds since the epoch."""
        return time.time() + self._offset

    def _set_clock(self, now: float) -> None:
        self._offset = now - time.time()

    async def run(self) -> None:
        """Follow the cluster until the last viewer has left."""
        try:
            await self._run()
        except Exception:
            # An internal error: viewers are told, and the next request makes another Picture.
            _log.exception("picture.failed")
            self._turn("The dashboard failed to follow the cluster; see its log.")
            self._ready.set()
        finally:
            self.has_ended = True
            self._tell({"connection"})

    async def _run(self) -> None:
        while not self._unwatched():
            try:
                async with self.rest.events(self._bookmark) as events, asyncio.TaskGroup() as tasks:
                    reader = tasks.create_task(self._read(events))
                    await self._load()
                    self._turn("")
                    refresher = tasks.create_task(self._keep())
                    await asyncio.wait({reader, refresher}, return_when=asyncio.FIRST_COMPLETED)
                    reader.cancel()
                    refresher.cancel()
            except* (RestError, OSError, TimeoutError) as group:
                reason = str(group.exceptions[0]) or type(group.exceptions[0]).__name__
                self._turn(reason)
                if any(isinstance(error, RestError) and error.status for error in group.exceptions):
                    self._ready.set()  # slurmrestd refuses: nothing will come
            else:
                if not self._unwatched():
                    self._turn("the event stream ended")
            if not self._unwatched():
                await asyncio.sleep(AGAIN_SECONDS)

    async def wait_ready(self) -> None:
        """Return once jobs and nodes have been loaded or slurmrestd has refused them, at the latest after 10 s."""
        with contextlib.suppress(TimeoutError):
            async with within(READY_SECONDS):
                await self._ready.wait()

    def _unwatched(self) -> bool:
        return not self.viewers and time.monotonic() - self.looked_at > LINGER_SECONDS

    def _turn(self, error: str) -> None:
        """Note that updates arrive again ("") or are missing, with the reason."""
        if error and not self.error:
            _log.warning("picture.interrupted %s", error)
        changed, self.error = error != self.error, error
        if not error:
            self._ready.set()
        if changed:
            self._tell({"connection", "jobs", "nodes"})

    def _tell(self, topics: Iterable[str], jobs: Iterable[int] = ()) -> None:
        self.version += 1
        for viewer in self.viewers:
            viewer.tell(topics, jobs)

    async def _read(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            if event.type in ("hello", "resumed"):
                continue
            if event.type == "reset":
                self._whole = True
            else:
                self._mark(event.type, event.body)
                self.recent.append(event.body)
                del self.recent[:-RECENT]
            self._news.set()
        raise RestError("the event stream ended")

    def _mark(self, name: str, event: dict[str, object]) -> None:
        number, node = event.get("job_id"), event.get("name") or event.get("node")
        if name in ("job", "step") and isinstance(number, int):
            self._dirty_jobs.add(number)
            if isinstance(parent := event.get("array_job_id"), int) and parent:
                self._dirty_jobs.add(parent)
        elif name == "node" and isinstance(node, str) and node:
            self._dirty_nodes.add(node)
        else:
            self._whole = True

    async def _keep(self) -> None:
        """Request changed jobs and nodes, and periodically values that no event reports."""
        sampled = wholly = time.monotonic()
        expected = 0.0
        waiting = -1
        while not self._unwatched():
            try:
                async with within(1.0):
                    await self._news.wait()
                await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                pass
            self._news.clear()
            now = time.monotonic()
            if self._whole or now - wholly > WHOLE_SECONDS:
                wholly = sampled = now
                await self._load()
                self._tell({"jobs", "nodes", EVERY_JOB})
            elif self._dirty_jobs or self._dirty_nodes:
                await self._refresh()
            if now - sampled > SAMPLE_SECONDS:
                sampled = now
                await self._load_nodes()
                self._tell({"nodes"})
            if now - expected > EXPECTED_SECONDS and waiting != self.version:
                expected, waiting = now, self.version
                await self._load_expected()

    async def _load(self) -> None:
        self._whole = False
        self._dirty_jobs.clear()
        self._dirty_nodes.clear()
        answer = await self.rest.rows(Job)
        self._set_clock(answer.now)
        self.jobs = {job.id: job for job in answer.rows}
        await self._load_nodes()

    async def _load_nodes(self) -> None:
        answer = await self.rest.get("/spritz/v1/nodes", NodesAnswer)
        self._set_clock(answer.now)
        self.nodes = {node.name: node for node in answer.nodes}

    async def _refresh(self) -> None:
        """Request the jobs and nodes that events named, and the nodes of jobs that started or ended."""
        numbers, names = self._dirty_jobs, self._dirty_nodes
        self._dirty_jobs, self._dirty_nodes = set(), set()
        if len(numbers) > JOBS_AT_ONCE:
            await self._load()
            self._tell({"jobs", "nodes"}, numbers)
            return
        if numbers:
            answer = await self.rest.rows(Job, ids=",".join(map(str, sorted(numbers))))
            self._set_clock(answer.now) if answer.now else None
            told = {job.id: job for job in answer.rows}
            for number in numbers - told.keys():
                if (gone := self.jobs.pop(number, None)) is not None:
                    names.update(gone.node_names)
            for number, job in told.items():
                before = self.jobs.get(number)
                if before is None or (before.raw_state, before.completing) != (job.raw_state, job.completing):
                    names.update(job.node_names)
                    names.update(before.node_names if before is not None else ())
                self.jobs[number] = job
            self._tell({"jobs"}, numbers)
        if names:
            if len(names) > NODES_AT_ONCE:
                await self._load_nodes()
            else:
                await self._load_some(sorted(names))
            self._tell({"nodes"})

    async def _load_some(self, names: list[str]) -> None:
        known = [name for hosts in names for name in expand(hosts)]
        try:
            answer = await self.rest.get("/spritz/v1/nodes", NodesAnswer, names=",".join(known))
        except RestError as error:
            if not error.status:
                raise
            await self._load_nodes()  # a node was deleted
            return
        self.nodes.update((node.name, node) for node in answer.nodes)

    async def _load_expected(self) -> None:
        if not any(job.is_pending for job in self.jobs.values()):
            expected = {}
        else:
            answer = await self.rest.rows(Expected, states="PENDING")
            expected = {
                row.id: (row.expected_start_at, row.expected_nodes) for row in answer.rows if row.expected_start_at
            }
        if expected != self.expected:
            self.expected = expected
            for viewer in self.viewers:
                viewer.tell({"expected"})

    # -- for pages

    def by_node(self) -> dict[str, list[Job]]:
        """The jobs on each node, by node name."""
        jobs: dict[str, list[Job]] = {}
        for job in self.jobs.values():
            if job.is_active:
                for place in job.nodes:
                    jobs.setdefault(place.node, []).append(job)
        return jobs
