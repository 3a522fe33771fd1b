"""The slow judge of allocations: written from the manual pages and the records alone, without a line of the scheduler.

`check_cluster` says what is given twice; `check_job` whether a job got exactly what it asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.job.record import Job, JobSpec, Sharing
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.resources import Allocation, NodeAllocation, mask_of
from spritz.notation import features


def bits(text: str) -> set[int]:
    """Set bits of a hexadecimal mask."""
    mask = mask_of(text)
    return {bit for bit in range(mask.bit_length()) if mask >> bit & 1}


def check_cluster(nodes: Mapping[str, NodeConfig], running: Iterable[Job], partitions: Mapping[str, Partition]) -> None:
    """No CPU, device, MiB or share is given to two jobs that did not agree to share."""
    held: dict[str, list[tuple[Job, NodeAllocation]]] = {name: [] for name in nodes}
    for job in running:
        assert job.allocation is not None
        names = job.allocation.names
        assert len(set(names)) == len(names), f"job {job.id} has a node twice"
        for part in job.allocation.nodes:
            held[part.node].append((job, part))
    for name, parts in held.items():
        _check_cpus(nodes[name], parts, partitions)
        _check_memory(nodes[name], parts)
        _check_devices(nodes[name], parts)


def share_count(job: Job, partitions: Mapping[str, Partition]) -> int:
    """How many jobs may use a CPU of this one: slurm.conf OverSubscribe."""
    assert job.allocation is not None
    kind, _, count = partitions[job.allocation.partition].oversubscribe.partition(":")
    if kind == "FORCE" or (kind == "YES" and job.spec.sharing is Sharing.OVERSUBSCRIBE):
        return int(count or 4)
    return 1


def _check_cpus(node: NodeConfig, parts: list[tuple[Job, NodeAllocation]], partitions: Mapping[str, Partition]) -> None:
    used: Counter[int] = Counter()
    for job, part in parts:
        cpus = bits(part.cpus)
        assert cpus, f"job {job.id} has no CPU on {node.name}"
        assert max(cpus) < node.capacity.cpus
        assert not cpus & bits(node.capacity.cpus_reserved)
        used.update(cpus)
        if job.allocation is not None and job.allocation.whole_nodes:
            assert len(parts) == 1, f"job {job.id} has {node.name} for itself, with others"
    for job, part in parts:
        most = max(used[cpu] for cpu in bits(part.cpus))
        assert most <= share_count(job, partitions), f"CPUs of job {job.id} on {node.name} are given {most} times"


def _check_memory(node: NodeConfig, parts: list[tuple[Job, NodeAllocation]]) -> None:
    total = sum(part.memory_mib for _job, part in parts)
    assert total <= node.capacity.memory_mib - node.capacity.memory_reserved_mib, f"{node.name}: {total} MiB given"


def _check_devices(node: NodeConfig, parts: list[tuple[Job, NodeAllocation]]) -> None:
    lines = node.capacity.gres
    gpus: Counter[int] = Counter()
    shards: Counter[int] = Counter()
    for _job, part in parts:
        for gres in part.gres:
            indexes = bits(gres.indexes)
            if gres.name == "gpu":
                assert len(indexes) == gres.count
                gpus.update(indexes)
                kinds = [line for line in lines if line.name == "gpu" and line.type == gres.type]
                real = {line.first_index + offset for line in kinds for offset in range(line.count)}
                assert indexes <= real, f"{node.name} has no GPUs {indexes - real} of type {gres.type!r}"
            elif gres.name == "shard":
                assert len(indexes) == 1
                shards[indexes.pop()] += gres.count
    assert not gpus or max(gpus.values()) == 1, f"{node.name}: GPU given twice: {gpus}"
    assert not set(gpus) & set(shards), f"{node.name}: a GPU is given whole and in shares"
    per_device = max((line.per_device for line in lines if line.name == "shard"), default=0)
    assert all(count <= per_device for count in shards.values())


def check_job(
    spec: JobSpec,
    allocation: Allocation,
    nodes: Mapping[str, NodeConfig],
    partition: Partition,
    settings: ClusterSettings,
) -> None:
    """The job got what it asked for, all of it, where it may."""
    names = allocation.names
    assert set(names) <= set(partition.nodes)
    assert not set(names) & set(spec.exclude)
    assert set(spec.node_list) <= set(names)
    _check_size(spec, allocation, partition)
    _check_features(spec, [nodes[name] for name in names])
    if spec.contiguous:
        order = list(nodes)
        positions = sorted(order.index(name) for name in names)
        assert positions == list(range(positions[0], positions[0] + len(positions)))
    for part, tasks in zip(allocation.nodes, allocation.tasks, strict=True):
        _check_part(spec, part, tasks, nodes[part.node], allocation.whole_nodes, settings)
    _check_gpu_totals(spec, allocation)


def _check_size(spec: JobSpec, allocation: Allocation, partition: Partition) -> None:
    count = len(allocation.nodes)
    if spec.nodes_given:
        assert spec.nodes_min <= count <= (spec.nodes_max or spec.nodes_min), f"{count} nodes"
    assert len(allocation.tasks) == count
    assert min(allocation.tasks) >= 1
    if spec.tasks_given:
        # Each node that the constraint counts has a task.
        tasks = spec.tasks if spec.nodes_given else max(spec.tasks, features.nodes_counted(spec.features))
        assert sum(allocation.tasks) == tasks, f"{allocation.tasks} for {tasks} tasks"
    elif not spec.gpus and not spec.tasks_per_gpu:
        assert set(allocation.tasks) == {spec.tasks_per_node or 1}
    if spec.tasks_per_node:
        assert max(allocation.tasks) <= spec.tasks_per_node
    forced = partition.oversubscribe.startswith("FORCE")
    assert spec.sharing is not Sharing.EXCLUSIVE or allocation.whole_nodes or forced


def _check_features(spec: JobSpec, nodes: list[NodeConfig]) -> None:
    tree = features.parse(spec.features)
    if tree is None:
        return
    ways = [way for way in features.alternatives(tree) if all(way.matches(node.features) for node in nodes)]
    assert any(
        all(_each_has_nodes([part for part, count in pairs for _ in range(count)], nodes) for pairs in sets)
        for sets in map(features.counted_sets, ways)
    ), f"{spec.features} on {[node.features for node in nodes]}"


def _each_has_nodes(parts: list[features.Constraint], nodes: list[NodeConfig]) -> bool:
    """Whether each of these gets a node of its own."""
    return not parts or any(
        parts[0].matches(node.features) and _each_has_nodes(parts[1:], [other for other in nodes if other is not node])
        for node in nodes
    )


def _check_part(
    spec: JobSpec,
    part: NodeAllocation,
    tasks: int,
    node: NodeConfig,
    whole: bool,
    settings: ClusterSettings,
) -> None:
    capacity = node.capacity
    cpus = bits(part.cpus)
    devices = sum(gres.count for gres in part.gres if gres.name == "gpu")
    threads = capacity.threads_per_core
    if whole:
        assert len(cpus) == capacity.cpus
    if not spec.overcommit:
        assert len(cpus) >= tasks * (spec.cpus_per_task or 1), f"{len(cpus)} CPUs for {tasks} tasks"
    assert len(cpus) >= (spec.cpus_per_node_min or 0)
    if settings.consumable == "core":
        cores = {cpu // threads for cpu in cpus}
        assert len(cpus) == len(cores) * threads, "half a core was given"
        if spec.tasks_per_core and not spec.overcommit:
            assert len(cores) * spec.tasks_per_core >= tasks
        if spec.tasks_per_socket and not spec.overcommit:
            sockets = Counter(core // capacity.cores_per_socket for core in cores)
            most = [count * threads // (spec.cpus_per_task or 1) for count in sockets.values()]
            assert sum(min(spec.tasks_per_socket, count) for count in most) >= tasks, "too many tasks on a socket"
    wanted = tasks * (spec.cpus_per_task or 1)
    wanted = max(wanted, spec.cpus_per_node_min or 0, (spec.cpus_per_gpu or 0) * devices)
    if spec.gpus_per_task and spec.cpus_per_gpu:
        wanted = max(wanted, tasks * spec.cpus_per_gpu * sum(item.count for item in spec.gpus_per_task))
    spread = spec.tasks_per_core or spec.tasks_per_socket
    if not whole and not spec.overcommit and not spread and settings.consumable != "socket":
        assert len(cpus) <= -(-wanted // threads) * threads, f"{len(cpus)} CPUs where {wanted} were asked for"
    _check_part_memory(spec, part, len(cpus), devices, node, whole, settings)
    _check_part_gres(spec, part, tasks, whole)
    if spec.tmp_mib:
        assert capacity.tmp_mib >= spec.tmp_mib


def _check_part_memory(
    spec: JobSpec,
    part: NodeAllocation,
    cpus: int,
    devices: int,
    node: NodeConfig,
    whole: bool,
    settings: ClusterSettings,
) -> None:
    total = node.capacity.memory_mib - node.capacity.memory_reserved_mib
    if not settings.memory_consumable:
        assert part.memory_mib == 0
    elif spec.memory_mib_per_node is not None:
        assert part.memory_mib == (spec.memory_mib_per_node or total)
    elif spec.memory_mib_per_cpu:
        assert part.memory_mib == (
            min(total, spec.memory_mib_per_cpu * cpus) if whole else spec.memory_mib_per_cpu * cpus
        )
    elif spec.memory_mib_per_gpu and not whole:
        assert part.memory_mib == spec.memory_mib_per_gpu * devices


def _check_part_gres(spec: JobSpec, part: NodeAllocation, tasks: int, whole: bool) -> None:
    """Never less than asked, and nothing more unless the whole node was given."""
    wanted: Counter[tuple[str, str]] = Counter()
    for requests, times in ((spec.gres_per_node, 1), (spec.gpus_per_node, 1), (spec.gpus_per_task, tasks)):
        for item in requests:
            wanted[item.name or "gpu", item.type] += item.count * times
    given: Counter[str] = Counter()
    typed: Counter[tuple[str, str]] = Counter()
    for gres in part.gres:
        given[gres.name] += gres.count
        typed[gres.name, gres.type] += gres.count
    names: Counter[str] = Counter()
    for (name, kind), count in wanted.items():
        names[name] += count
        if kind:
            assert typed[name, kind] >= count, f"{count} {name}:{kind} wanted, {typed} given"
    for name in {*names, *given}:
        if name == "gpu" and spec.gpus:
            assert given[name] >= 1
        elif whole:
            assert given[name] >= names[name]
        else:
            assert given[name] == names[name], f"{names[name]} {name} wanted, {given[name]} given"


def _check_gpu_totals(spec: JobSpec, allocation: Allocation) -> None:
    if not spec.gpus or spec.gpus_per_task:
        return
    for item in spec.gpus:
        given = sum(
            gres.count
            for part in allocation.nodes
            for gres in part.gres
            if gres.name == "gpu" and item.type in ("", gres.type)
        )
        if allocation.whole_nodes:
            assert given >= item.count
        else:
            assert given == item.count, f"{item.count} GPUs of type {item.type!r} wanted, {given} given"
