"""A disk that does not answer reads holds up the requests that need them, and no others."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.client.errors import RemoteError
from spritz.model.commands.job import CancelJobs, Done, JobSubmitted
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.node_daemon.launch import LaunchBatch
from spritz.model.queries.events import EventBatch, WatchEvents
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import GetScript, ListJobs, Script
from spritz.model.queries.nodes import ListNodes, Nodes
from tests.e2e.controller_process import ControllerProcess, a_job
from tests.e2e.fake_node import FakeNode
from tests.e2e.test_controller import eventually

#: slurmctld on a disk whose reads hang while the file exists, and without a cache of scripts.
PROGRAM = """
import os, time
from spritz.controller.journal import blobs
from spritz.controller.journal import sqlite as journal_sqlite
from spritz.controller.api.queue import jobs
blobs.CACHE_BYTES_MAX, jobs.READ_SECONDS = 0, 0.5

def hanging(call):
    def read(self, key):
        while os.path.exists({gate!r}):
            time.sleep(0.01)
        return call(self, key)
    return read

for name in ("groups", "blob"):
    setattr(journal_sqlite.SqliteJournal, name, hanging(getattr(journal_sqlite.SqliteJournal, name)))
from spritz.controller.main import entry
entry()
"""


class Stuck:
    """A controller, and the disk that can be made to hang."""

    def __init__(self, directory: Path) -> None:
        self.gate = directory / "gate"
        self.controller = ControllerProcess(directory)
        self.controller.command = [sys.executable, "-c", PROGRAM.format(gate=str(self.gate))]
        self.controller.start()

    def submit(self, name: str) -> int:
        with self.controller.connect() as connection:
            return connection.call(a_job(name), JobSubmitted).job_id

    def names(self) -> list[str]:
        with self.controller.connect() as connection:
            found = connection.stream(ListJobs(all=True), Jobs)
            return [job.spec.name for piece in found for job in piece.jobs]


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Stuck]:
    made = Stuck(tmp_path)
    yield made
    made.controller.kill()


def test_queries_and_submissions_go_on_while_events_and_scripts_cannot_be_read(stuck: Stuck) -> None:
    first = stuck.submit("one")
    stuck.gate.touch()
    with stuck.controller.connect() as connection, stuck.controller.connect() as watcher:
        watcher.send(WatchEvents(since=0))
        with pytest.raises(RemoteError, match="journal reader: no answer"):
            connection.call(GetScript(job_id=first), Script)
        stuck.submit("two")
        connection.call(ListNodes(), Nodes)
        assert stuck.names() == ["one", "two"]
        stuck.gate.unlink()
        assert connection.call(GetScript(job_id=first), Script).script == b"#!/bin/sh\ntrue\n"
        assert watcher.receive(timeout=100.0).body
    with stuck.controller.connect() as watcher:
        batch = next(watcher.stream(WatchEvents(since=0), EventBatch))
        assert [number for number, *_ in batch.events] == list(range(1, len(batch.events) + 1))


def test_a_job_is_launched_when_its_script_can_be_read_and_not_if_it_has_ended_by_then(stuck: Stuck) -> None:
    async def main() -> None:
        stuck.gate.touch()
        async with FakeNode(stuck.controller.socket_name, ["n1"]) as node:
            stuck.submit("one")
            await eventually(lambda: "RUNNING" in states(stuck), "the job's start")
            ended = stuck.submit("two")
            with stuck.controller.connect() as connection:
                connection.call(CancelJobs(filter=JobFilter(targets=(JobTarget(ended),))), Done)
            assert not [message for message in node.received if isinstance(message, LaunchBatch)]
            stuck.gate.unlink()
            await eventually(lambda: states(stuck) == ["COMPLETED", "CANCELLED"], "the jobs' ends")
            launched = [message for message in node.received if isinstance(message, LaunchBatch)]
            # A launch may be sent again: what a node has missed is derived when it connects.
            assert {(message.job.spec.name, message.script) for message in launched} == {("one", b"#!/bin/sh\ntrue\n")}

    asyncio.run(main())


def states(stuck: Stuck) -> list[str]:
    with stuck.controller.connect() as connection:
        found = connection.stream(ListJobs(all=True), Jobs)
        return [job.state.value for piece in found for job in piece.jobs]
