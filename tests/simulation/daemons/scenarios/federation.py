"""Three clusters of a federation over one slurmdbd, on virtual time: real daemons, and users who submit anywhere."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from spritz.client.channel.aio import connect
from spritz.client.channel.channel import Channel
from spritz.client.errors import ClientError, RemoteError
from spritz.model.commands.job import CancelJobs, CancelResult, JobSubmitted, SubmitJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.limits import federations
from spritz.model.limits.records import Book, BookEdited, EditBook, GetBook, Record
from spritz.model.limits.records import Federation as Named
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz_testing.daemons import seam
from spritz_testing.daemons import site as site  # its seam has disks
from spritz_testing.daemons.accounting import Accounting
from spritz_testing.daemons.accounting.client import Command
from spritz_testing.daemons.controller.controllers import slurmctld
from spritz_testing.daemons.history import Began, Ended, History
from spritz_testing.daemons.node.nodes import machine_of, slurmd
from spritz_testing.daemons.system.disk import Disk
from spritz_testing.daemons.system.machine import StoryLogger
from spritz_testing.daemons.system.network import Network
from spritz_testing.daemons.system.world import EPOCH, Process, World
from spritz_testing.daemons.units import Unit

NAMES = "east", "north", "west"

#: Nodes of each cluster.
NODES = 2

ALICE = 2001

#: Seconds in which jobs are submitted and things go wrong, and until all is settled.
BUSY_SECONDS, SETTLED_SECONDS = 600.0, 3600.0

_CONF = """\
ClusterName={name}
SlurmctldHost=c-{name}(10.0.{number}.1)
SlurmUser=slurm
SlurmdUser=root
StateSaveLocation={root}/c-{name}/state
SlurmdSpoolDir={root}/%n/spool
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=dbd
AccountingStoragePort=6819
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=300
MinJobAge=100000
KillWait=5
NodeName={name}[1-{nodes}] NodeAddr=10.0.{number}.[11-{last}] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Federation:
    """What runs, and what users were told: `accepted` has the jobs by number, `cancelled` those that users ended."""

    def __init__(self, seed: int) -> None:
        gc.disable()  # when objects end must not depend on the collector
        self.root = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir="/dev/shm"))
        self.random = Random(seed)
        self.world = World(seed, self.root)
        self.world.network = Network(self.world)
        seam.install(self.world)
        self.history = History()
        self.accounting = Accounting(self.world)
        self.users = self.world.host("login", "10.0.9.1")
        self.controllers: dict[str, Unit] = {}
        self.nodes: list[Unit] = []
        self.accepted: dict[int, str] = {}
        self.cancelled: set[int] = set()
        for number, name in enumerate(NAMES, 1):
            self._add(number, name)
        for unit in (self.accounting.unit, *self.controllers.values(), *self.nodes):
            unit.start()
        made = Command(self.users, "sacctmgr", self._federate)
        assert self.world.run_until(lambda: made.is_over, 60.0), "slurmdbd knows the clusters"
        self.world.run(10.0)

    def _add(self, number: int, name: str) -> None:
        conf = self.root / f"{name}.conf"
        text = _CONF.format(root=self.root, name=name, number=number, nodes=NODES, last=10 + NODES)
        conf.write_text(text)
        control = self.world.host(f"c-{name}", f"10.0.{number}.1")
        Disk(control)
        self.controllers[name] = Unit(control, "slurmctld", lambda process: slurmctld(process, str(conf)))
        for node in range(1, 1 + NODES):
            host = self.world.host(f"{name}{node}", f"10.0.{number}.{10 + node}")
            machine_of(host, self.history)
            self.nodes.append(Unit(host, "slurmd", lambda process: slurmd(process, str(conf), "", self.history)))

    async def _federate(self) -> None:
        client = self.accounting.client
        while True:
            try:
                book = await client.call(GetBook(), Book)
                known = {row.cluster for row in book.associations}
                if known.issuperset(NAMES):
                    puts: tuple[Record, ...] = (Named(name="all"), *federations.joined(book, NAMES, "all"))
                    if not (await client.call(EditBook(version=book.version, puts=puts), BookEdited)).stale:
                        return
            except ClientError:
                pass
            await asyncio.sleep(1.0)

    # Users

    def _user(self, cluster: str, work: Callable[[Channel], Awaitable[Any]]) -> Process:
        """A user's process, which asks a cluster until it answers."""
        process = Process(self.users, "user", ALICE)

        async def ask() -> Any:
            log = StoryLogger("user", process)
            while True:
                try:
                    address = [(f"c-{cluster}", 6817)]
                    async with asyncio.timeout(20.0):
                        channel = await connect(address, role="command", log=log, owners=frozenset((0, 64030)))
                        try:
                            return await work(channel)
                        finally:
                            channel.close()
                except RemoteError:
                    raise
                except (ClientError, TimeoutError):
                    await asyncio.sleep(1.0)

        process.loop.run_as(lambda: process.begin(ask()))
        return process

    def submit(self, cluster: str, key: str, seconds: float, nodes: int) -> None:
        """sbatch, repeated until it is told a number."""
        spec = JobSpec(
            name=key,
            user="alice",
            uid=ALICE,
            gid=ALICE,
            group="alice",
            work_dir="/",
            batch=True,
            requeue=True,
            cpus_per_task=4,
            nodes_min=nodes,
            tasks=nodes,
        )
        script = f"#!/bin/sh\n#SIM seconds={seconds:g}\n".encode()
        request = SubmitJob(spec=spec, script=script, environment=(b"PATH=/bin",), submit_key=key)

        async def work(channel: Channel) -> None:
            answer = await channel.call(request, JobSubmitted)
            self.accepted[answer.job_id] = cluster

        self._user(cluster, work)

    def cancel(self, draw: float) -> None:
        """scancel of one of the jobs, at its origin."""
        if not self.accepted:
            return
        job_id = sorted(self.accepted)[int(draw * len(self.accepted))]
        self.cancelled.add(job_id)
        request = CancelJobs(filter=JobFilter(targets=(JobTarget(job_id=job_id),)))
        self._user(self.accepted[job_id], lambda channel: channel.call(request, CancelResult))

    def states(self) -> dict[int, dict[str, str]]:
        """The state of each job on every cluster that has a record of it, as users are shown it."""
        found: dict[int, dict[str, str]] = {}

        async def ask(channel: Channel) -> list[Jobs]:
            return [piece async for piece in channel.stream(ListJobs(filter=JobFilter()), Jobs)]

        for name in NAMES:
            process = self._user(name, ask)
            assert self.world.run_until(partial(_is_over, process), 120.0), f"{name} answers"
            for piece in process.result or ():
                for job in piece.jobs:
                    found.setdefault(job.id, {})[name] = str(job.state.value)
        return found

    # Misfortune

    def disturb(self, at: float) -> None:
        """Something goes wrong at this time, and is over soon."""
        random, world = self.random, self.world
        daemons = [*self.controllers.values(), *self.controllers.values(), *[self.accounting.unit] * 3, *self.nodes]
        unit, seconds = random.choice(daemons), 0.1 * 1000 ** random.random()
        kind = random.choice(("kill", "kill", "stop", "restart", "cut", "answers lost", "power"))
        world.at(at, lambda: self._happen(kind, unit, seconds))

    def _happen(self, kind: str, unit: Unit, seconds: float) -> None:
        world, host = self.world, unit.host
        world.tell(f"fault: {kind}, {unit.name} of {host.name}, {seconds:.1f} s")
        others = [other for other in world.hosts if other != host.name]
        if kind == "kill":
            unit.kill()
        elif kind == "stop" and unit.process is not None and unit.process.is_alive:
            unit.process.stop()
            world.after(seconds, unit.process.go_on)
        elif kind == "restart":
            unit.stop()
            world.after(seconds, unit.start)
        elif kind == "cut":
            for other in others:
                world.network.cut(host.name, other, seconds)
                world.network.cut(other, host.name, seconds)
        elif kind == "answers lost":
            world.network.cut(host.name, self.random.choice(others), seconds)
        elif kind == "power" and unit.name == "slurmctld" and host.is_up:
            host.lose_power()
            world.after(seconds, host.boot)

    # What must hold

    def settle(self) -> dict[int, dict[str, str]]:
        """Let time pass until every job is over on every cluster. Raises AssertionError with the end of the story."""
        end = self.world.now + SETTLED_SECONDS
        while True:
            states = self.states()
            left = {number: found for number, found in states.items() if {"PENDING", "RUNNING"} & {*found.values()}}
            if not left and self.accepted.keys() <= states.keys():
                return states
            assert self.world.now < end, f"{left}\n" + "\n".join(self.lines()[-80:])
            self.world.run(30.0)

    def check(self, states: dict[int, dict[str, str]]) -> None:
        """No job ran twice, each that nobody cancelled ran to its end on one cluster, and nobody thinks otherwise."""
        assert not self.world.unhandled, self.world.unhandled
        for number in self.accepted:
            began = self._of(number, Began)
            ends = [entry for entry in self._of(number, Ended) if not entry.signal]
            lives = {(entry.node.rstrip("12"), entry.restart_count) for entry in began}
            told = states[number]
            assert len({life for _, life in lives}) == len(lives), f"job {number} ran twice in a life: {began}"
            where = {entry.node.rstrip("12") for entry in ends}
            if number in self.cancelled:
                assert len(where) <= 1, f"job {number} was cancelled, and ended on {where}"
                continue
            assert len(where) == 1, f"job {number} ended on {where}: {told}\n{began}"
            (cluster,) = where
            wrong = {
                name: state for name, state in told.items() if state != ("COMPLETED" if name == cluster else "REVOKED")
            }
            assert not wrong, f"job {number} ran on {cluster}: {told}"

    def _of(self, number: int, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.history.entries if isinstance(entry, kind) and entry.job_id == number]

    def lines(self) -> list[str]:
        lines = [f"{at - EPOCH:12.6f} {text}" for at, text in self.world.story]
        return [line.replace(str(self.root), "ROOT") for line in lines]

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _is_over(process: Process) -> bool:
    return not process.is_alive
