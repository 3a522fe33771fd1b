"""A site whose jobs come by `sbatch` and run until the end of their time limits: what was told must then happen."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from spritz.core import effects
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.commands.job import JobSubmitted, SubmitJob
from spritz.model.events import job as job_events
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Dependency, JobSpec
from spritz.model.node_daemon.reports import JobGone, StepFinished, StepStarted, TaskEnd
from spritz.model.plan import Plan
from spritz.notation import dependency
from tests.unit.scheduling.site import Site
from tests.unit.scheduling.test_forecast import starts


def depends(text: str) -> dict[str, Any]:
    """Fields of `--dependency=TEXT`."""
    items, mode = dependency.parse(text)
    found = tuple(
        Dependency(kind=item.kind, job_id=item.job_id, task_id=item.task_id, minutes=item.minutes) for item in items
    )
    return {"dependencies": found, "dependency_mode": mode}


class Play(Site):
    """`began`: when each job, or the first task of each array, has started."""

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        super().__init__(*arguments, **fields)
        self.minutes = self.machine.state.minutes
        self.began: dict[int, float] = {}
        #: these end badly
        self.fail: set[int] = set()

    def sbatch(self, request: JobSpec, **fields: Any) -> int:
        """Submit; the job's number."""
        request = structs.replace(request, partitions=(self.partitions[0].name,), uid=1000, batch=True, **fields)
        reply = self.do(SubmitJob(spec=request, script=b"#!/bin/sh\n"))
        assert isinstance(reply, JobSubmitted), reply
        return reply.job_id

    def do(self, command: Struct) -> Struct:
        """A command to the core; nodes obey at once."""
        outcome = self.machine.handle(command, self.now)
        self.projection.follow(outcome.changes)
        for event in outcome.events:
            if isinstance(event, job_events.JobStarted):
                job = self.jobs[event.job_id]
                self.began.setdefault(job.array_job_id or job.id, self.now)
        for effect in outcome.effects:
            if isinstance(effect, effects.LaunchBatchOn):
                self.do(
                    StepStarted(
                        node=effect.node,
                        job_id=effect.job_id,
                        restart_count=effect.restart_count,
                        step_id=STEP_BATCH,
                        started_at=self.now,
                    )
                )
            elif isinstance(effect, effects.TerminateJobOn):
                self.do(JobGone(node=effect.node, job_id=effect.job_id, restart_count=effect.restart_count))
        return outcome.reply

    def told(self) -> dict[int, float]:
        """When jobs start by a full cycle, which is applied."""
        plan = self.plan()
        told = {number: at for number, (at, _nodes) in starts(plan).items()}
        told |= dict.fromkeys((start.job_id for start in plan.starts), self.now)
        self._follow(plan)
        return told

    def look(self) -> None:
        """Cycles, applied, until nothing more starts."""
        while (plan := self.plan()).starts:
            self._follow(plan)
        self._follow(plan)

    def _follow(self, plan: Plan) -> None:
        self.do(ApplyPlan(plan=plan))
        self.projection.adopt(plan)

    def run(self) -> None:
        """Until nothing runs, and no time alone would let anything start."""
        self.look()
        while True:
            running = [job for job in self.jobs.values() if job.state.active]
            deadline = self.machine.next_deadline()
            times = [job.ends_at for job in running]
            if deadline is not None and any(job.state.value == "PENDING" for job in self.jobs.values()):
                times.append(deadline)
            if not times:
                return
            self.now = max(self.now, min(times))
            for job in running:
                if job.ends_at <= self.now:
                    self._finish(job.id)
            if deadline is not None and deadline <= self.now:
                self.do(Tick())
            self.projection.free_all()
            self.look()

    def _finish(self, number: int) -> None:
        job = self.jobs[number]
        assert job.allocation is not None
        status = 256 if (job.array_job_id or job.id) in self.fail else 0
        self.do(
            StepFinished(
                node=job.allocation.nodes[0].node,
                job_id=number,
                restart_count=job.restart_count,
                step_id=STEP_BATCH,
                ended_at=self.now,
                tasks=(TaskEnd(0, status),),
                job_gone=True,
            )
        )
