"""Scripts and environments over a crash: every job of the recovered state has its own, whatever was removed meanwhile.

The real single writer, core and collector, over every journal. The journal's thread is replaced by a queue that runs
when the test says so, so that submissions, purges, collections and writes interleave in any order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from spritz.controller.journal import blobs as blobs_module
from spritz.controller.journal.blobs import BlobCollector, BlobStore
from spritz.controller.journal.contract import Group, Journal
from spritz.controller.journal.recovery import recover
from spritz.controller.writer.loop import SingleWriter
from spritz.core.machine import Outcome
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.crontab import UpdateCrontab
from spritz.model.commands.job import RequeueJob, SubmitHetJob, SubmitJob
from spritz.model.events.codec import encode_events
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import CronEntry
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from spritz.runtime.log import get_logger
from spritz_testing.builders import ALICE, ROOT, World, job_spec

from .conftest import Open

SCRIPTS = [b"#!/bin/sh\n# %d\n" % number for number in range(12)]
ENVIRONMENTS = [b"A=%d" % number for number in range(3)]
SETTINGS = ClusterSettings(min_job_age_seconds=100, crontabs=True, max_job_count=200)
LIVES, STEPS = 12, 300


class ManualCommitter:
    """`Committer` whose work waits until the test lets it happen."""

    def __init__(self) -> None:
        self.queue: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def put(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.queue.append((work, done))

    def run_one(self) -> None:
        work, done = self.queue.pop(0)
        work()
        done()

    def close(self) -> None: ...


class WrittenWorld(World):
    """A `World` whose commands go through the single writer, with scripts as the controller's api stores them."""

    def __init__(self, journal: Journal, rng: random.Random) -> None:
        super().__init__(nodes=2, settings=SETTINGS)
        if journal.last_sequence:
            self.machine = recover(journal, SETTINGS).machine
            self.now = self.state.at
        else:
            first = Group(first=1, last=len(self.events), at=self.now, payload=encode_events(self.events))
            journal.append(first, {})
        self.rng = rng
        self.blobs = BlobStore(journal)
        self.blobs.attribute(self.state.jobs.values())
        self.committer = ManualCommitter()
        clock: Any = SimpleNamespace(now=lambda: self.now, monotonic=lambda: self.now)
        self.last: Outcome | None = None
        self.writer = SingleWriter(
            self,
            journal,
            self.blobs,
            self.committer,
            clock,
            get_logger("test"),
            on_effects=lambda effects: None,
            on_broken=lambda error: pytest.fail(repr(error)),
        )
        context: Any = SimpleNamespace(writer=self.writer, blobs=self.blobs, machine=self.machine)
        self.collector = BlobCollector(context)
        self.collection: asyncio.Task[None] | None = None

    def handle(self, command: Struct, now: float, caller: Caller) -> Outcome:
        self.last = self.machine.handle(command, now, caller)
        self.events += self.last.events
        return self.last

    def do(self, command: Struct, caller: Caller = ROOT) -> Outcome:
        if not hasattr(self, "writer"):
            return super().do(command, caller)
        self.writer.handle(command, caller)
        assert self.last is not None
        return self.last

    # What may happen

    def stored(self, **fields: Any) -> SubmitJob:
        """A request with its script and environment in the store, some of which other jobs have or had."""
        script, environment = self.rng.choice(SCRIPTS), self.rng.choice(ENVIRONMENTS)
        keys = {"script_key": self.blobs.put(script, 1001), "environment_key": self.blobs.put(environment, 1001)}
        return SubmitJob(spec=job_spec(**keys, **fields))

    def submit_one(self) -> None:
        self.do(self.stored(), ALICE)

    def submit_array(self) -> None:
        self.do(self.stored(array="0-2"), ALICE)

    def submit_two_together(self) -> None:
        self.do(SubmitHetJob(components=(self.stored(), SubmitJob(spec=job_spec(batch=False)))), ALICE)

    def write_crontab(self) -> None:
        entry = CronEntry(schedule="*/5 * * * *", line_first=1, line_last=1)
        self.do(UpdateCrontab(text="a crontab\n", jobs=(self.stored(cron=entry),)), ALICE)

    def store_for_nothing(self) -> None:
        """A submission that is refused after its script was stored."""
        self.blobs.put(self.rng.choice(SCRIPTS), 1001)

    def start_one(self) -> None:
        waiting = [job.id for job in self.state.jobs.values() if job.state is JobState.PENDING and not job.het_job_id]
        if waiting:
            self._start(self.rng.choice(waiting))

    def _start(self, job_id: int) -> None:
        job = self.state.jobs[job_id]
        pending = int(job.array.pending, 16) if job.array is not None else 0
        task = (pending & -pending).bit_length() - 1 if pending else None
        name = self.rng.choice(self.names)
        allocation = Allocation(partition=job.partition, nodes=(self.free_share(name, 1),))
        self.plan(PlannedStart(job_id=job_id, task_id=task, allocation=allocation))

    def end_one(self) -> None:
        running = [job.id for job in self.state.jobs.values() if job.state is JobState.RUNNING]
        if running:
            self.finished(self.rng.choice(running), self.rng.choice((0, 256)))

    def cancel_one(self) -> None:
        if self.state.jobs:
            self.cancel(self.rng.choice(list(self.state.jobs)), cron=True)

    def cancel_all(self) -> None:
        self.cancel(*self.state.jobs, cron=True)
        for job in list(self.state.jobs.values()):
            if job.completing:
                self.gone(job.id)

    def requeue_one(self) -> None:
        if self.state.jobs:
            self.do(RequeueJob(target=JobTarget(self.rng.choice(list(self.state.jobs)))), ROOT)

    def let_time_pass(self) -> None:
        self.now += self.rng.choice((1, 60, 150, 400))
        self.tick()

    def collect(self) -> None:
        if self.collection is None or self.collection.done():
            self.collection = asyncio.get_running_loop().create_task(self.collector.collect())

    def write_one(self) -> None:
        if self.committer.queue:
            self.committer.run_one()


HAPPENINGS = {
    WrittenWorld.submit_one: 6,
    WrittenWorld.submit_array: 1,
    WrittenWorld.submit_two_together: 1,
    WrittenWorld.write_crontab: 1,
    WrittenWorld.store_for_nothing: 1,
    WrittenWorld.start_one: 4,
    WrittenWorld.end_one: 3,
    WrittenWorld.cancel_one: 6,
    WrittenWorld.cancel_all: 3,
    WrittenWorld.requeue_one: 1,
    WrittenWorld.let_time_pass: 6,
    WrittenWorld.collect: 6,
    WrittenWorld.write_one: 12,
}


async def live(journal: Journal, rng: random.Random) -> int:
    """Do random things until the controller is killed. Returns the number of removals."""
    world = WrittenWorld(journal, rng)
    removals = 0

    def remove(keys: set[str]) -> None:
        nonlocal removals
        removals += 1
        type(journal).remove_blobs(journal, keys)

    read = 0
    if rng.random() < 0.3:
        world.collector.needed_after = lambda: read
    journal.remove_blobs = remove  # type: ignore[method-assign]
    actions, weights = list(HAPPENINGS), list(HAPPENINGS.values())
    for action in rng.choices(actions, weights, k=STEPS):
        action(world)
        if rng.random() < 0.2:
            read = rng.randrange(read, world.writer.durable_sequence + 1)
        for _ in range(rng.choice((0, 1, 4))):
            await asyncio.sleep(0)
    if world.collection is not None:
        world.collection.cancel()
    return removals


def lacking(journal: Journal) -> list[str]:
    """Jobs of the state on disk whose script or environment is not there."""
    jobs = recover(journal, SETTINGS).machine.state.jobs.values()
    return [
        f"job {job.id}: {key}"
        for job in jobs
        for key in (job.spec.script_key, job.spec.environment_key)
        if key and journal.blob(key) is None
    ]


def test_after_a_crash_at_any_moment_every_job_has_its_script_and_environment(
    open_journal: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs_module, "SLICE", 3)  # a collection takes many turns of the loop
    monkeypatch.setattr(blobs_module, "REMOVED_BLOBS_MAX", 2)
    removals = 0
    for seed in range(LIVES):
        journal = open_journal()
        removals += asyncio.run(live(journal, random.Random(seed)))
        journal.close()
        again = open_journal()
        assert lacking(again) == [], f"seed {seed}"
        again.close()
    assert removals > LIVES, "the test did not see what it is about"
