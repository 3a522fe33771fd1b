"""A fault of the core fails one request, job or part of a Tick: it is undone, set aside, logged and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.contract import Journal
from spritz.controller.journal.recovery import recover
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.controller.writer.commit import CommitThread, InlineCommitter
from spritz.controller.writer.loop import SingleWriter
from spritz.core.decide import DECISIONS, due, ending
from spritz.core.decide.reservations import reservation
from spritz.core.decide.running import reports
from spritz.core.decide.starting import plan
from spritz.core.decide.starting import start as start_module
from spritz.core.decision import DecisionContext, Fault, Refused, Torn
from spritz.core.invariants import breaches
from spritz.core.job.timers import Due
from spritz.core.machine import STORY_EVENTS_MAX, Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Configure, Tick
from spritz.model.commands.crontab import UpdateCrontab
from spritz.model.commands.job import Done, JobSubmitted, NotifyJob, SubmitHetJob, SubmitJob
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.events import Event
from spritz.model.events.job import JobHeld
from spritz.model.ids import STEP_BATCH
from spritz.model.job.job_filter import JobTarget
from spritz.model.job.record import CronEntry, Hold, Job
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import JobGone, RegisterNode, StepFinished
from spritz.model.plan import Plan, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz_testing.builders import capacity, job_spec, node_share
from spritz_testing.memory_journal import MemoryJournal, MemoryStore

SETTINGS = ClusterSettings(crontabs=True, scheduler_parameters=(("hetjob_share_nodes", ""),))


#: the core's table; Any: functions of other types stand in it for a while
TABLE: Any = DECISIONS
DUE: Any = due._DECISIONS


class SetClock(SystemClock):
    time = 1000.0

    def now(self) -> float:
        return self.time


class Bench:
    """A writer on a journal (in memory, unless told), with two nodes of four CPUs."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.clock = SetClock()
        self.store = MemoryStore()
        threaded, journal = journal is not None, journal or MemoryJournal(self.store)
        self.journal = journal
        self.machine = Machine(SETTINGS)
        self.broken: list[Exception] = []
        self.informed: list[Event] = []
        self.writer = SingleWriter(
            self.machine,
            journal,
            BlobStore(journal),
            CommitThread(self.broken.append) if threaded else InlineCommitter(self.broken.append),
            self.clock,
            get_logger("test"),
            on_effects=lambda effects: None,
            on_broken=self.broken.append,
        )
        hardware = capacity(cpus=4)
        names = ("n1", "n2")
        self.do(
            Configure(
                settings=SETTINGS,
                nodes=tuple(NodeConfig(name=name, capacity=hardware) for name in names),
                partitions=(Partition(name="p", nodes=names, default=True),),
            )
        )
        for name in names:
            self.do(RegisterNode(name=name, capacity=hardware, booted_at=1.0, daemon_started_at=1.0, version="1"))

    def do(self, command: Struct) -> Struct:
        reply = self.writer.handle_own(command)
        assert reply is not None
        return reply

    def submit(self, **fields: Any) -> int:
        reply = self.do(SubmitJob(spec=job_spec(uid=1, **fields), script=b"#!"))
        assert isinstance(reply, JobSubmitted), reply
        return reply.job_id

    def start(self, *job_ids: int) -> Struct:
        starts = tuple(
            PlannedStart(
                job_id=job_id, allocation=Allocation(partition="p", nodes=(node_share("n1", f"{1 << place:x}"),))
            )
            for place, job_id in enumerate(job_ids)
        )
        return self.do(ApplyPlan(plan=Plan(starts=starts)))

    def job(self, job_id: int) -> Job:
        return self.machine.state.jobs[job_id]

    async def check(self, faults: int, *, timers: bool = True) -> None:
        """The daemon goes on, and what is on disk is what is in memory. `timers`: no job is ignored."""
        await self.writer.drain()
        assert self.broken == []
        assert self.writer.failures.get("core", 0) == faults
        assert breaches(self.machine.state) == [] or not timers
        assert recover(self.journal, SETTINGS).machine.image() == self.machine.image()


def run(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await story(Bench())

    asyncio.run(main())


def fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a fault")


def test_a_job_that_cannot_end_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a crontab entry that never comes again, whose job could be accepted once."""

    async def story(bench: Bench) -> None:
        cron = CronEntry(schedule="* * * * *")
        submission = SubmitJob(spec=job_spec(cron=cron, uid=0), script=b"#!")
        bench.do(UpdateCrontab(uid=0, text="x", jobs=(submission,)))
        other = bench.submit()
        bench.clock.time += 60.0
        bench.do(Tick())
        bench.start(1, other)
        monkeypatch.setattr(ending, "following", fail)
        report = StepFinished(node="n1", job_id=1, restart_count=0, step_id=STEP_BATCH, ended_at=bench.clock.now())
        assert bench.do(report) == Done(), "the node would repeat its report for ever"
        assert (bench.job(1).state, bench.job(1).reason) == (JobState.FAILED, Reason.SYSTEM_FAILURE)
        assert bench.job(other).state is JobState.RUNNING
        bench.do(JobGone(node="n1", job_id=1, restart_count=0))
        await bench.check(faults=1)
        bench.clock.time += 1000.0
        bench.do(Tick())
        assert 1 not in bench.machine.state.jobs, "its record goes as that of any job"
        await bench.check(faults=1)

    run(story)


def test_components_end_with_their_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        components = (SubmitJob(spec=job_spec(uid=1), script=b"#!"), SubmitJob(spec=job_spec(uid=1, batch=False)))
        bench.do(SubmitHetJob(components=components))
        bench.start(1, 2)
        assert bench.job(2).state is JobState.RUNNING
        monkeypatch.setattr(reports, "end_job", fail)
        bench.do(StepFinished(node="n1", job_id=1, restart_count=0, step_id=STEP_BATCH, ended_at=bench.clock.now()))
        assert [bench.job(number).state for number in (1, 2)] == [JobState.FAILED] * 2
        await bench.check(faults=1)

    run(story)


def test_a_tick_goes_on_without_the_job_that_it_cannot_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        jobs = [bench.submit(begin_at=1010.0) for _ in range(3)]
        plain = DUE[Due.BEGIN]

        def waiting(context: DecisionContext, job: Job) -> None:
            plain(context, job)
            if job.id == jobs[1]:
                fail()

        monkeypatch.setitem(DUE, Due.BEGIN, waiting)
        bench.clock.time = 1010.0
        bench.do(Tick())
        assert [bench.job(number).state for number in jobs] == [JobState.PENDING, JobState.FAILED, JobState.PENDING]
        assert [bench.job(number).eligible_at for number in (jobs[0], jobs[2])] == [1010.0, 1010.0]
        await bench.check(faults=1)

    run(story)


def test_a_job_that_faults_again_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        job = bench.submit(begin_at=1010.0)
        monkeypatch.setitem(DUE, Due.BEGIN, fail)
        monkeypatch.setitem(TABLE, JobGone, fail)
        bench.start(job)
        bench.clock.time = 1010.0
        bench.do(Tick())
        assert bench.job(job).state is JobState.FAILED
        report = JobGone(node="n1", job_id=job, restart_count=0)
        for _ in range(3):
            assert bench.do(report) == Done()
        await bench.check(faults=2, timers=False)
        assert bench.machine.next_deadline() is None

    run(story)


def test_a_plan_goes_on_without_the_job_that_it_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        jobs = [bench.submit() for _ in range(3)]
        plain = start_module.start_job

        def start(context: DecisionContext, item: PlannedStart) -> None:
            plain(context, item)
            if item.job_id == jobs[1]:
                fail()

        monkeypatch.setattr(plan, "start_job", start)
        assert isinstance(bench.start(*jobs), Done)
        assert [bench.job(number).state for number in jobs] == [JobState.RUNNING, JobState.PENDING, JobState.RUNNING]
        assert bench.job(jobs[1]).hold is Hold.ADMIN, "the next cycle must not propose it again"
        await bench.check(faults=1)

    run(story)


def test_a_reservation_that_cannot_be_looked_at_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        for name in ("good", "bad"):
            request = ReservationRequest(
                name=name, start_at=1010.0, duration_seconds=50.0, users=("root",), nodes=("n1",), flags=("OVERLAP",)
            )
            bench.do(CreateReservation(request=request))
        plain = reservation._advance

        def advance(context: DecisionContext, item: Any) -> None:
            plain(context, item)
            if item.name == "bad":
                fail()

        monkeypatch.setattr(reservation, "_advance", advance)
        bench.clock.time = 1010.0
        bench.do(Tick())
        held = bench.machine.state.reservations
        assert (held["good"].began, held["bad"].began) == (True, False)
        assert bench.machine.next_deadline() == held["good"].end_at
        await bench.check(faults=2)

    run(story)


def test_a_late_refusal_is_a_refusal_that_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        job = bench.submit()

        def decide(context: DecisionContext, _command: Struct) -> None:
            context.record(JobHeld(at=context.now, job_id=job, hold=Hold.USER, reason=Reason.HELD_USER))
            raise Refused("ESLURM_ACCOUNTING_POLICY")

        monkeypatch.setitem(TABLE, NotifyJob, decide)
        reply = bench.do(NotifyJob(target=JobTarget(job), message=""))
        assert isinstance(reply, Rejection)
        assert reply.code == "ESLURM_ACCOUNTING_POLICY"
        assert bench.job(job).hold is Hold.NONE
        await bench.check(faults=0)

    run(story)


def test_a_fault_leaves_the_groups_that_are_being_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One group is on its way to the disk, and one is gathered, when the fault comes."""

    async def main() -> None:
        bench = Bench(SqliteJournal(tmp_path))
        await bench.writer.drain()
        first = bench.submit()
        await asyncio.sleep(0)  # the group leaves
        second = bench.submit(begin_at=1010.0)
        monkeypatch.setitem(DUE, Due.BEGIN, waiting)
        bench.clock.time = 1010.0
        bench.do(Tick())
        assert bench.job(first).state is JobState.PENDING
        assert bench.job(second).reason is Reason.SYSTEM_FAILURE
        await bench.check(faults=1)
        bench.journal.close()

    def waiting(context: DecisionContext, job: Job) -> None:
        context.record(JobHeld(at=context.now, job_id=job.id, hold=Hold.USER, reason=Reason.HELD_USER))
        fail()

    asyncio.run(main())


def test_a_request_with_a_fault_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        job = bench.submit()

        def decide(context: DecisionContext, _command: Struct) -> None:
            context.record(JobHeld(at=context.now, job_id=job, hold=Hold.USER, reason=Reason.HELD_USER))
            fail()

        monkeypatch.setitem(TABLE, NotifyJob, decide)
        with pytest.raises(Fault):
            bench.do(NotifyJob(target=JobTarget(job), message=""))
        assert bench.job(job).hold is Hold.NONE
        await bench.check(faults=1)

    run(story)


def test_a_decision_that_cannot_be_taken_back_ends_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        job = bench.submit(begin_at=1010.0)
        await bench.writer.drain()

        def waiting(context: DecisionContext, item: Job) -> None:
            context.record(JobHeld(at=context.now, job_id=item.id, hold=Hold.USER, reason=Reason.HELD_USER))
            context.state.undo.note(fail)
            fail()

        monkeypatch.setitem(DUE, Due.BEGIN, waiting)
        bench.clock.time = 1010.0
        with pytest.raises(Torn):
            bench.do(Tick())
        assert len(bench.broken) == 1, job

    run(story)


def test_a_trial_that_cannot_be_taken_back_ends_the_daemon_at_the_next_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(bench: Bench) -> None:
        bench.submit(begin_at=1010.0)
        plain = DUE[Due.BEGIN]

        def waiting(context: DecisionContext, item: Job) -> None:
            plain(context, item)
            context.state.undo.note(fail)

        monkeypatch.setitem(DUE, Due.BEGIN, waiting)
        with pytest.raises(Torn):
            bench.machine.check(Tick(), 1010.0)
        with pytest.raises(Torn):
            bench.submit()
        assert len(bench.broken) == 1

    run(story)


def test_the_story_of_a_large_plan_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        jobs = [bench.submit(begin_at=1010.0) for _ in range(2 * STORY_EVENTS_MAX)]
        plain = DUE[Due.BEGIN]

        def waiting(context: DecisionContext, item: Job) -> None:
            plain(context, item)
            if item.id == jobs[-1]:
                fail()

        monkeypatch.setitem(DUE, Due.BEGIN, waiting)
        with pytest.raises(Fault) as caught:
            bench.machine.handle(Tick(), 1010.0)
        assert len(caught.value.story) == 1 + STORY_EVENTS_MAX

    run(story)


def test_the_log_has_the_story_of_a_fault(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The record before the decision, and the events that were taken back."""

    async def story(bench: Bench) -> None:
        bench.submit(begin_at=1010.0, name="odd")

        def waiting(context: DecisionContext, item: Job) -> None:
            context.record(JobHeld(at=context.now, job_id=item.id, hold=Hold.USER, reason=Reason.HELD_USER))
            fail()

        monkeypatch.setitem(DUE, Due.BEGIN, waiting)
        bench.clock.time = 1010.0
        bench.do(Tick())

    run(story)
    lines = [line for line in capfd.readouterr().err.splitlines() if "core.story" in line]
    assert len(lines) == 2
    assert '"name":"odd"' in lines[0]
    assert "JobHeld" in lines[1]
