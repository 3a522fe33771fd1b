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
- `CreateStep(wait=True)`: asked again, first come first served, whenever a step of that job ends, or the request before
  it is abandoned.

A request leaves its queue when its caller goes away. An event costs the same however many requests wait for its job.

Source: salloc(1), srun(1), sbatch(1) --wait; slurm.conf(5) InactiveLimit.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.controller.needs import Clocked, Configured, Counted, Identifying, Logged, Reading, Spawning
from spritz.controller.nodes.messages import components_of
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.core.decide.running.steps import step_made_by
from spritz.core.job import het
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.job import CancelJobs
from spritz.model.commands.step import STEP_WAITS, CreateHetStep, CreateStep
from spritz.model.events.job import JobQueued, JobStarted, JobUpdated
from spritz.model.events.step import StepEnded
from spritz.model.ids import STEP_EXTERN
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation
from spritz.model.queries.jobs import AwaitEnd, JobEndedReply
from spritz.model.rejection import Rejection
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call
    from spritz.controller.nodes.machines import Machines
    from spritz.model.events import Event
    from spritz.model.job.record import Job

#: Seconds for the client of a granted interactive job to reconnect, and between checks of its process, unless
#: InactiveLimit is set.
GRACE_SECONDS = 10.0

#: Seconds to the first check of processes whose connections have closed; the interval doubles with each check.
_SOON_SECONDS = 0.02

#: Seconds for clients to come back after a restart, unless InactiveLimit is set; clients retry every few seconds.
RETURN_SECONDS = 30.0

#: Parked steps of a job that are tried in one turn of the loop; the next ones follow in the next turn.
RETRIES_MAX = 16

#: Answers to parked requests that are sent in one turn of the loop; thousands may wait for one job.
ANSWERS_MAX = 100

#: A request for a step, as it is parked.
_StepRequest = CreateStep | CreateHetStep

_Value = TypeVar("_Value")


class Waiting(Clocked, Configured, Counted, Identifying, Logged, Reading, Spawning, Writing, Protocol):
    """What requests wait for."""

    @property
    def machines(self) -> Machines | None: ...


class DeferredRequests:
    """Answers AwaitAllocation, AwaitEnd and CreateStep, now or once the event that each waits for has happened."""

    def __init__(self, context: Waiting) -> None:
        self._context = context
        #: job number -> AwaitAllocation requests, each with the task that ends its wait
        self._allocations: dict[int, dict[Call, asyncio.Task[None] | None]] = {}
        #: job number -> AwaitEnd requests
        self._ends: dict[int, dict[Call, None]] = {}
        #: job number -> requests for steps, in the order of their arrival. Ordered dictionaries: removing the first of
        #: a plain one over and over takes time that is quadratic in their number.
        self._steps: dict[int, dict[Call, _StepRequest]] = {}
        #: jobs whose first request for a step waits for ports, which steps of other jobs may hold
        self._ports_wanted: dict[int, None] = {}
        #: answers that are due, each to be sent by a call
        self._answers: deque[Callable[[], None]] = deque()
        #: Jobs whose requests are looked at again at the end of this turn, in the order of their events: `_look` may
        #: hand in commands, and the order of a set would be another one in each process.
        self._touched: dict[int, None] = {}
        #: interactive job -> clients that got its grant
        self._holders: dict[int, list[_Holder]] = {}
        #: Interactive jobs that may have lost all their clients: each has one task that waits for them, however many
        #: connections close.
        self._expected: set[int] = set()
        context.writer.listeners.add("waiting", self._listen, Loss.REBUILD, self._rebuild)
        context.writer.hooks.append(self._look)
        # After a restart no connection is left, and who held a job is not journaled. Clients that live connect again
        # and ask; a job whose client died while the controller was away has none that could tell.
        for job in context.machine.state.jobs.values():
            if _needs_client(job):
                self._expect(job.id, self._return_seconds())
        context.counters.append(lambda: {"waiting.requests_count": float(self.waiting)})

    @property
    def waiting(self) -> int:
        """Number of parked requests."""
        return sum(len(queue) for queues in (self._allocations, self._ends, self._steps) for queue in queues.values())

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
        if self._is_settled(job.id):
            # Its start may still be on its way to the disk. Told before that, salloc would run commands in an
            # allocation that a crash then undoes.
            context.writer.when_durable(lambda: self._grant(job.id, call))
            return DEFERRED
        timeout = None
        if request.timeout_seconds is not None:
            timeout = context.tasks.spawn_contained(
                self._give_up(job.id, call, request.timeout_seconds), name="await-allocation.timeout"
            )
        self._allocations.setdefault(job.id, {})[call] = timeout
        call.on_abandon(lambda: self._allocation_abandoned(job.id, call))
        return DEFERRED

    def await_end(self, request: AwaitEnd, call: Call) -> Struct | Deferred:
        """Park until the job, or the whole array, has ended."""
        self._context.identity.caller(call)
        job_id = request.job_id
        if job_id not in self._context.machine.state.jobs:
            return Rejection(code="ESLURM_INVALID_JOB_ID")
        if self._has_ended(job_id):
            self._answer_ends(job_id, (call,))
        else:
            self._ends.setdefault(job_id, {})[call] = None
            call.on_abandon(lambda: _remove(self._ends, job_id, call))
        return DEFERRED

    def _allocation_abandoned(self, job_id: int, call: Call) -> None:
        timeout = _remove(self._allocations, job_id, call)
        if timeout is not None:
            timeout.cancel()
        if job_id in self._allocations:
            return  # another client waits for it: the same one, over a new connection, before this one was found broken
        job = self._context.machine.state.jobs.get(job_id)
        if job is not None and job.spec.interactive:
            self._cancel(job_id, "its client went away while it was waiting")

    def _is_settled(self, job_id: int) -> bool:
        """Whether the job is no longer pending, or gone."""
        state = self._context.machine.state
        job = state.jobs.get(job_id)
        if job is None:
            return True
        # Of a heterogeneous job all components must have their prologs behind them: srun needs all of them.
        waits = job.state is JobState.PENDING and not _runs_elsewhere(job)
        return not waits and not het.configuring(state, job)

    def _has_ended(self, job_id: int) -> bool:
        """Whether the job, and every task of the array, has ended, or is gone."""
        state = self._context.machine.state
        job = state.jobs.get(job_id)
        if job is None:
            return True
        if not job.state.ended:
            return False
        # The record of an array may have ended, with its last pending task started, while tasks run. Those whose nodes
        # are not clear yet have ended: who waits for one job does not wait for its epilog either.
        live = state.arrays_live.get(job_id, 0) if job.array_job_id == job_id else 0
        if live > len(state.completing):
            return False
        tasks = (state.jobs[number] for number in state.completing) if live else ()
        return sum(task.array_job_id == job_id and task.state.ended for task in tasks) == live

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
            # It asked when the job had started and left before that was durable: it was in no queue, and holds nothing
            # yet. Neither `_allocation_abandoned` nor `_holder_left` sees that.
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
        # Out of the queue first: `_look` would answer it again.
        _remove(self._allocations, job_id, call)
        self._grant(job_id, call)
        job = self._context.machine.state.jobs.get(job_id)
        if job is not None and _needs_client(job):
            self._expect(job_id, self._grace())  # its client is to ask again

    def _answer_ends(self, job_id: int, calls: Sequence[Call]) -> None:
        state = self._context.machine.state
        job = state.jobs.get(job_id)
        if job is None:
            for call in calls:
                call.fail(Rejection(code="ESLURM_INVALID_JOB_ID"))
            return
        tasks = [state.jobs[number] for number in state.arrays.get(job_id, {}).values() if number in state.jobs]
        worst = max((job, *tasks), key=_exit_code)
        reply = JobEndedReply(job_id=job_id, state=worst.state.value, exit_status=worst.exit_status)
        self._answer(partial(call.reply, reply) for call in calls)

    def _answer(self, answers: Iterable[Callable[[], None]]) -> None:
        """Send answers when what they reveal is durable, a few in each turn of the loop."""
        self._context.writer.when_durable(partial(self._begin_answers, answers))

    def _begin_answers(self, answers: Iterable[Callable[[], None]]) -> None:
        # A turn is planned already while some are left: beginning again here would send twice as many in each turn.
        is_first = not self._answers
        self._answers.extend(answers)
        if is_first:
            self._send_answers()

    def _send_answers(self) -> None:
        try:
            for _ in range(min(ANSWERS_MAX, len(self._answers))):
                self._answers.popleft()()
        finally:
            # Also if one raised: those behind it would wait for ever.
            if self._answers:
                asyncio.get_running_loop().call_soon(self._send_answers)

    # Clients of interactive jobs

    def _hold(self, job_id: int, call: Call) -> None:
        """Remember a client that got the grant: salloc, but also every srun below it."""
        holders = self._holders.setdefault(job_id, [])
        # An allocation of a day may see a thousand sruns come and go.
        holders[:] = [holder for holder in holders if holder.is_there()]
        holders.append(_Holder(call))
        call.channel.on_close(lambda: self._holder_left(job_id))

    def _holder_left(self, job_id: int) -> None:
        job = self._context.machine.state.jobs.get(job_id)
        if job is not None and job.state.active:
            # Two ways to notice, since neither sees all. The first is certain and late, also for clients on other
            # machines, where no process can be looked at; the second is quick, for those that were killed here.
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
            # Not while a step runs: its srun may be a child that outlived salloc, and asks for no grant of its own.
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
                awaited = job.state is JobState.PENDING and job_id in self._allocations
                # From here its connection watches: when that closes, `_holder_left` or `_allocation_abandoned` does.
                if awaited or any(holder.is_connected for holder in holders):
                    return
                if not self._has_steps(job) and not any(holder.is_there() for holder in holders):
                    self._cancel(job_id, "its client is gone")
                    return
        finally:
            self._expected.discard(job_id)

    def _has_steps(self, job: Job) -> bool:
        """Whether the job has running steps: these end with their client, so it lives."""
        # But the job's container (PrologFlags=Contain), which has no client and lasts as long as the job.
        state = self._context.machine.state
        return any(state.steps.get(member.id, {}).keys() - {STEP_EXTERN} for member in het.members(state, job))

    def _cancel(self, job_id: int, cause: str) -> None:
        self._context.log.info("job.abandoned", job_id=job_id, cause=cause)
        job_filter = JobFilter(targets=(JobTarget(job_id),))
        self._context.writer.handle(CancelJobs(filter=job_filter, comment=cause), SYSTEM)

    # Steps

    def create_step(self, command: _StepRequest, call: Call) -> Deferred:
        """Lay the step out now; with `wait`, park it while other steps hold the resources."""
        machines = self._context.machines
        if machines is not None:
            command = machines.reachable(command, call)
        job_id = command.job_id
        # First come, first served. A repeated request whose step exists takes nothing from the others; behind them it
        # would wait for itself: they wait for the end of its step, which its client does not know of.
        if self._first_step(job_id) is None or self._is_made(command):
            if not self._try_step(command, call):
                self._park_step(command, call)
        elif command.wait:
            self._park_step(command, call)
        else:
            call.reply(Rejection(code="ESLURM_NODES_BUSY"))
        return DEFERRED

    def _is_made(self, command: _StepRequest) -> bool:
        """Whether an earlier request of the same client has created the step."""
        if not command.again:
            return False
        job_id, spec = command.job_id, None
        if isinstance(command, CreateStep):
            spec = command.spec
        elif command.parts:
            component, spec = command.parts[0]
            job_id += component
        return spec is not None and step_made_by(self._context.machine.state, job_id, spec.io_key) is not None

    def _try_step(self, command: _StepRequest, call: Call) -> bool:
        """Try a step. Returns whether the request is finished, granted or refused; if not, it must be parked."""
        context = self._context
        caller = context.identity.caller(call)
        # The core's answer is there at once, and is sent only when it is durable. That the resources are busy is no
        # answer to a request that waits, so it is held back; but that is known only when `handle` has returned.
        held: list[Struct | None] = []
        reply = context.writer.handle(command, caller, lambda reply: None if held else call.reply(reply))
        if command.wait and isinstance(reply, Rejection) and reply.code in STEP_WAITS:
            held.append(reply)
            return False
        return True

    def _park_step(self, command: _StepRequest, call: Call) -> None:
        job_id = command.job_id
        self._steps.setdefault(job_id, OrderedDict())[call] = command
        self._note_first(job_id)
        call.on_abandon(lambda: self._step_abandoned(job_id, call))

    def _step_abandoned(self, job_id: int, call: Call) -> None:
        """The next one may fit: try it at the end of this turn."""
        # It may ask for less than the one that is gone. No event follows that would try it: without this it waits until
        # some step of the job ends, though its resources are free.
        _remove(self._steps, job_id, call)
        self._note_first(job_id)
        if job_id in self._steps:
            self._touched[job_id] = None
            self._context.writer.turn()

    def _first_step(self, job_id: int) -> tuple[Call, _StepRequest] | None:
        """The first request for a step of the job that is still wanted; those before it are dropped."""
        while queue := self._steps.get(job_id):
            call, command = next(iter(queue.items()))
            if not call.abandoned:
                return call, command
            _remove(self._steps, job_id, call)
        return None

    def _note_first(self, job_id: int) -> None:
        """Note whether the first request for a step of the job waits for ports."""
        first = self._first_step(job_id)
        if first is not None and isinstance(first[1], CreateStep) and first[1].spec.ports is not None:
            self._ports_wanted[job_id] = None
        else:
            self._ports_wanted.pop(job_id, None)

    def _retry_steps(self, job_id: int) -> None:
        """Try the requests for steps in their order, up to the first that must wait."""
        for _ in range(RETRIES_MAX):
            first = self._first_step(job_id)
            if first is None:
                return
            call, command = first
            try:
                is_finished = self._try_step(command, call)
            except Exception as error:
                call.crashed(error)  # a fault of the core must not affect the requests behind this one
                is_finished = True
            if not is_finished:
                return
            _remove(self._steps, job_id, call)
            self._note_first(job_id)
        # Some are left, and each may fit. Thousands of them (srun in a loop, &) must not take one turn.
        if job_id in self._steps:
            self._touched[job_id] = None
            asyncio.get_running_loop().call_soon(self._context.writer.turn)  # a turn during the hooks is this one

    # Events

    def _rebuild(self) -> None:
        """Check every parked request again, and interactive jobs that need a client."""
        # The requests themselves are not lost with events, only the notice that one can be answered.
        self._touched.update(dict.fromkeys((*self._allocations, *self._ends, *self._steps)))
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
        allocations, ends, steps = self._allocations, self._ends, self._steps
        if not allocations and not ends and not steps:
            return
        if self._ports_wanted and any(type(event) is StepEnded for event in events):
            # A step's ports become free for steps of other jobs too.
            self._touched.update(self._ports_wanted)
        for event in events:
            # Any event of the job, not a list of kinds: a kind that was forgotten here would be a request that is never
            # answered, and a look that was not needed costs nothing.
            job_id = event.job.id if type(event) is JobUpdated else getattr(event, "job_id", None)
            if job_id is None:
                continue
            job = jobs.get(job_id)
            # `sbatch --wait` of an array waits under the array's number, `salloc` of a heterogeneous job under its
            # leader's: the last task or component that ends (or starts) has another one.
            numbers = (job_id,) if job is None else (job_id, job.array_job_id, job.het_job_id)
            for number in numbers:
                if number in allocations or number in ends or number in steps:
                    self._touched[number] = None

    def _look(self) -> None:
        """At the end of a turn: answer the requests that can be answered now."""
        if not self._touched:
            return
        # A new one first: steps that are granted below touch their jobs again, for the next turn.
        touched, self._touched = self._touched, {}
        for job_id in touched:
            if job_id in self._allocations and self._is_settled(job_id):
                # Popped before the answers are durable: a client that leaves meanwhile is seen by `_grant`, by its
                # call.
                settled = self._allocations.pop(job_id)
                for timeout in settled.values():
                    if timeout is not None:
                        timeout.cancel()
                self._answer([partial(self._grant, job_id, call) for call in settled])
            if job_id in self._ends and self._has_ended(job_id):
                self._answer_ends(job_id, tuple(self._ends.pop(job_id)))
            if job_id in self._steps:
                self._retry_steps(job_id)


def _remove(queues: dict[int, dict[Call, _Value]], job_id: int, call: Call) -> _Value | None:
    """Remove a request from a job's queue, and an empty queue. Returns its entry; None if it was not there."""
    queue = queues.get(job_id)
    if queue is None:
        return None
    value = queue.pop(call, None)
    if not queue:
        del queues[job_id]
    return value


def _needs_client(job: Job) -> bool:
    """Whether this cluster ends the job when its client is gone. The client of a federated job is at the origin while
    it waits, and where it runs afterwards.
    """
    # Components have no client of their own: they end with their leader.
    if not job.spec.interactive or job.state.ended or job.het_offset:
        return False
    return job.state.active if _is_copy(job) else not _runs_elsewhere(job)


def _is_copy(job: Job) -> bool:
    return job.federation is not None and not job.federation.is_origin


def _runs_elsewhere(job: Job) -> bool:
    return job.federation is not None and bool(job.federation.runs_on)


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
        """Whether the client is connected, or its process lives and has merely closed the connection."""
        return self.is_connected or (self._began != "" and _process_began(self._pid) == self._began)

    def is_dead(self) -> bool:
        """Whether the client's process is known to have ended; always False for a process on another machine."""
        return self._began != "" and not self.is_there()


def _exit_code(job: Job) -> int:
    """The exit code of `sbatch --wait`: the job's exit code, or 1 if a signal ended it."""
    return 1 if job.exit_status & 0x7F else job.exit_status >> 8


def _process_began(pid: int) -> str:
    """Start time of a process in ticks, which distinguishes reused process ids; "" if it is gone."""
    # A zombie is gone: its parent, which may be a shell that does not wait, keeps the number for as long as it likes.
    if not pid:
        return ""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    # Fields are counted from the end of the command's name, which may have spaces and parentheses of its own.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]
