"""`preemptable_time` of REST and JSON is the PreemptEligibleTime of `scontrol show job`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from spritz.model.job.record import Job
from spritz.presentation.job.job_record import record_text
from spritz.presentation.json.documents import VERSIONS
from spritz.presentation.json.documents import operations as operations_of
from spritz.presentation.json.shape import Shapes
from spritz.rest.records import JobWriter
from spritz_testing.builders import World


def shown(job: Job, exempt_seconds: int | None) -> float:
    """The time that `scontrol show job` prints; 0 without one."""
    words = record_text(job, 0.0, exempt_seconds=exempt_seconds).split()
    word = next((word for word in words if word.startswith("PreemptEligibleTime=")), "")
    return datetime.fromisoformat(word.partition("=")[2]).timestamp() if word else 0.0


@pytest.mark.parametrize("version", VERSIONS)
def test_preemptable_time_is_told(version: str) -> None:
    world = World()
    running, waiting = world.submit(), world.submit()
    world.start(running, "n1")
    operation = next(one for one in operations_of(version) if one.key == "GET /slurm/jobs")
    writer = JobWriter("c", Shapes(version).member(operation.answer, "jobs"))

    def told(job: Job, exempt_seconds: int | None) -> float:
        value: dict[str, Any] = json.decode(writer.record(job, world.now, exempt_seconds))["preemptable_time"]
        return float(value["number"])

    runs, waits = world.job(running), world.job(waiting)
    preempted = replace(runs, preempted_at=runs.started_at + 5)
    assert runs.started_at
    for job, exempt_seconds, time in (
        (runs, None, 0.0),  # jobs are never preempted
        (runs, 0, runs.started_at),
        (runs, 3600, runs.started_at + 3600),
        (waits, 3600, 0.0),
        (preempted, 3600, runs.started_at),
    ):
        assert told(job, exempt_seconds) == int(time)
        assert shown(job, exempt_seconds) == int(time)
