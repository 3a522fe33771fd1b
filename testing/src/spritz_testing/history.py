"""Synthetic journals from a seed, like those of a busy cluster, for tests and benchmarks of their readers.

The events have real types and a possible order: submissions, arrays, reasons, starts, steps on several nodes,
suspensions, requeues, cancellations, node failures. A `core` state need not accept them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.msgpack import encode

from spritz.model.accounting.records import EventGroup
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as jobs
from spritz.model.events import step as steps
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import ArrayState, Hold, Job, JobSpec
from spritz.model.job.step import Step, StepNode, StepSpec
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import Usage
from spritz.model.plan import PendingNote
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, NodeAllocation, NodeCapacity
from spritz.model.states import JobState, NodeFlag, NodeState

if TYPE_CHECKING:
    from spritz.model.events import Event

_USERS = tuple((1000 + number, f"user{number}") for number in range(100))
_PARTITIONS = ("main", "gpu", "long")


class History:
    """Generates events. `plain`: only batch jobs that run and complete."""

    def __init__(self, seed: int, *, nodes: int = 16, start_at: float = 1_700_000_000.0, plain: bool = False) -> None:
        self._random = random.Random(seed)
        self._nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._plain = plain
        self.now = start_at
        self.next_job = 1

    def events(self, job_count: int) -> Iterator[Event]:
        """The configuration, then at least this many jobs."""
        yield cluster_events.ClusterConfigured(
            at=self.now,
            settings=ClusterSettings(),
            nodes=tuple(
                NodeConfig(name=name, capacity=NodeCapacity(cpus=64, memory_mib=256_000)) for name in self._nodes
            ),
            partitions=(),
        )
        last = self.next_job + job_count
        while self.next_job < last:
            self.now += self._random.random() * 0.2
            kind = 1.0 if self._plain else self._random.random()
            if kind < 0.1:
                yield from self._array()
            elif kind < 0.15:
                yield from self._node_trouble()
            elif kind < 0.2:
                yield from self._cancelled_early()
            else:
                yield from self._job(self._queue(), fancy=kind < 0.5)

    # -- lives

    def _queue(self, array: ArrayState | None = None) -> jobs.JobQueued:
        draw = self._random
        uid, user = draw.choice(_USERS)
        number, self.next_job = self.next_job, self.next_job + 1
        spec = JobSpec(
            name=f"train-{draw.randrange(1000)}",
            uid=uid,
            gid=uid,
            user=user,
            group=user,
            account=f"project{uid % 10}",
            partitions=(draw.choice(_PARTITIONS),),
            nodes_min=1,
            tasks=draw.choice((1, 1, 2, 4)),
            memory_mib_per_node=draw.choice((1000, 4000, 16_000)),
            batch=True,
            work_dir=f"/home/{user}/project",
            submit_line=f"sbatch --time=60 train.sh {number}",
            time_limit_minutes=60,
        )
        job = Job(
            id=number,
            spec=spec,
            partition=spec.partitions[0],
            priority=1000,
            submitted_at=self.now,
            eligible_at=self.now,
            array=array,
            array_job_id=number if array else 0,
            time_limit_minutes=60,
        )
        return jobs.JobQueued(at=self.now, job=job)

    def _job(self, queued: jobs.JobQueued, *, fancy: bool) -> Iterator[Event]:
        yield queued
        yield from self._life(queued.job.id, queued.job.spec, fancy=fancy)

    def _life(self, number: int, spec: JobSpec, *, fancy: bool) -> Iterator[Event]:
        draw = self._random
        at = self.now + draw.random() * 100
        if fancy:
            note = PendingNote(job_id=number, reason=Reason.RESOURCES)
            yield jobs.JobsNoted(at=self.now, notes=(note,))
        names = draw.sample(self._nodes, draw.choice((1, 2, 3)) if fancy else 1)
        allocation = Allocation(
            partition=spec.partitions[0],
            nodes=tuple(NodeAllocation(node=name, cpus="f", memory_mib=4000) for name in names),
        )
        yield jobs.JobStarted(
            at=at,
            job_id=number,
            allocation=allocation,
            time_limit_minutes=60,
            ends_at=at + 3600,
            scheduler=("Main", "Backfill", "Submit")[number % 3],
            association=number % 5,
        )
        yield steps.StepLaunched(at=at, job_id=number, step_id=STEP_BATCH, node=names[0])
        if fancy:
            yield from self._step(number, allocation, at)
            if draw.random() < 0.3:
                yield jobs.JobSuspended(at=at + 20, job_id=number)
                yield jobs.JobResumed(at=at + 50, job_id=number, ends_at=at + 3630, suspended_seconds=30.0)
        end = at + 60 + draw.random() * 600
        ill = fancy and draw.random() < 0.3
        status = draw.choice((1 << 8, 9, 2 << 8)) if ill else 0
        state = JobState.FAILED if ill else JobState.COMPLETED
        yield steps.StepEnded(
            at=end,
            job_id=number,
            step_id=STEP_BATCH,
            node=names[0],
            state=state,
            exit_status=status,
            usage=self._usage(),
        )
        yield jobs.JobEnded(at=end, job_id=number, state=state, exit_status=status)
        if ill and draw.random() < 0.5:
            yield jobs.JobRequeued(at=end, job_id=number, restart_count=1, eligible_at=end + 5, priority=1000)
            yield from self._life(number, spec, fancy=False)
        elif draw.random() < 0.1:
            yield jobs.JobsPurged(at=end + 300, job_ids=(number,))

    def _step(self, number: int, allocation: Allocation, at: float) -> Iterator[Event]:
        nodes = tuple(StepNode(allocation=share, task_ids=(rank,)) for rank, share in enumerate(allocation.nodes))
        step = Step(
            job_id=number,
            step_id=0,
            spec=StepSpec(name="python", submit_line="srun python train.py"),
            uid=1000,
            nodes=nodes,
            tasks=len(nodes),
            started_at=at + 1,
        )
        yield steps.StepOpened(at=at + 1, step=step)
        *early, last = allocation.names
        for name in early:
            yield steps.StepNodeEnded(at=at + 15, job_id=number, step_id=0, node=name, usage=self._usage())
        yield steps.StepEnded(
            at=at + 16, job_id=number, step_id=0, node=last, state=JobState.COMPLETED, usage=self._usage()
        )

    def _usage(self) -> Usage:
        draw = self._random
        return Usage(
            cpu_user_seconds=draw.random() * 100,
            cpu_system_seconds=draw.random(),
            rss_peak_mib=draw.random() * 4000,
            read_mib=draw.random() * 10,
            written_mib=draw.random(),
        )

    def _array(self) -> Iterator[Event]:
        count = self._random.choice((3, 5))
        mask = (1 << count) - 1
        queued = self._queue(ArrayState(pending=format(mask, "x"), task_count=count, task_max=count - 1))
        array_id, spec = queued.job.id, queued.job.spec
        yield queued
        if self._random.random() < 0.3:
            yield jobs.ArrayTasksCancelled(
                at=self.now, array_job_id=array_id, tasks=format(1 << (count - 1), "x"), by_uid=0
            )
            count -= 1
        for task in range(count):
            number = array_id
            if task < count - 1:
                number, self.next_job = self.next_job, self.next_job + 1
            yield jobs.ArrayTaskSplit(at=self.now, array_job_id=array_id, task_id=task, job_id=number)
            yield from self._life(number, spec, fancy=False)

    def _cancelled_early(self) -> Iterator[Event]:
        queued = self._queue()
        yield queued
        if self._random.random() < 0.5:
            yield jobs.JobHeld(at=self.now, job_id=queued.job.id, hold=Hold.USER, reason=Reason.HELD_USER)
            yield jobs.JobReleased(at=self.now + 1, job_id=queued.job.id, priority=5, eligible_at=self.now + 1)
        yield jobs.JobEnded(at=self.now + 2, job_id=queued.job.id, state=JobState.CANCELLED, by_uid=1001)

    def _node_trouble(self) -> Iterator[Event]:
        name = self._random.choice(self._nodes)
        yield cluster_events.NodeStateChanged(
            at=self.now, name=name, state=NodeState.IDLE, flags=NodeFlag.DRAIN.value, reason="disk", reason_uid=0
        )
        yield cluster_events.NodeStateChanged(at=self.now + 5, name=name, state=NodeState.IDLE)


def in_groups(events: Iterator[Event], seed: int, longest: int = 20) -> list[EventGroup]:
    """The events as a journal's groups, of one to `longest` events each."""
    draw = random.Random(seed)
    groups: list[EventGroup] = []
    gathered: list[Event] = []
    first, size = 1, draw.randint(1, longest)
    for event in events:
        gathered.append(event)
        if len(gathered) == size:
            groups.append(EventGroup(first, first + len(gathered) - 1, encode(gathered)))
            first += len(gathered)
            gathered, size = [], draw.randint(1, longest)
    if gathered:
        groups.append(EventGroup(first, first + len(gathered) - 1, encode(gathered)))
    return groups
