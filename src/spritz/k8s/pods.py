"""Pods from the scheduler's point of view: their requests, and their gangs.

A *workload* becomes one job: a single pod, or a gang. Gangs are pods that say so (`spritz.dev/gang` and
`spritz.dev/gang-size`), and those of a PodGroup, a JobSet or a LeaderWorkerSet group. A pod's request is what the
kubelet counts: its containers together or its greatest init container, or what the pod says as a whole, and its
overhead. CPUs are whole in a job, so fractions are rounded up.

Source: Kubernetes, "Resource Management for Pods and Containers", "Init Containers"; labels of JobSet, LeaderWorkerSet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from spritz.notation.duration import INFINITE, parse_minutes
from spritz.notation.errors import NotationError

#: Prefix of Spritz's labels and annotations on pods and nodes.
PREFIX = "spritz.dev/"

GANG, GANG_SIZE = f"{PREFIX}gang", f"{PREFIX}gang-size"
#: Annotations of a placed pod: its job, the number of its task, and its GPUs on the node.
JOB, SLOT, GPUS = f"{PREFIX}job-id", f"{PREFIX}task", f"{PREFIX}gpus"

#: Resources of device plugins that are GPUs.
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")
#: Those that are shares of GPUs (time slicing or MPS), and the prefix of parts of GPUs.
SHARE_RESOURCES = ("nvidia.com/gpu.shared",)
_MIG = "nvidia.com/mig-"

_LWS_GROUP, _LWS_SIZE = "leaderworkerset.sigs.k8s.io/group-key", "leaderworkerset.sigs.k8s.io/size"
_LWS_NAME, _LWS_INDEX = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index"
_JOBSET, _JOBSET_SIZE = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/global-replicas"
#: Of scheduler-plugins' PodGroups.
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
_RESTART = "jobset.sigs.k8s.io/restart-attempt"
#: As names of objects, and values of labels.
_GANG_NAME = re.compile(r"[A-Za-z0-9._-]{1,253}")

#: An amount's suffix, and what it multiplies by.
_SUFFIXES = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


class Unfit(Exception):
    """The pod's request cannot become a job. The text is for the pod's owner; `field`: the path of the mistake."""

    def __init__(self, message: str, field: str = "spec.containers") -> None:
        super().__init__(message)
        self.field = field


def annotation(name: str) -> str:
    """The path of an annotation for error messages."""
    return f"metadata.annotations[{name}]"


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    pass


class Owner(_Camel, frozen=True, rename="camel"):
    """A reference to an object's owner."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Metadata(_Camel, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None

    def note(self, key: str) -> str:
        """The annotation, or else the label, of this name; "" without."""
        return (self.annotations or {}).get(key) or (self.labels or {}).get(key) or ""


class Amounts(_Camel, frozen=True, rename="camel"):
    """Quantities by resource name, as Kubernetes writes them (`500m`, `2Gi`)."""

    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None


class Port(_Camel, frozen=True, rename="camel"):
    """A port of a container, and of the node."""

    host_port: int = 0


class Container(_Camel, frozen=True, rename="camel"):
    """The parts of a container that decide what the pod requests."""

    resources: Amounts = Amounts()
    ports: list[Port] | None = None
    #: of an init container: "Always" makes it run along with the others
    restart_policy: str | None = None


class Toleration(_Camel, frozen=True, rename="camel"):
    """Which taints of nodes a pod, or of devices a claim, puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        """Whether it covers the taint."""
        if self.effect and self.effect != effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == key
        return self.key == key and self.value == value


class Expression(_Camel, frozen=True, rename="camel"):
    """One line of a node selector."""

    key: str
    operator: str
    values: list[str] | None = None


class Term(_Camel, frozen=True, rename="camel"):
    """A conjunction: a node must satisfy every expression."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class Selector(_Camel, frozen=True, rename="camel"):
    """A disjunction: a node must satisfy one term or more."""

    node_selector_terms: list[Term] = []


class NodeAffinity(_Camel, frozen=True, rename="camel"):
    """Where the pod may run at all, and whether it prefers some nodes."""

    required: Selector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[Any] | None = msgspec.field(default=None, name="preferredDuringSchedulingIgnoredDuringExecution")


class PodAffinity(_Camel, frozen=True, rename="camel"):
    """Terms about other pods, which are not read: `pod_fields` says which are refused."""

    required: list[Any] | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[Any] | None = msgspec.field(default=None, name="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(_Camel, frozen=True, rename="camel"):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(_Camel, frozen=True, rename="camel"):
    """A topology spread constraint, which is not read: `pod_fields` says which are refused."""

    when_unsatisfiable: str = "DoNotSchedule"


class Volume(_Camel, frozen=True, rename="camel"):
    """The sources of a volume that bind it to nodes."""

    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None


class Gate(_Camel, frozen=True, rename="camel"):
    """Keeps a pod from being scheduled."""

    name: str = ""


class ClaimReference(_Camel, frozen=True, rename="camel"):
    """A ResourceClaim of the pod: its own name in the pod, and the claim's, unless that is made from a template."""

    name: str = ""
    resource_claim_name: str | None = None


class SchedulingGroup(_Camel, frozen=True, rename="camel"):
    """The pod's PodGroup, of Kubernetes' own."""

    pod_group_name: str = ""


class WorkloadReference(_Camel, frozen=True, rename="camel"):
    """The group of a Workload that the pod is in, and the replica of the group."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class PodSpec(_Camel, frozen=True, rename="camel"):
    """The parts of a pod's spec that scheduling reads."""

    scheduler_name: str = ""
    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: dict[str, str | int] | None = None
    #: of the pod as a whole, which replace those of its containers
    resources: Amounts | None = None
    host_network: bool = False
    preemption_policy: str | None = None
    topology_spread_constraints: list[Spread] | None = None
    volumes: list[Volume] | None = None
    priority_class_name: str = ""
    service_account_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[Gate] | None = None
    active_deadline_seconds: int | None = None
    resource_claims: list[ClaimReference] | None = None
    scheduling_group: SchedulingGroup | None = None
    #: of Kubernetes 1.35 alone
    workload_ref: WorkloadReference | None = None


class Terminated(_Camel, frozen=True, rename="camel"):
    exit_code: int = 0


class ContainerState(_Camel, frozen=True, rename="camel"):
    terminated: Terminated | None = None


class ContainerStatus(_Camel, frozen=True, rename="camel"):
    state: ContainerState = ContainerState()


class Condition(_Camel, frozen=True, rename="camel"):
    """What is said of a pod or node."""

    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodStatus(_Camel, frozen=True, rename="camel"):
    """The parts of a pod's status that scheduling reads."""

    phase: str = "Pending"
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    resource_claim_statuses: list[ClaimReference] | None = None


class Gres(msgspec.Struct, frozen=True):
    """A generic resource of a job, such as `gpu:1g.10gb` or `shard`."""

    name: str
    type: str = ""
    count: int = 1

    def __str__(self) -> str:
        return f"{self.name}:{self.type}" if self.type else self.name


class Pod(_Camel, frozen=True, rename="camel"):
    """The parts of a pod that scheduling reads."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    #: devices of its ResourceClaims, and nodes that these exclude, which the pod scheduler fills in
    claimed: tuple[Gres, ...] = ()
    closed: frozenset[str] = frozenset()
    #: claims that it shares with other pods of its gang, and their devices; likewise
    shared: tuple[str, ...] = ()
    shared_gres: tuple[Gres, ...] = ()
    #: how many of its gang start together as another object says (`groups`), which the pod scheduler fills in
    group_size: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`, the pod's key in caches and queues."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_over(self) -> bool:
        """Whether the pod has ended, so that it holds no resources."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_leaving(self) -> bool:
        """Whether the pod is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_placed(self) -> bool:
        """Whether the pod has a node."""
        return bool(self.spec.node_name)

    @property
    def is_gated(self) -> bool:
        """Whether a scheduling gate prevents its scheduling."""
        return bool(self.spec.scheduling_gates)

    @property
    def exit_code(self) -> int:
        """The first of its containers that failed; 1 for a pod that failed for another reason."""
        codes = [
            status.state.terminated.exit_code
            for status in self.status.container_statuses or ()
            if status.state.terminated is not None
        ]
        return next((code for code in codes if code), 1 if self.status.phase == "Failed" else 0)

    @property
    def job_id(self) -> int:
        """Id of its job; 0 if it is not placed yet."""
        text = (self.metadata.annotations or {}).get(JOB, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def slot(self) -> int | None:
        """Number of its task in the job."""
        text = (self.metadata.annotations or {}).get(SLOT, "")
        return int(text) if text.isascii() and text.isdigit() else None


class Shape(msgspec.Struct, frozen=True):
    """The resources that a pod takes on its node."""

    cpus: int
    memory_mib: int
    gres: tuple[Gres, ...] = ()
    #: claims that all pods of this shape share, so that they are on one node; and the devices of these claims
    shared: tuple[str, ...] = ()
    shared_gres: tuple[Gres, ...] = ()


def amount(value: str | int) -> float:
    """`500m`, `2`, `16Gi` as a number. Raises Unfit."""
    text = str(value)
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    if any(character.isspace() for character in text):
        raise Unfit(f"{text[:40]!r} is not a resource quantity")
    try:
        if text[-1:].isdecimal() or text[len(digits) :] not in _SUFFIXES:
            return float(text)
        return float(digits) * _SUFFIXES[text[len(digits) :]]
    except ValueError:
        raise Unfit(f"{text[:40]!r} is not a resource quantity") from None


def shape_of(pod: Pod) -> Shape:
    """What the pod requests, init containers and overhead included. Raises Unfit if a request is not supported."""
    total = requests_of(pod)
    gpus = {name: round(value) for name, value in total.items() if value and gres_type(name) is not None}
    if len(gpus) > 1:
        raise Unfit(f"GPUs of several kinds in one pod are not supported: ask for one of {', '.join(sorted(gpus))}")
    if gpus and pod.claimed:
        raise Unfit(f"a pod cannot request GPUs both as {next(iter(gpus))} and by a ResourceClaim: use the claim")
    if pod.shared and (gpus or pod.claimed):
        text = f"a pod that shares ResourceClaim {pod.shared[0]} with its gang cannot have devices of its own too"
        raise Unfit(text, "spec.resourceClaims")
    return Shape(
        cpus=max(1, math.ceil(round(total.get("cpu", 0.0), 6))),
        memory_mib=math.ceil(total.get("memory", 0.0) / 2**20),
        gres=tuple(_of_plugin(pod, name, count) for name, count in gpus.items()) or pod.claimed,
        shared=pod.shared,
        shared_gres=pod.shared_gres,
    )


def requests_of(pod: Pod) -> dict[str, float]:
    """What the kubelet counts for the pod, by resource name. Raises Unfit for what is no quantity."""
    spec = pod.spec
    #: an init container runs along with the sidecars that are listed before it
    along: list[Container] = []
    starting: dict[str, float] = {}
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            along.append(container)
        else:
            for name, value in _sum([container, *along]).items():
                starting[name] = max(starting.get(name, 0.0), value)
    total = _sum([*spec.containers, *along])
    for name, value in starting.items():
        total[name] = max(total.get(name, 0.0), value)
    if spec.resources is not None:
        limits = {name: text for name, text in (spec.resources.limits or {}).items() if not total.get(name)}
        for name, text in {**limits, **(spec.resources.requests or {})}.items():
            total[name] = amount(text)
    for name, text in (spec.overhead or {}).items():
        total[name] = total.get(name, 0.0) + amount(text)
    return total


def _of_plugin(pod: Pod, resource: str, count: int) -> Gres:
    kind = gres_type(resource)
    assert kind is not None
    name, own = kind
    return Gres(name, own or gpu_type(pod) if name == "gpu" else "", count)


def gpu_type(pod: Pod) -> str:
    """The type of GPU that the pod's annotation names; "" for any."""
    return pod.metadata.note(f"{PREFIX}gpu-type")


def gres_type(resource: str) -> tuple[str, str] | None:
    """Name and type ("": any) of the generic resource that a device plugin's resource stands for; None for others."""
    if resource.startswith(_MIG):
        return "gpu", resource.removeprefix(_MIG)
    if resource in SHARE_RESOURCES:
        return "shard", ""
    return ("gpu", "") if resource in GPU_RESOURCES else None


def devices_of(pod: Pod) -> set[str]:
    """Resources that only some nodes have, such as `nvidia.com/gpu`."""
    containers = [*pod.spec.containers, *(pod.spec.init_containers or ())]
    return {name for container in containers for name in container.resources.limits or () if "/" in name}


def _sum(containers: Iterable[Container]) -> dict[str, float]:
    total: dict[str, float] = {}
    for container in containers:
        asked = {**(container.resources.limits or {}), **(container.resources.requests or {})}
        for name, value in asked.items():
            total[name] = total.get(name, 0.0) + amount(value)
    return total


def workload_of(pod: Pod) -> str:
    """The key of the workload that the pod belongs to: `gang/NAMESPACE/NAME`, or `pod/NAMESPACE/NAME/UID`."""
    meta, spec = pod.metadata, pod.spec
    labels = meta.labels or {}
    name = meta.note(GANG)
    if not name and spec.scheduling_group is not None:
        name = f"podgroup-{spec.scheduling_group.pod_group_name}"
    if not name and spec.workload_ref is not None:
        reference = spec.workload_ref
        name = f"workload-{reference.name}-{reference.pod_group}-{reference.pod_group_replica_key or ''}"
    if not name and labels.get(GROUP_LABEL):
        name = f"pod-group-{labels[GROUP_LABEL]}"
    if not name and _LWS_GROUP in labels:
        name = f"lws-{labels[_LWS_GROUP]}"
    if not name and _JOBSET in labels:
        name = f"jobset-{labels[_JOBSET]}-{labels.get(_RESTART, '0')}"
    return f"gang/{meta.namespace}/{name}" if name else alone(pod)


def alone(pod: Pod) -> str:
    """The key of the workload that the pod is by itself."""
    return f"pod/{pod.key}/{pod.metadata.uid}"


class Maker(msgspec.Struct, frozen=True):
    """The object that says how many pods of a gang start together."""

    kind: str
    name: str


def maker_of(pod: Pod) -> Maker | None:
    """Of the pod's gang; None for a pod whose own annotations say its size, or that is in no gang."""
    labels = pod.metadata.labels or {}
    if pod.metadata.note(GANG):
        return None
    if pod.spec.scheduling_group is not None:
        return Maker("PodGroup", pod.spec.scheduling_group.pod_group_name)
    if pod.spec.workload_ref is not None:
        return Maker("Workload", pod.spec.workload_ref.name)
    for label, kind in ((GROUP_LABEL, "PodGroup"), (_LWS_NAME, "LeaderWorkerSet"), (_JOBSET, "JobSet")):
        if labels.get(label):
            return Maker(kind, labels[label])
    return None


def is_leader(pod: Pod) -> bool:
    """Whether it is the leader of a group of a LeaderWorkerSet."""
    return (pod.metadata.labels or {}).get(_LWS_INDEX) == "0"


def check_gang(pod: Pod) -> None:
    """Raises Unfit for a name of a gang that cannot be a part of its key, which an operator reads again."""
    name = pod.metadata.note(GANG)
    if name and not _GANG_NAME.fullmatch(name):
        text = "1 to 253 letters, digits, dots, dashes and underscores are expected"
        raise Unfit(f"{GANG}={name[:40]!r} is no name of a gang: {text}", annotation(GANG))


def gang_size(pods: Iterable[Pod]) -> int:
    """Number of pods that must exist before any starts. Raises Unfit if the pods do not state it, or disagree."""
    sizes: set[str] = set()
    for pod in pods:
        if pod.group_size > 0:
            sizes.add(str(pod.group_size))
            continue
        notes = (GANG_SIZE, _LWS_SIZE, _JOBSET_SIZE)
        sizes.add(next((text for name in notes if (text := pod.metadata.note(name))), ""))
    if len(sizes) != 1:
        text = f"the pods of the gang disagree on {GANG_SIZE}: {', '.join(sorted(sizes))}"
        raise Unfit(text, annotation(GANG_SIZE))
    text = sizes.pop()
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 100_000):
        text = f"{GANG_SIZE}={text!r}: the number of pods that start together is expected"
        raise Unfit(text, annotation(GANG_SIZE))
    return int(text)


def options_of(pod: Pod) -> dict[str, Any]:
    """Fields of slurmrestd's job from the pod's annotations. Raises Unfit."""
    options: dict[str, Any] = {}
    for name in ("account", "partition", "qos", "reservation", "licenses"):
        if text := pod.metadata.note(PREFIX + name):
            options[name] = text
    if text := pod.metadata.note(f"{PREFIX}time-limit"):
        options["time_limit"] = minutes(text)
    elif pod.spec.active_deadline_seconds:
        options["time_limit"] = {"set": True, "number": math.ceil(pod.spec.active_deadline_seconds / 60)}
    if text := pod.metadata.note(f"{PREFIX}priority"):
        if not (text.isascii() and text.isdigit() and int(text) < 2**32 - 16):
            text = (
                f"{PREFIX}priority={text[:20]!r} is no priority: give a number below 4294967280, or leave it to Slurm"
            )
            raise Unfit(text, annotation(f"{PREFIX}priority"))
        options["priority"] = {"set": True, "number": int(text)}
    return options


def minutes(text: str) -> dict[str, bool | int]:
    """A time limit in Slurm's notation (`90`, `1:30:00`, `2-0`, UNLIMITED), as a job's field. Raises Unfit."""
    try:
        limit = parse_minutes(text)
    except NotationError as error:
        name = f"{PREFIX}time-limit"
        raise Unfit(f"{name}={text[:20]!r}: {error}", annotation(name)) from error
    return {"set": True, "infinite": True} if limit >= INFINITE else {"set": True, "number": limit}
