"""How much of its time does the controller spend on what? `python -m benchmarks.controller [JOBS]`

One real `slurmctld` on this machine, asked over its socket; the node daemon is the tests' pretended one, so that the
figures are the controller's alone. CPU time is the daemon's, from /proc: it does not depend on who else is busy.

Questions: durable submissions a second over one connection; a listing of 10,000 jobs; an array of 10,000 tasks
accepted; memory; restart after SIGKILL to the first answer; no-op jobs a second, and whether finished ones slow it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import psutil
from tests.e2e.controller_process import ControllerProcess, a_job
from tests.e2e.fake_node import FakeNode

from spritz.client.command.sync import Connection
from spritz.model.commands.job import JobSubmitted
from spritz.model.queries.jobs import JobRows, ListJobs

JOBS = 10_000
#: What `squeue` asks for by default: eight columns.
COLUMNS = ("id", "partition", "spec.name", "spec.user", "state", "started_at", "spec.nodes_min", "reason")
NODES = 8
IN_FLIGHT = 1_000


def cpu_seconds(controller: ControllerProcess) -> float:
    """Processor time of the daemon so far; its forked children's not counted."""
    assert controller.process is not None
    times = psutil.Process(controller.process.pid).cpu_times()
    return float(times.user + times.system)


def memory_mb(controller: ControllerProcess) -> float:
    """Resident memory of the daemon."""
    assert controller.process is not None
    return float(psutil.Process(controller.process.pid).memory_info().rss / 1e6)


def say(what: str, value: float, unit: str) -> None:
    print(f"{what:58} {value:10.2f} {unit}", flush=True)


def submissions(controller: ControllerProcess, connection: Connection, jobs: int) -> None:
    """Pipelined over one connection, each acknowledged when durable."""
    commands = [a_job(f"bench-{number}") for number in range(jobs)]
    cpu, began = cpu_seconds(controller), time.perf_counter()
    sent = got = 0
    while got < jobs:
        while sent < jobs and sent - got <= IN_FLIGHT - 250:
            connection.send_many(list(commands[sent : sent + 250]))
            sent = min(jobs, sent + 250)
        response = connection.receive()
        assert response.error is None, response.error
        got += 1
    say("durable submissions, one connection", jobs / (time.perf_counter() - began), "jobs/s")
    say("  daemon's time each", (cpu_seconds(controller) - cpu) / jobs * 1e3, "ms")


def one_by_one(connection: Connection) -> None:
    """Each waits for its own sync."""
    times = []
    for number in range(200):
        began = time.perf_counter()
        connection.call(a_job(f"single-{number}", hold=True), JobSubmitted)
        times.append(time.perf_counter() - began)
    say("one durable submission, median", sorted(times)[100] * 1e3, "ms")


def listings(controller: ControllerProcess, connection: Connection) -> None:
    """Ten times, since the kernel counts processor time in hundredths of a second."""
    cpu, began, rows = cpu_seconds(controller), time.perf_counter(), 0
    for _ in range(10):
        rows += sum(len(piece.rows) for piece in connection.stream(ListJobs(fields=COLUMNS), JobRows))
    say(
        f"listing of {rows // 10} jobs, {len(COLUMNS)} columns: daemon's time",
        (cpu_seconds(controller) - cpu) * 100,
        "ms",
    )
    say("  wall, client's decoding included", (time.perf_counter() - began) * 100, "ms")


def array(connection: Connection) -> None:
    """Best of five: what the machine's other work adds is not the question."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        connection.call(a_job("array", array="0-9999", hold=True), JobSubmitted)
        times.append(time.perf_counter() - began)
    say("array of 10,000 tasks accepted", min(times) * 1e3, "ms")


def restart(controller: ControllerProcess) -> None:
    controller.kill()
    began = time.perf_counter()
    controller.start()
    say("SIGKILL, then start to the first answer", time.perf_counter() - began, "s")
    say("  daemon's time", cpu_seconds(controller), "s")


def throughput(controller: ControllerProcess, jobs: int) -> None:
    """The pending jobs of before, run by nodes that take no time; in quarters, to see whether it slows down."""

    async def main() -> None:
        async with FakeNode(controller.socket_name, [f"n{n + 1}" for n in range(NODES)], cpus=NODES) as node:
            for quarter in range(1, 5):
                cpu, began, before = cpu_seconds(controller), time.perf_counter(), len(node.started)
                async with asyncio.timeout(120):
                    await node.has_started(jobs * quarter // 4)
                done, seconds = len(node.started) - before, time.perf_counter() - began
                say(f"no-op jobs, quarter {quarter}", done / seconds, "jobs/s")
                say("  daemon's time each", (cpu_seconds(controller) - cpu) / done * 1e3, "ms")

    asyncio.run(main())


def main(jobs: int) -> None:
    """All of it."""
    with tempfile.TemporaryDirectory() as name:
        controller = ControllerProcess(Path(name), nodes=NODES, cpus=NODES)
        began = time.perf_counter()
        controller.start()
        say("start to the first answer, no state", time.perf_counter() - began, "s")
        try:
            with controller.connect(timeout=60) as connection:
                submissions(controller, connection, jobs)
                one_by_one(connection)
                say(f"memory with {jobs} pending jobs", memory_mb(controller), "MB")
                listings(controller, connection)
                array(connection)
            restart(controller)
            say("memory after the restart", memory_mb(controller), "MB")
            throughput(controller, jobs)
            restart(controller)
            say(f"memory with {jobs} finished jobs", memory_mb(controller), "MB")
        finally:
            controller.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else JOBS)
