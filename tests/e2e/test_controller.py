"""`slurmctld` as a process: it serves, keeps what it acknowledged, and stops as told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spritz.model.commands.job import JobSubmitted
from spritz.model.node_daemon.launch import LaunchBatch
from spritz.model.queries.jobs import JobRows, ListJobs
from tests.e2e.controller_process import ControllerProcess, a_job
from tests.e2e.fake_node import FakeNode


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path)
    yield process
    process.kill()


def names(controller: ControllerProcess) -> list[tuple[object, ...]]:
    with controller.connect() as connection:
        request = ListJobs(fields=("id", "spec.name"))
        return [tuple(row) for piece in connection.stream(request, JobRows) for row in piece.rows]


def test_a_submitted_job_is_there_after_sigkill_and_restart(controller: ControllerProcess) -> None:
    controller.start()
    with controller.connect() as connection:
        first = connection.call(a_job("one"), JobSubmitted).job_id
        second = connection.call(a_job("two"), JobSubmitted).job_id
    controller.kill()
    controller.start()
    assert names(controller) == [(first, "one"), (second, "two")]


async def eventually(condition: Callable[[], object], what: str, seconds: float = 100.0) -> None:
    """Poll until true, giving way to the loop; fails saying what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        await asyncio.sleep(0.005)


def states(controller: ControllerProcess) -> dict[int, str]:
    with controller.connect() as connection:
        request = ListJobs(fields=("id", "state"))
        return {row[0]: row[1] for piece in connection.stream(request, JobRows) for row in piece.rows}  # type: ignore[misc]


def test_a_registered_node_gets_the_script_and_the_jobs_end_is_recorded(controller: ControllerProcess) -> None:
    controller.start()

    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n1"]) as node:
            with controller.connect() as connection:
                job_id = connection.call(a_job("one"), JobSubmitted).job_id
            await eventually(lambda: states(controller)[job_id] == "COMPLETED", "the job's end")
            # A launch may be sent again: what a node has missed is derived when it connects.
            launch, *again = [message for message in node.received if isinstance(message, LaunchBatch)]
            assert {message.job.id for message in again} <= {launch.job.id}
            assert launch.script == b"#!/bin/sh\ntrue\n"
            assert launch.environment == (b"PATH=/usr/bin:/bin",)
            assert (launch.node, launch.job.id, launch.task_counts, launch.term) == ("n1", job_id, (1,), 1)

    asyncio.run(main())
