"""Builds a supervisor's specification from a launch message. Pure: `NodeSetup` describes this machine.

Sources: sbatch(1), srun(1), slurm.conf(5) PropagateResourceLimits, TaskProlog, TaskEpilog, JobFileAppend.
"""

from __future__ import annotations

import os
import posixpath
from typing import Any

import msgspec
from msgspec import structs

from spritz import installed
from spritz.config.relatives.oci import OciFile
from spritz.model.ids import STEP_BATCH, STEP_EXTERN, STEP_MAX, step_name
from spritz.model.job.record import ContainerOptions, Job
from spritz.model.job.step import Step
from spritz.model.node_daemon.launch import LaunchBatch, LaunchStep
from spritz.model.resources import GresAllocation, GresCapacity, NodeAllocation, mask_ids, mask_of
from spritz.node import stored_job
from spritz.node.container import Container
from spritz.node.launch import environment, mpi, niceness, streams
from spritz.node.launch.affinity import Topology, cpu_bind_variables, real_cpus
from spritz.node.launch.environment import NodeFacts
from spritz.node.launch.gpus import bound_gpus, device_files, gpu_mask, stale_variables, visible
from spritz.node.launch.latest import for_latest
from spritz.node.launch.tree import place_in
from spritz.stepd import oci
from spritz.stepd.resources.usage import job_group_name
from spritz.stepd.spec import MARKER, SCRIPT, Identity, SupervisorSpec, TaskSpec, marker

#: the end command of a task that leaves nothing behind
_NO_END: tuple[str, ...] = ()
#: Seconds for a runtime to end a container, and for --container-save to write one.
_END_SECONDS, _SAVE_SECONDS = 30.0, 1800.0
#: path of a batch script in its container
_SCRIPT_INSIDE = "/tmp/slurm_script"

_packed = for_latest(stored_job.pack)


class MemoryRule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Derives a limit from an allocation's memory. Source: cgroup.conf(5) AllowedRAMSpace and its kin.

    `held`: memory is limited at all. `swap_percent` None: swap is not limited. `max_mib` 0: no upper bound.
    """

    held: bool = True
    percent: float = 100.0
    min_mib: int = 0
    max_mib: int = 0
    swap_percent: float | None = 0.0

    def limits(self, memory_mib: int) -> tuple[int, int]:
        """(memory, additional swap) in MiB; (0, 0) without a memory request, and where none is held."""
        if not memory_mib or not self.held:
            return 0, 0
        memory = max(self.min_mib, int(memory_mib * self.percent / 100))
        if self.max_mib:
            memory = min(memory, self.max_mib)
        return memory, -1 if self.swap_percent is None else int(memory_mib * self.swap_percent / 100)


class NodeSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of a launch besides its message: slurm.conf, the machine, and the daemon's rights."""

    facts: NodeFacts
    topology: Topology | None = None
    #: CPUs of the node as configured
    cpus: int = 1
    #: TaskPlugin has affinity (or cgroup): tasks are bound to their CPUs
    bind: bool = False
    #: CPUs of tasks without a binding, if slurmd has cores of its own; empty: all
    job_cpus: tuple[int, ...] = ()
    file_append: bool = False
    kill_wait_seconds: int = 30
    unkillable_seconds: int = 60
    unkillable_program: str = ""
    task_prolog: str = ""
    task_epilog: str = ""
    cgroup_memory: str = ""
    #: as that, for ConstrainDevices and ConstrainCores; "" where nothing is to be confined
    cgroup_devices: str = ""
    cgroup_cores: str = ""
    #: for freezing and killing
    cgroup_tree: str = ""
    #: private directories of jobs; None without job_container/tmpfs
    container: Container | None = None
    #: oci.conf; None without: --container has no effect
    oci: OciFile | None = None
    #: SlurmdSpoolDir
    spool: str = ""
    #: the node's lines of gres.conf
    gres: tuple[GresCapacity, ...] = ()
    memory_rule: MemoryRule = MemoryRule()
    sample_seconds: float = 30.0
    #: JobAcctGatherParams, as the supervisor's spec has them
    memory_counted: str = "rss"
    gpu_accounting: bool = True
    energy_source: str = ""
    #: PropagatePrioProcess
    propagate_priority: int = 0
    #: names of limits propagated from the submitter, unless it names them itself; None: all
    limits: frozenset[str] | None = None
    hosts_file: str = ""
    #: TreeWidth
    tree_width: int = 50
    #: the uid of SlurmUser
    slurm_uid: int = 0
    #: the value of %N in file names: the host's short name; "": the node's, which a virtual node's tasks see as their
    #: host's
    host: str = ""

    @property
    def cgroups(self) -> frozenset[str]:
        """Directories in which supervisors create groups."""
        return frozenset({self.cgroup_memory, self.cgroup_devices, self.cgroup_cores, self.cgroup_tree} - {""})


def supervisor_spec(message: LaunchBatch | LaunchStep, directory: str, setup: NodeSetup) -> SupervisorSpec:
    """For either message. `directory` is the step's spool."""
    if isinstance(message, LaunchBatch):
        return batch_spec(message, directory, setup)
    return step_spec(message, directory, setup)


def batch_spec(message: LaunchBatch, directory: str, setup: NodeSetup) -> SupervisorSpec:
    """The batch script of a job: one task, in all that the job has on this node."""
    job, spec = message.job, message.job.spec
    assert job.allocation is not None, "only jobs with an allocation are launched"
    node_index = environment.allocated_indexes(job.allocation)[message.node]
    share = job.allocation.nodes[node_index]
    variables = environment.batch_variables(job, node_index, message.task_counts, setup.facts, message.components)
    stale = stale_variables(setup.gres, share.gres, setup.facts.gpu_kinds)
    where = streams.batch_streams(job, setup.host or message.node)
    variables["SLURM_PRIO_PROCESS"] = str(niceness.submitted(message.environment))
    argv, end = _script_in(job, posixpath.join(directory, SCRIPT), message.node, setup)
    task = TaskSpec(
        task_id=0,
        argv=argv,
        end=end,
        cpus=_bound(share.cpus, setup),
        stdin=where.stdin,
        stdout=where.stdout,
        stderr=where.stderr,
    )
    supervisor = SupervisorSpec(
        job_id=job.id,
        restart_count=job.restart_count,
        step_id=STEP_BATCH,
        label=f"{job.id}.batch",
        node=message.node,
        node_index=0,
        batch=True,
        script=message.script,
        identity=_identity(job),
        tasks=(task,),
        environment=(*environment.merge(message.environment, variables, stale), marker(directory)),
        work_dir=spec.work_dir,
        umask=spec.umask,
        nice=_nice(message.environment, spec.uid, setup),
        limits=_limits(tuple((limit.name, limit.soft) for limit in spec.limits), setup, asked=spec.limits_asked),
        append=streams.appends(job, spec.open_mode, setup.file_append),
        task_prologs=(setup.task_prolog,) if setup.task_prolog else (),
        task_epilogs=(setup.task_epilog,) if setup.task_epilog else (),
        sample_seconds=setup.sample_seconds if spec.sample_seconds is None else spec.sample_seconds,
    )
    return _on_node(supervisor, job, share, spec.container, setup)


def step_spec(message: LaunchStep, directory: str, setup: NodeSetup) -> SupervisorSpec:
    """This node's share of a step."""
    job, step, spec = message.job, message.step, message.step.spec
    node_index = environment.step_indexes(step)[message.node]
    share = step.nodes[node_index]
    variables = environment.step_variables(job, step, node_index, message.task_counts, setup.facts, message.components)
    stale = stale_variables(setup.gres, share.allocation.gres, setup.facts.gpu_kinds)
    if spec.preserve_env:
        variables = environment.without_sizes(variables, spec.environment)
    if setup.bind:
        variables |= cpu_bind_variables(share.cpus_by_task)
    variables["SLURM_PRIO_PROCESS"] = str(niceness.submitted(spec.environment))
    tasks = tuple(
        _task(job, step, message.node, node_index, local_id, setup) for local_id in range(len(share.task_ids))
    )
    contains = step.step_id == STEP_EXTERN  # the container of a job is no task of the user
    shared = streams.shared_by_nodes(spec.stdout, len(step.nodes)) and node_index > 0
    supervisor = SupervisorSpec(
        job_id=job.id,
        restart_count=job.restart_count,
        step_id=step.step_id,
        label=f"{job.id}.{step_name(step.step_id)}",
        node=message.node,
        node_index=node_index,
        identity=_identity(job),
        tasks=tasks,
        environment=(*environment.merge(spec.environment, variables, stale), marker(directory)),
        work_dir=spec.work_dir or job.spec.work_dir,
        umask=spec.umask,
        nice=_nice(spec.environment, step.uid, setup),
        limits=_limits(spec.limits, setup, asked=spec.limits_asked),
        append=shared or streams.appends(job, spec.open_mode, setup.file_append),
        io_address=spec.io_address,
        io_key=spec.io_key,
        **place_in(message, node_index, setup.tree_width),
        unbuffered=spec.unbuffered,
        labelled_tasks=(sum(step.het.task_counts) if step.het else step.tasks) if spec.label else 0,
        pty=spec.pty,
        pty_rows=spec.pty_rows,
        pty_columns=spec.pty_columns,
        task_prologs=() if contains else tuple(filter(None, (setup.task_prolog, spec.task_prolog))),
        task_epilogs=() if contains else tuple(filter(None, (spec.task_epilog, setup.task_epilog))),
        sample_seconds=_sample_seconds(job, step, setup),
        pmi=mpi.pmi(job, step, node_index),
        pmix=mpi.pmix(job, step, node_index, message.components),
    )
    return _on_node(supervisor, job, share.allocation, spec.container, setup)


def _on_node(
    supervisor: SupervisorSpec, job: Job, share: NodeAllocation, container: ContainerOptions | None, setup: NodeSetup
) -> SupervisorSpec:
    """The specification with what follows from the job's share of this node and from the node's settings."""
    memory, swap = setup.memory_rule.limits(share.memory_mib)
    denied, given = _devices(share.gres, setup)
    packed, compressed = _packed(job)
    return structs.replace(
        supervisor,
        memory_limit_mib=memory,
        swap_limit_mib=swap,
        **_groups(job, supervisor.node, setup),
        relay_uid=setup.slurm_uid,
        private_dirs=_private_dirs(job, setup),
        private_shared=setup.container is not None and setup.container.shared,
        devices_denied=denied,
        devices_given=given,
        cores=_cores(share.cpus, supervisor.tasks, setup),
        kill_wait_seconds=setup.kill_wait_seconds,
        unkillable_seconds=setup.unkillable_seconds,
        unkillable_program=setup.unkillable_program,
        memory_counted=setup.memory_counted,
        gpu_accounting=setup.gpu_accounting,
        energy_source=setup.energy_source,
        hosts_file=setup.hosts_file,
        end_seconds=_end_seconds(container),
        oci_directory=_oci_directory(job, supervisor.step_id, setup) if _in_runtime(container, setup) else "",
        job=packed,
        job_compressed=compressed,
    )


def _groups(job: Job, node: str, setup: NodeSetup) -> dict[str, Any]:
    """Fields of the specification: directories for the step's cgroups. With a memory limit that is the job's own, where
    all its steps share the job's limit; in version 2 it serves all controllers.
    """
    directories = {
        "cgroup_memory": setup.cgroup_memory,
        "cgroup_devices": setup.cgroup_devices,
        "cgroup_cores": setup.cgroup_cores,
        "cgroup_tree": setup.cgroup_tree,
    }
    assert job.allocation is not None, "only jobs with an allocation are launched"
    share = next((share for share in job.allocation.nodes if share.node == node), None)
    memory, swap = setup.memory_rule.limits(share.memory_mib if share is not None else 0)
    daemons = setup.cgroup_memory
    if not memory:
        return directories
    group = f"{daemons}/{job_group_name(node, job.id, job.restart_count)}"
    if daemons:
        directories = {field: group if directory == daemons else directory for field, directory in directories.items()}
    return {**directories, "job_memory_limit_mib": memory, "job_swap_limit_mib": swap}


def _task(job: Job, step: Step, node: str, node_index: int, local_id: int, setup: NodeSetup) -> TaskSpec:
    share = step.nodes[node_index]
    variables = environment.task_variables(share, local_id)
    gpus = gpu_mask(share.allocation.gres)
    if gpus:
        if share.gpus_by_task:
            mask = mask_of(share.gpus_by_task[local_id]) & gpus
            variables["SLURM_STEP_GPUS"] = ",".join(map(str, mask_ids(mask)))
        else:
            mask = bound_gpus(_gpu_bind(job, step), gpus, local_id, len(share.task_ids))
        facts = setup.facts
        variables |= visible(mask, facts.gpu_kinds, gpus if facts.local_gpus else 0, facts.gpu_uuids)
    where = streams.step_streams(job, step, setup.host or node, node_index, local_id)
    cpus = share.cpus_by_task[local_id] if share.cpus_by_task else share.allocation.cpus
    argv, end = _argv(step, share.task_ids[local_id]), _NO_END
    bundle, runtime = _bundle(step.spec.container, step.spec.work_dir or job.spec.work_dir), setup.oci
    if bundle and runtime is not None and argv:
        task = _oci_task(bundle, runtime, job, step.step_id, local_id, node, setup)
        files = device_files(setup.gres, share.allocation.gres)[1]
        argv, end = _in_bundle(task._replace(devices=files), argv)
    else:
        end = _saved(step.spec.container) if argv and not local_id else _NO_END
        argv = _contained(step.spec.container, argv, device_files(setup.gres, share.allocation.gres))
    return TaskSpec(
        task_id=share.task_ids[local_id],
        argv=argv,
        end=end,
        environment=tuple(f"{name}={value}" for name, value in variables.items()),
        cpus=_bound(cpus, setup),
        stdin=where.stdin,
        stdout=where.stdout,
        stderr=where.stderr,
    )


def _sample_seconds(job: Job, step: Step, setup: NodeSetup) -> float:
    """--acctg-freq of the step, else of its job, else JobAcctGatherFrequency."""
    asked = (step.spec.sample_seconds, job.spec.sample_seconds)
    return next((float(seconds) for seconds in asked if seconds is not None), setup.sample_seconds)


def _gpu_bind(job: Job, step: Step) -> str:
    """--gpu-bind; --ntasks-per-gpu=N stands for `single:N`. Source: srun(1) --ntasks-per-gpu."""
    tasks_per_gpu = step.spec.tasks_per_gpu or job.spec.tasks_per_gpu
    return step.spec.gpu_bind or job.spec.gpu_bind or (f"single:{tasks_per_gpu}" if tasks_per_gpu else "")


def _contained(
    container: ContainerOptions | None, argv: tuple[str, ...], devices: tuple[tuple[str, ...], tuple[str, ...]]
) -> tuple[str, ...]:
    """The command, wrapped if there is a container: a helper program finds the container engine on the node, as the
    user.

    `devices`: files of denied and of allowed devices.
    """
    if container is None or container.bundle or not argv:
        return argv
    denied, given = devices
    options = {**msgspec.to_builtins(container), "devices_denied": denied, "devices_given": given}
    return (*installed.python("spritz.stepd.container", msgspec.json.encode(options).decode()), *argv)


def _script_in(job: Job, script: str, node: str, setup: NodeSetup) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The script is a file of the node's: in a container it is mounted where any image has place for it.

    What starts it, and what ends its container.
    """
    container, arguments, runtime = job.spec.container, job.spec.arguments, setup.oci
    assert job.allocation is not None, "only jobs with an allocation are launched"
    share = job.allocation.nodes[job.allocation.names.index(node)]
    devices = device_files(setup.gres, share.gres)
    bundle = _bundle(container, job.spec.work_dir)
    if container is None or (bundle and runtime is None):
        return (script, *arguments), ()
    if bundle and runtime is not None:
        task = _oci_task(bundle, runtime, job, STEP_BATCH, 0, node, setup)
        return _in_bundle(task._replace(script=script, devices=devices[1]), (script, *arguments))
    mounted = msgspec.structs.replace(container, mounts=(*container.mounts, f"{script}:{_SCRIPT_INSIDE}:ro"))
    return _contained(mounted, (_SCRIPT_INSIDE, *arguments), devices), _saved(container)


def _in_runtime(container: ContainerOptions | None, setup: NodeSetup) -> bool:
    return container is not None and bool(container.bundle) and setup.oci is not None


def _saved(container: ContainerOptions | None) -> tuple[str, ...]:
    """The command that writes the container to the file of --container-save after its tasks have ended."""
    if container is None or not container.save:
        return _NO_END
    return tuple(installed.python("spritz.stepd.container", "--save", msgspec.json.encode(container).decode()))


def _end_seconds(container: ContainerOptions | None) -> float:
    return _SAVE_SECONDS if container is not None and container.save else _END_SECONDS


def _bundle(container: ContainerOptions | None, work_dir: str) -> str:
    """Path of the OCI bundle; "" without."""
    return posixpath.join(work_dir, container.bundle) if container is not None and container.bundle else ""


def _oci_task(
    bundle: str, runtime: OciFile, job: Job, step_id: int, local_id: int, node: str, setup: NodeSetup
) -> oci.Task:
    return oci.Task(
        bundle=bundle,
        directory=_oci_directory(job, step_id, setup),
        job_id=job.id,
        step_id=step_id,
        task_id=local_id,
        node=node,
        user=job.spec.user,
        uid=job.spec.uid,
        mark=MARKER,
        **msgspec.structs.asdict(runtime),
    )


def _in_bundle(task: oci.Task, argv: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The commands that run and end a task in a container of the runtime."""
    text = task.as_text()
    return (*installed.python("spritz.stepd.oci", "run", text), *argv), (
        *installed.python("spritz.stepd.oci", "end", text),
    )


def _oci_directory(job: Job, step_id: int, setup: NodeSetup) -> str:
    """The directory of the step's container, named as in Slurm."""
    step = f"{step_id:05d}" if step_id <= STEP_MAX else step_name(step_id)
    return f"{setup.spool}/oci-job{job.id:05d}-{step}"


def _argv(step: Step, task_id: int) -> tuple[str, ...]:
    """The command of one task."""
    if not step.spec.multi_prog:
        return step.spec.argv
    return next((argv for mask_text, argv in step.spec.multi_prog if mask_of(mask_text) >> task_id & 1), ())


def _bound(mask: str, setup: NodeSetup) -> tuple[int, ...]:
    cpus = real_cpus(mask_of(mask), setup.cpus, setup.topology) if setup.bind else ()
    if cpus or not setup.job_cpus or setup.topology is None:
        return cpus
    # The reserved cores are excluded; but a job that was given reserved cores has them (--core-spec).
    order = setup.topology.order
    given = {order[place] for place in mask_ids(mask_of(mask)) if place < len(order)}
    return setup.job_cpus if given.issubset(setup.job_cpus) else tuple(sorted(order))


def _cores(mask: str, tasks: tuple[TaskSpec, ...], setup: NodeSetup) -> tuple[int, ...]:
    """CPUs that the step is confined to: its own, and those its tasks are bound to; empty: all."""
    cpus = real_cpus(mask_of(mask), setup.cpus, setup.topology) if setup.cgroup_cores else ()
    return tuple(sorted({*cpus, *(cpu for task in tasks for cpu in task.cpus)})) if cpus else ()


def _devices(gres: tuple[GresAllocation, ...], setup: NodeSetup) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return device_files(setup.gres, gres) if setup.cgroup_devices else ((), ())


def _private_dirs(job: Job, setup: NodeSetup) -> tuple[tuple[str, str], ...]:
    return setup.container.directories(job.id, job.restart_count) if setup.container is not None else ()


def _identity(job: Job) -> Identity:
    spec = job.spec
    return Identity(uid=spec.uid, gid=spec.gid, groups=spec.groups or (spec.gid,), user=spec.user)


def _nice(environment: tuple[bytes, ...], uid: int, setup: NodeSetup) -> int:
    if not setup.propagate_priority:
        return 0
    asked, current = niceness.submitted(environment), os.getpriority(os.PRIO_PROCESS, 0)
    return niceness.increment(setup.propagate_priority, asked, current, privileged=uid == os.geteuid() == 0)


def _limits(limits: tuple[tuple[str, int], ...], setup: NodeSetup, *, asked: bool) -> tuple[tuple[str, int], ...]:
    wanted = None if asked else setup.limits
    return limits if wanted is None else tuple(limit for limit in limits if limit[0] in wanted)
