"""How long does the controller's loop stand still while a plan of thousands of starts is applied?
`python -m benchmarks.large_plan [STARTS]`

The real writer, core, projection and scheduler driver with a journal on disk, in this process; no nodes and no clients.
STARTS jobs of one CPU are queued while scheduling is paused. Then a full pass plans all of them in its child, and its
plan is applied. Printed: the longest stretches of the loop, in milliseconds of this thread's processor time, which does
not depend on how busy the machine is.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from asyncio.events import Handle
from types import SimpleNamespace
from typing import Any

from spritz.controller.diagnostics import Counting
from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.controller.scheduler.driver import SchedulerDriver
from spritz.controller.writer.commit import CommitThread
from spritz.controller.writer.listeners import Loss
from spritz.controller.writer.loop import SingleWriter
from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import Configure
from spritz.model.commands.job import SubmitJob
from spritz.model.job.record import JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import RegisterNode
from spritz.model.resources import NodeCapacity
from spritz.runtime import garbage_collection
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger

STARTS = 5_000
CPUS = 16
#: Quick passes start a job each, so that the full pass's plan has nearly all of them.
SETTINGS = ClusterSettings(
    max_job_count=1_000_000,
    default_memory_mib_per_cpu=1,
    scheduler_parameters=(("default_queue_depth", "1"),),
)
CAPACITY = NodeCapacity(cpus=CPUS, cores_per_socket=CPUS, memory_mib=1000)


class Stretches:
    """Processor time of every callback of the loop, in milliseconds."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self._run = Handle._run

    def __enter__(self) -> Stretches:
        run, took = self._run, self.took

        def timed(handle: Handle) -> None:
            began = time.thread_time()
            run(handle)
            took.append((time.thread_time() - began) * 1e3)

        Handle._run = timed  # type: ignore[assignment, method-assign]  # the one place that all callbacks pass
        return self

    def __exit__(self, *_: object) -> None:
        Handle._run = self._run  # type: ignore[method-assign]  # as above


def broken(error: Exception) -> None:
    raise error


async def apply_one(starts: int, directory: str) -> None:
    """Queue the jobs, let the driver start them, and say how long it held the loop."""
    context: Any = SimpleNamespace(clock=SystemClock(), log=get_logger("bench"), counters=[], scheduling_paused=True)
    journal = SqliteJournal(directory)
    context.machine, context.counting = Machine(SETTINGS), Counting(context.clock.now())
    committer = CommitThread(broken)
    context.writer = writer = SingleWriter(
        context.machine,
        journal,
        BlobStore(journal),
        committer,
        context.clock,
        context.log,
        on_effects=lambda effects: None,
        on_broken=broken,
    )
    writer.listeners.add("counting", context.counting.listen, Loss.IGNORE)
    driver = SchedulerDriver(context)
    names = tuple(f"n{number + 1}" for number in range(-(-starts // CPUS)))
    nodes = tuple(NodeConfig(name=name, capacity=CAPACITY) for name in names)
    home = Partition(name="p", nodes=names, default=True)
    writer.handle_own(Configure(settings=SETTINGS, nodes=nodes, partitions=(home,)))
    for name in names:
        writer.handle_own(
            RegisterNode(name=name, capacity=CAPACITY, booted_at=1.0, daemon_started_at=1.0, version="25.05.0")
        )
    spec = JobSpec(name="job", user="root", batch=True, script_key="k", time_limit_minutes=60)
    for _ in range(starts):
        writer.handle_own(SubmitJob(spec=spec))
    await writer.drain()
    # Gives the jobs their places in the queue, which passes would have done a few at a time.
    context.check_whole(())
    garbage_collection.tame()
    context.scheduling_paused = False
    all_started = asyncio.Event()
    writer.hooks.append(lambda: None if context.machine.state.pending else all_started.set())
    with Stretches() as stretches:
        writer.turn()
        await all_started.wait()
        await writer.drain()
    driver.stop()
    committer.close()
    journal.close()
    longest = sorted(stretches.took, reverse=True)
    print(f"{starts} starts on {len(names)} nodes; longest stretches of the loop, ms of processor time:")
    print("  " + ", ".join(f"{one:.1f}" for one in longest[:8]), flush=True)


def main(starts: int) -> None:
    """Once, in a journal of its own."""
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(apply_one(starts, directory))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STARTS)
