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

All of it is planned anew from what there is: pods, nodes and the resource.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from spritz.k8s.cluster_objects import (
    CLUSTER,
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
from spritz.k8s.control import ClusterNode
from spritz.k8s.health import BURNED, CHECKED, RECORD, UNHEALTHY, Burned, Health, Record
from spritz.k8s.pods import PREFIX, amount

T = TypeVar("T")

#: On pods: the NodeSet, the hash of the template, and whether a job is on the node.
NODE_SET: Final = f"{PREFIX}node-set"
REVISION: Final = f"{PREFIX}revision"
BUSY: Final = f"{PREFIX}busy"

#: Reasons of drains that are ours.
OURS: Final = "spritz-operator: "

#: On a NodeSet: it stays until its pods have gone. On a NodeSet that leaves, by an administrator: no job is waited for.
FINALIZER: Final = f"{PREFIX}drain"
FORCE: Final = f"{PREFIX}force-delete"

#: Seconds beyond a pod's grace for which its name is kept for the pod that replaces it.
_STUCK = 60.0

#: SuspendTimeout: a pod is gone by then, and another may have its name.
_SUSPEND_SECONDS: Final = 60

_OCCUPIED = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_ABSENT = frozenset({"DOWN", "NOT_RESPONDING"})
_ASLEEP = frozenset({"POWERED_DOWN", "POWERING_DOWN"})

#: Taints by which Kubernetes tells of a machine's state. Pods of a machine tolerate them, as those of a DaemonSet do.
_STATES: Final = tuple(
    f"node.kubernetes.io/{state}"
    for state in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "network-unavailable")
)

#: What slurmd as root needs to start tasks as their users, and no more.
CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID", "SYS_NICE")


class Autoscaling(msgspec.Struct, rename="camel"):
    """Bounds, and seconds: without a job until a node goes, and until one that starts must serve."""

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
    """As the API server has it."""

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
    """A node of Kubernetes, as far as pods of NodeSets go there."""

    metadata: Metadata
    spec: MachinePolicy = msgspec.field(default_factory=MachinePolicy)
    status: NodeFacts = msgspec.field(default_factory=NodeFacts)

    @property
    def boot(self) -> str:
        """Differs after each start of the machine."""
        return self.status.node_info.boot

    @property
    def record(self) -> Record | None:
        """Of its fault. One that cannot be read is none."""
        return _read(self.metadata, RECORD, Record)

    @property
    def burned(self) -> Burned | None:
        """The last burn-in that is recorded at the node; None if there was none."""
        return _read(self.metadata, BURNED, Burned)

    def facts(self) -> tuple[object, ...]:
        """What of it a NodeSet goes by."""
        conditions = [(condition.type, condition.status) for condition in self.status.conditions]
        return conditions, self.boot, (self.metadata.annotations or {}).get(RECORD), self.metadata.labels, self.spec

    def fault(self, drain_on: Sequence[str]) -> str:
        """Why no job is to start there now: not Ready, or a condition of `drain_on`; "" for none."""
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status != "True":
                return f"{self.metadata.name} NotReady" + _bracketed(condition.reason)
        words = self.condition(drain_on)
        return f"{self.metadata.name} {words}" if words else ""

    def condition(self, drain_on: Sequence[str]) -> str:
        """The first condition of `drain_on` that it has; "" for none."""
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
    """Of a pod's machine. `moves`: the pod goes once it has no job."""

    cause: str
    moves: bool = False


class NodePod(msgspec.Struct):
    """A pod of a NodeSet, as far as the NodeSet goes."""

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
        """Why it does not start, in Kubernetes' words; "" where nothing is wrong."""
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
        """When its grace is over, in seconds since the epoch; 0 for a pod that stays."""
        until = self.metadata.deletion_timestamp
        return datetime.datetime.fromisoformat(until).timestamp() if until else 0.0

    def label(self, name: str) -> str:
        return (self.metadata.labels or {}).get(name, "")


class Plan(msgspec.Struct):
    """Pods by name. A pod is deleted with its node."""

    create: list[str] = []
    delete: list[str] = []
    #: nodes, and why
    drain: dict[str, str] = {}
    resume: list[str] = []
    #: nodes without a pod
    forget: list[str] = []
    #: nodes to power up
    wake: list[str] = []
    #: nodes whose jobs have had their time, and why
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
    """What to do now. `nodes`: all of the cluster; `revision`: of the template that pods are to have; `now`: epoch.
    `machines`: the pods that a NodeSet per machine is to have.

    `faults`: pods on machines with something wrong, and what. `unsettled`: pods whose nodes have not answered for a
    moment, as when slurmctld has just started: an update lets them be.
    """
    spec, faults = node_set.spec, faults or {}
    found = Plan(create=[], delete=[], drain={}, resume=[], forget=[], wake=[], down={}, busy={})
    here = {pod.metadata.name: pod for pod in pods}
    # A pod that has ended makes room for another with its name.
    found.delete += [name for name, pod in here.items() if pod.is_over and not pod.is_leaving]
    living = [pod for pod in pods if not pod.is_over and not pod.is_leaving]
    cloud = spec.autoscaling is not None
    if node_set.leaves:
        replicas = 0
    elif cloud:
        replicas = _awake(node_set, here, nodes, now, found)
    else:
        replicas = len(machines) if spec.per_machine else spec.replicas

    excess = sorted(living, key=lambda pod: _worth(pod, nodes.get(pod.metadata.name)))
    if cloud and not node_set.leaves:
        # Which nodes go is Slurm's choice.
        excess = [
            pod
            for pod in excess
            if _is_asleep(nodes.get(pod.metadata.name)) or not _is_allowed(node_set, pod.metadata.name)
        ]
    elif spec.per_machine and not node_set.leaves:
        excess = [pod for pod in excess if pod.metadata.name not in machines]
    else:
        excess = excess[: max(0, len(living) - replicas)]
    for pod in excess:
        _retire(found, pod.metadata.name, nodes.get(pod.metadata.name), "scale-in")
    wanted = [pod for pod in living if pod not in excess]

    away = sum(not _is_up(nodes.get(pod.metadata.name)) for pod in wanted) + max(0, replicas - len(wanted))
    stale = [pod for pod in wanted if pod.label(REVISION) != revision]
    for pod in sorted(stale, key=lambda pod: _worth(pod, nodes.get(pod.metadata.name))):
        node = nodes.get(pod.metadata.name)
        if pod.metadata.name in unsettled:
            continue
        if _is_up(node):
            if away >= spec.max_unavailable:
                continue
            away += 1
        _retire(found, pod.metadata.name, node, "update", now=now, deadline=spec.drain_deadline_seconds)
    for pod in wanted:
        name = pod.metadata.name
        node = nodes.get(name)
        if name not in faults or pod in stale or node is None:
            continue
        if faults[name].moves:
            _retire(found, name, node, f"health: {faults[name].cause}")
        elif "DRAIN" not in node.state:
            found.drain[name] = f"{OURS}health: {faults[name].cause}"
    if not cloud:
        for pod in pods:
            # Evicted, or deleted by a user: no job is to start there in its last moments.
            node = nodes.get(pod.metadata.name)
            if pod.is_leaving and node is not None and not is_absent(node) and "DRAIN" not in node.state:
                found.drain[pod.metadata.name] = f"{OURS}its pod is deleted"
    retired = {*found.drain, *found.delete, *found.down, *faults}
    for pod in wanted:
        node = nodes.get(pod.metadata.name)
        if node is None or pod.metadata.name in retired or pod in stale:
            continue
        if _is_ours(node) and not is_absent(node):
            found.resume.append(pod.metadata.name)

    if cloud:
        for name, node in nodes.items():
            if (
                is_numbered(name, node_set.metadata.name)
                and not _is_allowed(node_set, name)
                and "DRAIN" not in node.state
            ):
                found.drain[name] = f"{OURS}scale-in"
    else:
        _forget(node_set, here, nodes, found)
        if spec.per_machine:
            # A name comes free when its last pod and node have gone.
            missing = [] if node_set.leaves else sorted(machines)
            found.create = [name for name in missing if name not in here and name not in nodes]
        else:
            found.create = _free_names(node_set, here, nodes, replicas - len(wanted), now, found)
    for pod in living:
        busy = _is_busy(nodes.get(pod.metadata.name))
        if busy != (pod.label(BUSY) == "true"):
            found.busy[pod.metadata.name] = busy
    found.status = _status(node_set, wanted, stale, found, nodes, replicas)
    return found


def _forget(node_set: NodeSet, here: Mapping[str, NodePod], nodes: Mapping[str, ClusterNode], found: Plan) -> None:
    """Nodes that have lost their pods."""
    for name, node in nodes.items():
        if name in here or not _is_of(node_set, name, node):
            continue
        # A slurmd that has gone is noticed after a while; what we drained needs no such wait, also if slurmctld
        # started meanwhile and has forgotten why: the revoked certificate made the node DOWN, for another reason.
        gone = is_absent(node) or _is_ours(node) or ("DRAIN" in node.state and not node.reason)
        if gone and not _is_busy(node):
            found.forget.append(name)
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
    """For pods of a fixed number. A name that is coming free soon is waited for, so that an update keeps the names."""
    soon = sum(pod.is_leaving and now < pod.gone_by + _STUCK for pod in here.values()) + len(found.forget)
    stem = node_set.metadata.name
    free = (name for number in range(1 << 20) if (name := f"{stem}-{number}") not in here and name not in nodes)
    return [next(free) for _ in range(missing - soon)]


def _awake(
    node_set: NodeSet, here: Mapping[str, NodePod], nodes: Mapping[str, ClusterNode], now: float, found: Plan
) -> int:
    """Pods for the cloud nodes that Slurm wants up; how many these are."""
    scaling = node_set.spec.autoscaling
    assert scaling is not None
    names = [f"{node_set.metadata.name}-{number}" for number in range(scaling.max_replicas)]
    up = [name for name in names if name in nodes and not _is_asleep(nodes[name])]
    found.create = [name for name in up if name not in here]
    asleep = [name for name in names if name in nodes and name not in up]
    # A node that did not boot in time is DOWN. Others are tried first; then it may be chosen again, with another pod.
    failed = [name for name in asleep if "DOWN" in nodes[name].state and name not in here]
    found.resume += [name for name in failed if now > nodes[name].reason_changed_at.number + scaling.boot_seconds]
    able = [name for name in asleep if name not in failed and "POWERED_DOWN" in nodes[name].state]
    found.wake = able[: max(0, scaling.min_replicas - len(up))]
    return len(up)


def _retire(found: Plan, name: str, node: ClusterNode | None, why: str, *, now: float = 0.0, deadline: int = 0) -> None:
    """Delete the pod when it has no job; until then the node takes no more of them."""
    if node is None or ((is_absent(node) or _is_asleep(node)) and not _is_busy(node)):
        found.delete.append(name)
    elif "DRAIN" not in node.state:
        found.drain[name] = f"{OURS}{why}"
    elif not _is_busy(node):
        found.delete.append(name)
    elif deadline and "DOWN" not in node.state and now > node.reason_changed_at.number + deadline:
        found.down[name] = f"{OURS}{why}: jobs requeued after {deadline} s"


def _status(
    node_set: NodeSet,
    wanted: list[NodePod],
    stale: list[NodePod],
    found: Plan,
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
        message += f"; out of use for their machines' health: {', '.join(drained[:5])}"
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
    """What goes first is worth least: not ready, idle, draining, busy; of equals, the highest number."""
    rank = 0 if node is None or is_absent(node) else 3 if _is_busy(node) else 2 if "DRAIN" in node.state else 1
    if node is not None and rank > 1 and _is_ours(node):
        rank = 1  # what we drain already goes on draining
    return rank, -_number(pod.metadata.name)


def _is_up(node: ClusterNode | None) -> bool:
    return node is not None and not is_absent(node) and "DRAIN" not in node.state


def is_known(pod: NodePod, nodes: Mapping[str, ClusterNode]) -> bool:
    """Whether the pod's slurmd has joined, and needs no token."""
    node = nodes.get(pod.metadata.name)
    return node is not None and not is_absent(node) and "POWERING_UP" not in node.state


def _is_asleep(node: ClusterNode | None) -> bool:
    return node is not None and not _ASLEEP.isdisjoint(node.state)


def _is_allowed(node_set: NodeSet, name: str) -> bool:
    scaling = node_set.spec.autoscaling
    return not node_set.leaves and (scaling is None or _number(name) < scaling.max_replicas)


def _number(name: str) -> int:
    number = name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0


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
    return stem == node_set and number.isdigit()


def _is_of(node_set: NodeSet, name: str, node: ClusterNode) -> bool:
    stem = node_set.metadata.name
    if node_set.spec.per_machine:
        # The names of machines may be anything; its nodes have its name as a feature.
        return name.startswith(f"{stem}-") and stem in node.features
    return is_numbered(name, stem)


def revision_of(template: Json) -> str:
    """Differs when the pods' template does."""
    return hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:10]


def node_keys(node_set: NodeSet) -> str:
    """The keys of each node in slurm.conf. slurmd finds the machine's CPUs and memory, of which the pod has a part."""
    spec = node_set.spec
    memory = int(amount(spec.memory) / 2**20 * 0.9)
    return f"CPUs={spec.cpus} RealMemory={memory} Feature={node_set.metadata.name}"


def cloud_lines(node_sets: Sequence[NodeSet], pods: Sequence[NodePod] = ()) -> tuple[list[str], list[str]]:
    """Lines of slurm.conf for NodeSets that scale, and of gres.conf. A node with a pod stays, whatever the bound is."""
    scaled = sorted((each for each in node_sets if each.spec.autoscaling), key=lambda each: each.metadata.name)
    lines, devices, kept, boots = [], [], [], []
    for each in scaled:
        scaling, name = each.spec.autoscaling, each.metadata.name
        assert scaling is not None
        boots.append(scaling.boot_seconds)
        numbers = [_number(pod.metadata.name) for pod in pods if pod.label(NODE_SET) == name]
        names = f"{name}-[0-{max(scaling.max_replicas - 1, *numbers, 0)}]"
        gres = f" Gres=gpu:{each.spec.gpus}" if each.spec.gpus else ""
        lines.append(f"NodeName={names} {node_keys(each)}{gres} State=CLOUD SuspendTime={scaling.idle_seconds}")
        if scaling.min_replicas:
            kept.append(f"{names}:{scaling.min_replicas}")
        if each.spec.gpus:
            devices = ["AutoDetect=nvml"]
    if kept:
        lines.append(f"SuspendExcNodes={','.join(kept)}")
    if scaled:
        # Which nodes are to be up the operator reads from slurmctld: its programs have nothing to do.
        lines += ["ResumeProgram=/bin/true", "SuspendProgram=/bin/true", "ResumeRate=0", "SuspendRate=0"]
        lines += [f"ResumeTimeout={max(boots)}", f"SuspendTimeout={_SUSPEND_SECONDS}", "PrivateData=cloud"]
    return lines, devices


def pod_template(cluster: Cluster, node_set: NodeSet) -> Json:
    """The spec of a pod, but for its name and what it joins by."""
    spec = node_set.spec
    limits: Json = {"cpu": str(spec.cpus), "memory": spec.memory}
    if spec.gpus:
        limits[spec.gpu_resource] = str(spec.gpus)
    server = controller_address(cluster)
    join = ["spritz", "join", server, "--token-file", f"{JOIN}/token", "--host", "$(NODE_NAME)"]
    security: Json = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
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
        "securityContext": {"privileged": True} if spec.privileged else security,
        "volumeMounts": [
            {"name": "join", "mountPath": JOIN, "readOnly": True},
            {"name": "state", "mountPath": STATE},
            *(spec.volume_mounts or ()),
        ],
    }
    found: Json = {
        "containers": [container],
        "volumes": [{"name": "state", "emptyDir": {}}, *(spec.volumes or ())],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
    }
    healthy = {"key": UNHEALTHY, "operator": "DoesNotExist"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [healthy]}]}
    found["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    if spec.node_selector:
        found["nodeSelector"] = spec.node_selector
    tolerations = list(spec.tolerations or ())
    if spec.per_machine:
        tolerations += [{"key": key, "operator": "Exists"} for key in _STATES]
    if tolerations:
        found["tolerations"] = tolerations
    return found


def pod(cluster: Cluster, node_set: NodeSet, name: str, template: Json, machine: str = "") -> Json:
    """The pod of a node, on `machine` if it is named. `name` is also the name of its node in Slurm."""
    revision = revision_of(template)
    if machine:
        only = {"key": "metadata.name", "operator": "In", "values": [machine]}
        term = template["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms = [{**each, "matchFields": [only]} for each in term["nodeSelectorTerms"]]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        template = {**template, "affinity": {"nodeAffinity": required}}
    marks = {NODE_SET: node_set.metadata.name, REVISION: revision, BUSY: "false"}
    # slurmd needs its token once; a pod whose container starts again has joined.
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
    """No pod with a job on it is evicted; others may be."""
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
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {NODE_SET: name, BUSY: "true"}}},
    }


def differs(have: Any, want: Any) -> bool:
    """Whether `have` lacks something of `want`; what else it has, such as defaults, does not count."""
    if isinstance(want, dict):
        return not isinstance(have, dict) or any(name not in have or differs(have[name], want[name]) for name in want)
    if isinstance(want, list):
        return (
            not isinstance(have, list)
            or len(have) != len(want)
            or any(differs(*pair) for pair in zip(have, want, strict=True))
        )
    return bool(have != want)
