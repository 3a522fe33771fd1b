"""Federated jobs between controllers: sends requests to other clusters until they are answered, and handles theirs
(docs/decisions/0197).

Owns no durable state: the requests that are due follow from the jobs' records (`core.job.siblings.owed`). So a restart
of either controller, a lost answer and a cluster that is away for days have the same effect: the request is sent again.
slurmdbd forwards requests over the connections that controllers keep to it.

Source: the Slurm Federated Scheduling Guide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from spritz.client.channel.handling import DEFERRED
from spritz.client.errors import ClientError, RemoteError
from spritz.controller.api.submit import Submissions, Submitting
from spritz.controller.journal.blobs import environment_of
from spritz.controller.journal.kept import Replaying
from spritz.controller.needs import Spawning
from spritz.controller.writer.listeners import Loss
from spritz.core.job.siblings import HELD, owed, peers, taken
from spritz.model.cluster.settings import SYSTEM
from spritz.model.events.cluster import PolicyAmended, PolicyChanged
from spritz.model.federation import (
    AskLock,
    LockUnused,
    PassToCluster,
    PutSibling,
    ReportSibling,
    ReturnLock,
    RevokeSibling,
    SiblingAnswer,
    member,
)
from spritz.model.limits.federations import joined
from spritz.model.limits.records import Book, BookEdited, EditBook, GetBook
from spritz.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Struct

    from spritz.client.channel.handling import Call, Deferred, Handler
    from spritz.controller.scheduler.usage_from_accounting import RecordedUsage
    from spritz.model.events import Event
    from spritz.model.federation import SiblingRequest
    from spritz.model.job.record import Job
    from spritz.model.limits.records import FederationMember

#: Seconds before a request without an answer, or with the answer "not now", is sent again.
AGAIN_SECONDS = 1.0

#: Seconds after which a copy that holds the lock and has not started returns it: its resources went to another job.
UNUSED_SECONDS = 15.0

#: Seconds between two checks of a DRAIN+REMOVE cluster for its last federated job.
REMOVE_SECONDS = 5.0

#: Seconds for an answer: slurmdbd itself waits MessageTimeout for the other controller.
ANSWER_SECONDS = 60.0


class Federating(Submitting, Replaying, Spawning, Protocol):
    """What siblings ask for, and what they are told."""

    @property
    def recorded(self) -> RecordedUsage: ...


class Federation:
    """The controller's part in its federation. Does nothing while no job has siblings."""

    def __init__(self, context: Federating) -> None:
        self._context = context
        self._submissions = Submissions(context)
        #: cluster -> jobs about which it may need a request
        self._due: dict[str, dict[int, None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        #: copies that hold the lock and have not started -> since when
        self._holding: dict[int, float] = {}
        self._leaving = False
        context.writer.listeners.add("federation", self._listen, Loss.REBUILD, self._look_at_all)
        self._look_at_all()
        self._leave_when_empty()

    def _leave_when_empty(self) -> None:
        """DRAIN+REMOVE: out of the federation, once no federated job is left."""
        state = self._context.machine.state
        membership = member(state.rules.federation, state.settings.cluster_name)
        if membership is not None and membership.state == "DRAIN+REMOVE" and not self._leaving:
            self._leaving = True
            self._context.tasks.spawn_contained(self._leave(membership), name="federation.leave")

    async def _leave(self, membership: FederationMember) -> None:
        context = self._context
        state = context.machine.state
        try:
            while member(state.rules.federation, membership.cluster) == membership:
                jobs = (state.jobs[job_id] for job_id in state.federated)
                channel = context.recorded.channel
                if channel is not None and channel.is_open and all(job.state.ended and not peers(job) for job in jobs):
                    book = await channel.call(GetBook(), Book)
                    await channel.call(
                        EditBook(version=book.version, puts=tuple(joined(book, [membership.cluster], ""))), BookEdited
                    )
                await context.clock.sleep(REMOVE_SECONDS)
        finally:
            self._leaving = False

    def handlers(self) -> dict[type[Struct], Handler]:
        """The handlers of requests from other clusters, which come through slurmdbd."""
        return {
            PutSibling: self._put,
            **dict.fromkeys((RevokeSibling, AskLock, ReturnLock, ReportSibling), self._take),
        }

    def _take(self, request: Struct, call: Call) -> Deferred:
        """Decided now, answered when durable."""
        self._context.writer.handle(request, SYSTEM, call.reply)
        return DEFERRED

    async def _put(self, request: PutSibling, call: Call) -> SiblingAnswer | None:
        answered: asyncio.Future[Struct | None] = asyncio.get_running_loop().create_future()
        answer = await self._submissions.queue_sibling(
            request, lambda reply: None if answered.done() else answered.set_result(reply)
        )
        # A refusal of the core is sent as a failure, and the origin asks again.
        return answer if answer is not None else await answered  # type: ignore[return-value]  # of QueueSibling

    # -- what is owed

    def _listen(self, events: Sequence[Event]) -> None:
        state = self._context.machine.state
        for event in events:
            if isinstance(event, (PolicyChanged, PolicyAmended)):
                self._look_at_all()
                self._leave_when_empty()
                continue
            if not state.federated:
                continue
            record = getattr(event, "job", None)
            job = state.jobs.get(record.id if record is not None else getattr(event, "job_id", 0))
            if job is not None and job.federation is not None:
                self._look_at(job)

    def _look_at_all(self) -> None:
        state = self._context.machine.state
        for job_id in state.federated:
            self._look_at(state.jobs[job_id])

    def _look_at(self, job: Job) -> None:
        federated = job.federation
        assert federated is not None, f"job {job.id} has no siblings"
        holding = not federated.is_origin and federated.lock == HELD and job.state is JobState.PENDING
        if holding:
            self._holding.setdefault(job.id, self._context.clock.monotonic())
        else:
            self._holding.pop(job.id, None)
        for cluster in [*peers(job), *([federated.origin] if holding else [])]:
            self._due_at(cluster)[job.id] = None
            self._wakes[cluster].set()

    def _due_at(self, cluster: str) -> dict[int, None]:
        due = self._due.get(cluster)
        if due is None:
            due = self._due[cluster] = {}
            self._wakes[cluster] = asyncio.Event()
            self._context.tasks.keep_contained(
                lambda: self._serve(cluster), name=f"federation.{cluster}", clock=self._context.clock
            )
        return due

    async def _serve(self, cluster: str) -> None:
        """Send what is due to one cluster, for as long as the controller runs. Each cluster has a loop of its own, so
        that an absent one delays no other.
        """
        due, wake, context = self._due[cluster], self._wakes[cluster], self._context
        reported = False
        while True:
            wake.clear()
            if not due:
                await wake.wait()
            again = False
            await context.writer.durable()
            for job_id in list(due):
                try:
                    settled = await self._tell(cluster, job_id)
                except ClientError as error:
                    if not reported:
                        context.log.error("federation.not_told", cluster=cluster, job_id=job_id, error=error.message)
                        reported = True
                    again = True
                    if not isinstance(error, RemoteError):
                        break  # slurmdbd is away
                    continue
                if settled:
                    due.pop(job_id, None)
                    self._release_unused(job_id)
                else:
                    again = True
            else:
                reported = reported and again
            if again or self._holding:
                await context.clock.sleep(AGAIN_SECONDS)

    def _release_unused(self, job_id: int) -> None:
        since = self._holding.get(job_id)
        if since is None:
            return
        if self._context.clock.monotonic() - since >= UNUSED_SECONDS:
            del self._holding[job_id]
            self._context.writer.handle_own(LockUnused(job_id=job_id))
        else:
            federated = self._context.machine.state.jobs[job_id].federation
            assert federated is not None, f"job {job_id} has no origin"
            self._due[federated.origin][job_id] = None

    async def _tell(self, cluster: str, job_id: int) -> bool:
        """Send what is due, one request after the other. False: the last one must be repeated. Raises ClientError."""
        context = self._context
        while True:
            job = context.machine.state.jobs.get(job_id)
            request = None if job is None else owed(job, cluster, context.machine.state.settings.cluster_name)
            if request is None:
                return True
            if isinstance(request, PutSibling):
                request = await self._with_blobs(request)
            try:
                answer = await self._ask(cluster, request)
            except RemoteError as error:
                if error.code != "ESLURM_INVALID_CLUSTER_NAME":
                    raise
                answer = SiblingAnswer(unknown=True, refusal=error.message)  # there is no such cluster any more
            context.writer.handle_own(taken(request, answer, cluster))
            await context.writer.durable()
            if isinstance(request, AskLock) and not answer.granted and not answer.unknown:
                return False

    async def _ask(self, cluster: str, request: SiblingRequest) -> SiblingAnswer:
        channel = self._context.recorded.channel
        if channel is None or not channel.is_open:
            raise ClientError.of("ESLURM_DB_CONNECTION")
        return await channel.call(
            PassToCluster(cluster=cluster, request=request), SiblingAnswer, timeout=ANSWER_SECONDS
        )

    async def _with_blobs(self, request: PutSibling) -> PutSibling:
        spec, reader = request.spec, self._context.reader
        job = self._context.machine.state.jobs[request.job_id]
        script = await reader.blob(job.spec.script_key) if job.spec.script_key else b""
        environment = await reader.blob(job.spec.environment_key) if job.spec.environment_key else b""
        return replace(
            request,
            spec=replace(spec, script_key="", environment_key=""),
            script=script or b"",
            environment=environment_of(environment or b""),
        )
