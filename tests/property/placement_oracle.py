"""A slow judge of where a job could run: tries all sets of nodes and all ways to use each of them.

Written from sbatch(1) alone, on records of its own, without a line of Spritz. `find` says whether there is a place at
all, `faults` what is wrong with a place that was chosen. Only for clusters of a few small nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, product

#: GPUs by type; "" in a request means any type
Devices = dict[str, int]


@dataclass(frozen=True)
class Gpu:
    """A device. `socket` None: near to all CPUs."""

    type: str
    socket: int | None


@dataclass
class Node:
    """One node and what is free of it. `free[socket]`: numbers of wholly free cores, of all cores of the node."""

    name: str
    sockets: int
    cores: int
    threads: int
    memory: int
    tmp: int
    features: frozenset[str]
    gpus: tuple[Gpu, ...]
    #: GRES without devices
    nics: int
    leaf: int
    weight: int
    free: list[set[int]]
    free_memory: int
    free_gpus: set[int]
    free_nics: int
    idle: bool = True

    @property
    def used_cpus(self) -> int:
        return (self.sockets * self.cores - sum(map(len, self.free))) * self.threads

    def socket_of(self, core: int) -> int:
        return core // self.cores


@dataclass(frozen=True)
class Feature:
    """A constraint. `kind`: `and`, `or`, `one` (`[a|b]`), `counts` (`a*1&b*2`), `apart` (`[a*1&b*2]`).

    `parts`: alternatives or conjuncts, each a set of features that a node must have; `counts` as many as parts.
    `also`: features of all nodes besides.
    """

    kind: str
    parts: tuple[frozenset[str], ...]
    counts: tuple[int, ...] = ()
    also: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Job:
    """Options of sbatch; None or empty: not given."""

    nodes: tuple[int, int] | None = None
    node_counts: tuple[int, ...] = ()
    tasks: int | None = None
    tasks_per_node: int | None = None
    tasks_per_core: int | None = None
    tasks_per_socket: int | None = None
    tasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    mincpus: int | None = None
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    overcommit: bool = False
    memory_node: int | None = None
    memory_cpu: int | None = None
    memory_gpu: int | None = None
    tmp: int = 0
    gpus: tuple[tuple[str, int], ...] = ()
    gpus_node: tuple[tuple[str, int], ...] = ()
    gpus_task: tuple[tuple[str, int], ...] = ()
    gpus_socket: int | None = None
    cpus_per_gpu: int | None = None
    nics_node: int = 0
    nics_task: int = 0
    binding: str = ""
    constraint: Feature | None = None
    named: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    contiguous: bool = False
    spread: bool = False
    exclusive: bool = False
    switches: int | None = None
    segment: int | None = None
    spread_segments: bool = False


@dataclass
class Cluster:
    """`switches`: leaves below each switch; None: no network."""

    nodes: list[Node]
    switches: list[frozenset[int]] | None = None
    #: MaxCPUsPerNode of the partition
    max_cpus: int = 1 << 30
    #: only the order in which nodes are taken depends on these
    least_loaded: bool = False
    fragmentation: bool = False


@dataclass
class Share:
    """What a job got of one node: numbers of CPUs and devices."""

    node: str
    tasks: int
    cpus: set[int]
    memory: int
    gpus: set[int]
    nics: int


@dataclass
class Question:
    """Can this job run on these nodes as they are now?"""

    cluster: Cluster
    job: Job
    by_name: dict[str, Node] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {node.name: node for node in self.cluster.nodes}

    # -- what the options mean together

    @cached_property
    def gpus_each_node(self) -> int:
        job = self.job
        return sum(count for _type, count in job.gpus_node) or (job.gpus_socket or 0) * (job.sockets or 0)

    @cached_property
    def gpus_each_task(self) -> int:
        return sum(count for _type, count in self.job.gpus_task)

    @cached_property
    def gpus_total(self) -> int:
        return sum(count for _type, count in self.job.gpus)

    @cached_property
    def nodes_asked(self) -> tuple[int, int | None]:
        """Least and most nodes by --nodes and by GPUs; most None: any number."""
        if self.gpus_total and self.gpus_each_node:
            count = self.gpus_total // self.gpus_each_node
            return count, count
        if self.job.nodes is not None:
            return self.job.nodes
        return 1, None

    @cached_property
    def nodes_least(self) -> int:
        """The fewest nodes that satisfy --nodes, --nodelist and, without --nodes, the counts of --constraint."""
        job = self.job
        counts: tuple[int, ...] = ()
        if job.constraint is not None and job.nodes is None:
            counts = job.constraint.counts
        counted = (
            sum(counts) if job.constraint is not None and job.constraint.kind == "apart" else max(counts, default=0)
        )
        return max(self.nodes_asked[0], len(job.named), counted)

    @cached_property
    def tasks_total(self) -> int | None:
        """Tasks of the whole job; None: each node has `tasks_on_each`."""
        job = self.job
        if job.tasks is not None:
            return max(job.tasks, self.nodes_least)
        if self.gpus_each_node and self.gpus_each_task:
            least, most = self.nodes_asked
            if least == most or most is None:
                return self.gpus_each_node // self.gpus_each_task * self.nodes_least
            return None
        if self.gpus_total and self.gpus_each_task:
            return self.gpus_total // self.gpus_each_task
        if self.gpus_total and job.tasks_per_gpu and not self.gpus_each_node:
            return self.gpus_total * job.tasks_per_gpu
        return None

    @cached_property
    def tasks_on_each(self) -> int:
        if self.job.tasks_per_gpu and self.gpus_each_node:
            return self.gpus_each_node * self.job.tasks_per_gpu
        return self.job.tasks_per_node or 1

    @cached_property
    def dealt(self) -> tuple[tuple[str, int], ...]:
        """GPUs of the whole job that are dealt over the nodes in any way."""
        job = self.job
        if self.gpus_each_node or self.gpus_each_task:
            return ()
        if job.gpus:
            return job.gpus
        if job.tasks_per_gpu and job.tasks:
            return (("", -(-job.tasks // job.tasks_per_gpu)),)
        return ()

    # -- one node

    def may_serve(self, node: Node) -> bool:
        """Whatever the number of tasks."""
        job = self.job
        if node.name in job.excluded or node.tmp < job.tmp:
            return False
        if (job.sockets or 0) > node.sockets or (job.cores or 0) > node.cores or (job.threads or 0) > node.threads:
            return False
        if job.exclusive and not node.idle:
            return False
        constraint = job.constraint
        if constraint is None:
            return True
        if not constraint.also <= node.features:
            return False
        if constraint.kind == "and":
            return all(part <= node.features for part in constraint.parts)
        if constraint.kind in ("or", "one"):
            return any(part <= node.features for part in constraint.parts)
        return True

    def ways(self, node: Node) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(tasks, dealt GPUs of each type) that the node could carry."""
        if not self.may_serve(node):
            return
        total = self.tasks_total
        most = total if total is not None else self.tasks_on_each
        for tasks in range(1 if total is not None else most, most + 1):
            for dealt in product(*(range(count + 1) for _type, count in self.dealt)):
                if (any(dealt) or not dealt) and self.fits(node, tasks, dealt):
                    yield tasks, dealt

    def fits(self, node: Node, tasks: int, dealt: tuple[int, ...]) -> bool:
        """Whether so many tasks with these dealt GPUs fit."""
        job = self.job
        if job.tasks_per_node and tasks > job.tasks_per_node:
            return False
        if self.gpus_each_node and self.gpus_each_task and tasks > self.gpus_each_node // self.gpus_each_task:
            return False
        wanted: list[tuple[str, int]] = [*job.gpus_node]
        if job.gpus_socket:
            wanted.append(("", job.gpus_socket * (job.sockets or 1)))
        if not self.gpus_each_node:
            wanted += [(kind, count * tasks) for kind, count in job.gpus_task]
        wanted += [(kind, count) for (kind, _total), count in zip(self.dealt, dealt, strict=True)]
        gpus = sum(count for _type, count in wanted)
        if job.tasks_per_gpu and tasks > gpus * job.tasks_per_gpu:
            return False
        if job.nics_node + job.nics_task * tasks > node.free_nics:
            return False
        return any(self._cores_fit(node, tasks, gpus, sockets) for sockets in _localities(node, wanted, job.binding))

    def _cores_fit(self, node: Node, tasks: int, gpus: int, sockets: frozenset[int]) -> bool:
        """Whether cores of these sockets, with the memory that they take, are free."""
        job = self.job
        if job.exclusive:
            every = node.sockets * node.cores * node.threads
            if max(job.mincpus or 0, (job.cpus_per_gpu or 0) * gpus) > every:
                return False
            cores = self._least_cores(node, tasks, [node.cores] * node.sockets)
            # A whole node may have less memory than all of its CPUs would get, but not than those of the tasks.
            return (
                cores is not None
                and max(self._memory(node, every, gpus), self._memory(node, cores * node.threads, gpus, whole=False))
                <= node.free_memory
            )
        free = [len(node.free[socket]) if socket in sockets else 0 for socket in range(node.sockets)]
        cores = self._least_cores(node, tasks, free)
        if cores is None:
            return False
        least = max(job.mincpus or 0, (job.cpus_per_gpu or 0) * gpus, 1)
        cores = max(cores, -(-least // node.threads))
        cpus = cores * node.threads
        if cpus > self.cluster.max_cpus - node.used_cpus:
            return False
        return cores <= sum(free) and self._memory(node, cpus, gpus) <= node.free_memory

    def _least_cores(self, node: Node, tasks: int, free: Sequence[int]) -> int | None:
        """The fewest cores that hold the tasks, with so many of each socket; None if there are too few."""
        job = self.job
        if job.overcommit:
            return 1 if sum(free) else None
        cpus, used = self.cpus_each(), min(node.threads, job.threads or node.threads)

        def cores(count: int) -> int:
            if not job.tasks_per_core:
                return -(-count * cpus // used)
            if cpus > used:
                return count * -(-cpus // used)
            return -(-count // min(job.tasks_per_core, used // cpus))

        if not job.tasks_per_socket:
            return cores(tasks) if cores(tasks) <= sum(free) else None
        # tasks -> fewest cores, one socket after another
        best = {0: 0}
        for limit in free:
            new: dict[int, int] = {}
            for before, taken in best.items():
                for count in range(min(job.tasks_per_socket, tasks - before) + 1):
                    if cores(count) <= limit:
                        after = before + count
                        new[after] = min(new.get(after, 1 << 30), taken + cores(count))
            best = new
        return best.get(tasks)

    def cpus_each(self) -> int:
        """CPUs of each task. With GPUs per node, CPUs per GPU are the node's."""
        by_gpu = 0 if self.gpus_each_node else (self.job.cpus_per_gpu or 0) * self.gpus_each_task
        return max(self.job.cpus_per_task or 1, by_gpu)

    def _memory(self, node: Node, cpus: int, gpus: int, *, whole: bool = True) -> int:
        job = self.job
        if job.memory_node is not None:
            return job.memory_node or node.memory
        if job.memory_gpu is not None:
            return job.memory_gpu * gpus
        if job.memory_cpu is None and job.exclusive and whole:
            return min(node.memory, cpus)  # DefMemPerCPU, of which a whole node has no more than there is
        return (job.memory_cpu if job.memory_cpu is not None else 1) * cpus

    # -- sets of nodes

    def sets(self) -> Iterator[list[Node]]:
        """Sets of nodes that satisfy everything that is asked of all nodes together."""
        able = [node for node in self.cluster.nodes if self.may_serve(node)]
        for size in range(1, len(able) + 1):
            for nodes in combinations(able, size):
                if not self.set_faults(list(nodes)):
                    yield list(nodes)

    def set_faults(self, nodes: list[Node]) -> list[str]:
        """What is wrong with this set of nodes."""
        job, names = self.job, [node.name for node in nodes]
        faults = []
        _least, most = self.nodes_asked
        least = self.nodes_least
        if most is None and self.tasks_total is None and not self.dealt:
            most = least
        if len(nodes) < least or (most is not None and len(nodes) > most):
            faults.append(f"{len(nodes)} nodes, not {least}-{most}")
        if job.node_counts and len(nodes) not in job.node_counts:
            faults.append(f"{len(nodes)} nodes, not one of {job.node_counts}")
        if not set(job.named) <= set(names):
            faults.append("not on the named nodes")
        if any(not self.may_serve(node) for node in nodes):
            faults.append("on a node that may not serve")
        if not self._features_agree(nodes):
            faults.append(f"features {[sorted(node.features) for node in nodes]}")
        if job.contiguous:
            order = [node.name for node in self.cluster.nodes]
            places = sorted(order.index(name) for name in names)
            if places != list(range(places[0], places[0] + len(places))):
                faults.append("not contiguous")
        return faults + self._network_faults(nodes)

    def _features_agree(self, nodes: list[Node]) -> bool:
        constraint = self.job.constraint
        if constraint is None:
            return True
        if constraint.kind == "one":
            return any(all(part <= node.features for node in nodes) for part in constraint.parts)
        if constraint.kind == "counts":
            return all(
                sum(part <= node.features for node in nodes) >= count
                for part, count in zip(constraint.parts, constraint.counts, strict=True)
            )
        if constraint.kind == "apart":
            places = [
                part for part, count in zip(constraint.parts, constraint.counts, strict=True) for _ in range(count)
            ]
            return _deal(places, nodes)
        return True

    def _network_faults(self, nodes: list[Node]) -> list[str]:
        job, switches = self.job, self.cluster.switches
        other_order = job.contiguous or job.spread or self.cluster.least_loaded
        if switches is None or (other_order and not job.switches and not job.segment):
            return []
        leaves = {node.leaf for node in nodes}
        faults = []
        if not any(leaves <= below for below in switches):
            faults.append("no switch connects the nodes")
        if job.switches and len(leaves) > job.switches:
            faults.append(f"{len(leaves)} leaf switches")
        if job.segment:
            for leaf in leaves:
                count = sum(node.leaf == leaf for node in nodes)
                if count % job.segment or (job.spread_segments and count > job.segment):
                    faults.append(f"{count} nodes on a leaf")
        return faults

    # -- the two questions

    def find(self) -> list[tuple[str, int, tuple[int, ...]]] | None:
        """A place: (node, tasks, dealt GPUs); None if there is none."""
        ways = {node.name: list(self.ways(node)) for node in self.cluster.nodes}
        wanted = tuple(count for _type, count in self.dealt)
        for nodes in self.sets():
            #: (tasks, GPUs) so far -> how
            reached: dict[tuple[int, tuple[int, ...]], list[tuple[str, int, tuple[int, ...]]]] = {
                (0, (0,) * len(wanted)): []
            }
            for node in nodes:
                new: dict[tuple[int, tuple[int, ...]], list[tuple[str, int, tuple[int, ...]]]] = {}
                for (tasks, gpus), how in reached.items():
                    for more, dealt in ways[node.name]:
                        after = tasks + more, tuple(one + other for one, other in zip(gpus, dealt, strict=True))
                        new.setdefault(after, [*how, (node.name, more, dealt)])
                reached = new
            for (tasks, gpus), how in reached.items():
                if gpus == wanted and self.tasks_total in (None, tasks):
                    return how
        return None

    def faults(self, shares: Sequence[Share]) -> list[str]:
        """What is wrong with this place."""
        job = self.job
        nodes = [self.by_name[share.node] for share in shares]
        faults = self.set_faults(nodes)
        if self.tasks_total is not None and sum(share.tasks for share in shares) != self.tasks_total:
            faults.append(f"{[share.tasks for share in shares]} tasks, not {self.tasks_total}")
        given: Devices = {}
        for node, share in zip(nodes, shares, strict=True):
            faults += [f"{node.name}: {fault}" for fault in self._share_faults(node, share)]
            for gpu in share.gpus:
                given[node.gpus[gpu].type] = given.get(node.gpus[gpu].type, 0) + 1
        if self.dealt and not job.exclusive:
            if sum(given.values()) != sum(count for _type, count in self.dealt):
                faults.append(f"{given} GPUs, not {self.dealt}")
            faults += [f"{given} GPUs of {self.dealt}" for kind, n in self.dealt if kind and given.get(kind, 0) < n]
        return faults

    def _share_faults(self, node: Node, share: Share) -> Iterator[str]:
        job = self.job
        if share.tasks < 1 or (self.tasks_total is None and share.tasks != self.tasks_on_each):
            yield f"{share.tasks} tasks"
        if job.tasks_per_node and share.tasks > job.tasks_per_node:
            yield f"{share.tasks} tasks, at most {job.tasks_per_node}"
        every = {cpu // node.threads for cpu in share.cpus}
        by_socket = [sorted(core for core in every if node.socket_of(core) == socket) for socket in range(node.sockets)]
        if len(share.cpus) > self.cluster.max_cpus - node.used_cpus and not job.exclusive:
            yield "more CPUs than the partition lets it have"
        if any(not set(cores) <= node.free[socket] for socket, cores in enumerate(by_socket)):
            yield f"CPUs {sorted(share.cpus)} are not free"
        if len(share.cpus) != len(every) * node.threads:
            yield "half a core"
        if not share.gpus <= node.free_gpus:
            yield f"GPUs {share.gpus} are not free"
        # With --exclusive it has more GPUs than it asked for, and memory for those alone that it asked for.
        gpus = 1 if job.exclusive else len(share.gpus)
        if share.memory > node.free_memory or share.memory < self._memory(node, len(share.cpus), gpus):
            yield f"memory {share.memory}"
        if self._least_cores(node, share.tasks, [len(cores) for cores in by_socket]) is None:
            yield f"cores {by_socket} do not hold {share.tasks} tasks"
        if len(share.cpus) < max(job.mincpus or 0, (job.cpus_per_gpu or 0) * len(share.gpus)) and not job.exclusive:
            yield f"{len(share.cpus)} CPUs"
        if share.nics != job.nics_node + job.nics_task * share.tasks and not job.exclusive:
            yield f"{share.nics} nics"
        if job.tasks_per_gpu and share.tasks > len(share.gpus) * job.tasks_per_gpu:
            yield f"{share.tasks} tasks with {len(share.gpus)} GPUs"
        yield from self._gpu_faults(node, share)
        sockets = {node.gpus[gpu].socket for gpu in share.gpus}
        if job.binding == "enforce" and share.gpus and None not in sockets and not job.exclusive:
            far = [socket for socket, cores in enumerate(by_socket) if cores and socket not in sockets]
            if far:
                yield f"CPUs of sockets {far}, GPUs of {sockets}"

    def _gpu_faults(self, node: Node, share: Share) -> Iterator[str]:
        job = self.job
        wanted = dict(job.gpus_node)
        if job.gpus_socket:
            wanted[""] = job.gpus_socket * (job.sockets or 1)
        if not self.gpus_each_node:
            for kind, count in job.gpus_task:
                wanted[kind] = wanted.get(kind, 0) + count * share.tasks
        kinds = [node.gpus[gpu].type for gpu in share.gpus]
        for kind, count in wanted.items():
            if kind and kinds.count(kind) < count:
                yield f"GPUs {kinds}, not {wanted}"
        if self.dealt:
            if not kinds:
                yield "no GPU"
        elif job.exclusive:
            if len(kinds) < sum(wanted.values()):
                yield f"GPUs {kinds}, not {wanted}"
        elif len(kinds) != sum(wanted.values()):
            yield f"GPUs {kinds}, not {wanted}"


def _localities(node: Node, wanted: Sequence[tuple[str, int]], binding: str) -> Iterator[frozenset[int]]:
    """Sets of sockets whose CPUs may be used, one for each way to choose the GPUs; none if there are too few."""
    every = frozenset(range(node.sockets))
    seen = set()
    for chosen in _choices(node, [(kind, count) for kind, count in wanted if count], node.free_gpus):
        sockets = {node.gpus[gpu].socket for gpu in chosen}
        near = every
        if binding == "enforce" and chosen and None not in sockets:
            near = frozenset(socket for socket in sockets if socket is not None)
        if near not in seen:
            seen.add(near)
            yield near


def _choices(node: Node, wanted: list[tuple[str, int]], free: set[int]) -> Iterator[frozenset[int]]:
    if not wanted:
        yield frozenset()
        return
    kind, count = wanted[0]
    able = sorted(gpu for gpu in free if kind in ("", node.gpus[gpu].type))
    for some in combinations(able, count):
        for others in _choices(node, wanted[1:], free - set(some)):
            yield others | frozenset(some)


def _deal(places: Sequence[frozenset[str]], nodes: list[Node]) -> bool:
    """Whether each place gets a node of its own with its features."""
    if not places:
        return True
    return any(
        places[0] <= node.features and _deal(places[1:], [other for other in nodes if other is not node])
        for node in nodes
    )
