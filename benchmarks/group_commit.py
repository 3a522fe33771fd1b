"""Should the controller's loop sync the journal itself, or have a thread do it? `python -m benchmarks.group_commit`

The real writer, core and journal in this process, without sockets. Each disk is this machine's, with a delay added to
its syncs: none, 20 ms for each, or one second for every 50th (a disk that stalls). Submitters wait for their answer
before they submit again. Meanwhile a query arrives every millisecond, which needs no disk: how late it is answered at
worst is how long the loop stood still. Variants take turns; medians of the rounds. An argument names the directory for
the journals: /dev/shm is a disk without any delay. See docs/decisions/0152.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.contract import Group, JournalError
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.controller.writer.commit import Committer, CommitThread, InlineCommitter
from spritz.controller.writer.loop import SingleWriter
from spritz.model.commands.job import SubmitJob
from spritz.runtime import tasks
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz_testing.builders import ALICE, World, job_spec

ROUNDS = 5
#: Seconds between queries.
QUERY_SECONDS = 0.001

#: Name of a disk, how often each submitter submits in a round, and the seconds that its sync number N is delayed.
DISKS: tuple[tuple[str, int, Callable[[int], float]], ...] = (
    ("this disk", 1_000, lambda _number: 0.0),
    ("20 ms a sync", 100, lambda _number: 0.020),
    ("1 s every 50th sync", 150, lambda number: 1.0 if number % 50 == 49 else 0.0),
)


class DelayedJournal(SqliteJournal):
    """A journal whose syncs take longer."""

    def __init__(self, directory: Path, delay: Callable[[int], float]) -> None:
        super().__init__(directory)
        self._delay = delay
        self._appended = 0

    def append(self, group: Group, blobs: Mapping[str, bytes]) -> None:
        """See `Journal.append`."""
        time.sleep(self._delay(self._appended))
        self._appended += 1
        super().append(group, blobs)


class Figures:
    """Of one run: latencies of submissions and processor time of this process, all in seconds."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.wall = self.processor = self.worst_query = 0.0

    def row(self) -> tuple[float, ...]:
        """Submissions a second, median and 99th percentile in ms, processor ms each, worst query in ms."""
        ordered, count = sorted(self.latencies), len(self.latencies)
        return (
            count / self.wall,
            ordered[count // 2] * 1e3,
            ordered[count * 99 // 100] * 1e3,
            self.processor / count * 1e3,
            self.worst_query * 1e3,
        )


def failed(error: JournalError) -> None:
    raise error


VARIANTS: dict[str, Callable[[], Committer]] = {
    "thread": lambda: CommitThread(failed),
    "loop": lambda: InlineCommitter(failed),
}


async def measure(make: Callable[[], Committer], delay: Callable[[int], float], count: int, submitters: int) -> Figures:
    """`count` submissions by each submitter."""
    loop, figures = asyncio.get_running_loop(), Figures()
    machine = World(nodes=8).machine
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        journal = DelayedJournal(Path(directory), delay)
        committer = make()
        writer = SingleWriter(
            machine,
            journal,
            BlobStore(journal),
            committer,
            SystemClock(),
            get_logger("benchmark"),
            on_effects=lambda effects: None,
            on_broken=lambda error: sys.exit(repr(error)),
        )
        command = SubmitJob(spec=job_spec(hold=True), script=b"#!/bin/sh\n")

        async def submit() -> None:
            for _ in range(count):
                answered: asyncio.Future[object] = loop.create_future()
                began = time.perf_counter()
                writer.handle(command, ALICE, answered.set_result)
                await answered
                figures.latencies.append(time.perf_counter() - began)

        async def query() -> None:
            while True:
                due = loop.time() + QUERY_SECONDS
                await asyncio.sleep(QUERY_SECONDS)
                figures.worst_query = max(figures.worst_query, loop.time() - due)

        queries = loop.create_task(query())
        began, processor = time.perf_counter(), time.process_time()
        await asyncio.gather(*(submit() for _ in range(submitters)))
        figures.wall, figures.processor = time.perf_counter() - began, time.process_time() - processor
        queries.cancel()
        committer.close()
        journal.close()
    return figures


def main() -> None:
    """The table."""
    sys.setswitchinterval(0.001)  # as the daemon does
    print(f"{'':36}{'jobs/s':>9}{'median':>9}{'99 %':>9}{'CPU':>9}{'worst query':>13}  (ms)")
    for disk, count, delay in DISKS:
        for submitters in (1, 16):
            rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in VARIANTS}
            for _ in range(ROUNDS):
                for name, make in VARIANTS.items():
                    rows[name].append(tasks.run(measure(make, delay, count, submitters)).row())
            for name, found in rows.items():
                rate, *rest = (statistics.median(column) for column in zip(*found, strict=True))
                figures = "".join(f"{value:9.3f}" for value in rest[:-1])
                title = f"{disk}, {submitters} at once, {name}"
                print(f"{title:36}{rate:9.0f}{figures}{rest[-1]:13.1f}", flush=True)


if __name__ == "__main__":
    main()
