"""States of runs that have a job in the queue, and the reasons of those that wait."""

from __future__ import annotations

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
