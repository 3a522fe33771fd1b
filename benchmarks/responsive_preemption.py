"""How soon does the controller answer on 10,000 nodes while jobs wait that may preempt others?
`python -m benchmarks.responsive_preemption [NODES]`

One real `slurmctld`; the node daemon is the tests' pretended one, which registers all nodes. Half of them are full of
jobs of a higher tier, the others of two jobs each of a lower one, and 200 jobs wait that can preempt no job where they
may run. Jobs end and come all the time; then jobs come, too, that are to preempt some of the lower ones. A process of
its own asks small questions meanwhile. The target is 50 ms at the 99th percentile. The first line is the same with
nothing to plan: what the machine itself adds. Last: processor time of the controller, and how soon room was made.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.controller_process import ControllerProcess
from tests.e2e.fake_node import FakeNode

from benchmarks.responsive import Asker, submit
from spritz.model.commands.job import JobSubmitted, SubmitJob
from spritz.model.job.record import JobSpec

if TYPE_CHECKING:
    from spritz.client.command.sync import Connection

NODES = 10_000
CPUS = 16
WAITING = 200
SECONDS = 20.0
#: between two ends of jobs; and between two jobs that preempt
END_PAUSE = 0.05
PREEMPT_PAUSE = 1.0


def job(partition: str, nodes: int, cpus: int, minutes: int) -> SubmitJob:
    """A job of one task on each of `nodes` nodes."""
    spec = JobSpec(
        name="job",
        batch=True,
        requeue=True,
        work_dir="/tmp",
        partitions=(partition,),
        time_limit_minutes=minutes,
        cpus_per_task=cpus,
        nodes_min=nodes,
        nodes_max=nodes,
        nodes_given=True,
        tasks=nodes,
        tasks_given=True,
    )
    return SubmitJob(spec=spec, script=b"#!/bin/sh\n", environment=(b"PATH=/usr/bin:/bin",))


class Load:
    """Jobs that end, come and preempt."""

    def __init__(self, connection: Connection, node: FakeNode, nodes: int) -> None:
        self._connection = connection
        self._node = node
        self._nodes = nodes
        self._rng = random.Random(7)
        self._low = [job("low", 1, CPUS // 2, 600 + number % 50) for number in range(50)]
        #: jobs that preempt and have not started, with the time of their submission
        self._since: dict[int, float] = {}
        #: seconds from submission to launch of those that have
        self.waits: list[float] = []

    async def fill(self) -> None:
        """All nodes busy, and waiting jobs that can preempt no job."""
        half = self._nodes // 2
        high = [job("high", 1, CPUS, 600 + number % 50) for number in range(50)]
        await self._submit(half, high)
        await self._node.has_started(half)
        await self._submit(self._nodes, self._low)
        await self._node.has_started(half + self._nodes)
        await self._submit(WAITING, [job("high", 1 + number % 8, CPUS, 60 + number) for number in range(WAITING)])
        await asyncio.sleep(5)

    async def go_on(self, *, preempt: bool) -> None:
        """For a while."""
        until = time.monotonic() + SECONDS
        due_at = time.monotonic()
        while time.monotonic() < until:
            if self._node.running:
                self._node.finish(self._rng.choice(list(self._node.running))[0])
            await self._submit(1, self._low)
            if preempt and time.monotonic() >= due_at:
                due_at += PREEMPT_PAUSE
                urgent = job("urgent", self._rng.choice((1, 2, 4, 8)), CPUS, 60)
                reply = await asyncio.to_thread(self._connection.call, urgent, JobSubmitted)
                self._since[reply.job_id] = time.monotonic()
            for job_id in [one for one in self._since if self._node.started[(one, 0)]]:
                self.waits.append(time.monotonic() - self._since.pop(job_id))
            await asyncio.sleep(END_PAUSE)

    async def _submit(self, count: int, some: list[SubmitJob]) -> None:
        await asyncio.to_thread(submit, self._connection, count, self._rng, some)


def conf(nodes: int) -> str:
    """Partitions and preemption."""
    half = nodes // 2
    return f"""PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n[1-{half}] MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=urgent Nodes=n[{half + 1}-{nodes}] MaxTime=INFINITE State=UP PriorityTier=20
"""


def processor_seconds(controller: ControllerProcess) -> float:
    """Of the controller's own process."""
    assert controller.process is not None
    fields = Path(f"/proc/{controller.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def busy(controller: ControllerProcess, connection: Connection, nodes: int) -> None:
    """Ask while jobs end and come, without and with those that preempt."""
    names = [f"n{number + 1}" for number in range(nodes)]
    async with FakeNode(controller.socket_name, names, cpus=CPUS, hold=True) as node:
        load = Load(connection, node, nodes)
        await load.fill()
        for preempt in (False, True):
            before = processor_seconds(controller)
            with Asker(controller.socket_name) as asker:
                await load.go_on(preempt=preempt)
            what = "jobs preempt" if preempt else "no job can be preempted"
            asker.say(f"{nodes} nodes, {len(node.running)} running, {what}")
            took = processor_seconds(controller) - before
            print(f"    processor time of the controller: {took / SECONDS * 100:.0f} %", flush=True)
        waits = sorted(load.waits) or [float("inf")]
        print(
            f"    {len(load.waits)} that preempt have started: "
            f"after {waits[len(waits) // 2]:.2f} s (median), {waits[-1]:.2f} s (most)"
        )


def main(arguments: list[str]) -> int:
    """Without cycles, then with them."""
    nodes = int(arguments[0]) if arguments else NODES
    with tempfile.TemporaryDirectory() as name:
        controller = ControllerProcess(Path(name), nodes=nodes, cpus=CPUS, extra=conf(nodes))
        controller.start()
        try:
            with controller.connect(timeout=600) as connection:
                submit(connection, 1, random.Random(7), [job("low", 1, 1, 60)])
                with Asker(controller.socket_name) as asker:
                    time.sleep(5)
                asker.say("nothing to plan")
                asyncio.run(busy(controller, connection, nodes))
        finally:
            controller.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
