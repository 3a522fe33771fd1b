"""Deferred requests: answered when a job starts, a job ends, or a step fits.

Owns parked requests, and cleans up when their callers go away. The core never waits; this module does, and asks the
core again.

- `AwaitAllocation`: answered when the job runs or has ended; the origin of a federated job answers too when another
  cluster runs it, and the client goes there. If the caller goes away before, an interactive job is
  cancelled: no client could use it.
- After the grant, the clients that got it hold the interactive job. When the last of their connections closes, they
  have `GRACE_SECONDS` to come back with another AwaitAllocation; after that the job is cancelled once their processes
  (which the kernel identifies on a local socket) are gone. A client that closed its connection but lives on keeps the
  job. If all client processes are known to have ended, the grace time is skipped, and only their steps are waited
  for.
- An interactive job without a client, because the client died right after the submission or while the controller was
  away, is cancelled too. Running steps prove that their client lives, since they end with it.
- `AwaitEnd`: answered when the job, or every task of the array, has ended.
- `CreateStep(wait=True)`: asked again, first come first served, whenever a step of that job ends.

Source: salloc(1), srun(1), sbatch(1) --wait; slurm.conf(5) InactiveLimit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.client.handling import DEFERRED, Deferred
from spritz.controller.listeners import Loss
from spritz.controller.node_messages import components_of
from spritz.core import het
from spritz.model.cluster import SYSTEM
from spritz.model.commands.job import CancelJobs
from spritz.model.commands.step import STEP_WAITS, CreateHetStep, CreateStep
from spritz.model.events.job import JobQueued, JobStarted, JobUpdated
from spritz.model.events.step import StepEnded
from spritz.model.ids import STEP_EXTERN
from spritz.model.job_filter import JobFilter, JobTarget
from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation
from spritz.model.queries.jobs import AwaitEnd, JobEndedReply
from spritz.model.rejection import Rejection
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.client.handling import Call
    from spritz.controller.context import Context
    from spritz.model.events import Event
    from spritz.model.job import Job

#: Seconds for the client of a granted interactive job to reconnect, and between checks of its process, unless
#: InactiveLimit is set.
GRACE_SECONDS = 10.0

#: Seconds to the first check of processes whose connections have closed; the interval doubles with each check.
_SOON_SECONDS = 0.02

#: Seconds for clients to come back after a restart, unless InactiveLimit is set; clients retry every few seconds.
RETURN_SECONDS = 30.0

#: Parked steps of a job that are tried whenever one of its steps ends.
RETRIES_MAX = 16


class DeferredRequests:
    """Answers AwaitAllocation, AwaitEnd and CreateStep, now or once the event that each waits for has happened."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: job number -> what to call on an event about it; it returns True when finished
        self._parked: dict[int, list[Callable[[], bool]]] = {}
        self._steps: dict[int, list[tuple[CreateStep | CreateHetStep, Call]]] = {}
        self._touched: dict[int, None] = {}
        #: interactive job -> clients that got its grant
        self._holders: dict[int, list[_Holder]] = {}
        #: interactive jobs that may have lost all their clients
        self._expected: set[int] = set()
        context.writer.listeners.add("waiting", self._listen, Loss.REBUILD, self._rebuild)
        context.writer.hooks.append(self._look)
        for job in context.machine.state.jobs.values():
            if _needs_client(job):
                self._expect(job.id, self._return_seconds())
        context.counters.append(lambda: {"waiting.requests_count": float(sum(map(len, self._parked.values())))})

    # Jobs

    def await_allocation(self, request: AwaitAllocation, call: Call) -> Struct | Deferred:
        """Park until the job is no longer pending."""
        context = self._context
        caller = context.identity.caller(call)
        job = context.machine.state.jobs.get(request.job_id)
        if job is None:
            return Rejection(code="ESLURM_INVALID_JOB_ID")
        if not caller.admin and caller.uid != job.spec.uid:
            return Rejection(code="ESLURM_ACCESS_DENIED")
        if self._answer_allocation(job.id, call):
            return DEFERRED
        if job.spec.interactive:
            call.on_abandon(lambda: self._cancel(job.id, "its client went away while it was waiting"))
        self._park(job.id, lambda: self._answer_allocation(job.id, call))
        if request.timeout_seconds is not None:
            context.tasks.spawn_contained(
                self._give_up(job.id, call, request.timeout_seconds), name="await-allocation.timeout"
            )
        return DEFERRED

    def await_end(self, request: AwaitEnd, call: Call) -> Struct | Deferred:
        """Park until the job, or the whole array, has ended."""
        self._context.identity.caller(call)
        if request.job_id not in self._context.machine.state.jobs:
            return Rejection(code="ESLURM_INVALID_JOB_ID")
        if not self._answer_end(request.job_id, call):
            self._park(request.job_id, lambda: self._answer_end(request.job_id, call))
        return DEFERRED

    def _answer_allocation(self, job_id: int, call: Call) -> bool:
        if call.abandoned or call.answered:
            return True
        job = self._context.machine.state.jobs.get(job_id)
        waits = job is not None and job.state is JobState.PENDING and not _runs_elsewhere(job)
        if waits or (job is not None and het.configuring(self._context.machine.state, job)):
            return False
        self._context.writer.when_durable(lambda: self._grant(job_id, call))
        return True

    def _grant(self, job_id: int, call: Call) -> None:
        """The job as it is now: it may have changed while its events went to disk."""
        context = self._context
        state = context.machine.state
        job = state.jobs.get(job_id)
        if job is None:
            call.fail(Rejection(code="ESLURM_INVALID_JOB_ID"))
            return
        names = job.allocation.names if job.allocation is not None else ()
        addresses = tuple(state.nodes[name].address if name in state.nodes else name for name in names)
        if call.abandoned:
            if job.spec.interactive and (job.state.active or _runs_elsewhere(job)):
                self._cancel(job_id, "its client went away before it was told of the grant")
            return
        settings = replace(state.settings, topologies=())  # large, and irrelevant for clients
        call.reply(
            AllocationGranted(
                job=job, settings=settings, node_addresses=addresses, components=components_of(state, job)
            )
        )
        if job.spec.interactive and job.state.active:
            self._hold(job_id, call)

    async def _give_up(self, job_id: int, call: Call, seconds: float) -> None:
        await self._context.clock.sleep(seconds)
        if not call.answered and not call.abandoned:
            self._grant(job_id, call)

    def _answer_end(self, job_id: int, call: Call) -> bool:
        if call.abandoned:
            return True
        state = self._context.machine.state
        job = state.jobs.get(job_id)
        if job is None:
            call.fail(Rejection(code="ESLURM_INVALID_JOB_ID"))
            return True
        tasks = [state.jobs[number] for number in state.arrays.get(job_id, {}).values() if number in state.jobs]
        if not job.state.ended or (job.array_job_id == job_id and state.arrays_live.get(job_id)):
            return False
        worst = max((job, *tasks), key=_exit_code)
        reply = JobEndedReply(job_id=job_id, state=worst.state.value, exit_status=worst.exit_status)
        self._context.writer.when_durable(lambda: call.reply(reply))
        return True

    # Clients of interactive jobs

    def _hold(self, job_id: int, call: Call) -> None:
        """Remember a client that got the grant: salloc, but also every srun below it."""
        holders = self._holders.setdefault(job_id, [])
        holders[:] = [holder for holder in holders if holder.is_there()]
        holders.append(_Holder(call))
        call.channel.on_close(lambda: self._holder_left(job_id))

    def _holder_left(self, job_id: int) -> None:
        job = self._context.machine.state.jobs.get(job_id)
        if job is not None and job.state.active:
            self._expect(job_id, self._grace())
            self._context.tasks.spawn_contained(self._cancel_if_killed(job_id), name="interactive.killed")
        else:
            self._holders.pop(job_id, None)

    async def _cancel_if_killed(self, job_id: int) -> None:
        """An ended process never comes back: check for that until the grace time is over."""
        seconds = _SOON_SECONDS
        while seconds < self._grace():
            await self._context.clock.sleep(seconds)
            seconds *= 2
            job = self._context.machine.state.jobs.get(job_id)
            holders = self._holders.get(job_id, [])
            if job is None or not job.state.active or any(holder.is_connected for holder in holders):
                return
            if all(holder.is_dead() for holder in holders) and not self._has_steps(job):
                self._cancel(job_id, "its client is gone")
                return

    def _grace(self) -> float:
        return self._context.configuration.settings.inactive_limit_seconds or GRACE_SECONDS

    def _return_seconds(self) -> float:
        return self._context.configuration.settings.inactive_limit_seconds or RETURN_SECONDS

    def _expect(self, job_id: int, seconds: float) -> None:
        """Cancel the job unless a client asks for it in time."""
        if job_id not in self._expected:
            self._expected.add(job_id)
            self._context.tasks.spawn_contained(self._expect_back(job_id, seconds), name="interactive.grace")

    async def _expect_back(self, job_id: int, seconds: float) -> None:
        """Check repeatedly until a client is connected again, or none is left."""
        state = self._context.machine.state
        try:
            while True:
                await self._context.clock.sleep(seconds)
                seconds = self._grace()
                job = state.jobs.get(job_id)
                if job is None or not _needs_client(job):
                    self._holders.pop(job_id, None)
                    return
                holders = self._holders.get(job_id, [])
                awaited = job.state is JobState.PENDING and job_id in self._parked
                if awaited or any(holder.is_connected for holder in holders):
                    return
                if not self._has_steps(job) and not any(holder.is_there() for holder in holders):
                    self._cancel(job_id, "its client is gone")
                    return
        finally:
            self._expected.discard(job_id)

    def _has_steps(self, job: Job) -> bool:
        """Whether the job has running steps: these end with their client, so it lives."""
        state = self._context.machine.state
        return any(state.steps.get(member.id, {}).keys() - {STEP_EXTERN} for member in het.members(state, job))

    def _cancel(self, job_id: int, cause: str) -> None:
        self._context.log.info("job.abandoned", job_id=job_id, cause=cause)
        job_filter = JobFilter(targets=(JobTarget(job_id),))
        self._context.writer.handle(CancelJobs(filter=job_filter, comment=cause), SYSTEM)

    # Steps

    def create_step(self, command: CreateStep | CreateHetStep, call: Call) -> Deferred:
        """Lay the step out now; with `wait`, park it while other steps hold the resources."""
        machines = self._context.machines
        if machines is not None:
            command = machines.reachable(command, call)
        parked = self._steps.get(command.job_id)
        if not parked:
            self._try_step(command, call)
        elif command.wait:
            parked.append((command, call))
        else:
            call.reply(Rejection(code="ESLURM_NODES_BUSY"))  # first come, first served
        return DEFERRED

    def _try_step(self, command: CreateStep | CreateHetStep, call: Call) -> bool:
        """Try a step. Returns whether the request is finished, granted or refused."""
        context = self._context
        caller = context.identity.caller(call)
        held: list[Struct | None] = []
        reply = context.writer.handle(command, caller, lambda reply: None if held else call.reply(reply))
        if command.wait and isinstance(reply, Rejection) and reply.code in STEP_WAITS:
            held.append(reply)
            self._park_step(command, call)
            return False
        return True

    def _park_step(self, command: CreateStep | CreateHetStep, call: Call) -> None:
        self._steps.setdefault(command.job_id, []).append((command, call))

    def _retry_steps(self, job_id: int) -> None:
        parked = self._steps.pop(job_id, [])
        for place, (command, call) in enumerate(parked[:RETRIES_MAX]):
            if call.abandoned:
                continue
            try:
                is_settled = self._try_step(command, call)
            except Exception as error:
                call.crashed(error)  # a fault of the core must not affect the requests behind this one
                continue
            if not is_settled:
                # First come, first served: later requests wait too, and this one goes back to the front.
                remaining = parked[place + 1 :]
                self._steps[job_id] += remaining
                return
        remaining = parked[RETRIES_MAX:]
        if remaining:
            self._steps[job_id] = remaining
            self._touched[job_id] = None

    # Events

    def _park(self, job_id: int, check: Callable[[], bool]) -> None:
        self._parked.setdefault(job_id, []).append(check)

    def _rebuild(self) -> None:
        """Check every parked request again, and interactive jobs that need a client."""
        self._touched.update(dict.fromkeys((*self._parked, *self._steps)))
        for job in self._context.machine.state.jobs.values():
            if _needs_client(job):
                self._expect(job.id, self._grace())

    def _listen(self, events: Sequence[Event]) -> None:
        """Note jobs with parked requests, and new jobs that need a client."""
        jobs = self._context.machine.state.jobs
        for event in events:
            if type(event) is JobQueued and _needs_client(event.job):
                self._expect(event.job.id, self._grace())
            elif type(event) is JobStarted:
                job = jobs.get(event.job_id)
                if job is not None and _is_copy(job) and _needs_client(job):
                    self._expect(job.id, self._return_seconds())  # its origin tells its client
        if not self._parked and not self._steps:
            return
        if self._steps and any(type(event) is StepEnded for event in events):
            # A step's ports become free for steps of other jobs too.
            self._touched.update(dict.fromkeys(job_id for job_id, parked in self._steps.items() if _ask_ports(parked)))
        for event in events:
            job_id = event.job.id if type(event) is JobUpdated else getattr(event, "job_id", None)
            if job_id is None:
                continue
            if job_id in self._parked or job_id in self._steps:
                self._touched[job_id] = None
            job = jobs.get(job_id)
            if job is not None and job.array_job_id in self._parked:
                self._touched[job.array_job_id] = None
            if job is not None and (job.het_job_id in self._parked or job.het_job_id in self._steps):
                self._touched[job.het_job_id] = None

    def _look(self) -> None:
        """At the end of a turn: answer the requests that can be answered now."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        for job_id in touched:
            checks = self._parked.pop(job_id, None)
            if checks:
                left = [check for check in checks if not check()]
                if left:
                    self._parked[job_id] = left
            if job_id in self._steps:
                self._retry_steps(job_id)


def _needs_client(job: Job) -> bool:
    """Whether this cluster ends the job when its client is gone. The client of a federated job is at the origin while
    it waits, and where it runs afterwards.
    """
    if not job.spec.interactive or job.state.ended or job.het_offset:
        return False
    return job.state.active if _is_copy(job) else not _runs_elsewhere(job)


def _is_copy(job: Job) -> bool:
    return job.federation is not None and not job.federation.is_origin


def _runs_elsewhere(job: Job) -> bool:
    return job.federation is not None and bool(job.federation.runs_on)


def _ask_ports(parked: list[tuple[CreateStep | CreateHetStep, Call]]) -> bool:
    return any(isinstance(command, CreateStep) and command.spec.ports is not None for command, _call in parked)


class _Holder:
    """A client that got a grant: its connection, and its process if the kernel identified it."""

    __slots__ = ("_began", "_channel", "_pid")

    def __init__(self, call: Call) -> None:
        credentials = call.caller
        self._channel = call.channel
        self._pid = credentials.pid if credentials is not None else 0
        self._began = _process_began(self._pid)

    @property
    def is_connected(self) -> bool:
        return self._channel.is_open

    def is_there(self) -> bool:
        """Whether it is connected, or its process lives and has merely closed the connection."""
        return self.is_connected or (self._began != "" and _process_began(self._pid) == self._began)

    def is_dead(self) -> bool:
        """Whether its process is known to have ended; always False for a process on another machine."""
        return self._began != "" and not self.is_there()


def _exit_code(job: Job) -> int:
    """The exit code of `sbatch --wait`: the job's exit code, or 1 if a signal ended it."""
    return 1 if job.exit_status & 0x7F else job.exit_status >> 8


def _process_began(pid: int) -> str:
    """Start time of a process in ticks, which distinguishes reused process ids; "" if it is gone."""
    if not pid:
        return ""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
