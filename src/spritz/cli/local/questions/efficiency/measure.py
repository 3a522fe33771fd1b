"""Allocated and used resources of a job. Pure: from accounting records.

CPU time is the sum over all steps. A node's memory is the largest sum of peaks of steps that ran there at the same
time: an upper bound. GPU use is known if NVML reports the job's processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.accounting import step_usage
from spritz.model.ids import INFINITE, STEP_MAX
from spritz.notation import tres
from spritz.notation.hostlist import sort
from spritz.presentation.accounting.accounting_row import Row

if TYPE_CHECKING:
    from spritz.model.accounting.records import JobWithSteps, StepRecord

_MIB = 1024 * 1024


class NodeUse(Struct, kw_only=True):
    """On one node. Memory in MiB; GPU utilisation in percent, of all tasks together, at its peak."""

    node: str
    cpu_seconds: float = 0.0
    memory_mib: float = 0.0
    gpu_memory_mib: float = 0.0
    gpu_percent: int = 0
    gpus_known: bool = False


class Efficiency(Struct, kw_only=True):
    """One job. `sampled`: some of its usage is known; `running`: it may still grow."""

    job: str
    name: str
    user: str
    partition: str
    state: str
    running: bool
    nodes: str
    node_count: int
    #: most at once, of its steps
    tasks: int
    elapsed_seconds: int
    #: None: no limit
    limit_seconds: int | None
    cpus: int
    #: fewer than it was given where it had whole nodes
    cpus_asked: int
    cpu_seconds: float
    #: None: memory was not allocated
    memory_asked_mib: int | None
    memory_mib: float
    memory_node: str
    gpus: int
    gpu_memory_mib: float
    gpu_percent: int
    #: whether NVML reported GPU use
    gpus_known: bool
    out_of_memory: bool
    sampled: bool
    by_node: list[NodeUse]

    @property
    def cpus_busy(self) -> float:
        """Average number of busy CPUs over the elapsed time; 0.0 for a job that has not run."""
        return self.cpu_seconds / self.elapsed_seconds if self.elapsed_seconds else 0.0

    @property
    def memory_asked_per_node_mib(self) -> int | None:
        """Where nodes were given equal parts."""
        return None if self.memory_asked_mib is None else self.memory_asked_mib // max(1, self.node_count)


def measure(job_with_steps: JobWithSteps, now: float) -> Efficiency:
    """The efficiency of one job with its steps."""
    job = job_with_steps.job
    row = Row(job, None, job_with_steps.steps, now, (0.0, 0.0))
    allocated = dict(tres.parse(job.tres_allocated))
    by_node = _by_node(job_with_steps.steps, now)
    memory = max(by_node, key=lambda use: use.memory_mib, default=NodeUse(node=""))
    # Steps of a job of which nodes are not known one by one.
    user, system = row.cpu_seconds()
    most = [int(step_usage.parse(step.usage_in_max).get("mem", 0)) / _MIB for step in job_with_steps.steps]
    proper = [
        (step.started_at, step.ended_at or now, float(step.tasks))
        for step in job_with_steps.steps
        if step.step_id <= STEP_MAX
    ]
    limit = job.time_limit_minutes
    return Efficiency(
        job=row.job_name(),
        name=job.name,
        user=job.user,
        partition=job.partition,
        state=row.state,
        running=not job.ended_at,
        nodes=job.nodes,
        node_count=job.node_count,
        tasks=int(_most_at_once(proper)) if proper else 1,
        elapsed_seconds=row.elapsed,
        limit_seconds=None if limit is None or limit >= INFINITE else limit * 60,
        cpus=job.cpus,
        cpus_asked=min(job.cpus, job.requested_cpus or job.cpus),
        cpu_seconds=user + system,
        memory_asked_mib=allocated.get("mem"),
        memory_mib=max([memory.memory_mib, *most]),
        memory_node=memory.node,
        gpus=allocated.get("gres/gpu", 0),
        gpu_memory_mib=sum(use.gpu_memory_mib for use in by_node),
        gpu_percent=sum(use.gpu_percent for use in by_node),
        gpus_known=any(use.gpus_known for use in by_node),
        out_of_memory=job.state == "OUT_OF_MEMORY" or any(step.oom for step in job_with_steps.steps),
        sampled=any(step.usage_in_tot for step in job_with_steps.steps),
        by_node=by_node,
    )


def _by_node(steps: list[StepRecord], now: float) -> list[NodeUse]:
    uses: dict[str, NodeUse] = {}
    spans: dict[str, list[tuple[float, float, float]]] = {}
    for step in steps:
        for node, used in step_usage.of_nodes(step).items():
            use = uses.setdefault(node, NodeUse(node=node))
            use.cpu_seconds += used.get("cpu", 0) / 1000
            use.gpu_memory_mib = max(use.gpu_memory_mib, used.get("gres/gpumem", 0) / _MIB)
            use.gpus_known = use.gpus_known or "gres/gpuutil" in used
            use.gpu_percent = max(use.gpu_percent, used.get("gres/gpuutil", 0))
            spans.setdefault(node, []).append((step.started_at, step.ended_at or now, used.get("mem", 0) / _MIB))
    for node, node_spans in spans.items():
        uses[node].memory_mib = _most_at_once(node_spans)
    return [uses[node] for node in sort(uses)]


def _most_at_once(spans: list[tuple[float, float, float]]) -> float:
    """The largest sum of what overlaps: reached where one of them begins."""
    return max(sum(size for start, end, size in spans if start <= at < max(end, start + 1e-6)) for at, _, _ in spans)
