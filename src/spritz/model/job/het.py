"""Environment variables that describe a heterogeneous job's components to its processes, and the components of a step.

Source: https://slurm.schedmd.com/heterogeneous_jobs.html; variables as in Slurm 22.05, also in the spelling of before
20.02 (PACK_GROUP), which Slurm still sets.
"""

from __future__ import annotations

from spritz.model.job.record import Component
from spritz.notation import hostlist
from spritz.notation.layout import taskcounts

Variables = dict[str, str]


def variables(components: tuple[Component, ...], *, twice: bool = False) -> Variables:
    """SLURM_HET_SIZE, and variables about each component with its number in their names.

    `twice`: some under their older names as well, as in salloc's environment (and not in a batch script's).
    """
    if not components:
        return {}
    values = {name: str(len(components)) for name in ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")}
    for number, component in enumerate(components):
        facts = _facts(component)
        if twice:
            facts |= {older: facts[name] for name, older in _OLDER.items() if name in facts}
        for word in ("HET", "PACK"):
            values |= {f"{name}_{word}_GROUP_{number}": value for name, value in facts.items() if value}
    return values


_OLDER = {
    "SLURM_JOB_ID": "SLURM_JOBID",
    "SLURM_JOB_NUM_NODES": "SLURM_NNODES",
    "SLURM_JOB_NODELIST": "SLURM_NODELIST",
}


def _facts(component: Component) -> Variables:
    job, spec, allocation = component.job, component.job.spec, component.job.allocation
    if allocation is None:
        return {"SLURM_JOB_ID": str(job.id), "SLURM_JOB_NAME": spec.name}
    tasks = str(spec.tasks) if spec.tasks_given or spec.tasks_per_node else ""
    return {
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_ACCOUNT": spec.account,
        "SLURM_JOB_PARTITION": allocation.partition,
        "SLURM_JOB_QOS": spec.qos,
        "SLURM_JOB_RESERVATION": job.reservation,
        "SLURM_JOB_NUM_NODES": str(len(allocation.nodes)),
        "SLURM_JOB_NODELIST": hostlist.compress(allocation.names),
        "SLURM_JOB_CPUS_PER_NODE": taskcounts.format(node.cpu_count for node in allocation.nodes),
        "SLURM_TASKS_PER_NODE": taskcounts.format(component.task_counts) if component.task_counts else "",
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_CPUS_PER_TASK": _number(spec.cpus_per_task),
        "SLURM_NTASKS_PER_NODE": _number(spec.tasks_per_node),
        "SLURM_MEM_PER_CPU": _number(spec.memory_mib_per_cpu),
        "SLURM_MEM_PER_GPU": _number(spec.memory_mib_per_gpu),
        "SLURM_MEM_PER_NODE": _number(spec.memory_mib_per_node),
    }


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def together(components: tuple[Component, ...]) -> Variables:
    """Variables about the job for a step over these components: the leader's id, and all their nodes."""
    allocations = [component.job.allocation for component in components if component.job.allocation is not None]
    names = hostlist.compress([name for allocation in allocations for name in allocation.names])
    count = str(sum(len(allocation.nodes) for allocation in allocations))
    leader = str(components[0].job.het_job_id)
    return {
        "SLURM_JOB_ID": leader,
        "SLURM_JOBID": leader,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_JOB_CPUS_PER_NODE": taskcounts.format(
            node.cpu_count for allocation in allocations for node in allocation.nodes
        ),
    }
