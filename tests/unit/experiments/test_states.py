"""States of runs that have a job in the queue, and the reasons of those that wait."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spritz.experiments.cluster import slurm
from spritz.experiments.job import states
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry, Store


def entry(tmp_path: Path) -> Entry:
    store = Store(tmp_path)
    name = store.reserve("train", "me", 1.0, tmp_path / "runs", "python train.py")
    return store.get(name, "me")


@pytest.mark.parametrize(
    ("events", "queued", "state", "exit_code"),
    [
        ([("started", 0)], "RUNNING", "RUNNING", None),
        ([("started", 0), ("ended", 0)], "RUNNING", "COMPLETING", 3),
        ([("started", 0), ("ended", 0), ("started", 1)], "RUNNING", "RUNNING", None),
        ([("started", 0), ("ended", 0)], "PENDING", "PENDING", None),
    ],
)
def test_a_command_that_has_ended_does_not_run(
    tmp_path: Path, events: list[tuple[str, int]], queued: str, state: str, exit_code: int | None
) -> None:
    run = entry(tmp_path)
    for at, (event, restart) in enumerate(events):
        record.append(Path(run.directory), event, float(at), restart=restart, status=3)
    values = states.values_of(run, slurm.JobState("7", queued), None)
    assert (values["state"], values.get("exit_code")) == (state, exit_code)


@pytest.mark.parametrize(
    ("state", "reason", "start", "words"),
    [
        ("PENDING", "Resources", "2026-11-27T09:00:00", "Resources, expected to start at 2026-11-27T09:00:00"),
        ("PENDING", "Dependency", "N/A", "Dependency"),
        ("PENDING", "None", "", ""),
        ("RUNNING", "None", "2026-11-27T09:00:00", ""),
    ],
)
def test_reasons_in_words(state: str, reason: str, start: str, words: str) -> None:
    assert states.waits(slurm.JobState("7", state, reason, started_at=start)) == words


def test_tasks_of_an_array_that_were_cancelled_before_they_began_share_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        "7_[3-5,9%2]|CANCELLED by 0|0:0||0|None|2026-11-30T10:41:55",
        "7_5|FAILED|1:0|n1|0|2026-11-30T10:41:55|2026-11-30T10:41:56",
        "7_[11]|CANCELLED by 0|0:0||0|None|2026-11-30T10:41:55",
        "7_[20,30,...]|CANCELLED by 0|0:0||0|None|2026-11-30T10:41:55",
        "8|COMPLETED|0:0|n1|0|2026-11-30T10:41:55|2026-11-30T10:41:56",
    ]
    for lines in (rows, rows[::-1]):
        monkeypatch.setattr(slurm, "call", lambda words, lines=lines, **_: answer("\n".join(lines)))
        known = {job_id: job.state for job_id, job in slurm.accounted(["7_3", "8"]).items()}
        del known["7_[20,30,...]"]  # cut by Slurm
        cancelled = dict.fromkeys(["7_3", "7_4", "7_9", "7_11"], "CANCELLED")
        assert known == {**cancelled, "7_5": "FAILED", "8": "COMPLETED"}


def test_tasks_that_the_queue_has_forgotten_after_their_cancellation_will_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = "7_1|RUNNING|None|n1|N/A|N/A\n7_4|CANCELLED|None||N/A|N/A\n"
    monkeypatch.setattr(slurm, "call", lambda words, **_: answer(queue if words[0] == "squeue" else ""))
    assert slurm.cancel_pending("7_1", "7_2", "7_3", "7_4") == {"7_2", "7_3", "7_4"}


def answer(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], 0, text, "")
