"""What the controller counts of itself: requests, passes, jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.commands.job import Done, JobSubmitted
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.diagnostics import Diagnostics, GetDiagnostics, ResetDiagnostics
from spritz.model.queries.events import Counters, Statistics
from tests.e2e.controller_process import ControllerProcess, a_job, until


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path, nodes=6)
    process.start()
    yield process
    process.kill()


def submit(controller: ControllerProcess, name: str, *, hold: bool = False) -> int:
    with controller.connect() as connection:
        return connection.call(a_job(name, hold=hold), JobSubmitted).job_id


def test_counters_are_named_and_count(controller: ControllerProcess) -> None:
    submit(controller, "acknowledged, and so durable", hold=True)
    with controller.connect() as connection:
        before = connection.call(Statistics(), Counters).values
        connection.call(Ping(), Pong)
        after = connection.call(Statistics(), Counters).values
    assert after["request.Ping_count"] == before["request.Ping_count"] + 1
    assert after["journal.durable_sequence"] >= 1


def test_held_jobs_are_no_reason_to_look_through_the_queue(controller: ControllerProcess) -> None:
    with controller.connect() as connection:

        def passes() -> float:
            return connection.call(Statistics(), Counters).values["cycle.quick_count"]

        for number in range(5):
            submit(controller, f"held-{number}", hold=True)
        settled = passes()
        for number in range(20):
            submit(controller, f"held-too-{number}", hold=True)
        # What comes about by itself may have its pass; twenty jobs that cannot start have none each.
        assert passes() - settled <= 2
        job_id = submit(controller, "not held")
        until(lambda: passes() > settled, f"a pass for job {job_id}")


def test_a_row_of_submissions_is_looked_at_together(controller: ControllerProcess) -> None:
    """A hundred come at the same time; each alone would have a pass of its own."""
    submit(controller, "first")
    with controller.connect() as connection:

        def passes() -> float:
            return connection.call(Statistics(), Counters).values["cycle.quick_count"]

        before = passes()
        connection.send_many([a_job(f"row-{number}") for number in range(100)])
        answers = [connection.receive() for _ in range(100)]
        assert all(answer.error is None for answer in answers)
        until(lambda: passes() > before, "the row is looked at")
        assert passes() - before < 50


def test_figures_about_the_controller_count_jobs_and_requests(controller: ControllerProcess) -> None:
    """sdiag(1)."""
    with controller.connect() as connection:
        connection.call(ResetDiagnostics(), Done)
        for number in range(3):
            submit(controller, f"counted-{number}", hold=True)
        found = connection.call(GetDiagnostics(), Diagnostics)
        assert (found.jobs_submitted, found.jobs_started) == (3, 0)
        assert found.jobs_pending >= 3
        kinds = {row.name: row.count for row in found.kinds}
        assert kinds["SubmitJob"] == 3
        assert [row.name for row in found.users] == [str(os.getuid())]
        assert found.pending == {"GetDiagnostics": 1}
        assert found.since <= found.now
        connection.call(ResetDiagnostics(), Done)
        again = connection.call(GetDiagnostics(), Diagnostics)
        assert again.jobs_submitted == 0
        assert again.since >= found.now
