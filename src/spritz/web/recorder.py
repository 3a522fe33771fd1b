"""Samples the cluster's usage periodically, with or without viewers, and stores it (`samples`).

The cluster's sample and the GPU load of jobs come from the dashboard's picture; CPU, memory and I/O of running jobs
come from `sstat`, which asks their nodes. A single recorder serves all viewers, with the dashboard's own privileges: if
these do not cover other users' jobs, their curves are missing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from typing import TYPE_CHECKING, Protocol

from spritz.http.rest import RestError
from spritz.timeouts import within
from spritz.web import commands, drawing, users
from spritz.web.picture import Picture, Viewer
from spritz.web.records import Job
from spritz.web.samples import ClusterSample, JobSample
from spritz.web.sessions import Session

if TYPE_CHECKING:
    from spritz.web.login import Login
    from spritz.web.samples import Samples

_log = logging.getLogger("spritz.web")

#: Seconds between samples; between samples of jobs whose page is open; and seconds for which a page counts as open.
EVERY_SECONDS, WATCHED_SECONDS, WATCHING_SECONDS = 30.0, 10.0, 25.0

#: Shortest period of a rate, if samples go back that far: sstat reports CPU time in whole seconds.
RATE_SECONDS = 25.0

#: Seconds between attempts to sample a job with an open page and no sample yet, and the number of attempts.
SOON_SECONDS, TRIES = 0.7, 5

#: Most jobs sampled in a round: those whose last sample is oldest.
JOBS_MAX = 100

#: Seconds between deletions of old rows.
PRUNE_SECONDS = 900.0

#: A step's (CPU seconds, bytes of memory, bytes read, bytes written), by its name.
Steps = dict[str, tuple[float, float, float, float]]


class Site(Protocol):
    """Whose pictures of the cluster are sampled, and where the samples go (`app.Site`)."""

    @property
    def settings(self) -> users.Settings: ...

    @property
    def samples(self) -> Samples: ...

    @property
    def login(self) -> Login: ...

    async def picture(self, session: Session) -> Picture: ...


class Recorder:
    """Samples and stores usage until its task is cancelled."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._viewer = Viewer()
        #: job -> time until which its page counts as open
        self._watched: dict[int, float] = {}
        #: job -> recent samples: (controller's time, steps), oldest first
        self._before: dict[int, list[tuple[float, Steps]]] = {}
        #: watched job -> number of attempts at its first sample
        self._tries: dict[int, int] = {}
        self._wanted = asyncio.Event()
        #: why nothing is recorded; "" while it is
        self.problem = ""

    def watch(self, job: int) -> None:
        """Note that the job's page is open: sample the job more often."""
        if job not in self._watched:
            self._wanted.set()
        self._watched[job] = time.monotonic() + WATCHING_SECONDS

    async def run(self) -> None:
        """Sample and store until cancelled; an unreachable slurmrestd is retried."""
        local = self._site.settings.own_files
        session = Session(id="recorder", user="" if local else users.name_of(os.geteuid()))
        whole = pruned = 0.0
        while True:
            now = time.monotonic()
            self._watched = {job: until for job, until in self._watched.items() if until > now}
            try:
                picture = await self._site.picture(session)
                picture.viewers.add(self._viewer)
                await picture.wait_ready()
                if not picture.error:
                    await self._round(picture, session, all_of_it=now - whole >= EVERY_SECONDS)
                    whole = now if now - whole >= EVERY_SECONDS else whole
                if now - pruned > PRUNE_SECONDS:
                    pruned = now
                    await asyncio.to_thread(self._site.samples.prune, picture.now())
                self._turn(picture.error)
            except RestError as error:
                self._turn(error.message)
            except sqlite3.Error as error:
                self._turn(f"the samples cannot be stored: {error}")
            except Exception as error:
                # An internal error: pages say it where curves are missing, and the next round tries again.
                _log.exception("recorder.failed")
                self._turn(f"internal error: {type(error).__name__}")
                whole = now
            pause = WATCHED_SECONDS if self._watched else max(1.0, whole + EVERY_SECONDS - time.monotonic())
            new = [job for job in self._watched if job not in self._before and self._tries.get(job, 0) < TRIES]
            for job in new:
                self._tries[job] = self._tries.get(job, 0) + 1
            self._tries = {job: count for job, count in self._tries.items() if job in self._watched}
            pause = SOON_SECONDS if new else pause
            try:
                async with within(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()

    def _turn(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("recorder.interrupted %s", problem)
        self.problem = problem

    async def _round(self, picture: Picture, session: Session, *, all_of_it: bool) -> None:
        running = {job.id: job for job in picture.jobs.values() if job.raw_state == "RUNNING"}
        chosen = running if all_of_it else {number: running[number] for number in self._watched if number in running}
        self._before = {number: known for number, known in self._before.items() if number in running}
        first = sorted(chosen.values(), key=lambda job: (job.id not in self._watched, self._sampled_at(job.id), job.id))
        jobs = await self._jobs(picture, session, first[:JOBS_MAX])
        cluster = cluster_sample(picture) if all_of_it else None
        if cluster is not None or jobs:
            await asyncio.to_thread(self._site.samples.add, cluster, jobs)

    async def _jobs(self, picture: Picture, session: Session, jobs: list[Job]) -> list[JobSample]:
        if not jobs:
            return []
        token = await self._site.login.token(session.user)
        names = ",".join(str(job.id) for job in jobs)
        _, out, _ = await commands.run(
            "sstat", "-anP", "--noconvert", "-o", "JobID,TRESUsageInTot,TRESUsageOutTot", "-j", names, token=token
        )
        steps = steps_of(out)
        now = picture.now()
        samples = []
        for job in jobs:
            job_steps = steps.get(job.label) or steps.get(str(job.id))
            gpu, gpu_memory = gpu_use(picture, job)
            if job_steps is None and gpu is None:
                continue
            rates: tuple[float | None, float | None, float | None, float | None] = (None, None, None, None)
            if job_steps is not None:
                known = self._before.setdefault(job.id, [(job.started_at, {})])
                while len(known) > 1 and now - known[1][0] >= RATE_SECONDS:
                    del known[0]
                rates = rates_of(job_steps, known[0][1], now - known[0][0])
                known.append((now, job_steps))
            samples.append(JobSample(job.id, now, *rates, gpu, gpu_memory))
        return samples

    def _sampled_at(self, job: int) -> float:
        known = self._before.get(job)
        return known[-1][0] if known else 0.0


def steps_of(out: str) -> dict[str, Steps]:
    """Parse the output of `sstat`: usage by job and step."""
    by_job: dict[str, Steps] = {}
    for line in out.splitlines():
        name, taken, given = (*line.split("|"), "", "", "")[:3]
        job, _, step = name.partition(".")
        read, written = _tres(taken), _tres(given)
        if job and taken:
            values = (read.get("cpu", 0.0), read.get("mem", 0.0), read.get("fs/disk", 0.0), written.get("fs/disk", 0.0))
            by_job.setdefault(job, {})[step] = values
    return by_job


def _tres(text: str) -> dict[str, float]:
    """Parse `cpu=00:01:02,mem=1024` into seconds and bytes, by name."""
    values = {}
    for word in text.split(","):
        name, _, amount = word.partition("=")
        days, _, clock = amount.rpartition("-")
        try:
            if ":" in clock:
                seconds = 0.0
                for part in clock.split(":"):
                    seconds = seconds * 60 + float(part)
                values[name] = seconds + 86_400 * int(days or 0)
            else:
                values[name] = float(amount)
        except ValueError:
            continue
    return values


def rates_of(steps: Steps, before: Steps, seconds: float) -> tuple[float, float, float, float]:
    """(CPUs kept busy, memory in bytes, bytes read per second, bytes written per second), since `before`."""
    grown = [0.0, 0.0, 0.0]
    for name, (cpu, _, read, written) in steps.items():
        old = before.get(name, (0.0, 0.0, 0.0, 0.0))
        for place, (value, known) in enumerate(((cpu, old[0]), (read, old[2]), (written, old[3]))):
            grown[place] += max(0.0, value - known)
    span = max(1.0, seconds)
    return grown[0] / span, sum(step[1] for step in steps.values()), grown[1] / span, grown[2] / span


def gpu_use(picture: Picture, job: Job) -> tuple[float | None, float | None]:
    """(load of the job's GPUs in percent, bytes of their memory in use); None if there are no samples."""
    busy, memory, known = [], 0, False
    for place in job.nodes:
        node = picture.nodes.get(place.node)
        if node is None or not node.gpu_samples:
            continue
        indexes = {number for number, owner in enumerate(drawing.cells_of(node, [job])) if owner == job.id}
        for sample in node.gpu_samples:
            if sample.index in indexes:
                known = True
                memory += sample.memory_used_mib << 20
                if sample.busy_percent >= 0:
                    busy.append(sample.busy_percent)
    return (sum(busy) / len(busy) if busy else None), (float(memory) if known else None)


def cluster_sample(picture: Picture) -> ClusterSample:
    nodes = picture.nodes.values()
    told = [sample.busy_percent for node in nodes for sample in node.gpu_samples if sample.busy_percent >= 0]
    loads = [min(node.cpu_load, node.cpus) for node in nodes if node.cpu_load is not None]
    return ClusterSample(
        at=picture.now(),
        cpus=sum(node.cpus for node in nodes),
        cpus_used=sum(node.cpus_allocated for node in nodes),
        cpus_busy=sum(loads) if loads else -1,
        gpus=sum(node.gpu_count for node in nodes),
        gpus_used=sum(node.gpus_in_use for node in nodes),
        gpus_busy=sum(told) / 100 if told else -1,
        memory=sum(node.memory_mib for node in nodes),
        memory_used=sum(node.memory_allocated_mib for node in nodes),
        running=sum(1 for job in picture.jobs.values() if job.raw_state == "RUNNING"),
        waiting=sum(job.waiting_tasks for job in picture.jobs.values() if job.is_pending),
    )
