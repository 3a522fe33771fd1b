"""The environment of batch scripts and of tasks: every SLURM_ variable, from the job, the step and the node.

The user's environment comes first; facts about the job override it. Pure. Sources: sbatch(1) OUTPUT ENVIRONMENT
VARIABLES, srun(1) OUTPUT ENVIRONMENT VARIABLES; values checked against 22.05.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.ids import INFINITE
from spritz.model.job import het
from spritz.model.job.job_variables import array_variables, request_variables
from spritz.model.job.record import Component, Job
from spritz.model.job.step import Step, StepNode
from spritz.model.resources import Allocation, NodeAllocation
from spritz.node.launch.gpus import gpu_variables, job_gpu_variables, listed_gpus
from spritz.node.launch.latest import for_latest
from spritz.notation import hostlist
from spritz.notation.dependency import Dependency
from spritz.notation.dependency import format as format_dependencies
from spritz.notation.layout import taskcounts
from spritz.notation.octets import octets
from spritz.notation.ranges import format_ids

Variables = dict[str, str]


class NodeFacts(Struct, frozen=True, kw_only=True):
    """The facts about this node that every job sees. `gpu_kinds`: vendors whose variables are set (nvidia, amd, intel,
    opencl).
    """

    name: str
    cluster_name: str
    slurm_conf: str
    gpu_kinds: frozenset[str] = frozenset(("nvidia", "amd", "intel", "opencl"))
    #: shares of MPS that stand on one GPU
    mps_each: int = 0
    #: the kernel hides all GPUs but those of the step
    local_gpus: bool = False
    #: the names of GPUs for programs, by index ("": the index itself), where some are divided
    gpu_uuids: tuple[str, ...] = ()
    threads_per_core: int = 1
    #: its place in the network, and what the parts of that are ("": its name)
    address: str = ""
    address_pattern: str = "node"


_counted = for_latest(taskcounts.format)


@for_latest
def allocated_indexes(allocation: Allocation) -> dict[str, int]:
    """Index of each node in the allocation, by name."""
    return {name: index for index, name in enumerate(allocation.names)}


@for_latest
def step_indexes(step: Step) -> dict[str, int]:
    """Index of each node in the step, by name."""
    return {name: index for index, name in enumerate(step.node_names)}


@for_latest
def _allocated_list(allocation: Allocation) -> str:
    return hostlist.compress(allocation.names)


@for_latest
def _step_list(step: Step) -> str:
    return hostlist.compress(step.node_names if step.het is None else step.het.names)


@for_latest
def _cpus_per_node(allocation: Allocation) -> str:
    return taskcounts.format(tuple(node.cpu_count for node in allocation.nodes))


def job_variables(job: Job, node_index: int, facts: NodeFacts) -> Variables:
    """The variables that a batch script and every step of the job have in common on one node."""
    spec = job.spec
    allocation = job.allocation
    assert allocation is not None, "only jobs with an allocation are launched"
    names = _allocated_list(allocation)
    count = str(len(allocation.nodes))
    variables = {
        "SLURM_CLUSTER_NAME": facts.cluster_name,
        "SLURM_CONF": facts.slurm_conf,
        "SLURMD_NODENAME": facts.name,
        "SLURM_JOB_ID": str(job.id),
        "SLURM_JOBID": str(job.id),
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_USER": spec.user or str(spec.uid),
        "SLURM_JOB_UID": str(spec.uid),
        "SLURM_JOB_GROUP": spec.group or str(spec.gid),
        "SLURM_JOB_GID": str(spec.gid),
        "SLURM_JOB_PARTITION": allocation.partition,
        "SLURM_JOB_NODELIST": names,
        "SLURM_NODELIST": names,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_JOB_CPUS_PER_NODE": _cpus_per_node(allocation),
        "SLURM_JOB_START_TIME": str(int(job.started_at)),
        "SLURM_JOB_END_TIME": str(int(job.ends_at)) if job.ends_at else str(INFINITE),
        "SLURM_NODEID": str(node_index),
        "SLURM_TOPOLOGY_ADDR": facts.address or facts.name,
        "SLURM_TOPOLOGY_ADDR_PATTERN": facts.address_pattern,
        "SLURM_OOM_KILL_STEP": "0",
    }
    optional = {
        "SLURM_JOB_ACCOUNT": spec.account,
        "SLURM_JOB_QOS": spec.qos,
        "SLURM_JOB_RESERVATION": allocation.reservation or spec.reservation,
        "SLURM_JOB_LICENSES": spec.licenses,
        "SLURM_JOB_DEPENDENCY": _dependency_text(job),
        "SLURM_SUBMIT_HOST": spec.submit_host,
    }
    variables |= {name: value for name, value in optional.items() if value}
    if job.restart_count:
        variables["SLURM_RESTART_COUNT"] = str(job.restart_count)
    variables |= _size_variables(job)
    variables |= array_variables(job)
    if spec.batch:  # Slurm sets it for batch scripts, whose steps inherit it
        variables |= job_gpu_variables(allocation.nodes[node_index])
    return variables


def _size_variables(job: Job) -> Variables:
    """Requested sizes; a variable exists only if its option was given."""
    spec = job.spec
    variables = request_variables(spec)
    if spec.segment is not None:
        variables["SLURM_JOB_SEGMENT_SIZE"] = str(spec.segment)
    words = [f"cpu={spec.cpus_per_task}"] if spec.cpus_per_task else []
    for request in (*spec.gpus_per_task, *spec.gres_per_task):
        words.append(f"gres/{request.name}{':' * bool(request.type)}{request.type}={request.count}")
    if words:
        variables["SLURM_TRES_PER_TASK"] = ",".join(words)
    if "allow-task-sharing" in spec.gres_flags:
        # The steps of the job read it.
        variables["SLURM_GRES_FLAGS"] = "allow-task-sharing"
    return variables


def _dependency_text(job: Job) -> str:
    dependencies = job.spec.dependencies
    items = (
        Dependency(dependency.kind, dependency.job_id, dependency.task_id, dependency.minutes)
        for dependency in dependencies
    )
    return format_dependencies(items, job.spec.dependency_mode)


def batch_variables(
    job: Job,
    node_index: int,
    task_counts: tuple[int, ...],
    facts: NodeFacts,
    components: tuple[Component, ...] = (),
) -> Variables:
    """SLURM_ variables of the batch script on its node. `task_counts`: tasks of each allocated node."""
    variables = job_variables(job, node_index, facts) | het.variables(components)
    here = _share(job, node_index)
    spec = job.spec
    variables |= {
        "ENVIRONMENT": "BATCH",
        "HOSTNAME": facts.name,
        "SLURM_CPUS_ON_NODE": str(here.cpu_count),
        "SLURM_GTIDS": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_TASKS_PER_NODE": _counted(task_counts),
    }
    if spec.container is not None and spec.container.bundle:
        variables["SLURM_CONTAINER"] = spec.container.bundle
    if spec.tasks_given or spec.tasks_per_node is not None or spec.gpus_per_task:
        tasks = str(spec.tasks if spec.tasks_given else sum(task_counts))
        variables |= {"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
    return variables | gpu_variables(
        here.gres, facts.gpu_kinds, local=facts.local_gpus, uuids=facts.gpu_uuids, mps_each=facts.mps_each
    )


def step_variables(
    job: Job,
    step: Step,
    node_index: int,
    task_counts: tuple[int, ...],
    facts: NodeFacts,
    components: tuple[Component, ...] = (),
) -> Variables:
    """Variables that all tasks of a step have on the node of this index *in the step* (or in a component's part)."""
    share = step.nodes[node_index]
    assert job.allocation is not None, "only jobs with an allocation are launched"
    variables = job_variables(job, allocated_indexes(job.allocation)[share.allocation.node], facts)
    count, rank = len(step.nodes), node_index
    if job.het_job_id and components:
        spanned = [components[number] for number in step.het.groups] if step.het is not None else []
        component = components[job.het_offset]
        variables |= het.variables(components) | het.together(tuple(spanned) or (component,))
    if step.het is not None:
        count, rank = len(step.het.names), step.het.node_offset + node_index
    nodes, tasks, counts = str(count), str(sum(task_counts)), _counted(task_counts)
    listed = _step_list(step)
    variables |= {
        "SLURM_CPUS_ON_NODE": str(share.allocation.cpu_count),
        "SLURM_GTIDS": ",".join(map(str, share.task_ids)),
        "SLURM_NODEID": str(rank),
        "SLURM_NNODES": nodes,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_TASKS_PER_NODE": counts,
        "SLURM_STEP_ID": str(step.step_id),
        "SLURM_STEPID": str(step.step_id),
        "SLURM_STEP_NODELIST": listed,
        "SLURM_STEP_NUM_NODES": nodes,
        "SLURM_STEP_NUM_TASKS": tasks,
        "SLURM_STEP_TASKS_PER_NODE": counts,
        "SLURM_UMASK": f"{step.spec.umask:04o}",
    }
    if step.spec.container is not None and step.spec.container.bundle:
        variables["SLURM_CONTAINER"] = step.spec.container.bundle
    variables |= _step_size_variables(step, variables)
    listed = listed_gpus(share.allocation.gres)
    if listed:
        variables["SLURM_STEP_GPUS"] = listed
    return variables | gpu_variables(
        share.allocation.gres,
        facts.gpu_kinds,
        local=facts.local_gpus,
        uuids=facts.gpu_uuids,
        mps_each=facts.mps_each,
    )


def _step_size_variables(step: Step, inherited: Variables) -> Variables:
    spec = step.spec
    variables: Variables = {}
    if spec.cpus_per_task is not None:
        variables["SLURM_CPUS_PER_TASK"] = str(spec.cpus_per_task)
    if spec.tasks_per_node is not None:
        variables["SLURM_NTASKS_PER_NODE"] = str(spec.tasks_per_node)
    if spec.distribution:
        variables["SLURM_DISTRIBUTION"] = spec.distribution
    elif "SLURM_DISTRIBUTION" not in inherited and any(name.startswith("SLURM_MEM_PER_") for name in inherited):
        # Without --distribution srun tells what it chose where --mem or its kin are given, and only then.
        variables["SLURM_DISTRIBUTION"] = "cyclic" if step.tasks <= len(step.nodes) else "block"
    if spec.gpu_bind:
        variables["SLURMD_TRES_BIND"] = f"gres/gpu:{spec.gpu_bind}"
    if step.ports:
        variables["SLURM_STEP_RESV_PORTS"] = format_ids(step.ports)
    if spec.label:
        variables["SLURM_LABELIO"] = "1"
    if spec.overcommit:
        variables["SLURM_OVERCOMMIT"] = "1"
    return variables


_SIZES = frozenset(
    f"SLURM_{name}" for name in ("NNODES", "NTASKS", "NPROCS", "TASKS_PER_NODE", "NTASKS_PER_NODE", "CPUS_PER_TASK")
)


def without_sizes(variables: Variables, inherited: tuple[bytes, ...]) -> Variables:
    """--preserve-env: inherited sizes stay. Source: srun(1) --preserve-env."""
    names = {entry.partition(b"=")[0].decode("utf-8", "surrogateescape") for entry in inherited}
    return {name: value for name, value in variables.items() if name not in _SIZES or name not in names}


def task_variables(share: StepNode, local_id: int) -> Variables:
    """Variables that differ between a node's tasks; `local_id` counts from 0 on the node."""
    return {"SLURM_PROCID": str(share.task_ids[local_id]), "SLURM_LOCALID": str(local_id)}


def _share(job: Job, node_index: int) -> NodeAllocation:
    assert job.allocation is not None, "only jobs with an allocation are launched"
    return job.allocation.nodes[node_index]


def merge(user: tuple[bytes, ...], variables: Variables, stale: frozenset[bytes] = frozenset()) -> tuple[bytes, ...]:
    """`NAME=value` entries: the user's, overridden and followed by the job's. Dropped are invalid entries, and the
    user's of `stale` names.

    TMPDIR defaults to /tmp, as in Slurm.
    """
    ours = {name.encode(): octets(value) for name, value in variables.items()}
    kept = []
    named = set()
    for entry in user:
        name, equals, _ = entry.partition(b"=")
        if equals and name and name not in ours and name not in stale:
            kept.append(entry)
            named.add(name)
    if b"TMPDIR" not in named:
        kept.append(b"TMPDIR=/tmp")
    return (*kept, *(b"%s=%s" % item for item in ours.items()))
