"""A day of the production core, cycle and accounting's ledger, without daemons: what the checks must accept.

Each second a user asks for something or a listing is read; then what is due happens, and a full cycle runs. Nodes obey
within the second. A machine may lose power and registers again at once. Requests are answered by the core at once;
some answers are lost.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from spritz.accounting.ledger.ledger import Ledger
from spritz.core import effects
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.commands.job import (
    CancelJobs,
    CancelResult,
    HoldJob,
    JobSubmitted,
    ReleaseJob,
    RequeueJob,
    ResumeJob,
    SubmitJob,
    SuspendJob,
    UpdateJob,
)
from spritz.model.ids import STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Dependency, Sharing
from spritz.model.node_daemon.reports import JobGone, RegisterNode, StepFinished, StepStarted, TaskEnd
from spritz.model.rejection import Rejection
from spritz.model.resources import GresRequest, mask_ids, mask_of
from spritz.model.states import JobState
from spritz.scheduling.plan import cycle
from spritz.scheduling.view import snapshot
from spritz.scheduling.view.projection import Projection
from spritz_testing.builders import ROOT, World, capacity, job_spec
from spritz_testing.daemons.checks import Final, NodeShape, Rules, Violation, check
from spritz_testing.daemons.history import Began, Booted, Ended, History, Operation, Outcome, Reading, Signalled
from spritz_testing.daemons.wanted import Change, Condition, Wanted

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.model.job.record import Job

_BY_TARGET = {
    "hold": HoldJob,
    "release": ReleaseJob,
    "requeue": RequeueJob,
    "suspend": SuspendJob,
    "resume": ResumeJob,
}


class CoreDay:
    """The cluster, its users and nodes, from a seed."""

    def __init__(self, seed: int, seconds: int = 200) -> None:
        self.random = Random(seed)
        settings = ClusterSettings(
            gres_types=("gpu",), max_job_count=10_000, licenses=(("a", 2),), min_job_age_seconds=60, return_to_service=2
        )
        self.world = World(4, capacity(cpus=4, memory_mib=1000, gpus=2), settings)
        self.history = History()
        self.ledger = Ledger()
        self.ledger.keep = frozenset({"job_comment"})  # the tag is in the comment
        self.places = 0
        self.projection = Projection()
        self._project()
        #: when the script of each life ends, by job and life; inf while it is stopped
        self.ends: dict[tuple[int, int, str], float] = {}
        self.submitted: list[int] = []
        #: A requeue of a job that was cancelled before its begin time forgets that time.
        self.spared: set[tuple[str, int]] = set()
        for _second in range(seconds):
            self._second(self._act)
        for job_id in self.submitted:
            self._request("release", job_id, lost=False)
        for _second in range(600):
            self._second(self._resume_all)

    def _project(self) -> None:
        state = self.world.state
        rows = (state.jobs.values(), state.nodes.values(), state.partitions.values())
        self.projection.reset(*rows, state.settings, state.reservations.values(), state.rules.policy)

    def _second(self, act: Any) -> None:
        self.world.now = float(int(self.world.now) + 1)
        act()
        self.world.now += 0.3
        for (job_id, life, node), at in list(self.ends.items()):
            if at <= self.world.now:
                self._script_ends(job_id, life, node)
        deadline = self.world.machine.next_deadline()
        if deadline is not None and deadline <= self.world.now:
            self._do(Tick())
        self.world.now += 0.3
        history = snapshot.History(self.world.state.minutes, self.world.state.run_times)
        plan, findings = cycle.run(self.projection.snapshot(self.world.now, history))
        self.projection.remember(findings)
        self._do(ApplyPlan(plan=plan))
        self.projection.adopt(plan)

    def _do(self, command: Struct) -> Struct:
        outcome = self.world.do(command, ROOT)
        self.projection.follow(outcome.changes)
        for event in outcome.events:
            self.places += 1
            self.ledger.apply(self.places, event)
        for effect in outcome.effects:
            self._obey(effect)
        return outcome.reply

    def _resume_all(self) -> None:
        """Resume what is suspended: refused while another job has its CPUs."""
        for job in self.world.state.jobs.values():
            if job.state is JobState.SUSPENDED:
                self._request("resume", job.array_job_id or job.id, lost=False)
                return

    # -- users

    def _act(self) -> None:
        draw = self.random.random()
        if draw < 0.3 or not self.submitted:
            self._submit()
        elif draw < 0.6:
            kinds = ("cancel", "hold", "release", "requeue", "suspend", "resume", "update")
            kind, job_id = self.random.choice(kinds), self.random.choice(self.submitted)
            if (kind, job_id) not in self.spared:
                self._request(kind, job_id)
        elif draw < 0.8:
            self._read()
        elif draw < 0.83:
            self._lose_power(self.random.choice(self.world.names))

    def _submit(self) -> None:
        random, tag = self.random, f"tag{len(self.history.entries)}"
        tasks = tuple(range(3)) if random.random() < 0.2 else ()
        conditions: tuple[Condition, ...] = ()
        if self.submitted and random.random() < 0.3:
            kind = random.choice(["afterok", "afterany", "afternotok", "after", "singleton"])
            conditions = (Condition(kind=kind, job_id=0 if kind == "singleton" else random.choice(self.submitted)),)
        wanted = Wanted(
            tag=tag,
            name=random.choice(["red", "blue"]),
            script="#!/bin/sh\n",
            hold=random.random() < 0.15,
            begin_at=self.world.now + 15 if random.random() < 0.1 else 0.0,
            time_limit_minutes=random.choice([1, 5]),
            dependencies=conditions,
            array_tasks=tasks,
            array_limit=1 if tasks and random.random() < 0.5 else 0,
            licenses="a" if random.random() < 0.3 else "",
            sharing="exclusive" if random.random() < 0.1 else "",
        )
        spec = job_spec(
            name=wanted.name,
            comment=tag,
            hold=wanted.hold,
            begin_at=wanted.begin_at,
            time_limit_minutes=wanted.time_limit_minutes,
            dependencies=tuple(Dependency(kind=item.kind, job_id=item.job_id) for item in conditions),
            array="" if not tasks else f"0-2%{wanted.array_limit}" if wanted.array_limit else "0-2",
            licenses=wanted.licenses,
            sharing=Sharing(wanted.sharing),
            requeue=True,
            tasks=random.randint(1, 3),
            tasks_given=True,
            memory_mib_per_cpu=100,
            gpus_per_node=(GresRequest("gpu", count=1),) if random.random() < 0.3 else (),
        )
        operation = self.history.begin("user0", 0, "submit", self.world.now, wanted=wanted)
        reply = self._do(SubmitJob(spec=spec, script=b"#!/bin/sh\n"))
        self._answer(operation, reply, self.random.random() < 0.1)
        if isinstance(reply, JobSubmitted):
            self.submitted.append(reply.job_id)
            self.spared |= {("requeue", reply.job_id)} if wanted.begin_at else set()
            operation.job_id = reply.job_id if operation.outcome is Outcome.DONE else 0

    def _request(self, kind: str, job_id: int, *, lost: bool | None = None) -> None:
        lost = self.random.random() < 0.1 if lost is None else lost
        target = JobTarget(job_id)
        change = Change()
        command: Struct
        if kind == "cancel":
            command = CancelJobs(filter=JobFilter(targets=(target,)))
        elif kind == "update":
            change = Change(fields={"time_limit_minutes": self.random.choice([1, 2, 3])})
            command = UpdateJob(target=target, changes=change.fields)
        else:
            command = _BY_TARGET[kind](target=target)
        operation = self.history.begin("user0", 0, kind, self.world.now, job_id=job_id, wanted=change)
        reply = self._do(command)
        self._answer(operation, reply, lost)

    def _answer(self, operation: Operation, reply: Struct, lost: bool) -> None:
        code = reply.code if isinstance(reply, Rejection) else ""
        if isinstance(reply, CancelResult):
            code = next((outcome.code for outcome in reply.outcomes if outcome.code), "")
            code = "" if any(not outcome.code for outcome in reply.outcomes) else code
        if lost:
            return
        operation.answered_at = self.world.now + 0.05
        operation.outcome = Outcome.REFUSED if code else Outcome.DONE
        operation.answer = code

    def _read(self) -> None:
        jobs = [job for job in self.world.state.jobs.values() if not job.state.ended or job.completing]
        rows = [(job.id, self._shown(job), job.reason.value) for job in jobs]
        now = self.world.now
        self.history.add(Reading(client="user0", kind="squeue", called_at=now, answered_at=now + 0.05, rows=rows))

    def _shown(self, job: Job) -> str:
        return "COMPLETING" if job.completing else job.state.value

    # -- nodes

    def _obey(self, effect: effects.Effect) -> None:
        if isinstance(effect, effects.LaunchBatchOn):
            self._launch(effect)
        elif isinstance(effect, effects.TerminateJobOn):
            key = (effect.job_id, effect.restart_count, effect.node)
            if self.ends.pop(key, None) is not None:
                self._ended(key, signal=15)
            self._do(JobGone(node=effect.node, job_id=effect.job_id, restart_count=effect.restart_count))
        elif isinstance(effect, effects.SuspendOn):
            self._suspend(effect)

    def _launch(self, effect: effects.LaunchBatchOn) -> None:
        job = self.world.state.jobs[effect.job_id]
        if job.allocation is None or job.restart_count != effect.restart_count:
            return
        share = next(share for share in job.allocation.nodes if share.node == effect.node)
        cpus = frozenset(mask_ids(mask_of(share.cpus)))
        gres = {(item.name, index) for item in share.gres for index in mask_ids(mask_of(item.indexes))}
        self.history.add(
            Began(
                at=self.world.now,
                node=effect.node,
                job_id=job.id,
                restart_count=job.restart_count,
                step_id=STEP_BATCH,
                uid=0,
                job_cpus=cpus,
                step_cpus=cpus,
                gres=frozenset(gres),
                memory_mib=share.memory_mib,
                shares=False,
                script="#!/bin/sh\n",
                environment={},
                task_ids=(0,),
                array_job_id=job.array_job_id,
                array_task_id=job.array_task_id,
                het_job_id=job.het_job_id,
            )
        )
        seconds = self.random.choice([3, 10, 30, 80])
        self.ends[job.id, job.restart_count, effect.node] = self.world.now + seconds
        report = StepStarted(
            node=effect.node,
            job_id=job.id,
            restart_count=job.restart_count,
            step_id=STEP_BATCH,
            started_at=self.world.now,
        )
        self._do(report)

    def _ended(self, key: tuple[int, int, str], *, code: int = 0, signal: int = 0) -> None:
        job_id, life, node = key
        self.history.add(
            Ended(
                at=self.world.now,
                node=node,
                job_id=job_id,
                restart_count=life,
                step_id=STEP_BATCH,
                exit_code=code,
                signal=signal,
            )
        )

    def _script_ends(self, job_id: int, life: int, node: str) -> None:
        code = 2 if self.random.random() < 0.2 else 0
        del self.ends[job_id, life, node]
        self._ended((job_id, life, node), code=code)
        report = StepFinished(
            node=node,
            job_id=job_id,
            restart_count=life,
            step_id=STEP_BATCH,
            ended_at=self.world.now,
            tasks=(TaskEnd(0, code << 8),),
        )
        self._do(report)

    def _suspend(self, effect: effects.SuspendOn) -> None:
        key = (effect.job_id, effect.restart_count, effect.node)
        if key not in self.ends:
            return
        self.ends[key] = self.world.now + 5 if effect.resume else float("inf")
        self.history.add(
            Signalled(
                at=self.world.now,
                node=effect.node,
                job_id=effect.job_id,
                restart_count=effect.restart_count,
                step_id=STEP_BATCH,
                number=18 if effect.resume else 19,
            )
        )

    def _lose_power(self, node: str) -> None:
        self.history.add(Booted(at=self.world.now, node=node))
        for key in [key for key in self.ends if key[2] == node]:
            del self.ends[key]
        now = self.world.now
        self._do(
            RegisterNode(
                name=node,
                capacity=self.world.hardware,
                booted_at=now,
                boot_id=str(now),
                daemon_started_at=now,
                version="25.05.0",
            )
        )
        for effect in self.world.machine.pending_effects(node):
            self._obey(effect)

    # -- the end

    def final(self) -> Final:
        """What is read."""
        jobs = tuple(self.world.state.jobs.values())
        rules = Rules(
            nodes=tuple(NodeShape(name=name, memory_mib=1000) for name in self.world.names),
            licenses={"a": 2},
            min_job_age_seconds=60.0,
            order_seconds=1.0,
            recovery_seconds=5.0,
        )
        rows = tuple(self.ledger.changes.jobs.values())
        return Final(read_at=self.world.now, jobs=jobs, rows=rows, rules=rules)

    def check(self) -> list[Violation]:
        """All violations."""
        return check(self.history, self.final())
