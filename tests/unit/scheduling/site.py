"""A small cluster for tests: builds nodes, submits jobs, runs cycles, and turns plans into events as the core would."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from msgspec import Struct, structs

from spritz.core.machine import Machine, Outcome
from spritz.model.cluster.settings import SYSTEM, Caller, ClusterSettings
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.commands.job import Done, JobSubmitted, SubmitJob
from spritz.model.events import Event
from spritz.model.events.cluster import ClusterConfigured, NodeStateChanged
from spritz.model.events.job import JobEnded, JobNodeGone, JobQueued, JobStarted
from spritz.model.job.record import ArrayState, Job, JobSpec
from spritz.model.limits.minutes import Minutes
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.plan import Plan
from spritz.model.resources import Allocation, GresCapacity, GresRequest, NodeCapacity, mask_of, mask_text
from spritz.model.states import JobState, NodeFlag, NodeState
from spritz.scheduling.forecast import full_cycle
from spritz.scheduling.plan import cycle
from spritz.scheduling.view.projection import Projection
from spritz.scheduling.view.snapshot import History
from tests.unit.scheduling.readonly import unchanged

#: Jobs that say nothing about memory get so much per CPU, so that they can share nodes.
SETTINGS = ClusterSettings(default_memory_mib_per_cpu=1, gres_types=("gpu", "shard"))


def gpus(count: int, kind: str = "", first: int = 0, cores: str = "") -> GresCapacity:
    """One gres.conf line of GPUs."""
    return GresCapacity(name="gpu", type=kind, count=count, first_index=first, cores=cores)


def node(
    name: str,
    cpus: int = 8,
    *,
    sockets: int = 1,
    threads: int = 1,
    memory: int = 1000,
    gres: Iterable[GresCapacity] = (),
    **fields: Any,
) -> NodeConfig:
    """A node of `cpus` CPUs in all."""
    capacity = NodeCapacity(
        cpus=cpus,
        sockets=sockets,
        cores_per_socket=cpus // sockets // threads,
        threads_per_core=threads,
        memory_mib=memory,
        tmp_mib=fields.pop("tmp", 0),
        gres=tuple(gres),
    )
    return NodeConfig(name=name, capacity=capacity, **fields)


def spec(tasks: int | None = None, nodes: int | tuple[int, int] | None = None, **fields: Any) -> JobSpec:
    """What `-n TASKS -N NODES` and further options give. Limit 10 minutes unless told."""
    fields.setdefault("time_limit_minutes", 10)
    if tasks is not None:
        fields.update(tasks=tasks, tasks_given=True)
    if nodes is not None:
        low, high = (nodes, nodes) if isinstance(nodes, int) else nodes
        fields.update(nodes_min=low, nodes_max=high, nodes_given=True)
    for name in ("gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket", "gres_per_node"):
        value = fields.get(name)
        if isinstance(value, int):
            fields[name] = (GresRequest("gpu", "", value),)
        elif isinstance(value, str):
            kind, _, count = value.rpartition(":")
            fields[name] = (GresRequest("gpu", kind, int(count)),)
    return JobSpec(**fields)


class Site:
    """A cluster without daemons: the real core keeps the state and checks every start, the projection follows it.

    `now` is moved by hand.
    """

    def __init__(
        self,
        nodes: Iterable[NodeConfig],
        partitions: Iterable[Partition] = (),
        settings: ClusterSettings = SETTINGS,
    ) -> None:
        self.now = 1000.0
        self.machine = Machine(settings)
        self.projection = Projection()
        #: usage alone counts for nothing here
        self.minutes = Minutes()
        self.configs = tuple(nodes)
        self.partitions = tuple(partitions) or (partition("debug", self.configs, default=True),)
        self.settings = settings
        self._next_id = 1
        self.plans = 0
        self.apply(ClusterConfigured(at=self.now, settings=settings, nodes=self.configs, partitions=self.partitions))
        for config in self.configs:
            self.set_node(config.name, NodeState.IDLE)

    @property
    def history(self) -> History:
        """What no record holds."""
        return History(self.minutes, self.machine.state.run_times)

    @property
    def jobs(self) -> dict[int, Job]:
        """All records."""
        return self.machine.state.jobs

    def apply(self, event: Event) -> None:
        """A fact, for core and projection."""
        self.projection.follow(self.machine.apply(event))

    def send(self, command: Struct, caller: Caller = SYSTEM) -> Outcome:
        """A command, by default root's; the projection follows what the core records of it."""
        outcome = self.machine.handle(command, self.now, caller)
        self.projection.follow(outcome.changes)
        return outcome

    def ask(self, request: JobSpec) -> int:
        """Submit a job through the core, which must accept it; returns its number."""
        outcome = self.send(SubmitJob(spec=request))
        assert isinstance(outcome.reply, JobSubmitted), outcome.rejection
        return outcome.reply.job_id

    def set_node(self, name: str, state: NodeState = NodeState.IDLE, flags: int | NodeFlag = 0) -> None:
        """A node's state changes."""
        self.apply(NodeStateChanged(at=self.now, name=name, state=state, flags=int(flags)))

    def submit(self, request: JobSpec, *, priority: int = 1, array: range | None = None, limit: int = 0) -> int:
        """Queue a job (or an array of the tasks in `array`), eligible at once."""
        job_id = self.machine.state.next_job_id
        if not request.partitions:
            request = structs.replace(request, partitions=tuple(item.name for item in self.partitions if item.default))
        state = None
        if array is not None:
            pending = mask_text(sum(1 << task for task in array))
            state = ArrayState(pending=pending, limit=limit, task_count=len(array))
        job = Job(
            id=job_id,
            spec=request,
            partition=request.partitions[0],
            priority=priority,
            submitted_at=self.now,
            eligible_at=self.now,
            array=state,
            array_job_id=job_id if array is not None else 0,
        )
        self.apply(JobQueued(at=self.now, job=job))
        return job_id

    def submit_het(self, *requests: JobSpec, priorities: Iterable[int] = ()) -> int:
        """Queue a heterogeneous job of these components, eligible at once; its number is the leader's."""
        first = self.machine.state.next_job_id
        names = tuple(item.name for item in self.partitions if item.default)
        ranks = [*priorities] or [1] * len(requests)
        for offset, request in enumerate(requests):
            if not request.partitions:
                request = structs.replace(request, partitions=names)
            job = Job(
                id=first + offset,
                spec=request,
                priority=ranks[offset],
                submitted_at=self.now,
                eligible_at=self.now,
                het_job_id=first,
                het_offset=offset,
                het_size=len(requests),
            )
            self.apply(JobQueued(at=self.now, job=job))
        return first

    def plan(self, budget: int | None = None) -> Plan:
        """A cycle's proposal; nothing is applied."""
        snapshot = self.projection.snapshot(self.now, self.history)
        self.plans += 1
        # The check takes a while: the first cycles of each site have it, and fewer of the later ones.
        with unchanged(snapshot) if self.plans & (self.plans - 1) == 0 else nullcontext():
            plan, findings = full_cycle.run(snapshot, held=True) if budget is None else cycle.run(snapshot, budget)
        self.projection.remember(findings)
        return plan

    def cycle(self, budget: int | None = None) -> dict[int, Allocation]:
        """Run a cycle and apply its plan, of which the core must accept every start.

        Returns allocations by the numbers of the jobs (or array tasks) that started.
        """
        return self.follow(self.plan(budget))

    def cycle_plan(self, budget: int | None = None) -> Plan:
        """The same; returns the plan."""
        plan = self.plan(budget)
        self.follow(plan)
        return plan

    def follow(self, plan: Plan) -> dict[int, Allocation]:
        """Apply a plan, of which the core must accept every start."""
        outcome = self.machine.handle(ApplyPlan(plan=plan), self.now)
        assert isinstance(outcome.reply, Done), outcome.reply
        assert outcome.reply.messages == (), f"the core dropped starts: {outcome.reply.messages}"
        started = {}
        self.projection.follow(outcome.changes)
        for event in outcome.events:
            if isinstance(event, JobStarted):
                started[event.job_id] = event.allocation
        self.projection.adopt(plan)
        return started

    def end(self, job_id: int, completing: tuple[str, ...] = ()) -> None:
        """The job ends."""
        self.apply(JobEnded(at=self.now, job_id=job_id, state=JobState.COMPLETED, completing=completing))

    def gone(self, job_id: int, name: str) -> None:
        """Nothing of an ended job is left on a node."""
        self.apply(JobNodeGone(at=self.now, job_id=job_id, node=name))

    def reason(self, job_id: int) -> str:
        """Reason and detail of a pending job."""
        job = self.jobs[job_id]
        return job.reason.value + (f", {job.reason_detail}" if job.reason_detail else "")


def partition(name: str, nodes: Iterable[NodeConfig | str], **fields: Any) -> Partition:
    """A partition of these nodes."""
    names = tuple(item if isinstance(item, str) else item.name for item in nodes)
    return Partition(name=name, nodes=names, **fields)


def cpus(allocation: Allocation) -> dict[str, int]:
    """Node -> number of CPUs given."""
    return {item.node: item.cpu_count for item in allocation.nodes}


def cpu_ids(allocation: Allocation, position: int = 0) -> list[int]:
    """CPU numbers on one node of an allocation."""
    mask = mask_of(allocation.nodes[position].cpus)
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def devices(allocation: Allocation, name: str = "gpu") -> dict[str, list[int]]:
    """Node -> indexes of the devices of one name."""
    found: dict[str, list[int]] = {}
    for item in allocation.nodes:
        for gres in item.gres:
            if gres.name == name:
                mask = mask_of(gres.indexes)
                found.setdefault(item.node, []).extend(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
    return found
