"""SIGKILL at random moments under load: what was acknowledged is there exactly once, and nothing is started twice.

A scripted client submits, holds and cancels over the real socket and writes down every acknowledgement; a node daemon
that never dies takes launches. The moments are random, but drawn from a seed that a failure prints.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spritz.client.channel.aio import connect
from spritz.client.channel.channel import Channel
from spritz.client.errors import ClientError
from spritz.controller.journal.contract import content_key
from spritz.controller.journal.events import decode_group
from spritz.controller.journal.images import EVENTS_BETWEEN
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.model.commands.job import CancelJobs, CancelResult, JobSubmitted, SubmitJob
from spritz.model.events.job import JobQueued, JobStarted
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.runtime.log import get_logger
from spritz.runtime.tasks import Supervisor
from tests.e2e.controller_process import ControllerProcess, a_job, until
from tests.e2e.fake_node import FakeNode

KILLS = 4


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path, nodes=2, cpus=64)
    yield process
    process.kill()


class Ledger:
    """Everything that was acknowledged, as a user would remember it."""

    def __init__(self) -> None:
        self.sent = 0
        self.jobs: dict[str, int] = {}
        self.cancelled: list[int] = []
        self.stop = False
        self._grown = asyncio.Condition()

    async def grown_by(self, count: int) -> None:
        """Return when `count` more jobs are acknowledged."""
        goal = len(self.jobs) + count
        async with asyncio.timeout(100), self._grown:
            await self._grown.wait_for(lambda: len(self.jobs) >= goal)

    async def use(self, address: str) -> None:
        """Submit without pause over one connection after another, several requests on their way at once."""
        while not self.stop:
            try:
                channel = await connect([address], role="command", log=get_logger("client"), timeout=2)
            except ClientError:
                await asyncio.sleep(0.02)
                continue
            try:
                while not self.stop:
                    await asyncio.gather(*(self._submit(channel) for _ in range(8)), self._cancel_held(channel))
                    async with self._grown:
                        self._grown.notify_all()
            except ClientError:
                continue
            finally:
                channel.close()

    async def _submit(self, channel: Channel) -> None:
        self.sent += 1
        name = f"job-{self.sent}"
        reply = await channel.call(a_job(name), JobSubmitted, timeout=100)
        assert name not in self.jobs
        self.jobs[name] = reply.job_id

    async def _cancel_held(self, channel: Channel) -> None:
        self.sent += 1
        name = f"held-{self.sent}"
        job_id = (await channel.call(a_job(name, hold=True), JobSubmitted, timeout=100)).job_id
        self.jobs[name] = job_id
        command = CancelJobs(filter=JobFilter(targets=(JobTarget(job_id),)))
        await channel.call(command, CancelResult, timeout=100)
        self.cancelled.append(job_id)


async def listing(address: str) -> dict[int, tuple[str, str]]:
    """Job number -> name and state, as the controller tells it."""
    channel = await connect([address], role="command", log=get_logger("client"))
    try:
        request = ListJobs(fields=("id", "spec.name", "state"))
        return {
            int(str(row[0])): (str(row[1]), str(row[2]))
            async for piece in channel.stream(request, JobRows)
            for row in piece.rows
        }
    finally:
        channel.close()


def test_sigkill_under_load_loses_nothing_and_doubles_nothing(controller: ControllerProcess) -> None:
    seed = int(time.time())
    chance = random.Random(seed)
    ledger = Ledger()

    async def main() -> None:
        await asyncio.to_thread(controller.start)
        async with (
            Supervisor() as tasks,
            FakeNode(controller.socket_name, ["n1", "n2"], cpus=64) as node,
        ):
            for number in range(2):
                tasks.spawn(ledger.use(controller.socket_name), name=f"client-{number}")
            for _ in range(KILLS):
                await ledger.grown_by(200 + chance.randrange(100))
                controller.kill()
                await asyncio.to_thread(controller.start)
            ledger.stop = True
            deadline = time.monotonic() + 100
            while True:
                await asyncio.sleep(0.1)
                found = await listing(controller.socket_name)
                waiting = [number for name, number in ledger.jobs.items() if name.startswith("job")]
                if all(found.get(number, ("", ""))[1] == "COMPLETED" for number in waiting):
                    break
                assert time.monotonic() < deadline, [found.get(n) for n in waiting if n in found][:5]
            check(found, ledger, node)

    try:
        asyncio.run(main())
        controller.stop()
        check_journal(controller)
    except BaseException:
        print(f"seed {seed}; acknowledged {len(ledger.jobs)} of {ledger.sent}")
        raise


def check(found: dict[int, tuple[str, str]], ledger: Ledger, node: FakeNode) -> None:
    numbers = list(ledger.jobs.values())
    assert len(set(numbers)) == len(numbers), "an id was given out twice"
    assert {found[number][0]: number for number in numbers} == ledger.jobs, "an acknowledged job is not what it was"
    names = Counter(name for name, _ in found.values())
    assert {name: count for name, count in names.items() if count > 1} == {}, "a submission is there twice"
    not_cancelled = [number for number in ledger.cancelled if found[number][1] != "CANCELLED"]
    assert not_cancelled == [], "an acknowledged cancellation was forgotten"
    starts = Counter(number for number, _ in node.started)
    assert {number: count for number, count in starts.items() if count > 1} == {}, "a job was started twice"
    assert node.terms == sorted(node.terms)
    assert node.terms[-1] == KILLS + 1


def check_journal(controller: ControllerProcess) -> None:
    """Sequence numbers without a gap, and each job queued and started once, by the journal's own word."""
    journal = SqliteJournal(controller.state)
    try:
        expected = 1
        queued: Counter[int] = Counter()
        started: Counter[int] = Counter()
        for group in journal.groups(0):
            assert group.first == expected
            expected = group.last + 1
            for event in decode_group(group):
                if isinstance(event, JobQueued):
                    queued[event.job.id] += 1
                elif isinstance(event, JobStarted):
                    started[event.job_id] += 1
        assert expected - 1 == journal.last_sequence
        assert set(queued.values()) == {1}
        assert set(started.values()) == {1}
    finally:
        journal.close()


@pytest.mark.slow
def test_images_shorten_the_replay_and_forget_scripts_that_no_job_names(controller: ControllerProcess) -> None:
    controller.conf.write_text(controller.conf.read_text() + "MinJobAge=2\n")
    controller.start()
    count = EVENTS_BETWEEN + 500
    with controller.connect(timeout=100) as connection:
        commands = [a_job(f"job-{number}", hold=True) for number in range(count)]
        for start in range(0, count, 500):
            connection.send_many(list(commands[start : start + 500]))
            for _ in commands[start : start + 500]:
                assert connection.receive().error is None
        once = SubmitJob(spec=JobSpec(name="once", batch=True, hold=True), script=b"#!/bin/sh\n# only here\n")
        job_id = connection.call(once, JobSubmitted).job_id
        until(lambda: "image.written" in controller.log, "an image")
        controller.kill()
        controller.start()
        assert replayed_events(controller) < count / 2
    with controller.connect(timeout=100) as connection:
        connection.call(CancelJobs(filter=JobFilter(targets=(JobTarget(job_id),))), CancelResult)
        until(lambda: job_id not in numbers(controller), "the purge after MinJobAge")
        # As many events again make the next image due, which collects the garbage.
        images = controller.log.count("image.written")
        for start in range(0, count, 500):
            connection.send_many(list(commands[start : start + 500]))
            for _ in commands[start : start + 500]:
                assert connection.receive().error is None
        until(lambda: controller.log.count("image.written") > images, "the next image")
        until(lambda: not is_stored(controller, b"#!/bin/sh\n# only here\n"), "the collection")
    assert controller.stop() == 0
    journal = SqliteJournal(controller.state)
    try:
        assert content_key(b"#!/bin/sh\ntrue\n") in journal.blob_sizes(), "thousands of jobs share this one"
        assert len(list(journal.images())) == 2
    finally:
        journal.close()


def is_stored(controller: ControllerProcess, script: bytes) -> bool:
    """Whether the journal of the running controller has this script."""
    with closing(sqlite3.connect(f"file:{controller.state}/journal.db?mode=ro", uri=True)) as database:
        row = database.execute("SELECT 1 FROM blobs WHERE key = ?", (content_key(script),)).fetchone()
    return row is not None


def replayed_events(controller: ControllerProcess) -> int:
    """What the newest start says of itself."""
    line = [line for line in controller.log.splitlines() if "daemon.started" in line][-1]
    return int(line.partition("replayed_events=")[2].split()[0])


def numbers(controller: ControllerProcess) -> set[int]:
    with controller.connect() as connection:
        return {
            int(str(row[0])) for piece in connection.stream(ListJobs(fields=("id",)), JobRows) for row in piece.rows
        }
