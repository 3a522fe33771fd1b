"""What salloc's command sees of the allocation: SLURM_ variables from the job as it was granted.

Source: salloc(1) OUTPUT ENVIRONMENT VARIABLES; values checked against 22.05.
"""

from __future__ import annotations

from spritz.model.ids import INFINITE
from spritz.notation import hostlist, taskcounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.job import Job
    from spritz.model.queries import AllocationGranted
    from spritz.model.resources import Allocation, GresRequest

Variables = dict[str, str]


def allocation_variables(granted: AllocationGranted, slurm_conf: str) -> Variables:
    """All of them."""
    job = granted.job
    spec, allocation = job.spec, job.allocation
    assert allocation is not None, "a job that runs has nodes"
    names, count = hostlist.compress(allocation.names), str(len(allocation.nodes))
    variables = {
        "SLURM_CLUSTER_NAME": granted.settings.cluster_name,
        "SLURM_CONF": slurm_conf,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_USER": spec.user,
        "SLURM_JOB_UID": str(spec.uid),
        "SLURM_JOB_GID": str(spec.gid),
        "SLURM_JOB_GROUP": spec.group,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_JOB_PARTITION": allocation.partition,
        "SLURM_JOB_CPUS_PER_NODE": taskcounts.format(node.cpu_count for node in allocation.nodes),
        "SLURM_TASKS_PER_NODE": taskcounts.format(_task_counts(job, allocation)),
        "SLURM_JOB_START_TIME": str(int(job.started_at)),
        "SLURM_JOB_END_TIME": str(int(job.ends_at) or INFINITE),
        "SLURM_SUBMIT_DIR": spec.work_dir,
        "SLURM_SUBMIT_HOST": spec.submit_host,
    }
    optional = {
        "SLURM_JOB_ACCOUNT": spec.account,
        "SLURM_JOB_QOS": spec.qos,
        "SLURM_JOB_RESERVATION": allocation.reservation or spec.reservation,
        "SLURM_JOB_LICENSES": spec.licenses,
        "SLURM_GPU_BIND": spec.gpu_bind,
        "SLURM_OVERCOMMIT": "1" if spec.overcommit else "",
    }
    variables |= {name: value for name, value in optional.items() if value}
    return variables | _size_variables(job) | _distribution(spec.distribution)


def _task_counts(job: Job, allocation: Allocation) -> Iterable[int]:
    if allocation.tasks:
        return allocation.tasks
    each = job.spec.cpus_per_task or 1
    return [max(1, node.cpu_count // each) for node in allocation.nodes]


def _size_variables(job: Job) -> Variables:
    """What was asked for; a variable is there only if its option was."""
    spec = job.spec
    numbers = {
        "SLURM_CPUS_PER_TASK": spec.cpus_per_task,
        "SLURM_NTASKS_PER_NODE": spec.tasks_per_node,
        "SLURM_NTASKS_PER_SOCKET": spec.tasks_per_socket,
        "SLURM_NTASKS_PER_CORE": spec.tasks_per_core,
        "SLURM_NTASKS_PER_GPU": spec.tasks_per_gpu,
        "SLURM_CPUS_PER_GPU": spec.cpus_per_gpu,
        "SLURM_THREADS_PER_CORE": spec.threads_per_core,
        "SLURM_MEM_PER_CPU": spec.memory_mib_per_cpu,
        "SLURM_MEM_PER_GPU": spec.memory_mib_per_gpu,
        "SLURM_MEM_PER_NODE": spec.memory_mib_per_node,
    }
    variables = {name: str(value) for name, value in numbers.items() if value is not None}
    if spec.tasks_given or spec.tasks_per_node:
        variables |= {"SLURM_NTASKS": str(spec.tasks), "SLURM_NPROCS": str(spec.tasks)}
    requests = {
        "SLURM_GPUS": spec.gpus,
        "SLURM_GPUS_PER_NODE": spec.gpus_per_node,
        "SLURM_GPUS_PER_TASK": spec.gpus_per_task,
        "SLURM_GPUS_PER_SOCKET": spec.gpus_per_socket,
    }
    return variables | {name: _gpus_text(value) for name, value in requests.items() if value}


def _gpus_text(requests: tuple[GresRequest, ...]) -> str:
    return ",".join(f"{one.type}:{one.count}" if one.type else str(one.count) for one in requests)


def _distribution(text: str) -> Variables:
    if not text:
        return {}
    if text.startswith("plane="):
        return {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": text[6:]}
    return {"SLURM_DISTRIBUTION": text}
