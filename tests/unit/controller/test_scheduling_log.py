"""What the scheduler decides, in a file of its own. Source: slurm.conf(5) SlurmSchedLogFile; Slurm 22.05's file."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.controller.scheduler.log import SchedulingLog
from spritz.model.errors import SpritzError
from spritz.model.events import Event
from spritz.model.events.job import JobAccrued, JobPreempted, JobsNoted, JobStarted, JobSuspended
from spritz.model.ids import INFINITE
from spritz.model.plan import PendingNote
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, NodeAllocation
from spritz.runtime.worker import Worker

JOBS = {8: SimpleNamespace(array_job_id=5, array_task_id=1)}
WHERE = Allocation(partition="debug", nodes=(NodeAllocation(node="n1", cpus="3"), NodeAllocation(node="n2", cpus="1")))
EVENTS: list[Event] = [
    JobStarted(at=0.0, job_id=7, allocation=WHERE, time_limit_minutes=INFINITE, priority=12, scheduler="Backfill"),
    JobAccrued(at=0.0, job_id=7),
    JobsNoted(
        at=0.0, notes=(PendingNote(job_id=8, reason=Reason.RESOURCES), PendingNote(job_id=9, reason=Reason.NONE))
    ),
    JobPreempted(at=0.0, job_id=7, mode="REQUEUE", ends_at=0.0, by_job_id=8),
    JobSuspended(at=0.0, job_id=7),
    JobSuspended(at=0.0, job_id=7, by="gang"),
]
LINES = [
    "Allocate JobId=7 NodeList=n[1-2] #CPUs=3 Partition=debug Priority=12 Scheduler=Backfill",
    "JobId=5_1(8) State=PENDING Reason=Resources StartTime=Unknown",
    "JobId=9 State=PENDING Reason=None StartTime=Unknown",
    "Preempt JobId=7 Mode=REQUEUE For=JobId=5_1(8)",
    "Suspend JobId=7 By=gang",
]


#: The thread that writes.
FILES = Worker("test", waiting_max=100)


def made(path: Path | str, level: int) -> tuple[SchedulingLog, list[str]]:
    errors: list[str] = []
    context: Any = SimpleNamespace(
        machine=SimpleNamespace(state=SimpleNamespace(jobs=JOBS)),
        clock=SimpleNamespace(now=lambda: 0.0),
        log=SimpleNamespace(error=lambda event, **fields: errors.append(event)),
        log_files=FILES,
    )
    log = SchedulingLog(context)
    log.put(str(path), level, "iso8601")
    return log, errors


def lines(path: Path) -> list[str]:
    """Without their stamps."""
    assert FILES.flush(100)
    found = path.read_text().splitlines() if path.exists() else []
    assert all(line.startswith("sched: [19") for line in found)
    return [line.partition("] ")[2] for line in found]


def test_each_decision_is_a_line_and_a_rotated_file_is_reopened(tmp_path: Path) -> None:
    path = tmp_path / "sched.log"
    log, errors = made(path, 1)
    log.listen(EVENTS)
    assert lines(path) == LINES
    assert FILES.flush(100)
    path.rename(tmp_path / "sched.log.1")
    log.listen(EVENTS[:2])
    assert lines(path) == LINES[:1]
    assert not errors


def test_it_is_written_only_at_level_1(tmp_path: Path) -> None:
    path = tmp_path / "sched.log"
    log, _errors = made(path, 0)
    log.listen(EVENTS)
    assert lines(path) == []
    log.set_level(1)
    log.listen(EVENTS[:1])
    log.set_level(0)
    log.listen(EVENTS)
    assert lines(path) == ["Set scheduler log level to 1", LINES[0], "Set scheduler log level to 0"]


def test_without_a_file_there_is_no_level(tmp_path: Path) -> None:
    log, errors = made("", 1)
    log.listen(EVENTS)
    with pytest.raises(SpritzError, match="Requested operation is presently disabled"):
        log.set_level(1)
    assert not errors


def test_a_file_that_cannot_be_written_is_told_once_and_holds_nothing_up(tmp_path: Path) -> None:
    log, errors = made(tmp_path / "nowhere" / "sched.log", 1)
    log.listen(EVENTS)
    log.listen(EVENTS)
    assert FILES.flush(100)
    assert errors == ["scheduling_log.failed"]


def test_a_disk_that_is_stuck_holds_nothing_up_and_lines_beyond_a_bound_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "sched.log"
    os.mkfifo(path)  # to open it blocks until it is read
    log, _errors = made(path, 1)
    before = FILES.dropped
    for _ in range(30):
        log.listen(EVENTS)
    assert FILES.dropped - before == 30 * len(LINES) - 100
    with open(path) as reader:
        assert FILES.flush(100)
        found = [reader.readline() for _ in range(100)]
    assert [line.partition("] ")[2].rstrip() for line in found] == LINES * 20
