"""Reports wait for their acknowledgement, and are not sent beside themselves."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct

from spritz.client.errors import ConnectionLost
from spritz.model.commands.job import Done
from spritz.model.node_daemon.reports import JobGone
from spritz.node.reporter import Reporter
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz.runtime.tasks import Supervisor


class Link:
    """The connection to a controller that answers when it is told to."""

    def __init__(self) -> None:
        self.is_open = True
        self.received: list[Struct] = []
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call(self, report: Struct, reply: type, *, timeout: float) -> Struct:
        self.received.append(report)
        await asyncio.shield(self.answer)
        return Done()

    def lose(self) -> None:
        self.is_open = False
        self.answer.set_exception(ConnectionLost("lost"))


def test_a_report_that_is_lost_with_its_connection_is_sent_again_over_the_next_one() -> None:
    """Also where the controller has it: only its answer was lost, and it takes the report once."""

    async def main() -> None:
        acknowledged: list[Struct] = []
        async with asyncio.timeout(60), Supervisor() as tasks:
            reporter = Reporter(tasks, SystemClock(), get_logger("test"), acknowledged.append)
            report = JobGone(node="n1", job_id=1, restart_count=0)
            first: Any = Link()
            second: Any = Link()
            reporter.connected(first)
            reporter.send(report)
            await asyncio.sleep(0)
            first.lose()
            for _ in range(5):
                await asyncio.sleep(0)
            assert (first.received, acknowledged, len(reporter)) == ([report], [], 1)
            reporter.connected(second)
            second.answer.set_result(None)
            while len(reporter):  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0)
            assert (second.received, acknowledged) == ([report], [report])

    asyncio.run(main())


def test_that_a_job_is_gone_is_told_once_however_often_its_end_is_ordered() -> None:
    async def main() -> None:
        acknowledged: list[Struct] = []
        async with asyncio.timeout(60), Supervisor() as tasks:
            reporter = Reporter(tasks, SystemClock(), get_logger("test"), acknowledged.append)
            first: Any = Link()
            reporter.connected(first)
            gone, other = (JobGone(node="n1", job_id=job_id, restart_count=0) for job_id in (1, 2))
            for report in (gone, gone, other, gone):
                reporter.send(report)
            await asyncio.sleep(0)
            assert first.received == [gone, other]
            first.lose()
            second: Any = Link()
            reporter.connected(second)
            second.answer.set_result(None)
            while len(reporter):  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0)
            assert (second.received, acknowledged) == ([gone, other], [gone, other])
            # Once it is acknowledged, the next order is answered again.
            reporter.send(gone)
            while len(reporter):  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert second.received == [gone, other, gone]

    asyncio.run(main())
