"""A small cluster for tests: one real slurmctld, real slurmds on simulated machines, and a user."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from spritz.client.channel.aio import connect
from spritz.client.channel.channel import Channel
from spritz.client.errors import ClientError, RemoteError
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import CancelJobs, CancelResult, Done, JobSubmitted, SubmitJob
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.job.step import Step, StepSpec
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.model.queries.nodes import ListNodes, Nodes, NodeView
from spritz_testing.daemons import seam
from spritz_testing.daemons.controller.controllers import slurmctld
from spritz_testing.daemons.history import Began, Ended, Entry, History, Signalled
from spritz_testing.daemons.node.nodes import NodeMachine, machine_of, slurmd
from spritz_testing.daemons.system.machine import StoryLogger
from spritz_testing.daemons.system.network import Network
from spritz_testing.daemons.system.world import EPOCH, Host, Process, World
from spritz_testing.daemons.units import Unit

_CONF = """\
ClusterName=sim
SlurmctldHost=ctl(10.0.0.1)
SlurmUser=slurm
SlurmdUser=root
StateSaveLocation={root}/ctl/state
SlurmdSpoolDir={root}/%n/spool
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
ReturnToService=2
SlurmdTimeout=60
KillWait=10
{more}
NodeName=n[1-{nodes}] NodeAddr=10.0.1.[1-{nodes}] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=n[1-{nodes}] Default=YES State=UP
{last}
"""

ALICE = 2001


class Cluster:
    def __init__(self, seed: int, nodes: int = 3, more: str = "", last: str = "") -> None:
        gc.disable()  # when objects end must not depend on the collector
        self.root = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir="/dev/shm"))
        self.world = World(seed, self.root)
        self.world.network = Network(self.world)
        seam.install(self.world)
        self.history = History()
        self.conf = self.root / "slurm.conf"
        self.conf.write_text(_CONF.format(root=self.root, nodes=nodes, more=more, last=last))
        control = self.world.host("ctl", "10.0.0.1")
        self.controller = Unit(control, "slurmctld", lambda process: slurmctld(process, str(self.conf)))
        hosts = [self.world.host(f"n{number}", f"10.0.1.{number}") for number in range(1, nodes + 1)]
        self.machines: dict[str, NodeMachine] = {host.name: machine_of(host, self.history) for host in hosts}
        self.daemons = {
            host.name: Unit(host, "slurmd", lambda process: slurmd(process, str(self.conf), "", self.history))
            for host in hosts
        }
        self.submissions = 0
        for name, machine in self.machines.items():
            machine.on_rebooted.append(self.daemons[name].start)
        for unit in (self.controller, *self.daemons.values()):
            unit.start()

    def spawn(self, host: Host, work: Callable[[Channel], Awaitable[Any]], uid: int = ALICE) -> Process:
        """Let a user's process do something over a connection to the controller, again while that breaks."""
        process = Process(host, "user", uid)

        async def ask() -> Any:
            log = StoryLogger("user", process)
            while True:
                try:
                    channel = await connect([("ctl", 6817)], role="command", log=log, owners=frozenset((0, 64030)))
                    return await work(channel)
                except RemoteError:
                    raise
                except ClientError:
                    await asyncio.sleep(1.0)

        process.loop.run_as(lambda: process.begin(ask()))
        return process

    def user(self, work: Callable[[Channel], Awaitable[Any]], seconds: float = 180.0, uid: int = ALICE) -> Any:
        """The result of what a user does over a connection of hers."""
        process = self.spawn(self.controller.host, work, uid)
        assert self.world.run_until(lambda: not process.is_alive, seconds), "the user waits"
        if process.error is not None:
            raise process.error
        return process.result

    def node(self, name: str) -> NodeView:
        """A node as users are shown it."""
        answer: Nodes = self.user(lambda channel: channel.call(ListNodes(names=(name,)), Nodes))
        return answer.nodes[0]

    def create(self, job_id: int, spec: StepSpec) -> Step:
        """A step of a job."""
        request = CreateStep(job_id=job_id, spec=spec)
        answer: StepCreated = self.user(lambda channel: channel.call(request, StepCreated))
        return answer.step

    def cancel(self, job_id: int) -> None:
        request = CancelJobs(filter=JobFilter(targets=(JobTarget(job_id=job_id),)))
        self.user(lambda channel: channel.call(request, CancelResult))

    def resume(self, node: str) -> None:
        """An administrator puts a node back into service, if it is drained or down."""
        with contextlib.suppress(RemoteError):  # it is in service
            self.user(lambda channel: channel.call(UpdateNode(names=(node,), state="RESUME"), Done), uid=0)

    def lose_power(self, node: str, seconds: float) -> None:
        """A machine loses power, and boots so much later."""
        host = self.machines[node].host
        if not host.is_up:
            return

        def boots() -> None:
            host.boot()
            self.daemons[node].start()

        host.lose_power()
        self.world.after(seconds, boots)

    def submit(self, line: str = "seconds=5", **options: Any) -> int:
        """Number of a batch job whose script has this `#SIM` line."""
        given = {"name": "job", "user": "alice", "uid": ALICE, "gid": ALICE, "group": "alice", "work_dir": "/"}
        spec = JobSpec(**{**given, "batch": True, **options})
        self.submissions += 1
        request = SubmitJob(
            spec=spec,
            script=f"#!/bin/sh\n#SIM {line}\n".encode(),
            environment=(b"PATH=/bin",),
            submit_key=f"submission {self.submissions}",
        )
        answer: JobSubmitted = self.user(lambda channel: channel.call(request, JobSubmitted))
        return answer.job_id

    def state(self, job_id: int) -> str:
        """Of a job, by what its user is shown."""
        request = ListJobs(filter=JobFilter(targets=(JobTarget(job_id=job_id),)))

        async def ask(channel: Channel) -> list[Jobs]:
            return [piece async for piece in channel.stream(request, Jobs)]

        (job,) = [job for piece in self.user(ask) for job in piece.jobs]
        return str(job.state.value)

    def ends(self, job_id: int, *states: str, seconds: float = 120.0) -> None:
        """Let time pass until the job is in one of these states."""
        end = self.world.now + seconds
        while self.state(job_id) not in states:
            assert self.world.now < end, "\n".join([self.state(job_id), *self.lines()[-60:]])
            self.world.run(1.0)

    def of(self, job_id: int, kind: type[Any] = object) -> list[Any]:
        """Entries of the history about a job."""
        return [e for e in self.history.entries if getattr(e, "job_id", 0) == job_id and isinstance(e, kind)]

    def wait(self, holds: Callable[[], object], seconds: float = 120.0) -> None:
        """Let time pass until it holds. Raises AssertionError with the end of the story."""
        if not self.world.run_until(lambda: bool(holds()), seconds):
            raise AssertionError("\n".join(self.lines()[-60:]))

    def lines(self) -> list[str]:
        """The story, without the name of the directory of this run."""
        lines = [f"{at - EPOCH:12.6f} {text}".replace(str(self.root), "ROOT") for at, text in self.world.story]
        lines += [repr(entry).replace(str(self.root), "ROOT") for entry in self.history.entries]
        return lines

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def check(self) -> None:
        """No process failed, and no step ran twice at a time, or again after it was over."""
        assert not self.world.unhandled, self.world.unhandled
        running: dict[tuple[str, int, int, int], Began] = {}
        seen: set[tuple[str, int, int, int]] = set()
        #: others may have got the CPUs of a suspended job
        stopped = {e.job_id for e in self.history.entries if isinstance(e, Signalled) and e.number == signal.SIGSTOP}
        for entry in self.history.entries:
            if isinstance(entry, Began):
                assert _key(entry) not in seen, f"again: {entry}"
                for one in running.values():
                    _need_apart(one, entry, is_shared=bool({one.job_id, entry.job_id} & stopped))
                seen.add(_key(entry))
                running[_key(entry)] = entry
            elif isinstance(entry, Ended):
                del running[_key(entry)]


def _need_apart(one: Began, other: Began, *, is_shared: bool) -> None:
    """Neither two lives of a step on a node at a time, nor two jobs on a CPU."""
    if one.node == other.node:
        assert (one.job_id, one.step_id) != (other.job_id, other.step_id), f"at the same time: {one}, {other}"
        assert is_shared or one.job_id == other.job_id or not one.job_cpus & other.job_cpus, f"{one}, {other}"


def _key(entry: Entry) -> tuple[str, int, int, int]:
    assert isinstance(entry, Began | Ended), "of a step"
    return entry.node, entry.job_id, entry.restart_count, entry.step_id
