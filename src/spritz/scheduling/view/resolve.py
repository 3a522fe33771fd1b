"""Makes a job's `Request` from its `JobSpec`, one partition and the cluster's settings.

Owns the meaning of size options in terms of tasks, CPUs, memory and GRES; must not look at what is free.

Source: sbatch(1); slurm.conf(5) DefMemPer*, DefCpuPerGPU, OverSubscribe, SelectTypeParameters.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from spritz.model.job.job_gpus import asked_of_each_node
from spritz.model.limits import flags as qos_flag
from spritz.model.node.node_features import Unclear, may_change, ways
from spritz.model.node.reservation import leaving_seconds
from spritz.model.rules.default_memory import asks_gpus, memory_of
from spritz.model.rules.job_size import counted_once, gpus_by_tasks, size_of
from spritz.model.rules.mcs import kept_by
from spritz.model.rules.node_shape import SHARED_GRES
from spritz.model.rules.partition_limits import exceeded
from spritz.model.rules.sharing import consumables, has_segment, is_user_exclusive, jobs_per_cpu, wants_whole_nodes
from spritz.model.rules.time_limit import granted_minutes
from spritz.notation.licenses import LicenseError
from spritz.notation.licenses import parse as license_choices
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.request import Grain, Need, Request

if TYPE_CHECKING:
    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import JobSpec
    from spritz.model.node.partition import Partition
    from spritz.model.resources import GresRequest


def resolve(
    spec: JobSpec, partition: Partition, settings: ClusterSettings, qos_flags: frozenset[str] = qos_flag.NONE
) -> Request:
    """The request that `spec` makes in `partition`. `qos_flags`: `Rules.placing` of its QOS."""
    # From here on each GPU is in one option, however many options named it (docs/decisions/0128).
    spec = counted_once(spec)
    gres_task, gres_total = _task_and_total_gres(spec)
    size = size_of(spec, partition, qos_flags)
    nodes_min, nodes_max, tasks = size.nodes_min, size.nodes_max, size.tasks
    gres_node = _node_gres(spec)
    needs = (*gres_node, *gres_task, *((gres_total,) if gres_total else ()))
    has_gpus = asks_gpus(spec)
    cpus_per_task, cpus_per_gpu = _cpus(spec, partition, settings, gres_task, has_gpus)
    memory = memory_of(spec, partition, settings)
    share_rows, user_exclusive = jobs_per_cpu(partition, spec), is_user_exclusive(spec, partition)
    flags = {flag.lower().replace("_", "-") for flag in spec.gres_flags}
    licenses, refusal = _licenses(spec.licenses)
    limit = granted_minutes(spec, partition, qos_flags)
    grain, memory_counts = consumables(partition, settings)
    soft = (spec.time_min_minutes or 0) if parameters_of(settings).soft_limits else 0
    return Request(
        partition=partition.name,
        extra=spec.extra if parameters_of(settings).extra_constraints else "",
        external=spec.external,
        limited=exceeded(spec, partition, settings, qos_flags),
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        # `--nodes=2-8` means "as many as 8"; without --nodes the maximum only bounds the choice.
        nodes_want_max=spec.nodes_given and not spec.use_min_nodes,
        node_counts=spec.node_counts or _sizes(spec, partition, settings, nodes_min, nodes_max),
        tasks=tasks,
        tasks_per_node_fixed=spec.tasks_per_node or 1,
        cpus_per_task=cpus_per_task,
        tasks_per_node=spec.tasks_per_node,
        tasks_per_node_max=settings.max_tasks_per_node,
        tasks_per_socket=spec.tasks_per_socket,
        tasks_per_core=spec.tasks_per_core or (1 if settings.one_task_per_core and not spec.overcommit else None),
        tasks_per_gpu=spec.tasks_per_gpu,
        cpus_per_node_min=max(
            spec.cpus_per_node_min or 0,
            cpus_per_gpu * sum(need.count for need in gres_node if need.name == "gpu"),
        ),
        sockets_min=spec.sockets_per_node or 0,
        cores_per_socket_min=spec.cores_per_socket or 0,
        threads_min=spec.threads_per_core or 0,
        threads_used=spec.threads_per_core,
        overcommit=spec.overcommit,
        memory_per_node=memory[0],
        memory_per_cpu=memory[1],
        memory_per_gpu=memory[2],
        memory_counts=memory_counts,
        tmp_mib=spec.tmp_mib,
        gres_node=gres_node,
        gres_task=gres_task,
        gres_total=gres_total,
        gpu_types=_needs(spec.gpus, "gpu") if gres_total and len(spec.gpus) > 1 else (),
        cpus_per_gpu=cpus_per_gpu,
        enforce_binding="enforce-binding" in flags
        or (settings.enforce_gres_binding and has_gpus and "disable-binding" not in flags),
        disable_binding="disable-binding" in flags,
        least_loaded_shares=settings.least_loaded_shares,
        shares_over=_shares_over(settings, needs, gres_task, flags),
        licenses=licenses,
        features=spec.features,
        prefer=spec.prefer,
        node_list=spec.node_list,
        tasks_by_node=_tasks_by_node(spec, tasks),
        exclude=spec.exclude,
        contiguous=spec.contiguous,
        spread=spec.spread,
        flat=not spec.switches and not spec.segment and _is_flat(spec, partition, settings),
        switches=spec.switches or 0,
        segment=spec.segment or 1,
        segments_spread=spec.spread_segments,
        whole=wants_whole_nodes(spec, partition, settings),
        share_rows=share_rows if share_rows > 1 else 0,
        user_exclusive=user_exclusive,
        mcs=kept_by(settings.mcs, spec),
        segment_alone=has_segment(partition, spec.sharing),
        uid=spec.uid if user_exclusive else -1,
        grain=Grain(grain) if grain in _GRAINS else Grain.CORE,
        block_cores=_block_cores(spec.distribution, settings),
        least_loaded=settings.least_loaded or partition.lln,
        at_end=_is_serial(spec, nodes_max, tasks) and parameters_of(settings).serial_at_end,
        max_cpus_per_node=partition.max_cpus_per_node,
        max_cpus_per_socket=partition.max_cpus_per_socket,
        time_limit_minutes=limit,
        time_min_minutes=0 if soft else spec.time_min_minutes or 0,
        soft_minutes=min(soft, limit),
        leaving_seconds=leaving_seconds(spec),
        refusal=refusal or _refusal(spec, settings, flags),
        qos_flags=qos_flags,
    )


def _sizes(
    spec: JobSpec, partition: Partition, settings: ClusterSettings, nodes_min: int, nodes_max: int | None
) -> tuple[int, ...]:
    """On blocks, each size of a short range is tried. Source: slurm.conf(5) TopologyParam=TopoMaxSizeUnroll."""
    most = nodes_max or 0
    if not spec.nodes_given or not 0 < most - nodes_min < settings.topology_sizes_max:
        return ()
    kinds = [topology.kind for topology in settings.topologies if topology.name == partition.topology] or [
        candidate.kind for candidate in settings.topologies[:1]
    ]
    return tuple(range(nodes_min, most + 1)) if kinds == ["block"] else ()


def _shares_over(
    settings: ClusterSettings, needs: tuple[Need, ...], gres_task: tuple[Need, ...], flags: set[str]
) -> str:
    """`Request.shares_over`. Source: sbatch(1) --gres-flags, slurm.conf(5) SelectTypeParameters."""
    default = settings.one_task_per_sharing and "multiple-tasks-per-sharing" not in flags
    if ("one-task-per-sharing" in flags or default) and any(need.name in SHARED_GRES for need in gres_task):
        return "task"
    return "several" if settings.several_sharing and any(need.name in SHARED_GRES for need in needs) else ""


_GRES_FLAGS = {
    "allow-task-sharing",
    "disable-binding",
    "enforce-binding",
    "multiple-tasks-per-sharing",
    "one-task-per-sharing",
}


def boots_of(spec: JobSpec, settings: ClusterSettings) -> tuple[tuple[str, ...], ...]:
    """`Request.boots` of a job that has waited long enough for nodes that need no reboot."""
    policy = settings.features
    try:
        feature_sets = ways(policy, spec.features)
    except Unclear:
        return ()
    return (
        feature_sets
        if feature_sets and may_change(policy, spec.user, feature_sets, reboots=settings.power.reboots)
        else ()
    )


def _is_serial(spec: JobSpec, nodes_max: int | None, tasks: int | None) -> bool:
    return nodes_max == 1 and (tasks or 1) == 1 and (spec.cpus_per_task or 1) == 1


def _licenses(text: str) -> tuple[str, str]:
    """The license request if it is well-formed, and what is wrong with it otherwise."""
    try:
        license_choices(text)
    except LicenseError:
        return "", f"--licenses={text} is not supported: use either , or |"
    return text, ""


def _refusal(spec: JobSpec, settings: ClusterSettings, flags: set[str]) -> str:
    """What the spec asks for that placement does not support; "" if it supports all of it."""
    if spec.core_spec:
        return "--core-spec is not supported"
    if spec.reboot and not settings.power.reboots:
        return "--reboot: RebootProgram is not configured"
    unknown = flags - _GRES_FLAGS
    return f"--gres-flags={min(unknown)} is not supported" if unknown else ""


_GRAINS = {grain.value for grain in Grain}


def _tasks_by_node(spec: JobSpec, tasks: int | None) -> tuple[tuple[str, int], ...]:
    """--distribution=arbitrary names a node for each task."""
    if spec.distribution.lower() != "arbitrary" or len(spec.node_list) != tasks:
        return ()
    return tuple(sorted(Counter(spec.node_list).items()))


def _needs(requests: tuple[GresRequest, ...], name: str = "") -> tuple[Need, ...]:
    return tuple(Need(request.name or name, request.type, request.count) for request in requests if request.count > 0)


def _node_gres(spec: JobSpec) -> tuple[Need, ...]:
    """GRES that each node must give, summed by name and type. GPUs of a node and of its sockets are the same ones."""
    counts: dict[tuple[str, str], int] = {}
    sockets = max(1, spec.sockets_per_node or 1)
    for need in _needs(asked_of_each_node(spec), "gpu"):
        counts[need.name, need.type] = counts.get((need.name, need.type), 0) + need.count
    for need in _needs(spec.gpus_per_socket, "gpu"):
        counts[need.name, need.type] = max(counts.get((need.name, need.type), 0), need.count * sockets)
    return tuple(Need(name, kind, count) for (name, kind), count in sorted(counts.items()))


def _task_and_total_gres(spec: JobSpec) -> tuple[tuple[Need, ...], Need | None]:
    """GRES of each task, and GPUs in total. Source: sbatch(1) --gpus-per-task, --gpus, --ntasks-per-gpu."""
    by_task = _needs(spec.gpus_per_task, "gpu")
    total = next(iter(_needs(spec.gpus, "gpu")), None)
    if total is not None and len(spec.gpus) > 1:
        total = Need("gpu", "", sum(item.count for item in spec.gpus))
    if by_task:
        # --gpus with --gpus-per-task sets the number of tasks, so it is no separate request.
        total = None
    implied = gpus_by_tasks(spec)
    if total is None and implied:
        total = Need("gpu", "", implied)
    return (*by_task, *_needs(spec.gres_per_task)), total


def _cpus(
    spec: JobSpec,
    partition: Partition,
    settings: ClusterSettings,
    gres_task: tuple[Need, ...],
    has_gpus: bool,
) -> tuple[int, int]:
    """CPUs per task and per GPU."""
    per_gpu = spec.cpus_per_gpu or 0
    if has_gpus and not per_gpu and spec.cpus_per_task is None:
        per_gpu = partition.default_cpus_per_gpu or settings.default_cpus_per_gpu
    per_task = spec.cpus_per_task or 1
    gpus_each = sum(need.count for need in gres_task if need.name == "gpu")
    if per_gpu and gpus_each:
        per_task = max(per_task, per_gpu * gpus_each)
    return per_task, per_gpu if has_gpus else 0


def _is_flat(spec: JobSpec, partition: Partition, settings: ClusterSettings) -> bool:
    """Whether the network does not matter: there is none, or another order of nodes was asked for."""
    if not any(topology.kind != "flat" for topology in settings.topologies):
        return True
    named = spec.distribution.lower() == "arbitrary"
    loaded = settings.least_loaded or partition.lln
    return spec.spread or spec.contiguous or named or loaded or settings.topology_optional


def _block_cores(distribution: str, settings: ClusterSettings) -> bool:
    """`-m node:socket[:core]`: the second word says how CPUs are spread over sockets: cyclic, unless it or the
    cluster's default says block.
    """
    parts = distribution.lower().split(",")[0].split(":")
    if len(parts) > 1 and parts[1] not in ("", "*"):
        return parts[1] == "block"
    return settings.block_cores
