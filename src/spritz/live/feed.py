"""Follows slurmctld's changes in a thread, and queries the jobs and nodes that changed.

Whatever happens to a connection, and a message that cannot be read, ends in a new connection; the picture says so
meanwhile. An error of this program is delivered too, and ends the feed: the application raises it.

Sends no queries while nothing changes, and a single query for changes close together. After a slow answer the next
query waits longer, so that a viewer of a busy cluster costs slurmctld only a small share of a core.
"""

from __future__ import annotations

import threading
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import DecodeError, json

from spritz.client.command.sync import Connection, connect_controller, decoder_of
from spritz.client.errors import CallTimeout, ClientError, RemoteError
from spritz.client.locate import locate_controller, read_keys
from spritz.live.jobs import PATHS, jobs_of
from spritz.live.nodes import node_of
from spritz.live.picture import Update
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.events import ChangeBatch, WatchChanges
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.model.queries.nodes import ListNodes, Nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.live.jobs import Job
    from spritz.live.nodes import Node
    from spritz.model.queries.events import Change
    from spritz.wire.envelope import Response

#: Seconds in which changes are collected: after a quiet time, and after an answer.
GATHER_SECONDS, GATHER_BUSY_SECONDS = 0.05, 0.4
#: Pause after an answer, as a multiple of the time that the answer took.
_PAUSE = 10.0
#: Seconds without changes after which the feed pings slurmctld.
_QUIET_SECONDS = 30.0
#: Seconds before the second attempt to reach a slurmctld that does not answer, and the most between later ones: each
#: wait is twice the one before, less a random part.
_AGAIN_SECONDS, _AGAIN_SECONDS_MAX = 1.0, 15.0
#: If more jobs (or nodes) than this changed, the feed queries all.
_FEW = 500
#: Seconds between queries of the nodes' samples (their load), while a view shows them.
SAMPLE_SECONDS = 15.0


def whole(controller: Connection, *, cluster: str = "") -> Update:
    """Query all jobs and nodes. Raises ClientError."""
    now, jobs = _jobs(controller, JobFilter())
    return Update(now=now, cluster=cluster, whole=True, jobs=jobs, nodes=_nodes(controller, ()), nodes_whole=True)


def _jobs(controller: Connection, job_filter: JobFilter) -> tuple[float, tuple[Job, ...]]:
    now, jobs = 0.0, []
    for piece in controller.stream(ListJobs(filter=job_filter, fields=PATHS, all=True), JobRows, timeout=60.0):
        now = piece.now
        if any(len(row) != len(PATHS) for row in piece.rows):
            raise DecodeError("rows of jobs have other fields than were asked for")
        jobs += jobs_of(piece.rows)
    return now, tuple(jobs)


def _nodes(controller: Connection, names: tuple[str, ...]) -> tuple[Node, ...]:
    answer = controller.joined(ListNodes(names=names, all=True, pieces=True), Nodes, "nodes")
    return tuple(map(node_of, answer.nodes))


def cluster_name(conf: str | None) -> str:
    """ClusterName of slurm.conf; None finds the file as commands do."""
    return read_keys(frozenset({"clustername"}), conf).get("clustername", "")


class Feed:
    """Calls `deliver` with each update, in the feed's thread, until it is stopped."""

    def __init__(self, conf: str | None, deliver: Callable[[Update], None]) -> None:
        self._conf = conf
        self._deliver = deliver
        self._stopped = threading.Event()
        #: whether a view shows the nodes' samples
        self.samples = False
        self._placed: dict[int, list[str]] = {}
        self._waits = _AGAIN_SECONDS
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end. Does not wait: the thread is a daemon thread."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow()
            except SpritzError as error:
                text = error.message or type(error).__name__
                self._deliver(Update(problem=text + (f" ({error.hint})" if error.hint else "")))
            except OSError as error:
                self._deliver(Update(problem=error.strerror or str(error) or type(error).__name__))
            except DecodeError as error:
                self._deliver(Update(problem=f"a message of slurmctld cannot be read: {error}"))
            except BaseException as error:
                self._deliver(Update(problem=f"internal error: {type(error).__name__}: {error}", failure=error))
                raise
            self._stopped.wait(uniform(self._waits / 2, self._waits))
            self._waits = min(2 * self._waits, _AGAIN_SECONDS_MAX)

    def _follow(self) -> None:
        """Deliver updates until the connection ends."""
        config = locate_controller(self._conf)
        with connect_controller(config, wait_seconds=0.0) as changes:
            # Subscribe before the first query, so that changes during the query are reported and queried again.
            changes.send(WatchChanges())
            _changes_of(changes.receive())
            with connect_controller(config, wait_seconds=0.0) as controller:
                self._tell(whole(controller, cluster=cluster_name(self._conf)))
            last, took = monotonic(), 0.0
            sampled = last
            while not self._stopped.is_set():
                quiet = _QUIET_SECONDS
                if self.samples:
                    quiet = max(0.05, min(quiet, sampled + SAMPLE_SECONDS - monotonic()))
                first = _batch(changes, min(quiet, 1.0) if quiet > 1 else quiet)
                gathered = list(first.changes) if first else []
                incomplete = bool(first and first.incomplete)
                if not gathered and not incomplete:
                    moment = monotonic()
                    if self.samples and moment >= sampled + SAMPLE_SECONDS:
                        sampled = moment
                        with connect_controller(config, wait_seconds=0.0) as controller:
                            now = controller.call(Ping(), Pong).now
                            self._tell(Update(now=now, nodes=_nodes(controller, ()), nodes_whole=True))
                    elif moment - last > _QUIET_SECONDS:
                        last = moment
                        with connect_controller(config, wait_seconds=0.0) as controller:
                            controller.call(Ping(), Pong)
                    continue
                until = max(monotonic() + GATHER_SECONDS, last + max(GATHER_BUSY_SECONDS, took * _PAUSE))
                while (remaining := until - monotonic()) > 0 and not self._stopped.is_set():
                    more = _batch(changes, remaining)
                    if more is not None:
                        gathered += more.changes
                        incomplete = incomplete or more.incomplete
                began = monotonic()
                with connect_controller(config, wait_seconds=0.0) as controller:
                    self._tell(whole(controller) if incomplete else self._touched(controller, gathered))
                last = monotonic()
                took = last - began

    def _tell(self, update: Update) -> None:
        if update.whole:
            self._placed.clear()
        for number in update.touched:
            self._placed.pop(number, None)
        self._placed.update((job.id, job.node_names) for job in update.jobs if job.allocation)
        self._waits = _AGAIN_SECONDS
        self._deliver(update)

    def _touched(self, controller: Connection, changes: list[Change]) -> Update:
        """Query the changed jobs, and the nodes that they hold or held."""
        numbers = frozenset(number for change in changes if change.type != "step" for number in change.job_ids)
        names, all_nodes = self._nodes_of(changes)
        if len(numbers) > _FEW:
            now, jobs = _jobs(controller, JobFilter())
            numbers = frozenset()
        elif numbers:
            try:
                now, jobs = _jobs(controller, JobFilter(targets=tuple(map(JobTarget, sorted(numbers)))))
            except RemoteError as error:
                if error.code != "ESLURM_INVALID_JOB_ID":
                    raise
                now, jobs = controller.call(Ping(), Pong).now, ()
        else:
            now, jobs = controller.call(Ping(), Pong).now, ()
        for number in numbers:
            names.update(self._placed.get(number, ()))
        if numbers:
            for job in jobs:
                names.update(job.node_names)
        everything = len(numbers) == 0 and len(jobs) > 0
        all_nodes = all_nodes or everything or len(names) > _FEW
        nodes: tuple[Node, ...] = ()
        if all_nodes or names:
            try:
                nodes = _nodes(controller, () if all_nodes else tuple(sorted(names)))
            except RemoteError:  # a node was deleted
                nodes, all_nodes = _nodes(controller, ()), True
        return Update(now=now, whole=everything, jobs=jobs, touched=numbers, nodes=nodes, nodes_whole=all_nodes)

    def _nodes_of(self, changes: list[Change]) -> tuple[set[str], bool]:
        names: set[str] = set()
        for change in changes:
            if change.type == "node":
                body = json.decode(change.data)
                if not isinstance(body, dict) or not isinstance(body.get("node"), str):
                    return names, True
                names.add(body["node"])
            elif change.type in ("cluster", "partition", "reservation"):
                return names, True
        return names, False


def _batch(changes: Connection, seconds: float) -> ChangeBatch | None:
    """The next changes; None if there are none within `seconds`. Raises ClientError if the stream ends."""
    try:
        response = changes.receive(timeout=seconds)
    except CallTimeout:
        return None
    return _changes_of(response)


def _changes_of(response: Response) -> ChangeBatch:
    """The changes in an answer. Raises ClientError if slurmctld refuses, or ends, the stream."""
    if response.error is not None:
        raise RemoteError(response.error)
    if not response.more:
        raise ClientError("slurmctld ended the stream of events")
    return decoder_of(ChangeBatch).decode(response.body)
