"""A NodeSet and the actions for it: pods with slurmd to create, nodes to drain, pods to delete.

A pod's name is its node's. Pods are made and deleted here and not by a StatefulSet, which always takes the last one:
which pod goes depends on the jobs. Scale-in takes pods that are not ready, then idle ones, then those that drain
already, then busy ones; an update takes pods of another template, `maxUnavailable` at a time. Either way the node is
drained with a reason of ours, and its pod is deleted when no job is left on it. Drains of others are kept.

A NodeSet that is deleted scales to nothing first (`FINALIZER`), so its jobs end by themselves. An update that waits
longer than `drainDeadlineSeconds` sets the node down: its jobs queue again.

With `perMachine` there is a pod on each machine that the NodeSet's selector and tolerations allow, named after it
(`per_machine`). A machine that is no more among them is drained, and its pod and node go when no job is left.

With `autoscaling` the nodes are Slurm's cloud nodes, in slurm.conf up to the bound. Slurm decides which of them are up,
by what is queued and how long they are idle; there is a pod for each that is up or on its way.

Each plan is computed from scratch from the pods, the nodes and the resource, so it needs no memory.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from spritz.k8s.custom_resources import rights
from spritz.k8s.custom_resources.cluster_objects import (
    CLUSTER,
    COMMANDS_ANSWERED,
    JOIN,
    STATE,
    Cluster,
    Condition,
    Json,
    Metadata,
    controller_address,
    labels,
    owner,
)
from spritz.k8s.custom_resources.control import ClusterNode
from spritz.k8s.custom_resources.health import BURNED, CHECKED, RECORD, UNHEALTHY, Burned, Health, Record
from spritz.k8s.pods import PREFIX, amount

T = TypeVar("T")

#: On pods: the NodeSet, the hash of the template, and whether a job is on the node.
NODE_SET: Final = f"{PREFIX}node-set"
REVISION: Final = f"{PREFIX}revision"
BUSY: Final = f"{PREFIX}busy"

#: Prefix of the reasons of the operator's own drains; others are not touched.
OURS: Final = "spritz-operator: "

#: Finalizer that keeps a NodeSet until its pods have gone; and an administrator's annotation not to wait for jobs.
FINALIZER: Final = f"{PREFIX}drain"
FORCE: Final = f"{PREFIX}force-delete"

#: The field of Services, workloads and budgets that chooses their pods.
SELECTOR: Final = "selector"

#: Seconds after a pod's grace period for which its replacement waits for its name.
_STUCK = 60.0

#: SuspendTimeout: by then the pod has gone, so a new one can take its name.
_SUSPEND_SECONDS: Final = 60

#: `minAvailable` of the budget of busy pods: the greatest number that Kubernetes takes.
_NEVER_REACHED: Final = 2**31 - 1

_OCCUPIED = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_ABSENT = frozenset({"DOWN", "NOT_RESPONDING"})
_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_DOWN"})

#: Taints by which Kubernetes tells of a machine's state. Pods of a machine tolerate them, as those of a DaemonSet do.
_STATES: Final = tuple(
    f"node.kubernetes.io/{state}"
    for state in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "network-unavailable")
)


class Autoscaling(msgspec.Struct, rename="camel"):
    """Bounds on pods; `idle_seconds` until an idle node is removed; `boot_seconds` until a new one must have joined."""

    max_replicas: int
    min_replicas: int = 0
    idle_seconds: int = 300
    boot_seconds: int = 600


class NodeSetSpec(msgspec.Struct, rename="camel"):
    cluster_ref: str
    cpus: int
    memory: str
    replicas: int = 1
    per_machine: bool = False
    autoscaling: Autoscaling | None = None
    max_unavailable: int = 1
    drain_deadline_seconds: int = 0
    health: Health = msgspec.field(default_factory=Health)
    feature_labels: list[str] = []
    image: str = ""
    gpus: int = 0
    #: of all of the node's GPUs together
    shards: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] | None = None
    tolerations: list[Json] | None = None
    privileged: bool = False
    volumes: list[Json] | None = None
    volume_mounts: list[Json] | None = None
    annotations: dict[str, str] | None = None


class NodeSetStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    observed_generation: int = 0
    desired_replicas: int | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    updated_replicas: int | None = None
    selector: str = ""
    conditions: list[Condition] = []


class NodeSet(msgspec.Struct):
    """The resource as the API server stores it."""

    metadata: Metadata
    spec: NodeSetSpec
    status: NodeSetStatus = msgspec.field(default_factory=NodeSetStatus)

    @property
    def leaves(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct):
    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct):
    state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    conditions: list[NodeCondition] = []
    container_statuses: list[ContainerStatus] = []


class PodPlace(msgspec.Struct, rename="camel"):
    node_name: str = ""


class NodeCondition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class SystemInfo(msgspec.Struct):
    boot: str = msgspec.field(name="bootID", default="")


class NodeFacts(msgspec.Struct, rename="camel"):
    conditions: list[NodeCondition] = []
    node_info: SystemInfo = msgspec.field(default_factory=SystemInfo)


class Taint(msgspec.Struct):
    key: str
    effect: str
    value: str = ""

    @property
    def is_passing(self) -> bool:
        """Whether no pod of a NodeSet is kept away: the kubelet's words about its state, and preferences."""
        return self.effect == "PreferNoSchedule" or self.key in _STATES

    def is_tolerated(self, toleration: Json) -> bool:
        if toleration.get("effect") not in (None, "", self.effect):
            return False
        if toleration.get("operator") == "Exists":
            return toleration.get("key") in (None, "", self.key)
        return bool(toleration.get("key") == self.key) and (toleration.get("value") or "") == self.value


class MachinePolicy(msgspec.Struct):
    taints: list[Taint] = []
    unschedulable: bool = False


class MachineNode(msgspec.Struct):
    """The parts of a Kubernetes node that matter for pods of NodeSets."""

    metadata: Metadata
    spec: MachinePolicy = msgspec.field(default_factory=MachinePolicy)
    status: NodeFacts = msgspec.field(default_factory=NodeFacts)

    @property
    def boot(self) -> str:
        """The kernel's boot ID, which changes with each start of the machine."""
        return self.status.node_info.boot

    @property
    def record(self) -> Record | None:
        """The record of the machine's fault; None if there is none, or it cannot be read."""
        return _read(self.metadata, RECORD, Record)

    @property
    def burned(self) -> Burned | None:
        """The last burn-in that is recorded at the node; None if there was none."""
        return _read(self.metadata, BURNED, Burned)

    def facts(self) -> tuple[object, ...]:
        """The properties whose change lets NodeSets be reconciled."""
        conditions = [(condition.type, condition.status) for condition in self.status.conditions]
        return conditions, self.boot, (self.metadata.annotations or {}).get(RECORD), self.metadata.labels, self.spec

    def fault(self, drain_on: Sequence[str]) -> str:
        """Why no job may start there now: the node is not Ready, or has a condition of `drain_on`; "" if jobs may."""
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status != "True":
                return f"{self.metadata.name} NotReady" + _bracketed(condition.reason)
        words = self.condition(drain_on)
        return f"{self.metadata.name} {words}" if words else ""

    def condition(self, drain_on: Sequence[str]) -> str:
        """The first condition of `drain_on` that is true, with its reason; "" for none."""
        for condition in self.status.conditions:
            if condition.type in drain_on and condition.status == "True":
                return condition.type + _bracketed(condition.reason)
        return ""


def _bracketed(reason: str) -> str:
    return f" ({reason})" if reason else ""


def _read(metadata: Metadata, name: str, kind: type[T]) -> T | None:
    text = (metadata.annotations or {}).get(name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None


class Fault(msgspec.Struct, frozen=True):
    """The fault of a pod's machine. `moves`: delete the pod once it has no job, so that it moves to another machine."""

    cause: str
    moves: bool = False


class NodePod(msgspec.Struct):
    """The parts of a NodeSet's pod that its reconciliation reads."""

    metadata: Metadata
    spec: PodPlace = msgspec.field(default_factory=PodPlace)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def trouble(self) -> str:
        """Why the pod does not start, in Kubernetes' words; "" if nothing is wrong."""
        for condition in self.status.conditions:
            if condition.type == "PodScheduled" and condition.status == "False":
                return f"{condition.reason}: {condition.message}"[:200]
        for container in self.status.container_statuses:
            waiting = container.state.waiting
            if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
                return f"{waiting.reason}: {waiting.message}"[:200]
        return ""

    @property
    def gone_by(self) -> float:
        """When its grace period ends, in seconds since the epoch; 0.0 if it is not being deleted."""
        until = self.metadata.deletion_timestamp
        return datetime.datetime.fromisoformat(until).timestamp() if until else 0.0

    def label(self, name: str) -> str:
        return (self.metadata.labels or {}).get(name, "")


class Plan(msgspec.Struct):
    """Actions by the pod's name, which is its node's name too. Deleting a pod deletes its node."""

    create: list[str] = []
    delete: list[str] = []
    #: nodes, and the reasons
    drain: dict[str, str] = {}
    resume: list[str] = []
    #: nodes to delete, whose pods have gone
    forget: list[str] = []
    #: nodes with jobs, without a pod, whose slurmd does not answer
    lost: list[str] = []
    #: nodes to power up
    wake: list[str] = []
    #: nodes to set down, because their jobs have exceeded the drain's deadline, and the reasons
    down: dict[str, str] = {}
    busy: dict[str, bool] = {}
    status: NodeSetStatus = msgspec.field(default_factory=NodeSetStatus)


def plan(
    node_set: NodeSet,
    pods: Sequence[NodePod],
    nodes: Mapping[str, ClusterNode],
    revision: str,
    now: float = 0.0,
    faults: Mapping[str, Fault] | None = None,
    unsettled: Collection[str] = (),
    machines: Collection[str] = (),
) -> Plan:
    """The actions that are due. `nodes`: all of the cluster; `revision`: of the desired template; `now`: epoch seconds.
    `machines`: the pods that a NodeSet per machine is to have.

    `faults`: pods on machines with something wrong, and what. `unsettled`: pods whose nodes have not answered for a
    moment, as when slurmctld has just started: an update lets them be.
    """
    spec, faults = node_set.spec, faults or {}
    actions = Plan(create=[], delete=[], drain={}, resume=[], forget=[], lost=[], wake=[], down={}, busy={})
    here = {pod.metadata.name: pod for pod in pods}
    # An ended pod is deleted first, because its replacement has the same name.
    actions.delete += [name for name, pod in here.items() if pod.is_over and not pod.is_leaving]
    living = [pod for pod in pods if not pod.is_over and not pod.is_leaving]
    cloud = spec.autoscaling is not None
    if node_set.leaves:
        replicas = 0
    elif cloud:
        replicas = _awake(node_set, here, nodes, now, actions)
    else:
        replicas = len(machines) if spec.per_machine else spec.replicas

    excess = _excess(node_set, living, nodes, replicas, machines)
    for pod in excess:
        _retire(actions, pod.metadata.name, nodes.get(pod.metadata.name), "scale-in")
    wanted = [pod for pod in living if pod not in excess]
    stale = [pod for pod in wanted if pod.label(REVISION) != revision]
    away = sum(not _is_up(nodes.get(pod.metadata.name)) for pod in wanted) + max(0, replicas - len(wanted))
    _update(spec, [pod for pod in stale if pod.metadata.name not in unsettled], nodes, away, now, actions)
    _drain_faulty([pod for pod in wanted if pod not in stale], nodes, faults, actions)
    if not cloud:
        for pod in pods:
            # Evicted, or deleted by a user: no job is to start there in its last moments.
            node = nodes.get(pod.metadata.name)
            if pod.is_leaving and node is not None and not is_absent(node) and "DRAIN" not in node.state:
                actions.drain[pod.metadata.name] = f"{OURS}its pod is deleted"
    retired = {*actions.drain, *actions.delete, *actions.down, *faults}
    for pod in wanted:
        node = nodes.get(pod.metadata.name)
        if node is None or pod.metadata.name in retired or pod in stale:
            continue
        if _is_ours(node) and not is_absent(node):
            actions.resume.append(pod.metadata.name)

    if cloud:
        for name, node in nodes.items():
            if (
                is_numbered(name, node_set.metadata.name)
                and not _is_allowed(node_set, name)
                and "DRAIN" not in node.state
            ):
                actions.drain[name] = f"{OURS}scale-in"
    else:
        _forget(node_set, here, nodes, actions)
        if spec.per_machine:
            # A name comes free when its last pod and node have gone.
            missing = [] if node_set.leaves else sorted(machines)
            actions.create = [name for name in missing if name not in here and name not in nodes]
        else:
            actions.create = _free_names(node_set, here, nodes, replicas - len(wanted), now, actions)
    for pod in living:
        busy = _is_busy(nodes.get(pod.metadata.name))
        if busy != (pod.label(BUSY) == "true"):
            actions.busy[pod.metadata.name] = busy
    actions.status = _status(node_set, wanted, stale, actions, nodes, replicas)
    return actions


def _excess(
    node_set: NodeSet,
    living: Sequence[NodePod],
    nodes: Mapping[str, ClusterNode],
    replicas: int,
    machines: Collection[str],
) -> list[NodePod]:
    """Pods that are more than the NodeSet is to have, in the order of their removal."""
    ordered = sorted(living, key=lambda pod: _worth(pod, nodes.get(pod.metadata.name)))
    if node_set.spec.autoscaling is not None and not node_set.leaves:
        # Slurm chooses which nodes to power down; their pods follow.
        return [
            pod
            for pod in ordered
            if _is_asleep(nodes.get(pod.metadata.name)) or not _is_allowed(node_set, pod.metadata.name)
        ]
    if node_set.spec.per_machine and not node_set.leaves:
        return [pod for pod in ordered if pod.metadata.name not in machines]
    return ordered[: max(0, len(living) - replicas)]


def _update(
    spec: NodeSetSpec,
    stale: Sequence[NodePod],
    nodes: Mapping[str, ClusterNode],
    away: int,
    now: float,
    actions: Plan,
) -> None:
    """Retire pods of another template. `away`: nodes that do not serve already."""
    for pod in sorted(stale, key=lambda pod: _worth(pod, nodes.get(pod.metadata.name))):
        node = nodes.get(pod.metadata.name)
        if _is_up(node):
            if away >= spec.max_unavailable:
                continue
            away += 1
        _retire(actions, pod.metadata.name, node, "update", now=now, deadline=spec.drain_deadline_seconds)


def _drain_faulty(
    pods: Sequence[NodePod], nodes: Mapping[str, ClusterNode], faults: Mapping[str, Fault], actions: Plan
) -> None:
    for pod in pods:
        name = pod.metadata.name
        node = nodes.get(name)
        if name not in faults or node is None:
            continue
        if faults[name].moves:
            _retire(actions, name, node, f"health: {faults[name].cause}")
        elif "DRAIN" not in node.state:
            actions.drain[name] = f"{OURS}health: {faults[name].cause}"


def _forget(node_set: NodeSet, here: Mapping[str, NodePod], nodes: Mapping[str, ClusterNode], found: Plan) -> None:
    """Nodes that have lost their pods."""
    for name, node in nodes.items():
        if name in here or not is_node_of(node_set, name, node):
            continue
        # A slurmd that has gone is noticed after a while; what we drained needs no such wait, also if slurmctld
        # started meanwhile and has forgotten why: the revoked certificate made the node DOWN, for another reason.
        gone = is_absent(node) or _is_ours(node) or ("DRAIN" in node.state and not node.reason)
        if gone and not _is_busy(node):
            found.forget.append(name)
        elif "NOT_RESPONDING" in node.state and "DOWN" not in node.state:
            # Neither pod nor slurmd: its jobs need not wait for SlurmdTimeout.
            found.lost.append(name)
        elif not gone and "DRAIN" not in node.state:
            found.drain[name] = f"{OURS}its pod is gone"


def _free_names(
    node_set: NodeSet,
    here: Mapping[str, NodePod],
    nodes: Mapping[str, ClusterNode],
    missing: int,
    now: float,
    found: Plan,
) -> list[str]:
    """Plan pods of a fixed number. Names that become free soon are waited for, so that nodes keep their names."""
    soon = sum(pod.is_leaving and now < pod.gone_by + _STUCK for pod in here.values())
    soon += len(found.forget) + len(found.lost)
    stem = node_set.metadata.name
    free = (name for number in range(1 << 20) if (name := f"{stem}-{number}") not in here and name not in nodes)
    return [next(free) for _ in range(missing - soon)]


def _awake(
    node_set: NodeSet, here: Mapping[str, NodePod], nodes: Mapping[str, ClusterNode], now: float, actions: Plan
) -> int:
    """Plan pods for the cloud nodes that Slurm wants up. Returns the number of these nodes."""
    scaling = node_set.spec.autoscaling
    assert scaling is not None
    names = [f"{node_set.metadata.name}-{number}" for number in range(scaling.max_replicas)]
    up = [name for name in names if name in nodes and not _is_asleep(nodes[name])]
    actions.create = [name for name in up if name not in here]
    asleep = [name for name in names if name in nodes and name not in up]
    # A node that did not boot in time is DOWN. It is resumed after another boot time, so that Slurm tries other nodes
    # first.
    failed = [name for name in asleep if "DOWN" in nodes[name].state and name not in here]
    actions.resume += [name for name in failed if now > nodes[name].reason_changed_at.number + scaling.boot_seconds]
    able = [name for name in asleep if name not in failed and "POWERED_DOWN" in nodes[name].state]
    actions.wake = able[: max(0, scaling.min_replicas - len(up))]
    return len(up)


def _retire(
    actions: Plan, name: str, node: ClusterNode | None, why: str, *, now: float = 0.0, deadline: int = 0
) -> None:
    """Delete the pod once it has no job; until then drain its node."""
    if node is None or ((is_absent(node) or _is_asleep(node)) and not _is_busy(node)):
        actions.delete.append(name)
    elif "DRAIN" not in node.state:
        actions.drain[name] = f"{OURS}{why}"
    elif not _is_busy(node):
        actions.delete.append(name)
    elif deadline and "DOWN" not in node.state and now > node.reason_changed_at.number + deadline:
        actions.down[name] = f"{OURS}{why}: jobs requeued after {deadline} s"


def _status(
    node_set: NodeSet,
    wanted: list[NodePod],
    stale: list[NodePod],
    actions: Plan,
    nodes: Mapping[str, ClusterNode],
    replicas: int,
) -> NodeSetStatus:
    name = node_set.metadata.name
    up = sum(_is_up(nodes.get(pod.metadata.name)) for pod in wanted)
    ready = up >= replicas and not stale
    waiting = sorted(pod.metadata.name for pod in stale if _is_busy(nodes.get(pod.metadata.name)))
    message = f"{up} of {replicas} nodes serve"
    if node_set.spec.per_machine and not replicas and not node_set.leaves:
        message += "; no machine has the labels of nodeSelector, and taints that tolerations allow"
    if stale:
        message += f"; {len(stale)} to replace"
    if waiting:
        message += f", waits for the jobs on {', '.join(waiting[:5])}{' and others' if len(waiting) > 5 else ''}"
    troubled = [pod for pod in wanted if pod.trouble]
    if troubled:
        message += f"; {troubled[0].metadata.name}: {troubled[0].trouble}"
    drained = sorted(pod.metadata.name for pod in wanted if (node := nodes.get(pod.metadata.name)) and _is_faulty(node))
    if drained:
        message += f"; drained because of their machines' health: {', '.join(drained[:5])}"
    return NodeSetStatus(
        observed_generation=node_set.metadata.generation,
        desired_replicas=replicas,
        replicas=len(wanted),
        ready_replicas=up,
        updated_replicas=len(wanted) - len(stale),
        selector=f"{NODE_SET}={name}",
        conditions=[
            Condition(
                type="Ready",
                status="True" if ready else "False",
                reason="Serving" if ready else "Updating" if stale else "NodesMissing",
                message=message,
                observed_generation=node_set.metadata.generation,
            )
        ],
    )


def _worth(pod: NodePod, node: ClusterNode | None) -> tuple[int, int]:
    """Sort key of removal: pods that are not ready first, then idle, draining, busy; of equals the highest number."""
    rank = 0 if node is None or is_absent(node) else 3 if _is_busy(node) else 2 if "DRAIN" in node.state else 1
    if node is not None and rank > 1 and _is_ours(node):
        rank = 1  # what we drain already goes on draining
    return rank, -_number(pod.metadata.name)


def _is_up(node: ClusterNode | None) -> bool:
    return node is not None and not is_absent(node) and "DRAIN" not in node.state


def is_known(pod: NodePod, nodes: Mapping[str, ClusterNode]) -> bool:
    """Whether the pod's slurmd has joined, so that it needs no token any more."""
    node = nodes.get(pod.metadata.name)
    return node is not None and not is_absent(node) and "POWERING_UP" not in node.state


def _is_asleep(node: ClusterNode | None) -> bool:
    return node is not None and not _ASLEEP.isdisjoint(node.state)


def _is_allowed(node_set: NodeSet, name: str) -> bool:
    scaling = node_set.spec.autoscaling
    return not node_set.leaves and (scaling is None or _number(name) < scaling.max_replicas)


def _number(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def is_absent(node: ClusterNode) -> bool:
    """Whether its slurmd does not answer."""
    return not _ABSENT.isdisjoint(node.state)


def _is_busy(node: ClusterNode | None) -> bool:
    return node is not None and not _OCCUPIED.isdisjoint(node.state)


def _is_ours(node: ClusterNode) -> bool:
    return "DRAIN" in node.state and node.reason.startswith(OURS)


def _is_faulty(node: ClusterNode) -> bool:
    return "DRAIN" in node.state and node.reason.startswith((f"{OURS}health: ", CHECKED))


def is_numbered(name: str, node_set: str) -> bool:
    """Whether a NodeSet whose nodes have numbers has this name for a node."""
    stem, _dash, number = name.rpartition("-")
    return stem == node_set and number.isdecimal()


def is_node_of(node_set: NodeSet, name: str, node: ClusterNode) -> bool:
    stem = node_set.metadata.name
    if node_set.spec.per_machine:
        # The names of machines may be anything; its nodes have its name as a feature.
        return name.startswith(f"{stem}-") and stem in node.features
    return is_numbered(name, stem)


def revision_of(template: Json, node_set: NodeSet) -> str:
    """A hash of the template and the annotations, which labels each pod made from them."""
    # Without annotations it is that of earlier releases, so that an update of the operator replaces no pod.
    made = [template, node_set.spec.annotations] if node_set.spec.annotations else template
    return hashlib.sha256(msgspec.json.encode(made, order="sorted")).hexdigest()[:10]


def node_keys(node_set: NodeSet) -> str:
    """The keys of each node in slurm.conf. slurmd finds the machine's CPUs and memory, of which the pod has a part."""
    spec = node_set.spec
    memory = int(amount(spec.memory) / 2**20 * 0.9)
    keys = f"CPUs={spec.cpus} RealMemory={memory} Feature={node_set.metadata.name}"
    # GPUs without shards slurmd finds by itself.
    return f"{keys} Gres=gpu:{spec.gpus},shard:{spec.shards}" if spec.shards else keys


def cloud_lines(node_sets: Sequence[NodeSet], pods: Sequence[NodePod] = ()) -> tuple[list[str], list[str]]:
    """Lines of slurm.conf for NodeSets that scale, and of gres.conf for GPUs that slurm.conf or slurmd's --conf counts.
    A node with a pod stays, whatever the bound is.
    """
    scaled = sorted(
        (node_set for node_set in node_sets if node_set.spec.autoscaling), key=lambda node_set: node_set.metadata.name
    )
    lines, never_suspended, boots = [], [], []
    counted = [node_set.spec.gpus and (node_set.spec.autoscaling or node_set.spec.shards) for node_set in node_sets]
    devices = ["AutoDetect=nvml"] if any(counted) else []
    for node_set in scaled:
        scaling, name = node_set.spec.autoscaling, node_set.metadata.name
        assert scaling is not None
        boots.append(scaling.boot_seconds)
        numbers = [_number(pod.metadata.name) for pod in pods if pod.label(NODE_SET) == name]
        names = f"{name}-[0-{max(scaling.max_replicas - 1, *numbers, 0)}]"
        gres = f" Gres=gpu:{node_set.spec.gpus}" if node_set.spec.gpus and not node_set.spec.shards else ""
        lines.append(f"NodeName={names} {node_keys(node_set)}{gres} State=CLOUD SuspendTime={scaling.idle_seconds}")
        if scaling.min_replicas:
            never_suspended.append(f"{names}:{scaling.min_replicas}")
    if never_suspended:
        lines.append(f"SuspendExcNodes={','.join(never_suspended)}")
    if scaled:
        # The operator reads from slurmctld which nodes are to be up, so these programs do nothing.
        lines += ["ResumeProgram=/bin/true", "SuspendProgram=/bin/true", "ResumeRate=0", "SuspendRate=0"]
        lines += [f"ResumeTimeout={max(boots)}", f"SuspendTimeout={_SUSPEND_SECONDS}", "PrivateData=cloud"]
    return lines, devices


def pod_template(cluster: Cluster, node_set: NodeSet) -> Json:
    """The spec of every pod of the NodeSet, without its name and its join Secret."""
    spec = node_set.spec
    limits: Json = {"cpu": str(spec.cpus), "memory": spec.memory}
    if spec.gpus:
        limits[spec.gpu_resource] = str(spec.gpus)
    server = controller_address(cluster)
    join = ["spritz", "join", server, "--token-file", f"{JOIN}/token", "--host", "$(NODE_NAME)"]
    container = {
        "name": "slurmd",
        "image": spec.image or cluster.spec.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": [*join, "--dir", STATE, "--foreground", "--conf", node_keys(node_set)],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "SLURM_CONF", "value": f"{STATE}/etc/slurm.conf"},
        ],
        "resources": {"requests": limits, "limits": limits},
        # slurmd relays, and slurmctld answers.
        "readinessProbe": COMMANDS_ANSWERED,
        "securityContext": {"privileged": True} if spec.privileged else rights.container(*rights.SLURMD_CAPABILITIES),
        "volumeMounts": [
            {"name": "join", "mountPath": JOIN, "readOnly": True},
            {"name": "state", "mountPath": STATE},
            *(spec.volume_mounts or ()),
        ],
    }
    template: Json = {
        "containers": [container],
        "volumes": [{"name": "state", "emptyDir": {}}, *(spec.volumes or ())],
        "securityContext": rights.root(),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
    }
    healthy = {"key": UNHEALTHY, "operator": "DoesNotExist"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [healthy]}]}
    template["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if spec.node_selector:
        template["nodeSelector"] = spec.node_selector
    tolerations = list(spec.tolerations or ())
    if spec.per_machine:
        tolerations += [{"key": key, "operator": "Exists"} for key in _STATES]
    if tolerations:
        template["tolerations"] = tolerations
    return template


def pod(cluster: Cluster, node_set: NodeSet, name: str, template: Json, machine: str = "") -> Json:
    """The pod of a node, on `machine` if it is named. `name` is also the name of its node in Slurm."""
    revision = revision_of(template, node_set)
    if machine:
        only = {"key": "metadata.name", "operator": "In", "values": [machine]}
        term = template["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms = [{**each, "matchFields": [only]} for each in term["nodeSelectorTerms"]]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        template = {**template, "affinity": {"nodeAffinity": required}}
    marks = {NODE_SET: node_set.metadata.name, REVISION: revision, BUSY: "false"}
    # Optional, because slurmd needs its token once: a container that restarts has joined already.
    join = {"name": "join", "secret": {"secretName": join_secret(name), "defaultMode": 0o400, "optional": True}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": node_set.metadata.namespace,
            "labels": {**labels(cluster.metadata.name, "node"), **marks},
            "annotations": dict(node_set.spec.annotations or {}),
            "ownerReferences": owner("NodeSet", node_set.metadata),
        },
        "spec": {**template, "hostname": name, "volumes": [join, *template["volumes"]]},
    }


def join_secret(pod_name: str) -> str:
    """Name of the Secret by which a pod joins the cluster."""
    return f"{pod_name}-join"


def budget(node_set: NodeSet) -> Json:
    """A PodDisruptionBudget that forbids evicting pods with jobs.

    By a number that Kubernetes compares with the pods that there are. It compares `maxUnavailable` with the NodeSet's
    `replicas`, which say nothing of nodes that are per machine, scale by the queue, or are being removed.
    """
    name = node_set.metadata.name
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": name,
            "namespace": node_set.metadata.namespace,
            "labels": {NODE_SET: name, CLUSTER: node_set.spec.cluster_ref},
            "ownerReferences": owner("NodeSet", node_set.metadata),
        },
        "spec": {"minAvailable": _NEVER_REACHED, "selector": {"matchLabels": {NODE_SET: name, BUSY: "true"}}},
    }


def differs(have: Any, want: Any) -> bool:
    """Whether `have` lacks something of `want`; what else it has, such as defaults, does not count.

    A selector counts whole: with another label it selects nothing.
    """
    if isinstance(want, dict):
        return not isinstance(have, dict) or any(
            name not in have or (have[name] != want[name] if name == SELECTOR else differs(have[name], want[name]))
            for name in want
        )
    if isinstance(want, list):
        return (
            not isinstance(have, list)
            or len(have) != len(want)
            or any(differs(*pair) for pair in zip(have, want, strict=True))
        )
    return bool(have != want)
