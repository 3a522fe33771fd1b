"""In random schedules jobs start when they were planned to, and planned starts, profile and nodes agree.

What is drawn is a seed: a schedule needs thousands of choices, and a part of one is another schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tests.unit.scheduling.site import Site, node, partition, spec

from spritz.model.commands.cluster import ApplyPlan
from spritz.model.commands.job import Done, ResumeJob, SuspendJob, UpdateJob
from spritz.model.events.job import JobStarted
from spritz.model.job.job_filter import JobTarget
from spritz.model.plan import Plan
from spritz.model.states import JobState
from spritz.scheduling.forecast import full_cycle
from spritz.scheduling.plan import cycle
from spritz.scheduling.view.planned_starts import FutureStart

#: seconds, the default of bf_resolution: planned starts are not kept to less
RESOLUTION = 60.0
#: seconds between full passes while jobs wait
INTERVAL = 30.0
TIERS = {"p": 9, "q": 5}


class Promise(NamedTuple):
    """A job was to start by `start`, said a plan made at `told`. `late`: how late others had been until then."""

    start: float
    told: float
    late: float


class Checks:
    """Promises are kept, and what the projection holds fits together."""

    def __init__(self, site: Site) -> None:
        self.site = site
        #: seconds that jobs were over their limits, and plans applied after they were made
        self.late = 0.0
        self._promises: dict[int, Promise] = {}
        #: when jobs will start as the last full plan says, and when that was last earlier than the plan before had said
        self._shown: dict[int, float] = {}
        self._gained: dict[int, float] = {}
        self._forgot_at = -1.0

    def began(self, job_id: int) -> None:
        """A job has started: not after its planned start."""
        self._shows(job_id, self.site.now)

    def told(self, at: float) -> None:
        """A full plan made at `at` was applied: no job starts later than was promised; what it says is promised now."""
        shown: dict[int, float] = {}
        for item in self._items():
            if item.holder and not item.provisional:
                shown[item.holder] = min(shown.get(item.holder, item.start_at), item.start_at)
        for job_id in sorted(shown, key=self._rank):
            start = shown[job_id]
            if self.site.jobs[job_id].state is JobState.PENDING and start > self.site.now:
                self._shows(job_id, start)
                before = self._promises.get(job_id)
                if at > self._forgot_at and (before is None or start <= before.start):
                    self._promises[job_id] = Promise(start, at, self.late)

    def _shows(self, job_id: int, start: float) -> None:
        if start < self._shown.get(job_id, start) - 1:
            self._gained[job_id] = self.site.now
        self._shown[job_id] = start
        promise = self._promises.get(job_id)
        if promise is not None and not self._overtaken(job_id, promise.told):
            slack = RESOLUTION + 1 + self.late - promise.late
            assert start <= promise.start + slack, f"job {job_id}: {start:.0f}, promised for {promise.start:.0f}"

    def _overtaken(self, job_id: int, since: float) -> bool:
        """Whether a job before this one in the queue came later, or now starts earlier than was planned: it may."""
        before = [other for other in self.site.jobs if self._rank(other) < self._rank(job_id)]
        return any(
            self.site.jobs[other].submitted_at >= since or self._gained.get(other, -1) >= since for other in before
        )

    def _rank(self, job_id: int) -> tuple[int, int]:
        return -max(TIERS[name] for name in self.site.jobs[job_id].spec.partitions), job_id

    def _items(self) -> list[FutureStart]:
        return [item for items in self.site.projection.ledger.by_request.values() for item in items]

    def forget(self) -> None:
        """Nothing is promised any more, nor by a plan that is being made."""
        self._promises.clear()
        self._forgot_at = self.site.now

    def agree(self) -> None:
        """The profile holds the planned starts and no others, one for each job, and no node is given twice."""
        items = self._items()
        assert sorted(item.start_at for item in items) == list(self.site.projection.ledger.starts)
        held = defaultdict(list)
        for index, holds in self.site.projection.profile.holds.items():
            for hold, _ in holds:
                if isinstance(hold, FutureStart):
                    held[id(hold)].append(index)
        wanted = {id(item): sorted(index for index, _ in item.parts) for item in items}
        assert {key: sorted(indexes) for key, indexes in held.items()} == wanted
        holders = [(item.holder, item.request) for item in items if item.holder]
        assert len(holders) == len(set(holders)), "two planned starts of one job"
        self._fits(items)

    def _fits(self, items: list[FutureStart]) -> None:
        now = self.site.now
        for row in self.site.projection.table.rows:
            uses = [(now, hold.ends_at, hold.cpus) for hold in row.holders.values()]
            for item in items:
                # One that a longer limit of a running job has made provisional may overlap what was behind it.
                if item.start_at >= now - RESOLUTION and not item.provisional:
                    begin = item.start_at + RESOLUTION + 0.001
                    uses += [(begin, item.end_at, part.cpus) for index, part in item.parts if index == row.index]
            for moment, until, _ in uses:
                used = sum(cpus.bit_count() for begin, end, cpus in uses if begin <= moment < end)
                assert moment >= until or used <= row.hardware.cpus.bit_count(), f"{row.name} is overcommitted"


class Schedule:
    """A cluster, its jobs and passes, drawn from a seed.

    `kind` says what there is besides jobs of one partition: "early" ends, "stale" plans (full ones that are applied
    later), "tiers" (jobs of a lower partition), "multi" (jobs of both partitions), "longer" (administrators raise time
    limits, suspend jobs and resume them).
    """

    def __init__(self, seed: int, kind: str) -> None:
        self.random = Random(seed)
        self.kind = kind.split()
        self.cpus = self.random.choice((4, 8))
        names = [f"n{number}" for number in range(1, self.random.randint(1, 4) + 1)]
        parts = [partition(name, names, priority_tier=tier) for name, tier in TIERS.items()]
        self.site = Site([node(name, self.cpus) for name in names], parts)
        self.checks = Checks(self.site)
        self.minutes = self.random.choice(((10, 30, 60), (1, 2, 5), (2, 10, 15), (5, 5, 60)))
        self.coming: list[tuple[float, int, Callable[[], object]]] = []
        self.events = 0
        self.planning = False
        #: suspended jobs that would have ended meanwhile
        self.stopped: set[int] = set()

    def run(self, steps: int = 120) -> None:
        """Some jobs, some steps; then all jobs come to their ends."""
        for _ in range(self.random.randint(2, 6)):
            self.submit()
        self.regular()
        acts = (self.submit, self.rest, self.until_next, self.quick, self.full, self.prolong, self.suspend)
        rare = 5 * ("longer" in self.kind)
        for act in self.random.choices(acts, (25, 25, 15, 15, 20, rare, rare), k=steps):
            act()
        pending = self.site.machine.state.pending
        for _ in range(400):
            if pending:
                self.wait(600)
        assert not pending

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        self.events += 1
        heappush(self.coming, (self.site.now + seconds, self.events, act))

    def wait(self, seconds: float) -> None:
        """Time goes on. After all that happens there is a quick cycle."""
        until = self.site.now + seconds
        while self.coming and self.coming[0][0] <= until:
            self.site.now, _, act = heappop(self.coming)
            act()
            self.quick()
        self.site.now = until

    def rest(self) -> None:
        self.wait(self.random.choice((1, 5, 20, 60, 200)))

    def until_next(self) -> None:
        """Time goes on to the next event, or a little past it."""
        self.wait(self.coming[0][0] - self.site.now + self.random.choice((0.0, 0.5, 1.0, 10.0)))

    def submit(self) -> None:
        chosen = self.random.choice
        if len(self.site.machine.state.pending) >= 25:
            return
        others = ("q",) if "tiers" in self.kind else ("p", "q") if "multi" in self.kind else ("p",)
        partitions = chosen((("p",), ("p",), others))
        nodes = min(chosen((1, 1, 1, 2)), len(self.site.configs))
        cpus = chosen((1, 2, 2, self.cpus // 2, self.cpus, self.cpus))
        limit = chosen(self.minutes)
        request = spec(nodes, nodes, cpus_per_task=cpus, time_limit_minutes=limit, partitions=partitions)
        self.site.submit(request)
        self.later(0, self.quick)

    def began(self, job_id: int) -> None:
        """A job has started; when it will end is drawn."""
        self.checks.began(job_id)
        draw = self.random.uniform
        limit = self.site.jobs[job_id].ends_at - self.site.now
        run = limit + self.random.choice((0.0, 0.0, 0.5, 5, 15, 30))
        if "early" in self.kind:
            run = self.random.choice((run, run, limit - draw(0.2, 5), limit * draw(0.05, 0.95)))
        self.later(run, partial(self.end, job_id))

    def prolong(self) -> None:
        """An administrator raises the time limit of a running job, which may use that."""
        if running := self.running():
            job_id = self.random.choice(running)
            minutes = (self.site.jobs[job_id].time_limit_minutes or 0) + self.random.choice((2, 10, 60))
            self.act(UpdateJob(target=JobTarget(job_id), changes={"time_limit_minutes": minutes}))

    def suspend(self) -> None:
        """An administrator suspends a running job, and later tries to resume it until its CPUs are free."""
        if running := self.running():
            job_id = self.random.choice(running)
            self.act(SuspendJob(target=JobTarget(job_id)))
            self.later(self.random.choice((65, 200, 2000)), partial(self.resume, job_id))

    def resume(self, job_id: int) -> None:
        self.act(ResumeJob(target=JobTarget(job_id)))
        job = self.site.jobs[job_id]
        if job.state is JobState.SUSPENDED:
            self.later(60, partial(self.resume, job_id))
        elif job_id in self.stopped:
            self.stopped.remove(job_id)
            self.later(job.ends_at - self.site.now, partial(self.end, job_id))

    def running(self) -> list[int]:
        return [job_id for job_id, job in self.site.jobs.items() if job.state is JobState.RUNNING]

    def act(self, command: Struct) -> None:
        """A running job stays longer than was planned: what was promised until then is promised no more."""
        self.site.send(command)
        self.checks.forget()
        self.checks.agree()

    def end(self, job_id: int) -> None:
        """A job ends, on some nodes later than on others; one that was given more time, or was stopped, goes on."""
        job = self.site.jobs[job_id]
        more = job.ends_at - self.site.now
        if job.state is JobState.SUSPENDED:
            self.stopped.add(job_id)
            return
        if "longer" in self.kind and more > 0 and self.random.random() < 0.5:
            self.later(more, partial(self.end, job_id))
            return
        assert job.allocation is not None
        slow = {
            name: self.random.choice((1.0, 5.0, 20.0)) for name in job.allocation.names if self.random.random() < 0.3
        }
        for name, seconds in slow.items():
            self.later(seconds, partial(self.site.gone, job_id, name))
        self.checks.late += sum(max(0.0, self.site.now + seconds - job.ends_at) for seconds in (0.0, *slow.values()))
        self.site.end(job_id, tuple(slow))

    def quick(self) -> None:
        """A quick cycle; at times one that stops after a few jobs comes before it."""
        for budget in self.random.choice(((100,), (3, 100))):
            made_after = len(self.site.projection.redeemed)
            plan, findings = cycle.run(self.site.projection.snapshot(self.site.now), budget)
            self.site.projection.remember(findings)
            self.follow(plan, made_after)

    def regular(self) -> None:
        if self.site.machine.state.pending:
            self.full()
        self.later(INTERVAL, self.regular)

    def full(self) -> None:
        """A full pass, unless one is under way; its plan is applied at once, or later."""
        if self.planning:
            return
        self.planning = True
        plan = full_cycle.run(self.site.projection.snapshot(self.site.now), held=True)[0]
        apply = partial(self.apply_full, plan, self.site.now, len(self.site.projection.redeemed))
        if "stale" in self.kind and self.random.random() < 0.5:
            self.later(self.random.choice((0, 5, 25)), apply)
        else:
            apply()

    def apply_full(self, plan: Plan, at: float, made_after: int) -> None:
        self.planning = False
        self.checks.late += self.site.now - at
        self.follow(plan, made_after)
        self.checks.told(at)
        if plan.look_again_at:
            self.later(max(0.01, plan.look_again_at - self.site.now), self.quick)

    def follow(self, plan: Plan, made_after: int) -> None:
        """Apply a plan as the controller does. Starts are dropped only if others have been made since the snapshot."""
        site = self.site
        others = site.projection.redeemed[made_after:]
        outcome = site.machine.handle(ApplyPlan(plan=plan), site.now)
        assert isinstance(outcome.reply, Done)
        assert others or not outcome.reply.messages, outcome.reply.messages
        site.projection.follow(outcome.changes)
        for event in outcome.events:
            if isinstance(event, JobStarted):
                self.began(event.job_id)
        planned = {start.job_id: start.allocation for start in plan.starts}
        others = site.projection.redeemed[made_after:]
        moved = {job_id for job_id, _ in others if planned.get(job_id) not in (None, site.jobs[job_id].allocation)}
        site.projection.adopt(plan, [item for item in others if item[0] not in planned], moved)
        self.checks.agree()


@pytest.mark.parametrize("kind", ["plain", "early stale tiers", "multi", "stale tiers longer"])
@settings(max_examples=3, deadline=None, phases=[Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32 - 1))
def test_planned_starts_are_kept(kind: str, seed: int) -> None:
    """Each job starts by when it was told to, unless one before it in the queue goes first or others are late."""
    Schedule(seed, kind).run()
