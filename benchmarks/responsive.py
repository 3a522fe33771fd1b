"""How soon does the controller answer while it plans for a large cluster? `python -m benchmarks.responsive`

One real `slurmctld` with a thousand nodes and ten thousand pending jobs of many shapes; the node daemon is the tests'
pretended one. Jobs end and new ones come all the time, so that quick and full cycles run one after the other; a process
of its own asks small questions meanwhile, one at a time, and measures each answer. The target is 50 ms at the 99th
percentile. The first line is the same without cycles: what the machine itself adds.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.controller_process import ControllerProcess
from tests.e2e.fake_node import FakeNode

from spritz.client.command.sync import Connection, connect_address
from spritz.model.commands.job import SubmitJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.jobs import JobRows, ListJobs

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Channel

NODES = 1_000
CPUS = 16
PENDING = 10_000
SHAPES = 2_000
SECONDS = 20.0
#: Between two questions; and between two ends of jobs.
PAUSE = 0.005
END_PAUSE = 0.05
#: What `squeue -j 1` asks for.
FIRST = JobFilter(targets=(JobTarget(1),))


def ask(address: str, channel: Channel) -> None:
    """Ask until told to stop, then send the milliseconds of every answer."""
    took: list[float] = []
    with connect_address(address, timeout=60) as connection:
        while not channel.poll():
            began = time.perf_counter()
            if len(took) % 2:
                connection.call(Ping(), Pong)
            else:
                list(connection.stream(ListJobs(fields=("id", "state"), filter=FIRST), JobRows))
            took.append((time.perf_counter() - began) * 1e3)
            time.sleep(PAUSE)
    channel.send(took)


class Asker:
    """The process that asks, for as long as the context lasts; `took` afterwards."""

    def __init__(self, address: str) -> None:
        self._mine, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=ask, args=(address, theirs))
        self.took: list[float] = []

    def __enter__(self) -> Asker:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._mine.send(None)
        self.took = sorted(self._mine.recv())
        self._process.join()

    def say(self, what: str) -> None:
        """Median, 99th percentile, worst."""
        took = self.took
        print(
            f"{what:44} {len(took):6} answers; ms: median {took[len(took) // 2]:.2f}, "
            f"p99 {took[len(took) * 99 // 100]:.2f}, worst {took[-1]:.2f}",
            flush=True,
        )


def submit(connection: Connection, count: int, rng: random.Random, some_jobs: list[SubmitJob]) -> None:
    """Submit `count` of these jobs, and wait until all are acknowledged."""
    left = count
    while left:
        some = min(left, 200)
        connection.send_many(rng.choices(some_jobs, k=some))
        for _ in range(some):
            response = connection.receive()
            assert response.error is None, response.error
        left -= some


def jobs(rng: random.Random) -> list[SubmitJob]:
    """Jobs of a number of shapes."""
    found = []
    for number in range(SHAPES):
        nodes = rng.choice((1, 1, 1, 2, 4, 8))
        spec = JobSpec(
            name="job",
            batch=True,
            work_dir="/tmp",
            # Different limits make different requests.
            time_limit_minutes=60 + number,
            cpus_per_task=rng.randint(1, CPUS),
            nodes_min=nodes,
            nodes_max=nodes,
            nodes_given=True,
            tasks=nodes,
            tasks_given=True,
        )
        found.append(SubmitJob(spec=spec, script=b"#!/bin/sh\n", environment=(b"PATH=/usr/bin:/bin",)))
    return found


async def busy(controller: ControllerProcess, connection: Connection) -> None:
    """Ask while jobs end and come."""
    rng = random.Random(7)
    some_jobs = jobs(rng)
    names = [f"n{number + 1}" for number in range(NODES)]
    async with FakeNode(controller.socket_name, names, cpus=CPUS, hold=True) as node:
        await asyncio.to_thread(submit, connection, PENDING, rng, some_jobs)
        await node.has_started(NODES // 2)
        await asyncio.sleep(5)
        with Asker(controller.socket_name) as asker:
            until = time.monotonic() + SECONDS
            while time.monotonic() < until:
                if node.running:
                    node.finish(rng.choice(list(node.running))[0])
                await asyncio.to_thread(submit, connection, 1, rng, some_jobs)
                await asyncio.sleep(END_PAUSE)
        asker.say(f"{NODES} nodes, {PENDING} pending, {len(node.running)} running")


def main() -> int:
    """Without cycles, then with them."""
    with tempfile.TemporaryDirectory() as name:
        controller = ControllerProcess(Path(name), nodes=NODES, cpus=CPUS)
        controller.start()
        try:
            with controller.connect(timeout=60) as connection:
                submit(connection, 1, random.Random(7), jobs(random.Random(7)))
                with Asker(controller.socket_name) as asker:
                    time.sleep(5)
                asker.say("nothing to plan")
                asyncio.run(busy(controller, connection))
        finally:
            controller.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
