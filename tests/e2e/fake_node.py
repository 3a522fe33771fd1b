"""A node daemon for the controller's tests: the real wire, and pretended work.

It registers its nodes, accepts launches, remembers every one of them for ever (so that a test can see that nothing was
started twice), and reports ends at once or when told. It survives the controller's death as a real one does, and
delivers what it could not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from types import TracebackType

from msgspec import Struct

from spritz.client.channel.aio import PersistentChannel
from spritz.client.channel.channel import Channel
from spritz.client.channel.handling import Call, Handler
from spritz.client.errors import ClientError
from spritz.model.commands.job import Done
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Job
from spritz.model.node.record import NodeSample
from spritz.model.node_daemon.launch import (
    Accepted,
    LaunchBatch,
    LaunchStep,
    PingNode,
    ReloadNode,
    SignalTasks,
    StopDaemon,
    TerminateJob,
    TerminateStep,
)
from spritz.model.node_daemon.reports import (
    JobGone,
    NodeSamples,
    Registered,
    RegisterNode,
    RunningStep,
    StepFinished,
    StepStarted,
    TaskEnd,
)
from spritz.model.resources import NodeCapacity
from spritz.runtime.log import get_logger
from spritz.runtime.tasks import Supervisor


class FakeNode:
    """`async with FakeNode(socket_name, ["n1", "n2"])`; `hold`: jobs run until `finish`."""

    def __init__(self, address: str, names: list[str], *, cpus: int = 4, hold: bool = False) -> None:
        self.names = names
        self.hold = hold
        self.cpus = cpus
        #: (job, life) -> times a launch was carried out; a real node keeps this on disk
        self.started: Counter[tuple[int, int]] = Counter()
        #: (job, life) -> times a launch message came
        self.launches: Counter[tuple[int, int]] = Counter()
        self.received: list[Struct] = []
        self.running: dict[tuple[int, int], tuple[str, Job]] = {}
        self.steps: dict[tuple[int, int], LaunchStep] = {}
        self.undelivered: list[Struct] = []
        self.terms: list[int] = []
        self.registrations = 0
        self._wake = asyncio.Event()
        self._progress = asyncio.Condition()
        self._tasks = Supervisor(self._failed)
        table: dict[type[Struct], Handler] = {
            LaunchBatch: self._launch_batch,
            TerminateJob: self._terminate,
            LaunchStep: self._launch_step,
            **dict.fromkeys((SignalTasks, TerminateStep, ReloadNode, StopDaemon), self._accept),
            PingNode: self._pinged,
        }
        self.link = PersistentChannel(
            [address], role="slurmd", log=get_logger("fake"), table=table, on_connect=self._register
        )

    async def __aenter__(self) -> FakeNode:
        await self._tasks.__aenter__()
        await self.link.__aenter__()
        self._tasks.spawn_contained(self._deliver(), name="deliver")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.link.__aexit__(kind, error, trace)
        self._tasks.cancel_all()
        await self._tasks.__aexit__(kind, error, trace)

    def finish(self, job_id: int, status: int = 0) -> None:
        """The job's script ends now."""
        for (number, life), (node, job) in list(self.running.items()):
            if number == job_id:
                self._end(node, job, life, status)

    def finish_step(self, job_id: int, step_id: int, status: int = 0) -> None:
        """All tasks of the step end now."""
        message = self.steps.pop((job_id, step_id))
        self._report(
            StepFinished(
                node=message.node,
                job_id=job_id,
                restart_count=message.job.restart_count,
                step_id=step_id,
                ended_at=2.0,
                tasks=(TaskEnd(0, status),),
            )
        )

    async def has_started(self, count: int) -> None:
        """Return when this number of launches was carried out."""
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.started) >= count)

    # -- what the controller sends

    def _launch_batch(self, message: LaunchBatch, call: Call) -> Accepted:
        life = (message.job.id, message.job.restart_count)
        self.received.append(message)
        self.launches[life] += 1
        if not self.started[life]:
            self.started[life] += 1
            self.running[life] = (message.node, message.job)
            self._report(
                StepStarted(
                    node=message.node, job_id=life[0], restart_count=life[1], step_id=STEP_BATCH, started_at=1.0
                )
            )
            if not self.hold:
                self._end(message.node, message.job, life[1], 0)
        return Accepted()

    def _launch_step(self, message: LaunchStep, call: Call) -> Accepted:
        self.received.append(message)
        self.steps[(message.step.job_id, message.step.step_id)] = message
        return Accepted()

    def _terminate(self, message: TerminateJob, call: Call) -> Accepted:
        self.received.append(message)
        life = (message.job.id, message.job.restart_count)
        if life in self.running:
            node, job = self.running[life]
            self._end(node, job, life[1], 15)
        else:
            self._report(JobGone(node=message.node, job_id=life[0], restart_count=life[1]))
        return Accepted()

    def _accept(self, message: Struct, call: Call) -> Accepted:
        self.received.append(message)
        return Accepted()

    def _pinged(self, message: PingNode, call: Call) -> NodeSamples:
        return NodeSamples(samples=tuple(NodeSample(name=name, cpu_load=7, free_memory_mib=9) for name in self.names))

    # -- what it tells

    def _end(self, node: str, job: Job, life: int, status: int) -> None:
        del self.running[(job.id, life)]
        self._report(
            StepFinished(
                node=node,
                job_id=job.id,
                restart_count=life,
                step_id=STEP_BATCH,
                ended_at=2.0,
                tasks=(TaskEnd(0, status),),
                job_gone=True,
            )
        )

    def _report(self, report: Struct) -> None:
        self.undelivered.append(report)
        self._wake.set()

    async def _deliver(self) -> None:
        """In order, each until it is acknowledged; many on their way at once."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self.undelivered:
                batch = list(self.undelivered[:500])
                try:
                    channel = await self.link.channel()
                    await asyncio.gather(*(channel.call(report, Done) for report in batch))
                except ClientError:
                    continue
                del self.undelivered[: len(batch)]
                async with self._progress:
                    self._progress.notify_all()

    async def _register(self, channel: Channel) -> None:
        for name in self.names:
            running = tuple(
                RunningStep(job_id, life, STEP_BATCH)
                for (job_id, life), (node, _) in self.running.items()
                if node == name
            ) + tuple(
                RunningStep(report.job_id, report.restart_count, report.step_id)
                for report in self.undelivered
                if isinstance(report, StepFinished) and report.node == name
            )
            reply = await channel.call(
                RegisterNode(
                    name=name,
                    capacity=NodeCapacity(cpus=self.cpus, cores_per_socket=self.cpus, memory_mib=2000),
                    booted_at=1.0,
                    daemon_started_at=1.0,
                    version="25.05.0",
                    running=running,
                ),
                Registered,
            )
            self.terms.append(reply.term)
            self.registrations += 1

    def _failed(self, name: str, error: Exception) -> None:
        raise AssertionError(name) from error
