"""Drives the scheduler: when a cycle runs, where, and on what budget.

Owns the projection and the rhythm; what is decided is `scheduling`'s, what is applied is `core`'s. After commands that
may free or need resources a quick pass runs at the end of the same turn of the loop, at most one a turn, so that a
start joins the group of the submission that made it possible; when passes have become slow they run just after that
group has left. A quick pass's budget counts placements, and it ends after `QUICK_SECONDS`, so that requests are
answered meanwhile; when it is cut off, or when `bf_interval` has passed, a full pass runs in a forked child on its own
copy, and its plan is applied like any other: what has become stale meanwhile is dropped by the core.

Passes take at most `SHARE` of the time: while they are slow, turns go by without one.

Source: slurm.conf(5) SchedulerParameters: default_queue_depth, bf_interval, sched_interval, sched_min_interval, defer,
batch_sched_delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from spritz.controller.burst import Burst
from spritz.controller.forked import Child
from spritz.controller.listeners import Loss
from spritz.controller.outlook import Outlook
from spritz.core.shares import beyond_cluster
from spritz.model.commands.cluster import ApplyPlan, KeepPriorities
from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as job_events
from spritz.model.events import reservation as reservation_events
from spritz.model.plan import Plan
from spritz.scheduling import cycle, feasible
from spritz.scheduling.policy import policy_of
from spritz.scheduling.projection import Projection

if TYPE_CHECKING:
    from spritz.controller.context import Context
    from spritz.model.events import Event
    from spritz.scheduling.policy import Policy

#: Part of the loop's time that quick passes may take.
SHARE = 0.33

#: Placements that a quick pass tries, unless default_queue_depth says otherwise.
QUICK_PLACEMENTS = 64

#: A quick pass that has taken so long starts and tests nothing more; the next one goes on from there, since requests
#: that failed need not be tested again.
QUICK_SECONDS = 0.008

#: Quick passes that take longer than this run after the turn's group has left for the disk, not before.
INLINE_SECONDS = 0.002

#: Waiting jobs whose priorities have changed by themselves that one quick pass moves.
REORDERED_MAX = 500

#: With so few waiting jobs a full pass follows when one more has to wait.
SHORT_QUEUE = 1000

NEVER = float("inf")

#: How much the clock that plans go by and the loop's may differ over a wait.
CLOCK_SECONDS = 0.01

#: Seconds after a pass that failed; the projection is made again before the next.
RETRY_SECONDS = 5.0

#: Seconds between full passes that quick ones ask for, at least; as long as a pass takes, if that is longer.
FULL_PAUSE_SECONDS = 1.0

#: Nodes whose times to come are worked out at a stroke; and so many left over are worked on in the pauses.
SETTLED_AT_ONCE = 64
MANY_STALE = 256
SETTLE_PAUSE_SECONDS = 0.02

#: Events after which something may be able to start that was not before.
_STIRRING: frozenset[type[Event]] = frozenset(
    {
        job_events.JobQueued,
        job_events.JobUpdated,
        job_events.JobReleased,
        job_events.JobAccrued,
        job_events.JobBecameEligible,
        job_events.DependenciesChanged,
        job_events.JobSuspended,
        job_events.JobEnded,
        job_events.JobNodeGone,
        job_events.JobRequeued,
        cluster_events.ClusterConfigured,
        cluster_events.NodeRegistered,
        cluster_events.NodeStateChanged,
        cluster_events.NodeUpdated,
        cluster_events.NodesCreated,
        cluster_events.NodesDeleted,
        cluster_events.PartitionCreated,
        cluster_events.PartitionUpdated,
        cluster_events.PartitionDeleted,
        cluster_events.PolicyChanged,
        cluster_events.PolicyAmended,
        cluster_events.UsageReset,
        cluster_events.UsageAdopted,
        reservation_events.ReservationCreated,
        reservation_events.ReservationUpdated,
        reservation_events.ReservationBegan,
        reservation_events.ReservationDeleted,
    }
)

#: Events that may bring other guarantees.
_GUARANTEES_IN = (cluster_events.PolicyChanged, cluster_events.PolicyAmended, cluster_events.ClusterConfigured)

_encode_plan = Encoder().encode
_decode_plan = Decoder(Plan).decode


class SchedulerDriver:
    """Listens to events, runs passes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._projection = Projection()
        context.outlook = Outlook(self._projection)
        self._rebuild()
        self._stirred = True
        #: the projection has failed, and must be made again before it is used
        self._distrusted = False
        self._not_before = 0.0
        #: seconds that the last quick pass took, and whether the next one waits for the group to leave
        self._quick_took = 0.0
        #: when the submissions that had to wait may be looked at (0.0: there are none)
        self._delayed_until = 0.0
        self._burst = Burst()
        #: somebody waits at a terminal for his job
        self._is_awaited = False
        #: a quick pass is due then, whatever happens
        self._quick_due_at = 0.0
        #: with INCR_ONLY: priorities that jobs keep are journaled then
        self._priorities_due_at = 0.0
        #: somebody may be preempted from then on for a job that waits
        self._exempt_until = NEVER
        self._behind = False
        self._full_due_at = 0.0
        self._full_wanted = False
        #: earliest moment for a full pass that a cut-off quick one has asked for
        self._full_not_before = 0.0
        self._full_began = 0.0
        #: the table of nodes for which the full pass under way is made
        self._full_table: object = None
        self._child: Child | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wake_at = 0.0
        self._stopped = False
        self.counts = {"cycle.quick_count": 0.0, "cycle.full_count": 0.0, "cycle.quick_seconds": 0.0}
        context.writer.listeners.add("scheduler", self._listen, Loss.REBUILD, self._distrust)
        context.writer.hooks.append(self._at_end_of_turn)
        context.counters.append(lambda: dict(self.counts))
        context.check_request = lambda spec: feasible.check_again(spec, self._projection, context.clock.now())
        context.check_whole = lambda specs: feasible.check_whole(specs, self._projection.snapshot(context.clock.now()))

    def stop(self) -> None:
        """No more passes."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None:
            self._child.kill()

    def _rebuild(self) -> None:
        """The projection again, from the records."""
        state = self._context.machine.state
        self._projection.follow_minutes(state.minutes)
        self._projection.run_times = state.run_times
        self._projection.reset(
            state.jobs.values(),
            state.nodes.values(),
            state.partitions.values(),
            state.settings,
            state.reservations.values(),
            state.rules.policy,
        )
        self._distrusted = False

    def _listen(self, events: Sequence[Event]) -> None:
        apply = self._projection.apply
        for event in events:
            apply(event)
            if type(event) in _STIRRING:
                self._stir(event)
                if isinstance(event, _GUARANTEES_IN):
                    self._check_guarantees()
            elif isinstance(event, job_events.JobPreempted):
                self._context.log.info(
                    "job.preempted",
                    job_id=event.job_id,
                    mode=event.mode,
                    by_job_id=event.by_job_id,
                    reclaimed_for=event.reclaimed_for,
                )

    def _distrust(self) -> None:
        """Make the projection again before it is used next."""
        self._distrusted = self._stirred = True

    def take_fairshare(self, factors: dict[tuple[str, str], float], special: dict[tuple[str, str, str], float]) -> None:
        """Fair-share factors have been reckoned: by account and user, and those of one partition."""
        known = self._projection.priority_inputs
        # Minutes that were used up have faded meanwhile, and thresholds of QOS are met by others.
        self._projection.free_all()
        self._stirred = True
        if known.fairshare == factors and known.partition_fairshare == special:
            return
        self._projection.set_priority_inputs(replace(known, fairshare=factors, partition_fairshare=special))

    def _check_guarantees(self) -> None:
        if not self._context.machine.state.rules.guarantees:
            return
        for tres, promised, there in beyond_cluster(self._context.machine.state):
            self._context.log.warning("guarantees.too_many", tres=tres, guaranteed=promised, there=there)

    def _stir(self, event: Event) -> None:
        """A quick pass is due: now, or later for submissions, as `defer` and `batch_sched_delay` say."""
        if isinstance(event, job_events.JobQueued):
            record = self._projection.records.get(event.job.id)
            if record is not None and not record.waiting:
                # While the queue is short, whoever waits for others is soon told when he will start.
                few = len(self._context.machine.state.pending) <= SHORT_QUEUE
                self._full_wanted = self._full_wanted or (few and record.to_come)
                return  # held, or kept back by something else that ends with an event of its own
            policy, batch = self._policy, event.job.spec.batch
            if policy.defer or (policy.defer_batch and batch):
                return
            if policy.batch_delay_seconds and batch:
                if self._delayed_until <= self._context.clock.monotonic():
                    self._delayed_until = self._context.clock.monotonic() + policy.batch_delay_seconds
                    self._wake_in(policy.batch_delay_seconds)
                return
            if batch:
                self._burst.submitted(self._context.clock.monotonic())
            else:
                self._is_awaited = True
        self._stirred = True

    @property
    def _policy(self) -> Policy:
        return policy_of(self._projection.settings)

    def _at_end_of_turn(self) -> None:
        if self._stopped or self._context.scheduling_paused:
            return
        now = self._context.clock.monotonic()
        if (0.0 < self._delayed_until <= now) or now >= min(self._quick_due_at, self._exempt_until):
            self._delayed_until = 0.0
            self._exempt_until = NEVER
            self._stirred = True
        if self._exempt_until < NEVER:
            self._wake_in(self._exempt_until - now)
        if self._stirred:
            row = 0.0 if self._is_awaited else self._burst.seconds_left(now, self._policy.row_seconds)
            if row:
                self._wake_in(row)
            elif now < self._not_before:
                self._wake_in(self._not_before - now)
            elif self._quick_took <= INLINE_SECONDS or self._behind:
                self._quick_pass(now)
            else:
                # Slow passes do not hold up the answers of this turn: the group leaves first, and syncs meanwhile.
                self._behind = True
                self._loop.call_soon(self._context.writer.turn)
        if self._child is None and self._context.machine.state.pending and not self._distrusted:
            due_at = min(self._full_due_at, self._full_not_before) if self._full_wanted else self._full_due_at
            if now >= due_at:
                self._begin_full_pass(now)
                due_at = self._full_due_at
            self._wake_in(due_at - now)

    def _wake_in(self, seconds: float) -> None:
        """Have a turn then, unless one is due earlier."""
        at = self._loop.time() + max(0.0, seconds)
        if self._timer is not None:
            if self._wake_at <= at:
                return
            self._timer.cancel()
        self._wake_at = at
        self._timer = self._loop.call_later(max(0.0, seconds), self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._context.writer.turn()

    # -- passes

    def _quick_pass(self, began: float) -> None:
        context = self._context
        self._stirred = self._behind = self._is_awaited = False
        self._burst.over(began)
        queue = len(context.machine.state.pending)
        if not queue:
            return
        try:
            if self._distrusted:
                self._rebuild()
            clock, until = context.clock.monotonic, began + QUICK_SECONDS
            plan = cycle.run(
                self._projection.snapshot(context.clock.now(), REORDERED_MAX),
                self._policy.quick_depth or QUICK_PLACEMENTS,
                stop=lambda: clock() > until,
            )
        except Exception as error:
            context.log.error("cycle.failed", exception=error, error=repr(error))
            self._distrusted = self._stirred = True
            self._not_before = began + RETRY_SECONDS
            self._wake_in(RETRY_SECONDS)
            return
        self._apply(plan)
        self._keep_priorities(began)
        ended = context.clock.monotonic()
        self._quick_took = ended - began
        pause = (ended - began) * (1 - SHARE) / SHARE
        self._not_before = ended + max(pause, self._policy.quick_pause_seconds)
        self._quick_due_at = ended + self._policy.quick_interval_seconds
        # While the queue is short, whoever has just begun to wait is soon told when he will start.
        news = bool(plan.notes) and len(context.machine.state.pending) <= SHORT_QUEUE
        self._full_wanted = self._full_wanted or not plan.complete or plan.victims_wanted or news
        if not plan.complete and plan.examined and ended - began > QUICK_SECONDS:
            self._stirred = True
            self._wake_in(self._not_before - ended)
        self.counts["cycle.quick_count"] += 1
        self.counts["cycle.quick_seconds"] += ended - began
        context.counting.quick.note(
            context.clock.now(), ended - began, depth=plan.visited, tried=plan.examined, queue=queue
        )

    def _keep_priorities(self, now: float) -> None:
        """With INCR_ONLY, each PriorityCalcPeriod: priorities that jobs keep outlive the controller."""
        policy = self._projection.settings.priority_policy
        if not policy.incr_only or now < self._priorities_due_at:
            return
        self._priorities_due_at = now + policy.calc_period_seconds
        marks = self._projection.marks(self._context.clock.now())
        if marks:
            self._context.writer.handle_own(KeepPriorities(marks=marks))

    def _begin_full_pass(self, now: float) -> None:
        context = self._context
        self._full_wanted = False
        self._full_began = now
        self._full_due_at = now + self._policy.full_interval_seconds
        self.counts["cycle.full_count"] += 1
        at = context.clock.now()
        # Before the fork, so that it need not be done again in every child; what is left the child does for itself.
        self._settle_some()

        def work() -> bytes:
            return _encode_plan(cycle.run(self._projection.snapshot(at)))

        self._full_table = self._projection.table
        self._child = Child("cycle", work, self._full_pass_done, context.log, nice=0)

    def _settle_some(self) -> None:
        """Work out what a few nodes will have free; of many, after a start or a change of all of them, some at a time,
        so that no request waits for it.
        """
        profile = self._projection.profile
        profile.settle(sorted(profile.stale)[:SETTLED_AT_ONCE])
        if len(profile.stale) > MANY_STALE and not self._stopped:
            self._loop.call_later(SETTLE_PAUSE_SECONDS, self._settle_some)

    def _full_pass_done(self, result: bytes | None) -> None:
        self._child = None
        now = self._context.clock.monotonic()
        self._full_not_before = now + max(FULL_PAUSE_SECONDS, now - self._full_began)
        self._context.writer.turn()
        if self._full_table is not self._projection.table:
            # It was made for nodes that are not those any more.
            self._stirred = self._full_wanted = True
            self._wake_in(self._full_not_before - now)
        elif result is not None and not self._stopped and not self._context.scheduling_paused:
            plan, counting = _decode_plan(result), self._context.counting
            queue, started = len(self._context.machine.state.pending), counting.started
            self._apply(plan)
            counting.note_backfilled(counting.started - started)
            took = now - self._full_began
            at = self._context.clock.now() - took
            counting.full.note(at, took, depth=plan.visited, tried=plan.examined, queue=queue)

    def _apply(self, plan: Plan) -> None:
        if plan.starts or plan.preemptions or plan.notes:
            self._context.writer.handle_own(ApplyPlan(plan=plan))
        try:
            self._projection.adopt(plan)
        except Exception as error:
            self._context.log.error("projection.failed", exception=error, error=repr(error))
            self._distrusted = self._stirred = True
        if plan.look_again_at:
            # Rather a moment late than early: an exempt time that has not ended is looked at in vain.
            pause = max(0.0, plan.look_again_at - self._context.clock.now()) + CLOCK_SECONDS
            self._exempt_until = min(self._exempt_until, self._context.clock.monotonic() + pause)
            self._wake_in(pause)
        if plan.forecast is not None:
            self._context.outlook.adopt(plan.forecast)
