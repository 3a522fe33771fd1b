"""spritz history: what happened to a job, in the order of its times."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from spritz.cli.local.questions.history import text_lines
from spritz.model.accounting.records import JobHistory, JobRecord, ReasonRecord, StepRecord, SuspensionRecord

START = 1_700_000_000.0


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_everything_is_told_in_order() -> None:
    job = JobRecord(
        number=1,
        job_id=12,
        name="train",
        user="ann",
        state="FAILED",
        submit_line="sbatch train.sh",
        submitted_at=START,
        eligible_at=START,
        started_at=START + 100,
        ended_at=START + 400,
        nodes="n[1-2]",
        node_count=2,
        tres_allocated="cpu=8,mem=4G,node=2",
        exit_status=1 << 8,
        failed_node="n2",
    )
    reasons = [
        ReasonRecord(number=1, place=1, at=START, reason="Priority"),
        ReasonRecord(number=1, place=2, at=START + 40, reason="Resources", detail="2 nodes are missing"),
    ]
    step = StepRecord(
        number=1,
        step_id=0,
        job_id=12,
        name="python",
        state="FAILED",
        tasks=2,
        nodes="n[1-2]",
        started_at=START + 110,
        ended_at=START + 390,
        exit_status=9,
        oom=True,
    )
    pause = SuspensionRecord(number=1, started_at=START + 200, ended_at=START + 260)
    assert text_lines(JobHistory(job=job, steps=[step], reasons=reasons, suspensions=[pause]), START + 1000) == [
        "Job 12 (train) of ann",
        "  2023-11-14T22:13:20  submitted: sbatch train.sh",
        "  2023-11-14T22:13:20  waits: Priority, for 00:00:40",
        "  2023-11-14T22:14:00  waits: Resources (2 nodes are missing), for 00:01:00",
        "  2023-11-14T22:15:00  started on n[1-2] with cpu=8,mem=4G,node=2",
        "  2023-11-14T22:15:10  step 0 (python) started: 2 tasks on n[1-2]",
        "  2023-11-14T22:16:40  suspended",
        "  2023-11-14T22:17:40  resumed after 00:01:00",
        "  2023-11-14T22:19:50  step 0 (python) ended: FAILED out of memory 0:9",
        "  2023-11-14T22:20:00  ended after 00:05:00: FAILED 1:0, n2 failed",
    ]


def test_what_waits_and_what_runs_say_for_how_long() -> None:
    waiting = JobRecord(number=1, job_id=12, name="a", user="ann", submitted_at=START, eligible_at=START + 60)
    reason = ReasonRecord(number=1, place=1, at=START + 60, reason="Resources")
    lines = text_lines(JobHistory(job=waiting, steps=[], reasons=[reason], suspensions=[]), START + 100)
    assert lines[2:] == [
        "  2023-11-14T22:14:20  may start from now on",
        "  2023-11-14T22:14:20  waits: Resources, for 00:00:40",
    ]
    running = JobRecord(
        number=1, job_id=12, name="a", user="ann", submitted_at=START, started_at=START, nodes="n1", restart_count=2
    )
    lines = text_lines(JobHistory(job=running, steps=[], reasons=[], suspensions=[]), START + 100)
    assert lines[0] == "Job 12 (a) of ann, restart 2"
    assert lines[-1] == "  2023-11-14T22:15:00  runs since 00:01:40"
