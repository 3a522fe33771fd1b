"""The job completion log. Source: lines that 22.05's jobcomp/filetxt wrote for the same jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.controller.jobcomp.ended import EndedJob
from spritz.controller.jobcomp.filetxt import FileLog, line
from spritz.controller.jobcomp.web import document
from spritz.model.events.job import JobEnded
from spritz.model.ids import INFINITE
from spritz.model.job.record import Job, JobSpec
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobState
from spritz.runtime.worker import Worker

SUBMITTED = 1_795_306_660.0  # 2026-11-22T00:17:40 UTC


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def a_job(**more: object) -> Job:
    spec = JobSpec(name="odd", user="root", uid=0, group="root", gid=0, work_dir="/tmp", time_limit_minutes=INFINITE)
    spec = replace(spec, memory_mib_counted=4000)
    values: dict[str, object] = {"partition": "main", "submitted_at": SUBMITTED, "eligible_at": SUBMITTED}
    return Job(id=1, spec=spec, **(values | more))  # type: ignore[arg-type]  # by name


ALLOCATION = Allocation(partition="main", nodes=(NodeAllocation(node="n1", cpus="1", memory_mib=4000),))


def test_a_line_is_slurms() -> None:
    event = JobEnded(at=SUBMITTED + 2, job_id=1, state=JobState.FAILED, exit_status=3 << 8)
    assert line(EndedJob(a_job(), event, SUBMITTED + 2, ALLOCATION), "c1") == (
        "JobId=1 UserId=root(0) GroupId=root(0) Name=odd JobState=FAILED Partition=main TimeLimit=UNLIMITED "
        "StartTime=2026-11-22T00:17:42 EndTime=2026-11-22T00:17:42 NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir=/tmp "
        "ReservationName= Tres=cpu=1,mem=4000M,node=1,billing=1 Account= QOS= WcKey= Cluster=c1 "
        "SubmitTime=2026-11-22T00:17:40 EligibleTime=2026-11-22T00:17:40 DerivedExitCode=0:0 ExitCode=3:0 \n"
    )


def test_an_array_task_a_signal_and_a_job_that_never_ran() -> None:
    event = JobEnded(at=SUBMITTED, job_id=1, state=JobState.CANCELLED, exit_status=9)
    task = line(EndedJob(a_job(array_job_id=2, array_task_id=1), event, SUBMITTED, ALLOCATION), "c1")
    assert " ArrayJobId=2 ArrayTaskId=1 DerivedExitCode=0:0 ExitCode=0:9 \n" in task
    never = line(EndedJob(a_job(eligible_at=0.0), event, SUBMITTED, None), "c1")
    assert " NodeList=(null) NodeCnt=0 ProcCnt=0 " in never
    assert " EligibleTime=unknown " in never


def test_what_was_asked_for_and_where_it_ran_are_told_as_slurm_tells_them() -> None:
    """Recorded of 22.05: `sbatch -p debug,main`, drawn into a MAGNETIC reservation, on a node of its own."""
    event = JobEnded(at=SUBMITTED, job_id=1, state=JobState.COMPLETED)
    job = a_job(partition="main")
    job = replace(job, spec=replace(job.spec, partitions=("debug", "main"), memory_mib_counted=5000))
    whole = NodeAllocation(node="n1", cpus="ff", memory_mib=3000)
    inside = Allocation(partition="main", nodes=(whole,), reservation="mag")
    ran = line(EndedJob(job, event, SUBMITTED, inside), "c1")
    assert " Partition=main,debug " in ran
    assert " ProcCnt=8 WorkDir=/tmp ReservationName=mag Tres=cpu=1,mem=5000M,node=1,billing=1 " in ran
    never = line(EndedJob(job, event, SUBMITTED, None), "c1")
    assert " Partition=debug,main " in never
    found = document(EndedJob(job, event, SUBMITTED, inside), "c1")
    assert (found["partition"], found["reservation_name"]) == ("main,debug", "mag")
    assert found["tres_req"] == "cpu=1,mem=5000M,node=1,billing=1"
    assert found["tres_alloc"] == "cpu=8,mem=3000M,node=1,billing=8"


def test_lines_are_appended_and_a_file_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    errors: list[str] = []
    files = Worker("test")
    context: Any = SimpleNamespace(
        configuration=SimpleNamespace(settings=SimpleNamespace(cluster_name="c1")),
        log=SimpleNamespace(error=lambda event, **fields: errors.append(event)),
        log_files=files,
    )
    end = EndedJob(a_job(), JobEnded(at=SUBMITTED, job_id=1, state=JobState.FAILED), SUBMITTED, None)
    path = tmp_path / "sub" / "comp.log"
    log = FileLog(context, str(path))
    log.take([end])
    log.take([end])
    assert files.flush(100)
    assert errors == ["completion.failed"]
    path.parent.mkdir()
    log.take([end, end])
    log.take([end])
    assert files.flush(100)
    assert path.read_text() == line(end, "c1") * 3
    files.close()
