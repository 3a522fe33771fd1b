"""Builds a history and what is read at its end, as a correct cluster would leave them unless a test says otherwise.

Times are seconds of virtual time. Every job's record follows its processes; `record` changes it.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spritz.model.accounting.records import JobRecord
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Job, JobSpec
from spritz.model.states import JobState
from spritz_testing.daemons.checks import Final, NodeShape, Rules, Violation, check
from spritz_testing.daemons.history import (
    REGISTERED,
    Acted,
    Began,
    Booted,
    Ended,
    Entry,
    History,
    Injected,
    Operation,
    Outcome,
    Reading,
    Signalled,
)
from spritz_testing.daemons.wanted import Change, Wanted


class Day:
    """A history that grows by calls in the order of time."""

    def __init__(self, **rules: Any) -> None:
        self.history = History()
        self.jobs: dict[int, Job] = {}
        self.rows: list[JobRecord] = []
        self.scripts: dict[int, str] = {}
        rules.setdefault("nodes", tuple(NodeShape(name=f"n{number}", memory_mib=1000) for number in range(1, 5)))
        self.rules = Rules(**rules)
        self._next_id = 1

    # -- requests

    def submit(self, at: float, *, outcome: Outcome = Outcome.DONE, kind: str = "submit", **wanted: Any) -> int:
        """A submission; its number, also if the answer was lost or it was refused (then no job exists)."""
        uid, job_id = wanted.pop("uid", 1000), self._next_id
        asked = Wanted(**{"tag": f"tag{job_id}", "script": f"script {job_id}"} | wanted)
        size = len(asked.array_tasks) + asked.het_size + 1
        self._next_id += size
        operation = self.history.begin(f"user{uid}", uid, kind, at, wanted=asked)
        self._answer(operation, outcome, at)
        operation.job_id = job_id if outcome is Outcome.DONE else 0
        if outcome is not Outcome.REFUSED:
            self._add_records(job_id, asked, uid, at, batch=kind == "submit" and asked.batch)
        return job_id

    def _add_records(self, job_id: int, asked: Wanted, uid: int, at: float, *, batch: bool) -> None:
        spec = JobSpec(
            name=asked.name,
            comment=asked.tag,
            batch=batch,
            uid=uid,
            account=asked.account,
            time_limit_minutes=asked.time_limit_minutes,
        )
        job = Job(id=job_id, spec=spec, submitted_at=at)
        if batch:
            self.scripts[job_id] = asked.script
        self.jobs[job_id] = job
        for place, task in enumerate(asked.array_tasks):
            number = job_id + 1 + place if place < len(asked.array_tasks) - 1 else job_id
            self.jobs[number] = replace(job, id=number, array_job_id=job_id, array_task_id=task)
            self.scripts[number] = asked.script
        for offset in range(asked.het_size):
            self.jobs[job_id + offset] = replace(job, id=job_id + offset, het_job_id=job_id, het_offset=offset)

    def request(
        self,
        kind: str,
        job_id: int,
        at: float,
        *,
        answered: float | None = None,
        outcome: Outcome = Outcome.DONE,
        answer: Any = None,
        wanted: Any = None,
        **change: Any,
    ) -> Operation:
        """A request that changes a job. `change`: fields of `Change`."""
        wanted = Change(**change) if wanted is None else wanted
        operation = self.history.begin("user1000", 1000, kind, at, job_id=job_id, wanted=wanted)
        self._answer(operation, outcome, at if answered is None else answered - 0.1)
        operation.answer = answer
        return operation

    def _answer(self, operation: Operation, outcome: Outcome, at: float) -> None:
        operation.outcome = outcome
        operation.answered_at = None if outcome is Outcome.UNKNOWN else at + 0.1

    def read(self, at: float, *rows: tuple[Any, ...], kind: str = "squeue") -> Reading:
        """What a user is shown."""
        reading = Reading(client="user1000", kind=kind, called_at=at, answered_at=at + 0.1, rows=list(rows))
        self.history.add(reading)
        return reading

    # -- nodes

    def begin(self, job_id: int, at: float, node: str = "n1", *, step_id: int = STEP_BATCH, **more: Any) -> Began:
        """Processes of a step begin."""
        job = self.jobs.get(job_id)
        cpus = frozenset(more.pop("cpus", {job_id}))
        submission = next((entry for entry in self.history.entries if _made(entry, job, job_id)), None)
        asked = submission.wanted if isinstance(submission, Operation) else Wanted(tag="")
        fields: dict[str, Any] = {
            "restart_count": job.restart_count if job is not None else 0,
            "uid": job.spec.uid if job is not None else 0,
            "job_cpus": cpus,
            "step_cpus": cpus,
            "gres": frozenset(),
            "memory_mib": 10,
            "shares": False,
            "script": asked.script if step_id == STEP_BATCH else "",
            "environment": dict(asked.environment),
            "task_ids": (0,),
            "array_job_id": job.array_job_id if job is not None else 0,
            "array_task_id": job.array_task_id if job is not None else None,
            "het_job_id": job.het_job_id if job is not None else 0,
        }
        began = Began(at=at, node=node, job_id=job_id, step_id=step_id, **fields | more)
        self.history.add(began)
        if job is not None and job.state is JobState.PENDING:
            self.record(job_id, state=JobState.RUNNING, started_at=at)
        return began

    def end(self, job_id: int, at: float, node: str = "n1", *, exit_code: int = 0, **more: Any) -> Ended:
        """Processes of a step end; with the script its job ends."""
        fields: dict[str, Any] = {"restart_count": self.jobs[job_id].restart_count, "step_id": STEP_BATCH, "signal": 0}
        ended = Ended(at=at, node=node, job_id=job_id, exit_code=exit_code, **fields | more)
        self.history.add(ended)
        if ended.step_id == STEP_BATCH and self.jobs[job_id].state.active and not ended.lost:
            status = exit_code << 8 | ended.signal
            state = JobState.FAILED if status else JobState.COMPLETED
            self.record(job_id, state=state, ended_at=at, exit_status=status)
        return ended

    def run(self, job_id: int, at: float, until: float, node: str = "n1", *, exit_code: int = 0, **more: Any) -> Began:
        """A script begins and ends."""
        began = self.begin(job_id, at, node, **more)
        self.end(job_id, until, node, exit_code=exit_code)
        return began

    def signal(self, job_id: int, at: float, number: int, node: str = "n1") -> None:
        """A signal reaches the script."""
        life = self.jobs[job_id].restart_count
        self.history.add(
            Signalled(at=at, node=node, job_id=job_id, restart_count=life, step_id=STEP_BATCH, number=number)
        )

    def boot(self, at: float, node: str) -> None:
        """A machine loses power."""
        self.history.add(Booted(at=at, node=node))

    def fault(self, at: float, until: float, target: str, kind: str = "stop") -> None:
        """A fault is injected."""
        self.history.add(Injected(at=at, until=until, kind=kind, target=target))

    def order(self, at: float, node: str, term: int, host: str = "c1", pid: int = 1, subject: str = "") -> Acted:
        """A node accepts an order."""
        acted = Acted(at=at, host=host, pid=pid, term=term, kind="LaunchBatch", node=node, subject=subject)
        self.history.add(acted)
        return acted

    def registered(self, at: float, node: str, term: int) -> None:
        """A controller of this term answers a node's registration."""
        self.history.add(Acted(at=at, host="c2", pid=2, term=term, kind=REGISTERED, node=node))

    # -- what daemons report

    def record(self, job_id: int, **changes: Any) -> None:
        """Change the job's record."""
        self.jobs[job_id] = replace(self.jobs[job_id], **changes)

    def queue_again(self, job_id: int, at: float, state: str = "NODE_FAIL") -> None:
        """The present life is over, and the next one waits."""
        job = self.jobs[job_id]
        self.rows.append(row_of(replace(job, ended_at=job.ended_at or at), state))
        self.record(
            job_id,
            state=JobState.PENDING,
            restart_count=job.restart_count + 1,
            started_at=0.0,
            ended_at=0.0,
            exit_status=0,
        )

    def final(self, at: float = 10_000.0, **changes: Any) -> Final:
        """What is read at the end. The accounting records follow the controller's."""
        fields: dict[str, Any] = {
            "read_at": at,
            "jobs": tuple(self.jobs.values()),
            "rows": (*self.rows, *(row_of(job) for job in self.jobs.values())),
            "scripts": self.scripts,
            "rules": self.rules,
        }
        return Final(**fields | changes)

    def check(self, at: float = 10_000.0, **changes: Any) -> list[Violation]:
        """All violations."""
        return check(self.history, self.final(at, **changes))

    def broken(self, at: float = 10_000.0, **changes: Any) -> dict[str, str]:
        """Text of the first violation of each rule."""
        texts: dict[str, str] = {}
        for violation in self.check(at, **changes):
            texts.setdefault(violation.rule, violation.text)
        return texts


def row_of(job: Job, state: str = "") -> JobRecord:
    """Accounting's record of the job's present life."""
    return JobRecord(
        number=job.id * 10 + job.restart_count,
        job_id=job.id,
        restart_count=job.restart_count,
        array_job_id=job.array_job_id,
        array_task_id=job.array_task_id,
        het_job_id=job.het_job_id,
        name=job.spec.name,
        comment=job.spec.comment,
        state=state or job.state.value,
        started_at=job.started_at,
        ended_at=job.ended_at,
        exit_status=job.exit_status if job.state in (JobState.COMPLETED, JobState.FAILED) else 0,
        suspended_seconds=job.suspended_seconds,
        batch=job.spec.batch,
    )


def _made(entry: Entry, job: Job | None, job_id: int) -> bool:
    if not isinstance(entry, Operation) or not isinstance(entry.wanted, Wanted) or job is None:
        return False
    return entry.wanted.tag == job.spec.comment
