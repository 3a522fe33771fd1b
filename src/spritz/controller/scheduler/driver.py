"""Runs scheduling passes and applies their plans.

`pacing` decides when a pass runs, `scheduling.plan.cycle` makes the plan, and the core decides which of its items are
carried out. This module owns the projection. A quick pass runs at the end of a turn of the loop, so that a start joins
the group of the submission that made it possible. A full pass runs in a forked child, on the child's copy of the
projection; while the system refuses forks, it runs in the loop, for a short time. Plans are applied in slices
(`slices`), one a turn, so that requests are answered meanwhile. No other pass begins until the last slice is
applied; the core drops items that have become stale by then.

Source: slurm.conf(5) SchedulerParameters; docs/decisions/0158.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from spritz.controller.forked import Child, ForkRefused
from spritz.controller.needs import Clocked, Counted, Logged, Reading
from spritz.controller.scheduler.forecasts import Forecasts, history_of
from spritz.controller.scheduler.pacing import (
    NEVER,
    QUICK_SECONDS,
    RETRY_SECONDS,
    ClockSet,
    Full,
    FullEnded,
    FullPlanned,
    LookAgain,
    Outcome,
    Pacer,
    ParametersChanged,
    PassWanted,
    QueueState,
    Quick,
    QuickEnded,
    Submission,
)
from spritz.controller.scheduler.pass_wanted import wants_pass
from spritz.controller.scheduler.slices import slices
from spritz.controller.writer.durable import Writing
from spritz.controller.writer.listeners import Loss
from spritz.core.shares import beyond_cluster
from spritz.model.commands.cluster import ApplyPlan, KeepPriorities
from spritz.model.commands.job import Done
from spritz.model.events.job import JobPreempted
from spritz.model.plan import Plan
from spritz.model.states import JobState
from spritz.scheduling.explain.nodes import lacking
from spritz.scheduling.forecast import full_cycle
from spritz.scheduling.plan import cycle, feasible
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.projection import Projection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.controller.diagnostics import Counting
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.controller.scheduler.pacing import Event as PacingEvent
    from spritz.model.events import Changes, Event
    from spritz.model.job.record import Job, JobSpec
    from spritz.scheduling.view.parameters import Parameters
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import History
    from spritz.scheduling.view.table import NodeTable

#: Placements that a quick pass tries, unless default_queue_depth sets another number.
QUICK_PLACEMENTS = 64

#: Seconds for a full pass: a child that takes longer is taken to be stuck.
FULL_SECONDS = 600.0

#: Seconds of the loop that a full pass may take where no child can be forked, or it fails; it then leaves jobs out.
INLINE_FULL_SECONDS = 0.1

#: Waiting jobs, with priorities that changed over time, that one quick pass re-sorts.
REORDERED_MAX = 500

#: With at most this many waiting jobs, a full pass follows whenever another job has to wait, so that its expected start
#: is known soon.
SHORT_QUEUE = 1000

#: Tolerated difference, seconds, between the clock of plans (time of day) and that of pacing over a wait.
CLOCK_SECONDS = 0.01

#: Nodes whose free resources over time are computed at once. While more than `MANY_STALE` remain, the next batch
#: follows after the pause.
SETTLED_AT_ONCE = 64
MANY_STALE = 256
SETTLE_PAUSE_SECONDS = 0.02

_encode_plan = Encoder().encode
_decode_plan = Decoder(Plan).decode


class Driving(Clocked, Counted, Logged, Reading, Writing, Protocol):
    """What a scheduling pass reads, and where its plan goes; the first three are the driver's to set."""

    forecasts: Forecasts
    check_request: Callable[[JobSpec], tuple[str, str] | None]
    check_whole: Callable[[Sequence[JobSpec]], tuple[str, str] | None]

    @property
    def counting(self) -> Counting: ...

    @property
    def scheduling_paused(self) -> bool: ...


class _Application(Struct):
    """A plan that is being applied."""

    plan: Plan
    #: remaining slices for the core
    slices: deque[Plan]
    #: the nodes that it was made for
    table: NodeTable
    #: called once, when the whole plan has been applied or the rest has been dropped
    ended: Callable[[_Application, Outcome], None]
    #: length of `Projection.redeemed` at the snapshot that it was made from
    redeemed: int = 0
    #: loop time used so far, seconds
    seconds: float = 0.0
    #: jobs started by it
    started: int = 0


class SchedulerDriver:
    """Follows changes, runs passes, applies plans."""

    def __init__(self, context: Driving) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._projection = Projection()
        context.forecasts = Forecasts(self._projection)
        self._pacer = Pacer(self._policy)
        #: False: the projection has missed an event, and is rebuilt from the records before the next pass
        self._trusted = False
        self._trust()
        #: plans being applied, in order
        self._applications: deque[_Application] = deque()
        #: the full pass in progress
        self._child: Child | None = None
        #: with INCR_ONLY: time of the next journaling of changed priorities
        self._priorities_due_at = 0.0
        #: the next requested turn, and its time
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = NEVER
        self._settle_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self.counts = {
            "cycle.quick_count": 0.0,
            "cycle.full_count": 0.0,
            "cycle.inline_count": 0.0,
            "cycle.quick_seconds": 0.0,
            "cycle.stale_count": 0.0,
        }
        context.writer.listeners.add("scheduler", self._listen, Loss.REBUILD, self._distrust, follow=self._follow)
        context.writer.hooks.append(self._at_end_of_turn)
        context.counters.append(lambda: dict(self.counts))
        checks = feasible.Checks(self._projection, lacking)
        context.check_request = lambda spec: checks.check(spec, context.clock.now())
        context.check_whole = lambda specs: feasible.check_whole(
            specs, self._projection.snapshot(context.clock.now(), self._history)
        )

    def stop(self) -> None:
        """Start no more passes, and drop the remaining parts of current plans."""
        self._stopped = True
        self._applications.clear()
        for timer in (self._timer, self._settle_timer):
            if timer is not None:
                timer.cancel()
        if self._child is not None:
            self._child.kill()

    def clock_set(self) -> None:
        """The time of day has jumped."""
        self._note(ClockSet())
        self._context.writer.turn()

    def take_fairshare(self, factors: dict[tuple[str, str], float], special: dict[tuple[str, str, str], float]) -> None:
        """Take over new fair-share factors: by account and user, and those of single partitions."""
        known = self._projection.priority_inputs
        # Used minutes have decayed, so other jobs reach the thresholds of QOS.
        self._projection.free_all()
        self._note(PassWanted())
        if known.fairshare == factors and known.partition_fairshare == special:
            return
        self._projection.set_priority_inputs(replace(known, fairshare=factors, partition_fairshare=special))

    # Changes

    def _follow(self, changes: Changes) -> None:
        settings = self._projection.settings
        if self._trusted:
            self._projection.follow(changes)
        layout = changes.layout
        if changes.policy or (layout is not None and layout.settings is not settings):
            self._rules_changed()
        if wants_pass(changes):
            self._note(PassWanted())
        for before, job in changes.jobs:
            if before is None and job is not None and job.state is JobState.PENDING:
                self._queued(job)

    def _queued(self, job: Job) -> None:
        record = self._projection.records.get(job.id)
        if record is None or record.waiting:
            self._note(Submission(batch=job.spec.batch))
        # else it is held, or waits for something that ends with a change of its own

    def _listen(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, JobPreempted):
                self._context.log.info(
                    "job.preempted",
                    job_id=event.job_id,
                    mode=event.mode,
                    by_job_id=event.by_job_id,
                    reclaimed_for=event.reclaimed_for,
                )

    def _rules_changed(self) -> None:
        self._note(ParametersChanged(self._policy))
        if not self._context.machine.state.rules.guarantees:
            return
        for tres, guaranteed, available in beyond_cluster(self._context.machine.state):
            self._context.log.warning("guarantees.too_many", tres=tres, guaranteed=guaranteed, there=available)

    def _note(self, event: PacingEvent) -> None:
        self._pacer.note(event, self._context.clock.monotonic())

    @property
    def _policy(self) -> Parameters:
        return parameters_of(self._context.machine.state.settings)

    @property
    def _history(self) -> History:
        return history_of(self._context.machine.state)

    def _queue_is_short(self) -> bool:
        return len(self._context.machine.state.pending) <= SHORT_QUEUE

    # Projection

    def _distrust(self) -> None:
        """The projection has missed an event: rebuild it before its next use."""
        self._trusted = False
        self._note(PassWanted())

    def _trust(self) -> None:
        """Rebuild the projection from the records if it has missed an event."""
        if self._trusted:
            return
        self._note(ParametersChanged(self._policy))
        state = self._context.machine.state
        self._projection.reset(
            state.jobs.values(),
            state.nodes.values(),
            state.partitions.values(),
            state.settings,
            state.reservations.values(),
            state.rules.policy,
        )
        self._trusted = True

    def _settle_some(self) -> None:
        """Compute the free resources of some nodes. While many remain, this is done in batches, so that no request
        waits for all of them.
        """
        if self._settle_timer is not None:
            self._settle_timer.cancel()
        profile = self._projection.profile
        profile.settle(sorted(profile.stale)[:SETTLED_AT_ONCE])
        is_long = len(profile.stale) > MANY_STALE and not self._stopped
        self._settle_timer = self._loop.call_later(SETTLE_PAUSE_SECONDS, self._settle_some) if is_long else None

    # Turns

    def _at_end_of_turn(self) -> None:
        if self._stopped:
            return
        try:
            at = self._run_what_is_due()
        except Exception as error:
            # Failures of passes and plans are contained where they run; after any other failure there must be a next
            # turn.
            self._context.log.error("scheduler.failed", exception=error, error=repr(error))
            at = self._context.clock.monotonic() + RETRY_SECONDS
        self._wake(at)

    def _run_what_is_due(self) -> float:
        """Apply a slice, or run passes. Returns the time of the next turn."""
        context = self._context
        if self._applications:
            self._apply_slice()
        while True:
            now = context.clock.monotonic()
            action = self._pacer.next(QueueState(bool(context.machine.state.pending), context.scheduling_paused), now)
            if isinstance(action, Quick):
                self._quick_pass(now)
            elif isinstance(action, Full):
                self._begin_full_pass(now)
            else:
                return now if self._applications else action.at

    def _wake(self, at: float) -> None:
        """Have a turn at that time."""
        if self._timer is not None:
            if at == self._wake_at:
                return
            self._timer.cancel()
            self._timer = None
        self._wake_at = at
        if at < NEVER:
            self._timer = self._loop.call_later(max(0.0, at - self._context.clock.monotonic()), self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._context.writer.turn()

    # Passes

    def _quick_pass(self, began: float) -> None:
        context = self._context
        queue = len(context.machine.state.pending)
        clock, until = context.clock.monotonic, began + QUICK_SECONDS
        try:
            self._trust()
            redeemed = len(self._projection.redeemed)
            plan, findings = cycle.run(
                self._projection.snapshot(context.clock.now(), self._history, reorder_max=REORDERED_MAX),
                self._policy.quick_depth or QUICK_PLACEMENTS,
                stop=lambda: clock() > until,
            )
            # Before the plan is applied: applying records events, and the findings are about the state before them.
            self._projection.remember(findings)
            ended = partial(self._quick_ended, queue)
            self._apply(plan, ended, self._projection.table, redeemed, seconds=clock() - began)
        except Exception as error:
            context.log.error("cycle.failed", exception=error, error=repr(error))
            # The cycle may have left the projection between two states: rebuild it from the records, which the core
            # owns.
            self._trusted = False
            self._note(QuickEnded(outcome=Outcome.FAILED))
        else:
            self._apply_slice()

    def _quick_ended(self, queue: int, done: _Application, outcome: Outcome) -> None:
        """`queue`: number of pending jobs when the pass began."""
        context, plan, seconds = self._context, done.plan, done.seconds
        self._note(
            QuickEnded(
                outcome=outcome,
                seconds=seconds,
                cut_off=not plan.complete,
                progressed=bool(plan.examined),
                # While the queue is short, a job that has just begun to wait gets its expected start soon.
                full_wanted=plan.victims_wanted or (bool(plan.notes) and self._queue_is_short()),
            )
        )
        self.counts["cycle.quick_count"] += 1
        self.counts["cycle.quick_seconds"] += seconds
        context.counting.quick.note(context.clock.now(), seconds, depth=plan.visited, tried=plan.examined, queue=queue)
        self._keep_priorities()

    def _keep_priorities(self) -> None:
        """With INCR_ONLY, every PriorityCalcPeriod: journal priorities, so that they survive the controller."""
        policy, now = self._projection.settings.priority_policy, self._context.clock.monotonic()
        if not policy.incr_only or now < self._priorities_due_at:
            return
        self._priorities_due_at = now + policy.calc_period_seconds
        marks = self._projection.marks(self._context.clock.now())
        if marks:
            self._context.writer.handle_own(KeepPriorities(marks=marks))

    def _begin_full_pass(self, began: float) -> None:
        context = self._context
        self.counts["cycle.full_count"] += 1
        at = context.clock.now()

        def work() -> bytes:
            return _encode_plan(full_cycle.run(self._projection.snapshot(at, self._history)).plan)

        try:
            self._trust()
            # Before the fork, so that not every child has to repeat it; the child computes the remaining nodes itself.
            self._settle_some()
            ended = partial(self._full_planned, began, self._projection.table, len(self._projection.redeemed))
            try:
                self._child = Child("cycle", work, ended, context.log, nice=0, seconds=FULL_SECONDS)
            except ForkRefused:
                self._full_pass_inline()
        except Exception as error:
            context.log.error("cycle.failed", exception=error, error=repr(error))
            self._note(FullEnded(Outcome.FAILED))

    def _full_pass_inline(self) -> None:
        """A full pass in the loop, for as long as the loop may be held up: without one, no planned start is renewed and
        no job starts ahead of a larger one that waits.
        """
        self.counts["cycle.inline_count"] += 1
        context, clock = self._context, self._context.clock.monotonic
        began = clock()
        until = began + INLINE_FULL_SECONDS
        redeemed = len(self._projection.redeemed)
        snapshot = self._projection.snapshot(context.clock.now(), self._history)
        plan = cycle.run(snapshot, expect=True, stop=lambda: clock() > until).plan
        self._apply(plan, self._full_ended, self._projection.table, redeemed, seconds=clock() - began)
        self._note_full(plan, began)

    def _full_planned(self, began: float, table: NodeTable, redeemed: int, result: bytes | None) -> None:
        """`began`: when the pass began, for which nodes, and after how many starts; `result`: the plan (None: the child
        failed).
        """
        self._child = None
        if self._stopped:
            return
        context = self._context
        context.writer.turn()
        try:
            if result is None:
                # Where memory is short, each child may be killed as this one was, for as long as that lasts.
                self._trust()
                self._full_pass_inline()
                return
            plan = _decode_plan(result)
            self._apply(plan, self._full_ended, table, redeemed)
        except Exception as error:
            context.log.error("cycle.failed", exception=error, error=repr(error))
            self._note(FullEnded(Outcome.FAILED))
            return
        self._note_full(plan, began)

    def _note_full(self, plan: Plan, began: float) -> None:
        """The plan is made, and will be applied."""
        context = self._context
        self._note(FullPlanned())
        took, queue = context.clock.monotonic() - began, len(context.machine.state.pending)
        context.counting.full.note(
            context.clock.now() - took, took, depth=plan.visited, tried=plan.examined, queue=queue
        )

    def _full_ended(self, done: _Application, outcome: Outcome) -> None:
        self._context.counting.note_backfilled(done.started)
        self._note(FullEnded(outcome))

    # Plans

    def _apply(
        self,
        plan: Plan,
        ended: Callable[[_Application, Outcome], None],
        table: NodeTable,
        redeemed: int,
        seconds: float = 0.0,
    ) -> None:
        """Queue the plan: it is applied one slice a turn, after earlier plans.

        `table`, `redeemed`: the nodes that it was made for, and after how many starts; `seconds`: loop time spent on
        making it.
        """
        plan_slices = deque(slices(plan, self._context.machine.state))
        if len(plan_slices) > 1:
            # What the pass learned about failed placements holds only for its own view of the projection, and events
            # arrive between slices. `Projection.adopt` recognizes the plan of those findings by identity; for a copy
            # the ledger gets a new version, which voids the failures that planned starts had caused.
            plan = replace(plan)
        self._applications.append(_Application(plan, plan_slices, table, ended, redeemed, seconds=seconds))

    def _apply_slice(self) -> None:
        """Apply the next slice of the first plan; after its last one, adopt the plan's results for jobs that keep
        waiting.
        """
        context, done = self._context, self._applications[0]
        began, started = context.clock.monotonic(), context.counting.started
        outcome = None
        if context.scheduling_paused or done.table is not self._projection.table:
            outcome = Outcome.DISCARDED
        else:
            try:
                if done.slices:
                    plan = self._projection.as_asked(done.slices.popleft())
                    reply = context.writer.handle_own(ApplyPlan(plan=plan))
                    assert isinstance(reply, Done), reply
                    self.counts["cycle.stale_count"] += len(reply.messages)
                if not done.slices:
                    self._adopt(done)
                    outcome = Outcome.APPLIED
            except Exception as error:
                context.log.error("plan.failed", exception=error, error=repr(error))
                outcome = Outcome.FAILED
        done.started += context.counting.started - started
        done.seconds += context.clock.monotonic() - began
        if outcome is not None:
            self._applications.popleft()
            if not self._applications and self._child is None:
                self._projection.redeemed.clear()
                self._projection.prolonged.clear()
            done.ended(done, outcome)

    def _started_by_others(self, done: _Application) -> tuple[list[tuple[int, Request]], set[int]]:
        """Jobs that have started and that the plan takes for waiting, with their requests: while a full pass was under
        way, quick ones started them. And those that the plan starts too, but with other resources. Of jobs that the
        plan starts, itself or in vain, it has no planned start.
        """
        redeemed = self._projection.redeemed[done.redeemed :]
        if not redeemed:
            return [], set()
        arrays = self._context.machine.state.arrays
        planned = {
            start.job_id
            if start.task_id is None
            else arrays.get(start.job_id, {}).get(start.task_id, start.job_id): start.allocation
            for start in done.plan.starts
        }
        started = [(job_id, request) for job_id, request in redeemed if job_id not in planned]
        records = self._projection.records
        elsewhere = {
            job_id
            for job_id, _request in redeemed
            if job_id in planned and job_id in records and records[job_id].allocation != planned[job_id]
        }
        return started, elsewhere

    def _adopt(self, done: _Application) -> None:
        """Take over planned and expected starts."""
        plan, void = done.plan, set[int]()
        if self._trusted:
            try:
                void = self._projection.adopt(plan, *self._started_by_others(done))
            except Exception as error:
                self._context.log.error("projection.failed", exception=error, error=repr(error))
                self._distrust()
        if plan.look_again_at:
            # Slightly late rather than early: just before the end of an exempt time the search would fail once more.
            pause = max(0.0, plan.look_again_at - self._context.clock.now()) + CLOCK_SECONDS
            self._note(LookAgain(self._context.clock.monotonic() + pause))
        if plan.forecast is not None:
            self._context.forecasts.adopt(plan.forecast, void)
