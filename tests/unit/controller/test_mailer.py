"""Which mails are sent for the events of one commit. Source: sbatch(1) --mail-type; Slurm 22.05."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from spritz.controller.programs.mail import Mailer
from spritz.model.events.job import JobEnded, JobRequeued, JobStarted
from spritz.model.job.record import Job, JobSpec
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from tests.unit.controller.heard import Heard

ALL = ("BEGIN", "END", "FAIL", "REQUEUE")


class Sent(Mailer):
    """A mailer that keeps what it would send: kind, job, how long the life that it tells of was."""

    def __init__(self, *jobs: Job) -> None:
        arrays: dict[int, dict[int, int]] = {}
        for job in jobs:
            if job.array_task_id is not None:
                arrays.setdefault(job.array_job_id, {})[job.array_task_id] = job.id
        self.jobs = {job.id: job for job in jobs}
        state = SimpleNamespace(jobs=self.jobs, running=[], arrays=arrays, arrays_live=dict.fromkeys(arrays, 1))
        context: Any = SimpleNamespace(machine=SimpleNamespace(state=state), writer=SimpleNamespace(listeners=Heard()))
        super().__init__(context, None)  # type: ignore[arg-type]  # no job here has a limit
        self.listen = context.writer.listeners.inform
        self.sent: list[tuple[str, int, float]] = []

    def _send(self, kind: str, job: Job, members: list[Job], *, summary: bool = False) -> None:
        self.sent.append((kind, job.id, members[0].ended_at - members[0].started_at))


def a_job(number: int, **fields: Any) -> Job:
    return Job(id=number, spec=JobSpec(name="a", user="ada", mail_types=ALL), submitted_at=1.0, **fields)


def start(number: int, at: float = 10.0) -> JobStarted:
    allocation = Allocation(nodes=(), partition="p")
    return JobStarted(at=at, job_id=number, allocation=allocation, time_limit_minutes=60)


def test_the_beginning_of_an_array_is_told_once_when_tasks_begin_together() -> None:
    mailer = Sent(*(a_job(n, array_job_id=7, array_task_id=n, started_at=10.0 * (n < 9)) for n in (7, 8, 9)))
    mailer.listen([start(7), start(8)])
    mailer.jobs[9] = structs.replace(mailer.jobs[9], started_at=11.0)
    mailer.listen([start(9)])
    assert [(kind, number) for kind, number, _ in mailer.sent] == [("BEGIN", 7)]


def test_an_array_of_which_tasks_ran_before_has_begun() -> None:
    ran = a_job(7, array_job_id=7, array_task_id=7, started_at=5.0, ended_at=6.0)
    mailer = Sent(ran, a_job(8, array_job_id=7, array_task_id=8, started_at=10.0))
    mailer.listen([start(8)])
    assert mailer.sent == []


def test_the_leader_speaks_for_a_heterogeneous_job() -> None:
    mailer = Sent(*(a_job(n, het_job_id=7, het_offset=n - 7, het_size=2, started_at=10.0) for n in (7, 8)))
    mailer.listen([start(7), start(8)])
    assert [(kind, number) for kind, number, _ in mailer.sent] == [("BEGIN", 7)]


@pytest.mark.parametrize(
    ("state", "kinds"), [(JobState.CANCELLED, ["REQUEUE"]), (JobState.NODE_FAIL, ["REQUEUE", "FAIL"])]
)
def test_a_requeue_tells_how_long_the_job_had_run_and_a_lost_node_is_a_failure(
    state: JobState, kinds: list[str]
) -> None:
    mailer = Sent(a_job(7, started_at=10.0))
    mailer.listen([start(7)])
    mailer.jobs[7] = structs.replace(mailer.jobs[7], started_at=0.0, restart_count=1)
    ended = JobEnded(at=64.0, job_id=7, state=state)
    requeued = JobRequeued(at=64.0, job_id=7, restart_count=1, eligible_at=64.0, priority=1)
    mailer.listen([ended, requeued])
    assert mailer.sent[1:] == [(kind, 7, 54.0) for kind in kinds]
