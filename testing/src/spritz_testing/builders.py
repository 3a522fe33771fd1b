"""A small cluster for tests of the core: sensible defaults, hand-written plans, and a record of all events.

`World` wraps a `Machine`. Each helper sends a command and returns its outcome. `check` verifies invariants, replay and
images, and belongs at the end of each test (the `world` fixture calls it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, msgpack
from msgspec.structs import replace

from spritz.core.invariants import breaches, transition_breach
from spritz.core.machine import Machine, Outcome
from spritz.model.cluster.settings import SYSTEM, Caller, ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Configure, Tick
from spritz.model.commands.job import CancelJobs, JobSubmitted, SubmitHetJob, SubmitJob
from spritz.model.commands.step import CreateStep, StepCreated
from spritz.model.events import ALL_EVENTS, Event
from spritz.model.events.job import JobEnded
from spritz.model.ids import STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Job, JobSpec
from spritz.model.job.step import Step, StepSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import (
    JobGone,
    NodeLost,
    RegisterNode,
    RunningStep,
    StepFinished,
    StepStarted,
    TaskEnd,
)
from spritz.model.plan import Plan, PlannedStart
from spritz.model.resources import (
    Allocation,
    GresAllocation,
    GresCapacity,
    NodeAllocation,
    NodeCapacity,
    lowest_bits,
    mask_of,
    mask_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.core.effects import Effect
    from spritz.core.state import State

ROOT = SYSTEM
ALICE = Caller(uid=1001, gid=1001, user="alice", group="alice", groups=(1001,), group_names=("alice",))
BOB = Caller(uid=1002, gid=1002, user="bob", group="bob", groups=(1002,), group_names=("bob",))

T = TypeVar("T")


def capacity(cpus: int = 8, memory_mib: int = 8000, gpus: int = 0, **more: Any) -> NodeCapacity:
    """A node's hardware: one socket, one thread a core, unless `more` says otherwise."""
    more.setdefault("cores_per_socket", cpus // (more.get("sockets", 1) * more.get("threads_per_core", 1)))
    if gpus:
        more["gres"] = (*more.get("gres", ()), GresCapacity(name="gpu", count=gpus))
    return NodeCapacity(cpus=cpus, memory_mib=memory_mib, **more)


def job_spec(**fields: Any) -> JobSpec:
    """The request of a batch job with a single task and no time limit, changed by `fields`."""
    fields.setdefault("batch", True)
    fields.setdefault("name", "job")
    fields.setdefault("command", "job.sh")
    fields.setdefault("work_dir", "/tmp")
    return JobSpec(**fields)


def node_share(name: str, cpus: int | str = 1, memory_mib: int = 0, gpus: str = "") -> NodeAllocation:
    """A job's share of a node: `cpus` as a mask in hexadecimal, or a count of CPUs from 0 on; `gpus` as a mask."""
    mask = cpus if isinstance(cpus, str) else mask_text((1 << cpus) - 1)
    gres: tuple[GresAllocation, ...] = ()
    if gpus:
        gres = (GresAllocation(name="gpu", count=int(gpus, 16).bit_count(), indexes=gpus),)
    return NodeAllocation(node=name, cpus=mask, memory_mib=memory_mib, gres=gres)


def task_mask(tasks: Iterable[int]) -> str:
    """Array task ids as the hexadecimal mask of `JobTarget.tasks`."""
    return mask_text(sum(1 << task for task in set(tasks)))


class World:
    """A machine with nodes n1 … nN in partition `debug`, all registered, at time 1000."""

    def __init__(
        self,
        nodes: int = 4,
        hardware: NodeCapacity | None = None,
        settings: ClusterSettings | None = None,
        partitions: tuple[Partition, ...] | None = None,
        **config: Any,
    ) -> None:
        self.now = 1000.0
        self.hardware = hardware or capacity()
        self.settings = settings or ClusterSettings(gres_types=("gpu", "shard"), max_job_count=100_000)
        self.events: list[Event] = []
        self.machine = Machine(self.settings)
        self.names = tuple(f"n{number}" for number in range(1, nodes + 1))
        self.nodes = tuple(NodeConfig(name=name, capacity=self.hardware, **config) for name in self.names)
        self.partitions = partitions or (Partition(name="debug", nodes=self.names, default=True),)
        self.do(Configure(settings=self.settings, nodes=self.nodes, partitions=self.partitions))
        for name in self.names:
            self.register(name)

    @property
    def state(self) -> State:
        return self.machine.state

    def do(self, command: Struct, caller: Caller = ROOT) -> Outcome:
        """Send a command at the present time; its events are added to `events`."""
        outcome = self.machine.handle(command, self.now, caller)
        self.events += outcome.events
        return outcome

    def ok(self, command: Struct, caller: Caller = ROOT) -> Outcome:
        """Send a command that must not be refused."""
        outcome = self.do(command, caller)
        assert outcome.rejection is None, f"{command} was refused: {outcome.rejection}"
        return outcome

    def refused(self, command: Struct, caller: Caller = ROOT) -> str:
        """Send a command that must be refused; returns the code."""
        outcome = self.do(command, caller)
        assert outcome.rejection is not None, f"{command} was not refused: {outcome}"
        return outcome.rejection.code

    # -- users

    def submit_outcome(self, caller: Caller = ALICE, *, submit_key: str = "", **fields: Any) -> Outcome:
        """Submit a job of these spec fields."""
        spec = job_spec(**fields)
        script = b"#!/bin/sh\n" if spec.batch else b""
        return self.do(SubmitJob(spec=spec, script=script, submit_key=submit_key), caller)

    def submit(self, caller: Caller = ALICE, **fields: Any) -> int:
        """Submit a job that must be accepted; returns its number."""
        reply = expect(self.submit_outcome(caller, **fields).reply, JobSubmitted)
        return reply.job_id

    def submit_refused(self, caller: Caller = ALICE, **fields: Any) -> str:
        """Submit a job that must be refused; returns the code."""
        outcome = self.submit_outcome(caller, **fields)
        assert outcome.rejection is not None, f"{fields} was accepted: {outcome.reply}"
        return outcome.rejection.code

    def submit_het(self, *components: dict[str, Any], caller: Caller = ALICE) -> Outcome:
        """Submit a heterogeneous job of components with these spec fields."""
        specs = [job_spec(**fields) for fields in components]
        parts = tuple(
            SubmitJob(spec=spec, script=b"#!/bin/sh\n" if spec.batch and not number else b"")
            for number, spec in enumerate(specs)
        )
        return self.do(SubmitHetJob(components=parts), caller)

    def start_het(self, leader_id: int, *nodes: str, cpus: int = 1) -> Outcome:
        """Start its components, each on one of these nodes, with `cpus` free CPUs."""
        starts, taken = [], dict.fromkeys(nodes, 0)
        for offset, name in enumerate(nodes):
            free = mask_of(self.free_share(name, cpus + taken[name]).cpus)
            share = mask_text(free & ~lowest_bits(free, taken[name]))
            taken[name] += cpus
            job = self.state.jobs[leader_id + offset]
            allocation = Allocation(partition=job.partition, nodes=(NodeAllocation(node=name, cpus=share),))
            starts.append(PlannedStart(job_id=job.id, allocation=allocation))
        return self.plan(*starts)

    def cancel(self, *job_ids: int, caller: Caller = ALICE, **fields: Any) -> Outcome:
        """`scancel JOB_IDS`, with the other fields of CancelJobs."""
        targets = tuple(JobTarget(job_id) for job_id in job_ids)
        return self.do(CancelJobs(filter=JobFilter(targets=targets), **fields), caller)

    def step(self, job_id: int, caller: Caller = ALICE, **fields: Any) -> Step:
        """srun inside the job; must be accepted."""
        fields.setdefault("argv", ("true",))
        return expect(self.do(CreateStep(job_id=job_id, spec=StepSpec(**fields)), caller).reply, StepCreated).step

    def step_refused(self, job_id: int, caller: Caller = ALICE, **fields: Any) -> str:
        """srun inside the job; must be refused. Returns the code."""
        return self.refused(CreateStep(job_id=job_id, spec=StepSpec(**fields)), caller)

    # -- scheduler

    def plan(self, *starts: PlannedStart) -> Outcome:
        """Apply a plan of these starts."""
        return self.do(ApplyPlan(plan=Plan(starts=starts)))

    def start(
        self, job_id: int, *nodes: str | NodeAllocation, task: int | None = None, cpus: int = 1, partition: str = ""
    ) -> int:
        """Start a job on these nodes (default n1), each with `cpus` free CPUs.

        Returns the number of the record that runs.
        """
        job = self.state.jobs[job_id]
        if task is None and job.array is not None:
            pending = int(job.array.pending, 16)
            task = (pending & -pending).bit_length() - 1
        shares = tuple(self.free_share(node, cpus) if isinstance(node, str) else node for node in nodes or ("n1",))
        allocation = Allocation(partition=partition or job.partition, nodes=shares)
        outcome = self.plan(PlannedStart(job_id=job_id, task_id=task, allocation=allocation))
        assert not getattr(outcome.reply, "messages", ()), outcome.reply
        return job_id if task is None or job.array is None else self.state.arrays[job_id][task]

    def free_share(self, name: str, cpus: int) -> NodeAllocation:
        """A share of a node with this number of free CPUs."""
        node = self.state.nodes[name]
        free = ((1 << node.config.capacity.cpus) - 1) & ~self.state.uses[name].cpus
        return NodeAllocation(node=name, cpus=mask_text(lowest_bits(free, cpus)))

    # -- nodes

    def register(self, name: str, running: Iterable[tuple[int, int, int]] = (), **fields: Any) -> Outcome:
        """Register the node's daemon with the configured hardware.

        The outcome's effects are all effects for the node, including those that are derived when it connects.
        """
        fields.setdefault("capacity", self.hardware)
        fields.setdefault("booted_at", 500.0)
        fields.setdefault("daemon_started_at", self.now)
        fields.setdefault("version", "25.05.0")
        steps = tuple(RunningStep(*step) for step in running)
        outcome = self.do(RegisterNode(name=name, running=steps, **fields))
        return replace(outcome, effects=(*outcome.effects, *self.machine.pending_effects(name)))

    def started(self, job_id: int, node: str = "", step_id: int = STEP_BATCH) -> Outcome:
        """The node reports that the step runs."""
        return self.do(
            StepStarted(
                node=node or self.first_node(job_id),
                job_id=job_id,
                restart_count=self.job(job_id).restart_count,
                step_id=step_id,
                started_at=self.now,
            )
        )

    def finished(
        self,
        job_id: int,
        status: int = 0,
        node: str = "",
        step_id: int = STEP_BATCH,
        *,
        gone: bool = True,
        **fields: Any,
    ) -> Outcome:
        """The node reports the end of the step; `status` is a wait status."""
        fields.setdefault("restart_count", self.job(job_id).restart_count)
        return self.do(
            StepFinished(
                node=node or self.first_node(job_id),
                job_id=job_id,
                step_id=step_id,
                ended_at=self.now,
                tasks=(TaskEnd(0, status),),
                job_gone=gone,
                **fields,
            )
        )

    def gone(self, job_id: int, *nodes: str, life: int | None = None) -> Outcome:
        """Nodes (default: all that were asked) report that no process of the job is left; returns the last outcome."""
        job = self.job(job_id)
        outcome: Outcome | None = None
        for name in nodes or job.completing:
            count = job.completing_life if life is None else life
            outcome = self.do(JobGone(node=name, job_id=job_id, restart_count=count))
        assert outcome is not None, f"job {job_id} completes nowhere"
        return outcome

    def lose(self, *names: str) -> Outcome:
        """Report that slurmd of these nodes has stopped answering."""
        return self.do(NodeLost(names=names))

    def first_node(self, job_id: int) -> str:
        """The node of the job's batch script."""
        allocation = self.job(job_id).allocation
        assert allocation is not None, f"job {job_id} runs nowhere"
        return allocation.nodes[0].node

    # -- time

    def tick(self) -> Outcome:
        """Perform the actions that are due now."""
        return self.do(Tick())

    def advance(self, seconds: float) -> list[Effect]:
        """Let time pass, with a tick at each deadline on the way; returns the effects."""
        end = self.now + seconds
        effects: list[Effect] = []
        while True:
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            outcome = self.tick()
            effects += outcome.effects
            after = self.machine.next_deadline()
            assert after is None or after > self.now, f"nothing happened at {self.now}: {outcome}"
        self.now = end
        return effects

    # -- looking

    def job(self, job_id: int) -> Job:
        return self.state.jobs[job_id]

    def check(self) -> None:
        """Check that invariants hold, and that replaying the events, and loading the image, give the same state."""
        problems = breaches(self.state)
        assert not problems, "\n".join(problems)
        image = self.machine.image()
        assert Machine.from_image(image).image() == image, "an image is not what it was made of"
        assert replayed(self.events, self.settings).image() == image, "replay differs from live"


def replayed(events: Iterable[Event], settings: ClusterSettings) -> Machine:
    """A new machine that has applied the same events, each encoded and decoded as in a journal.

    Checks that each change of a job's state is allowed, and that no job ends twice without a restart.
    """
    machine = Machine(settings)
    for event in events:
        kind = ALL_EVENTS[type(event).__name__]
        job_id = getattr(event, "job_id", 0)
        before = machine.state.jobs.get(job_id)
        machine.apply(msgpack.decode(msgpack.encode(event), type=kind))
        problem = transition_breach(before, machine.state.jobs.get(job_id))
        assert not problem, f"{problem} by {event}"
        again = isinstance(event, JobEnded) and before is not None and before.state.ended
        assert not again, f"it had ended already: {event}"
    return machine


def expect(value: object, kind: type[T]) -> T:
    """`value`, which must be a `kind`."""
    assert isinstance(value, kind), f"expected {kind.__name__}, got {value}"
    return value


def kinds(outcome: Outcome) -> list[str]:
    """Names of the outcome's events, in order."""
    return [type(event).__name__ for event in outcome.events]


def only(effects: Iterable[Effect], kind: type[T], where: Callable[[T], bool] = lambda _one: True) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind) and where(effect)]
