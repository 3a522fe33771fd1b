"""Pods placed by the production cycle, as on a cluster with these SchedulerParameters.

Each pod is a job of one task that never ends: its CPUs in tenths, its share of a GPU as shards of a hundredth, its GPU
models as a constraint. One cycle runs for each pod; a pod that finds no place is cancelled, as in the study.

Source: slurm.conf(5) GresTypes=shard; docs/decisions/0082-fragmentation-aware-placement.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.events.cluster import ClusterConfigured, NodeStateChanged
from spritz.model.events.job import JobEnded, JobQueued, JobStarted
from spritz.model.ids import INFINITE
from spritz.model.job.record import Job, JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.resources import GresCapacity, GresRequest, NodeCapacity, mask_ids, mask_of
from spritz.model.states import JobState, NodeState
from spritz.scheduling.plan import cycle
from spritz.scheduling.view.projection import Projection
from spritz.scheduling.view.sharing.fragmentation import WHOLE_GPU

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from spritz.model.events import Event
    from spritz_testing.studies.pods.trace import Pod, PodNode

#: Thousandths of a CPU that count as one CPU here, and shards of a GPU.
CPU_MILLI, SHARDS = 100, 100

#: Virtual time between two pods, seconds.
INTERVAL = 1.0


class ProductionPlacement:
    """The scheduler on an empty cluster of these nodes, in this order."""

    def __init__(self, nodes: Sequence[PodNode], parameters: Sequence[str] = ()) -> None:
        self._now = 1_000_000_000.0
        settings = ClusterSettings(
            gres_types=("gpu", "shard"), scheduler_parameters=tuple((name, "") for name in parameters)
        )
        self._machine, self._projection = Machine(settings), Projection()
        configs = tuple(_node(index, node) for index, node in enumerate(nodes))
        partition = Partition(name="all", nodes=tuple(config.name for config in configs), default=True)
        self._apply(ClusterConfigured(at=self._now, settings=settings, nodes=configs, partitions=(partition,)))
        for config in configs:
            self._apply(NodeStateChanged(at=self._now, name=config.name, state=NodeState.IDLE, flags=0))

    def choose(self, pod: Pod, nodes: NDArray[np.int64]) -> tuple[int, list[int]] | None:
        """See `Placement`; the scheduler chooses among all its nodes, not only `nodes`."""
        self._now += INTERVAL
        number = self._machine.state.next_job_id
        spec = _spec(pod)
        job = Job(id=number, spec=spec, priority=1, submitted_at=self._now, eligible_at=self._now)
        self._apply(JobQueued(at=self._now, job=job))
        plan, findings = cycle.run(self._projection.snapshot(self._now), 1000, expect=False)
        self._projection.remember(findings)
        started = None
        outcome = self._machine.handle(ApplyPlan(plan=plan), self._now)
        self._projection.follow(outcome.changes)
        for event in outcome.events:
            if isinstance(event, JobStarted):
                started = event.allocation.nodes[0]
        self._projection.adopt(plan)
        if started is None:
            self._apply(JobEnded(at=self._now, job_id=number, state=JobState.CANCELLED))
            return None
        gpus = [index for gres in started.gres for index in mask_ids(mask_of(gres.indexes))]
        return int(started.node.removeprefix("n")), gpus

    def _apply(self, event: Event) -> None:
        self._projection.follow(self._machine.apply(event))


def _node(index: int, node: PodNode) -> NodeConfig:
    cpus = max(1, node.cpu // CPU_MILLI)
    gres = (
        GresCapacity(name="gpu", count=node.gpus),
        GresCapacity(name="shard", count=SHARDS * node.gpus, per_device=SHARDS),
    )
    capacity = NodeCapacity(
        cpus=cpus,
        sockets=1,
        cores_per_socket=cpus,
        threads_per_core=1,
        memory_mib=node.memory_mib,
        tmp_mib=0,
        gres=gres if node.gpus else (),
    )
    return NodeConfig(name=f"n{index}", capacity=capacity, features=(node.model,) if node.model else ())


def _spec(pod: Pod) -> JobSpec:
    share = GresRequest("shard", "", -(-pod.milli * SHARDS // WHOLE_GPU))
    divided = bool(pod.gpus) and pod.milli < WHOLE_GPU
    return JobSpec(
        tasks=1,
        tasks_given=True,
        nodes_min=1,
        nodes_max=1,
        nodes_given=True,
        cpus_per_task=max(1, -(-pod.cpu // CPU_MILLI)),
        memory_mib_per_node=max(1, pod.memory_mib),
        gpus_per_node=(GresRequest("gpu", "", pod.gpus),) if pod.gpus and not divided else (),
        gres_per_node=(share,) if divided else (),
        features="|".join(pod.models) if pod.gpus else "",
        partitions=("all",),
        time_limit_minutes=INFINITE,
    )
