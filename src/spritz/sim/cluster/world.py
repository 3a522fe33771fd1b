"""Replay through the production core and cycle: submissions and ends of jobs on an event queue, without daemons.

`Machine.handle` decides every command and its events feed the scheduler's `Projection`, as in the controller. Nodes
answer immediately: a launched job runs for as long as the trace says (from the beginning again if requeued), and a job
that is terminated is gone at once. After all events of the same time, one full cycle runs. So a replay has no queue
depth, no interval between cycles and no latency: what remains is policy.

Source: docs/simulate.md.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from spritz.core import effects
from spritz.core.machine import Machine
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.cluster import ApplyPlan, Configure, Tick
from spritz.model.commands.job import JobSubmitted
from spritz.model.events import job as job_events
from spritz.model.ids import STEP_BATCH
from spritz.model.node_daemon.reports import JobGone, RegisterNode, StepFinished, StepStarted, TaskEnd
from spritz.scheduling.plan import cycle
from spritz.scheduling.view.projection import Projection
from spritz.scheduling.view.snapshot import History

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.config.loaded import LoadedConfig
    from spritz.model.cluster.settings import Caller
    from spritz.model.commands.job import SubmitJob
    from spritz.model.events import Event

#: Virtual time begins here, seconds since the epoch: the core takes 0 for "never".
EPOCH = 1_000_000_000.0

_NEVER = float("inf")

#: At the same time, ends come before submissions.
_END, _SUBMIT, _LOOK = 0, 1, 2


class Arrival(Struct, frozen=True, kw_only=True):
    """A submission: time (seconds of the trace), caller, command, and run time."""

    at: float
    caller: Caller
    command: SubmitJob
    run: float


class Replay(Struct, kw_only=True):
    """The outcome of each arrival, by its index: first start (trace seconds; -1: never), and counts.

    `reserved`: jobs that had a planned start before they started; `broken`: those that started later than the earliest
    start ever planned for them.
    """

    start: list[float]
    refused: dict[int, str] = field(default_factory=dict)
    waiting: dict[int, str] = field(default_factory=dict)
    preemptions: int = 0
    requeues: int = 0
    reserved: int = 0
    broken: int = 0
    cycles: int = 0
    events: int = 0


def replay_cluster(
    config: LoadedConfig, arrivals: Sequence[Arrival], tick: Callable[[int], None] | None = None
) -> Replay:
    """Replay arrivals (in order of time) on the cluster of this configuration."""
    world = _World(config, arrivals)
    world.go(tick)
    return world.replay


class _World:
    def __init__(self, config: LoadedConfig, arrivals: Sequence[Arrival]) -> None:
        self.arrivals = arrivals
        self.replay = Replay(start=[-1.0] * len(arrivals))
        self.machine = Machine(config.cluster)
        self.projection = Projection()
        self.now = EPOCH
        #: heap of (time, kind, index of the arrival, life); the end of a life other than the job's current one is void
        self.queue: list[tuple[float, int, int, int]] = []
        #: job id <-> index of its arrival
        self.index: dict[int, int] = {}
        self.job_ids: dict[int, int] = {}
        self.life: dict[int, int] = {}
        #: remaining run time of suspended jobs, seconds; end time of running jobs
        self.remaining: dict[int, float] = {}
        self.ends: dict[int, float] = {}
        #: by job id, the earliest start planned for it
        self.planned_start: dict[int, float] = {}
        self.cycle_needed = False
        # The accounting database is not available: with enforcement on, every user would be unknown.
        settings = structs.replace(config.cluster, enforce=())
        self._do(Configure(settings=settings, nodes=config.nodes, partitions=config.partitions))
        for node in config.nodes:
            self._do(
                RegisterNode(
                    name=node.name, capacity=node.capacity, booted_at=EPOCH, daemon_started_at=EPOCH, version="sim"
                )
            )
        state = self.machine.state
        self.projection.reset(
            state.jobs.values(),
            state.nodes.values(),
            state.partitions.values(),
            state.settings,
            state.reservations.values(),
            state.rules.policy,
        )

    def go(self, tick: Callable[[int], None] | None) -> None:
        for index, arrival in enumerate(self.arrivals):
            heappush(self.queue, (EPOCH + arrival.at, _SUBMIT, index, 0))
        handled = 0
        while True:
            deadline = self.machine.next_deadline()
            due = self.queue[0][0] if self.queue else _NEVER
            if due == _NEVER and not self._open():
                break
            at = min(due, deadline if deadline is not None else _NEVER)
            if at == _NEVER:
                break
            self.now = max(self.now, at)
            while self.queue and self.queue[0][0] <= self.now:
                _, kind, index, life = heappop(self.queue)
                if kind == _SUBMIT:
                    self._submit(index)
                elif kind == _LOOK:
                    self.cycle_needed = True
                elif self.life.get(index) == life:
                    self._finish(index)
                handled += 1
                if tick is not None and handled % 200 == 0:
                    tick(handled)
            if deadline is not None and deadline <= self.now:
                self._do(Tick())
            if self.cycle_needed:
                self._cycle()
        self.replay.events = handled
        for job_id, job in self.machine.state.jobs.items():
            index = self.index.get(job_id, -1)
            if index >= 0 and self.replay.start[index] < 0:
                self.replay.waiting[index] = job.reason.name

    def _open(self) -> bool:
        """Whether a job runs, or waits for a time limit or begin time that a deadline will reach."""
        return bool(self.ends) or bool(self.machine.state.pending and self.machine.next_deadline() is not None)

    def _do(self, command: Struct, caller: Caller = SYSTEM) -> Struct:
        outcome = self.machine.handle(command, self.now, caller)
        self.projection.follow(outcome.changes)
        for event in outcome.events:
            self._follow(event)
        for effect in outcome.effects:
            self._obey(effect)
        return outcome.reply

    def _submit(self, index: int) -> None:
        arrival = self.arrivals[index]
        reply = self._do(arrival.command, arrival.caller)
        if isinstance(reply, JobSubmitted):
            self.index[reply.job_id] = index
            self.job_ids[index] = reply.job_id
        else:
            self.replay.refused[index] = getattr(reply, "code", type(reply).__name__)
        self.cycle_needed = True

    def _cycle(self, again: bool = False) -> None:
        self.cycle_needed = False
        if not self.machine.state.pending:
            return
        self.replay.cycles += 1
        state = self.machine.state
        history = History(state.minutes, state.run_times)
        plan, findings = cycle.run(self.projection.snapshot(self.now, history))
        self.projection.remember(findings)
        self._do(ApplyPlan(plan=plan))
        self.projection.adopt(plan)
        for future_start in plan.future_starts or ():
            self.planned_start[future_start.holder] = min(
                future_start.start_at, self.planned_start.get(future_start.holder, _NEVER)
            )
        if plan.look_again_at > self.now:
            heappush(self.queue, (plan.look_again_at, _LOOK, -1, 0))
        # Events of the plan itself are no reason for another cycle at the same time, except that preempted jobs free
        # resources.
        if not plan.preemptions:
            self.cycle_needed = False
        elif self.cycle_needed:
            self._cycle()
        if plan.look_again_at == self.now and not again:
            self._cycle(again=True)

    # -- what nodes do

    def _obey(self, effect: effects.Effect) -> None:
        if isinstance(effect, effects.LaunchBatchOn):
            self._do(
                StepStarted(
                    node=effect.node,
                    job_id=effect.job_id,
                    restart_count=effect.restart_count,
                    step_id=STEP_BATCH,
                    started_at=self.now,
                )
            )
        elif isinstance(effect, effects.TerminateJobOn):
            self._do(JobGone(node=effect.node, job_id=effect.job_id, restart_count=effect.restart_count))

    def _finish(self, index: int) -> None:
        job_id = self.job_ids[index]
        job = self.machine.state.jobs.get(job_id)
        if job is None or job.allocation is None:
            return
        self._do(
            StepFinished(
                node=job.allocation.nodes[0].node,
                job_id=job_id,
                restart_count=job.restart_count,
                step_id=STEP_BATCH,
                ended_at=self.now,
                tasks=(TaskEnd(0, 0),),
                job_gone=True,
            )
        )

    def _follow(self, event: Event) -> None:
        self.cycle_needed = True
        if isinstance(event, job_events.JobStarted):
            index = self.index[event.job_id]
            if self.replay.start[index] < 0:
                self.replay.start[index] = self.now - EPOCH
                planned_start = self.planned_start.pop(event.job_id, None)
                self.replay.reserved += planned_start is not None
                self.replay.broken += planned_start is not None and self.now > planned_start
            self._runs_for(event.job_id, self.arrivals[index].run)
        elif isinstance(event, job_events.JobEnded):
            self._stops(event.job_id)
            self.remaining.pop(event.job_id, None)
        elif isinstance(event, job_events.JobPreempted):
            self.replay.preemptions += 1
        elif isinstance(event, job_events.JobRequeued):
            self.replay.requeues += 1
        elif isinstance(event, job_events.JobSuspended):
            self.remaining[event.job_id] = max(0.0, self.ends.get(event.job_id, self.now) - self.now)
            self._stops(event.job_id)
        elif isinstance(event, job_events.JobResumed) and event.job_id in self.remaining:
            self._runs_for(event.job_id, self.remaining.pop(event.job_id))

    def _runs_for(self, job_id: int, seconds: float) -> None:
        index = self.index[job_id]
        self.life[index] = self.life.get(index, 0) + 1
        self.ends[job_id] = self.now + seconds
        heappush(self.queue, (self.now + seconds, _END, index, self.life[index]))

    def _stops(self, job_id: int) -> None:
        if self.ends.pop(job_id, None) is not None:
            self.life[self.index[job_id]] += 1
