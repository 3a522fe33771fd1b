"""A node's machine under any sequence of orders and events keeps its promises.

Promises: a step is started at most once; Prolog and Epilog run at most once per life of a job; JobGone is only said
when no supervisor is left; once everything has ended and was acknowledged, nothing is kept as running.

Controllers come and go. One whose state was restored from a copy starts jobs with the numbers of earlier ones: each of
these runs counts by itself, and no two of a number are here at once.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.node_daemon.launch import LaunchBatch, LaunchStep, TerminateJob, TerminateStep
from spritz.model.node_daemon.reports import JobGone, RunningStep, StepFinished
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation, NodeAllocation
from spritz.node import actions as decided
from spritz.node.machine import Machine

SHARE = NodeAllocation(node="n1", cpus="1")
LIVES = st.tuples(st.integers(1, 3), st.integers(0, 1))
STEPS = st.sampled_from([STEP_BATCH, 0, 1])


def job_of(life: tuple[int, int], started_at: float) -> Job:
    """One life of a job."""
    allocation = Allocation(partition="main", nodes=(SHARE,))
    return Job(id=life[0], spec=JobSpec(uid=0), allocation=allocation, restart_count=life[1], started_at=started_at)


class NodeMachine(RuleBasedStateMachine):
    """Plays controller and supervisors; keeps its own books."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine("n1", prolog=True, epilog=True)
        self.term, self.started_at = 1, 1.0
        self.started: Counter[tuple[RunningStep, float]] = Counter()
        self.living: set[RunningStep] = set()
        self.prologs: Counter[tuple[int, int, float]] = Counter()
        self.epilogs: Counter[tuple[int, int, float]] = Counter()
        self.pending_prologs: list[Job] = []
        self.pending_epilogs: list[Job] = []
        self.unacknowledged: list[StepFinished] = []

    def take(self, found: decided.Actions | Rejection) -> None:
        """Note what the machine wants done."""
        if isinstance(found, Rejection):
            return
        for action in found:
            if isinstance(action, decided.StartSupervisor):
                self.started[action.key, action.message.job.started_at] += 1
                assert action.key not in self.living
                self.living.add(action.key)
            elif isinstance(action, decided.RunProlog):
                self.prologs[action.job.id, action.job.restart_count, action.job.started_at] += 1
                self.pending_prologs.append(action.job)
            elif isinstance(action, decided.RunEpilog):
                self.epilogs[action.job.id, action.job.restart_count, action.job.started_at] += 1
                self.pending_epilogs.append(action.job)
            elif isinstance(action, decided.Send):
                self.sent(action.report)
            elif isinstance(action, decided.EndStep):
                assert action.key in self.living

    def sent(self, report: object) -> None:
        """A report leaves."""
        if isinstance(report, JobGone) or (isinstance(report, StepFinished) and report.job_gone):
            life = (report.job_id, report.restart_count)
            left = [key for key in self.living if (key.job_id, key.restart_count) == life]
            assert not left, f"gone was said while {left} lived"
        if isinstance(report, StepFinished):
            self.unacknowledged.append(report)

    @rule(restored=st.booleans())
    def another_controller(self, restored: bool) -> None:
        """The controller starts again, perhaps with an older copy of its state."""
        self.term += 1
        if restored:
            self.started_at += 1.0

    @rule(life=LIVES)
    def late(self, life: tuple[int, int]) -> None:
        """A launch by an earlier controller, which was long on its way."""
        job = job_of(life, max(1.0, self.started_at - 1.0))
        message = LaunchBatch(
            term=self.term - 1, node="n1", job=job, script=b"", environment=(), task_counts=(1,), cluster_name="c"
        )
        if self.machine.term == self.term:
            assert isinstance(self.machine.handle(message, message.term), Rejection)

    @rule()
    def register(self) -> None:
        """The controller of a restored state ends runs that it does not have."""
        self.machine.term = self.term
        others = [(job_id, life) for job_id, life, at in self.machine.runs if at != self.started_at]
        self.take(self.machine.end_jobs(others))

    @rule(life=LIVES, step=STEPS)
    def launch(self, life: tuple[int, int], step: int) -> None:
        """An order to start something, perhaps again."""
        job = job_of(life, self.started_at)
        message: LaunchBatch | LaunchStep
        if step == STEP_BATCH:
            message = LaunchBatch(
                term=1, node="n1", job=job, script=b"", environment=(), task_counts=(1,), cluster_name="c"
            )
        else:
            made = Step(
                job_id=job.id,
                step_id=step,
                spec=StepSpec(),
                uid=0,
                nodes=(StepNode(allocation=SHARE, task_ids=(0,)),),
                restart_count=job.restart_count,
            )
            message = LaunchStep(term=1, node="n1", job=job, step=made, task_counts=(1,), cluster_name="c")
        self.take(self.machine.handle(message, self.term))

    @rule(life=LIVES, at_once=st.booleans())
    def terminate(self, life: tuple[int, int], at_once: bool) -> None:
        """The job is to end."""
        message = TerminateJob(
            term=1, node="n1", job=job_of(life, self.started_at), cause="CANCELLED", at=1.0, kill_now=at_once
        )
        self.take(self.machine.handle(message, self.term))

    @rule(life=LIVES, step=STEPS)
    def terminate_step(self, life: tuple[int, int], step: int) -> None:
        """A step is to end."""
        message = TerminateStep(term=1, node="n1", job_id=life[0], restart_count=life[1], step_id=step)
        self.take(self.machine.handle(message, self.term))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), killed=st.booleans())
    def end(self, data: st.DataObject, killed: bool) -> None:
        """A supervisor ends, or is killed and cleaned up after."""
        key = data.draw(st.sampled_from(sorted(self.living, key=repr)))
        if killed:
            self.take(self.machine.noticed_death(key))
            self.living.discard(key)
            self.take(self.machine.leftovers_gone(key, 2.0, began=True, tasks=(0,), error="killed"))
            return
        self.living.discard(key)
        result = StepFinished(
            node="n1", job_id=key.job_id, restart_count=key.restart_count, step_id=key.step_id, ended_at=2.0
        )
        self.take(self.machine.noticed_end(key, result))

    @precondition(lambda self: self.pending_prologs)
    @rule(ok=st.booleans())
    def prolog(self, ok: bool) -> None:
        """The oldest Prolog has run."""
        self.take(self.machine.prolog_ended(self.pending_prologs.pop(0), ok, "" if ok else "failed", 2.0))

    @precondition(lambda self: self.pending_epilogs)
    @rule(ok=st.booleans())
    def epilog(self, ok: bool) -> None:
        """The oldest Epilog has run."""
        self.take(self.machine.epilog_ended(self.pending_epilogs.pop(0), ok))

    @precondition(lambda self: self.unacknowledged)
    @rule()
    def acknowledge(self) -> None:
        """The controller has the oldest end."""
        self.take(self.machine.acknowledged(self.unacknowledged.pop(0)))

    @invariant()
    def nothing_happens_twice(self) -> None:
        """Starts, Prologs and Epilogs."""
        for counts in (self.started, self.prologs, self.epilogs):
            assert all(count == 1 for count in counts.values()), counts

    @invariant()
    def what_lives_is_told(self) -> None:
        """Every living supervisor is in what is registered."""
        assert self.living <= set(self.machine.running)

    def teardown(self) -> None:
        """Let everything end: then nothing is left."""
        for key in sorted(self.living, key=repr):
            self.living.discard(key)
            result = StepFinished(
                node="n1", job_id=key.job_id, restart_count=key.restart_count, step_id=key.step_id, ended_at=3.0
            )
            self.take(self.machine.noticed_end(key, result))
        for number in range(1, 4):
            for restart in range(2):
                self.terminate((number, restart), True)
        while self.pending_prologs or self.pending_epilogs or self.living:
            if self.pending_prologs:
                self.prolog(True)
            if self.pending_epilogs:
                self.epilog(True)
            for key in sorted(self.living, key=repr):
                self.living.discard(key)
                result = StepFinished(
                    node="n1", job_id=key.job_id, restart_count=key.restart_count, step_id=key.step_id, ended_at=3.0
                )
                self.take(self.machine.noticed_end(key, result))
        while self.unacknowledged:
            self.acknowledge()
        assert not self.machine.busy
        assert list(self.machine.running) == []


NodeMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestNodeMachine = NodeMachine.TestCase
