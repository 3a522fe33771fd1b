"""A cluster without nodes and users who submit jobs to it, whatever happens to its controller."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from spritz.client.channel.aio import connect
from spritz.client.errors import ClientError, RemoteError
from spritz.controller.journal.contract import content_key
from spritz.model.commands.job import CancelJobs, CancelResult, JobSubmitted, SubmitJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import GetScript, ListJobs, Script
from spritz_testing.builders import job_spec
from spritz_testing.daemons import seam
from spritz_testing.daemons.history import Injected
from spritz_testing.daemons.plan import Scale
from spritz_testing.daemons.site import Site
from spritz_testing.daemons.system.disk import Disk
from spritz_testing.daemons.system.machine import StoryLogger
from spritz_testing.daemons.system.network import Network
from spritz_testing.daemons.system.restoring import Operator
from spritz_testing.daemons.system.world import EPOCH, Process, World
from spritz_testing.daemons.units import Unit

T = TypeVar("T")


class Submitters:
    """`acknowledged`: the job ids told, by the name of the job; `scripts`: what was submitted under that name."""

    def __init__(self, seed: int) -> None:
        gc.disable()
        self.root = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.world = World(seed, self.root)
        self.world.network = Network(self.world)
        seam.install(self.world)
        self.site = Site(self.world, Scale(nodes=2))
        self.host = self.world.host("login", "10.0.2.1")
        self.acknowledged: dict[str, int] = {}
        self.scripts: dict[str, bytes] = {}
        #: when each was acknowledged
        self.acknowledged_at: dict[str, float] = {}
        #: names of jobs that a user has cancelled
        self.cancelled: set[str] = set()
        #: the scripts that users submit; none: a new one each time
        self.pool: list[bytes] = []
        self._used_at: dict[bytes, float] = {}
        self.random = self.world.random("submitters")

    @property
    def unit(self) -> Unit:
        return self.site.units["ctl1/slurmctld"]

    @property
    def operator(self) -> Operator:
        return self.site.operators["ctl1"]

    @property
    def disk(self) -> Disk:
        return self.site.disks["ctl1"]

    def close(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def story(self) -> list[str]:
        """What happened, without the name of the run's directory."""
        return [f"{at - EPOCH:12.6f} {text.replace(str(self.root), '')}" for at, text in self.world.story]

    def begin(self, users: int, jobs: int, pause: float) -> list[Process]:
        """Users who submit that many jobs each, one after the other, until each is acknowledged."""
        self.unit.start()
        found = []
        for number in range(users):
            process = Process(self.host, f"user{number}", 2001 + number)
            process.loop.run_as(process.begin, self._submit(process, jobs, pause))
            found.append(process)
        return found

    async def ask(self, request: Struct, reply: type[T]) -> T:
        """The controller's answer. Raises ClientError."""
        log = StoryLogger("user", None)
        channel = await connect([("ctl1", 6817)], role="command", log=log, owners=frozenset((0, 64030)))
        try:
            if isinstance(request, ListJobs):
                return [piece async for piece in channel.stream(request, reply)]  # type: ignore[return-value]
            return await channel.call(request, reply, timeout=30.0)
        finally:
            channel.close()

    def asked(self, request: Struct, reply: type[T], uid: int = 0) -> T:
        """As `ask`, of a user who waits for it now."""
        for _ in range(100):
            process = Process(self.host, "reader", uid)
            process.loop.run_as(process.begin, self.ask(request, reply))
            assert self.world.run_until(lambda: not process.is_alive, 120.0)  # noqa: B023 - called in this round
            if process.error is None:
                return process.result  # type: ignore[no-any-return]  # of the type that was asked for
            if not isinstance(process.error, ClientError) or isinstance(process.error, RemoteError):
                break
            self.world.run(1.0)  # it is being started
        assert process.error is not None
        raise process.error

    async def _submit(self, process: Process, jobs: int, pause: float) -> None:
        for number in range(jobs):
            await asyncio.sleep(self.random.uniform(0.0, pause))
            name = f"{process.name}-{number}"
            if self.pool:
                self.scripts[name] = self._old_script()
                await self._submit_one(name)
                continue
            size = self.random.choice((5, 150, 2_500, 20_000))
            self.scripts[name] = f"#!/bin/sh\n# {name}\n{self.random.randbytes(size).hex()}\n".encode()
            await self._submit_one(name)

    def _old_script(self) -> bytes:
        """One of the pool, rather such a one whose jobs have been purged (MinJobAge): the journal removes it now."""
        old = [script for script in self.pool if self.world.now - self._used_at.get(script, 0.0) > 310.0]
        script = self.random.choice(old or self.pool)
        self._used_at[script] = self.world.now
        return script

    async def _submit_one(self, name: str) -> None:
        spec = job_spec(name=name, hold=True)
        request = SubmitJob(spec=spec, script=self.scripts[name], submit_key=name)
        while name not in self.acknowledged:
            try:
                self.acknowledged[name] = (await self.ask(request, JobSubmitted)).job_id
                self.acknowledged_at[name] = self.world.now
            except RemoteError as error:
                self.world.tell(f"{name}: {error.code} {error.message}")
                await asyncio.sleep(1.0)
            except ClientError:
                await asyncio.sleep(self.random.uniform(0.1, 2.0))

    def cancel_some(self, share: float) -> None:
        """Cancel this share of the jobs that wait."""
        waiting = [name for name in self.acknowledged if name not in self.cancelled]
        names = [name for name in waiting if self.random.random() < share]
        self.cancelled.update(names)
        for name in names:
            targets = (JobTarget(self.acknowledged[name]),)
            self.asked(CancelJobs(filter=JobFilter(targets=targets)), CancelResult)

    def problems(self, *, excused: Sequence[Injected] = ()) -> list[str]:
        """What differs between the controller's jobs and what users were told: nothing, or acknowledged is lost.

        `excused`: restorations, which may have lost what was acknowledged between their two times, and scripts.
        """
        found = []
        pieces: Any = self.asked(ListJobs(all=True), Jobs)  # streamed
        jobs = [job for piece in pieces for job in piece.jobs]
        by_name: dict[str, list[int]] = {}
        for job in jobs:
            by_name.setdefault(job.spec.name, []).append(job.id)
        for name, job_id in self.acknowledged.items():
            ids = by_name.pop(name, [])
            if name in self.cancelled or (job_id not in ids and self._is_excused(name, excused)):
                continue  # cancelled ones may be purged
            if ids != [job_id]:
                found.append(f"{name} was acknowledged as job {job_id}; there is {ids}")
                continue
            found += self._script_problem(name, job_id)
        found += [f"job {ids} {name} was acknowledged to nobody" for name, ids in by_name.items()]
        # A copy knows nothing of the ids that were given after it was made.
        known = [name for name in self.acknowledged if not self._is_excused(name, excused, "copy")]
        if len({self.acknowledged[name] for name in known}) < len(known):
            found.append("an id was given twice")
        return found

    def _is_excused(self, name: str, excused: Sequence[Injected], how: str = "") -> bool:
        """Whether a restored state may lack the job."""
        at = self.acknowledged_at[name]
        return any(entry.at <= at <= entry.until and entry.kind.endswith(how) for entry in excused)

    def _script_problem(self, name: str, job_id: int) -> list[str]:
        """A damaged script must be refused in words."""
        try:
            script = self.asked(GetScript(job_id=job_id), Script).script
        except RemoteError as error:
            damaged = "is damaged" in error.message or content_key(self.scripts[name]) in self.operator.lost_keys
            return [] if damaged and self.world.counts.get("rot blob") else [f"job {job_id}: {error.message}"]
        return [] if script == self.scripts[name] else [f"job {job_id} has another script"]

    def settle(self, users: list[Process], seconds: float = 6000.0) -> None:
        """Let the disk work, and the users come to their end."""
        self.disk.heal()
        ended = self.world.run_until(lambda: not any(user.is_alive for user in users), seconds)
        assert ended, "\n".join(self.story()[-20:])

    def other_problems(self, users: list[Process]) -> list[str]:
        """What no run may show."""
        world = self.world
        return [
            *(f"{process}: {context}" for process, context in world.unhandled),
            *(repr(user.error) for user in users if user.error is not None),
            *(repr(violation) for violation in world.violations),
        ]
