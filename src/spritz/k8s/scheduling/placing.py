"""Converts pods to a job's description, and a job's allocation to placements of pods.

One job for each workload: a task for each pod, with the pod's resources. Pods of several shapes (a leader and its
workers) are components of a heterogeneous job, a component for each shape, in the order of the shapes' first pods.

Nodes that a pod cannot use (selector, affinity, taints) are excluded from its job by name: they are few kinds of rules
that only Kubernetes has, and the scheduler's own rules stay one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from spritz.k8s.pods import (
    Condition,
    Expression,
    Metadata,
    Pod,
    Shape,
    Term,
    Unfit,
    check_gang,
    devices_of,
    options_of,
    shape_of,
)
from spritz.k8s.policy import Policy
from spritz.k8s.scheduling import pod_fields
from spritz.k8s.slurm import Job

#: Feature of the nodes on which pods can run: other nodes of the cluster are not nodes of Kubernetes.
FEATURE = "kubernetes"

#: Prefix of a job's AdminComment, which names its workload, so that a restarted operator finds its jobs. Ordinary users
#: cannot set it, so no job of theirs passes for a workload's.
COMMENT = "kubernetes:"


class Taint(msgspec.Struct, frozen=True, rename="camel"):
    """Keeps pods off a node that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a node's spec that decide whether it may get pods."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a node's status that become a node of Slurm."""

    allocatable: dict[str, str | int] | None = None
    conditions: list[Condition] | None = None


class KubeNode(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def given(self) -> Mapping[str, str | int]:
        """Allocatable resources; empty until the kubelet has reported them."""
        return self.status.allocatable or {}

    def admission(self) -> tuple[object, ...]:
        """The properties by which `admits` decides."""
        return self.metadata.labels, self.spec.taints, set(self.given)

    @property
    def is_ready(self) -> bool:
        return any(
            condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions or ()
        )


class Place(msgspec.Struct, frozen=True):
    """The node for one pod, and its devices there: for each, `gpu` or `shard`, and the number of the GPU."""

    node: str
    devices: tuple[tuple[str, int], ...] = ()

    @property
    def gpus(self) -> list[int]:
        """Numbers of the GPUs that it has, or has shards of."""
        return list(dict.fromkeys(number for _name, number in self.devices))


def admits(node: KubeNode, pod: Pod) -> bool:
    """Whether the pod may run on the node, by selector, required affinity, taints and kinds of devices."""
    if not devices_of(pod) <= (node.status.allocatable or {}).keys():
        return False
    labels = {**(node.metadata.labels or {}), "metadata.name": node.name}
    if any(labels.get(key) != value for key, value in (pod.spec.node_selector or {}).items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is not None and not any(_holds(term, labels) for term in required.node_selector_terms):
        return False
    return all(
        any(toleration.tolerates(taint.key, taint.value, taint.effect) for toleration in pod.spec.tolerations or ())
        for taint in node.spec.taints or ()
        if taint.effect in ("NoSchedule", "NoExecute") and taint.key != "node.kubernetes.io/unschedulable"
    )


def product_of(node: KubeNode) -> str:
    """The model of the node's GPUs, as its label says; "" without."""
    return (node.metadata.labels or {}).get("nvidia.com/gpu.product", "").lower().replace(" ", "-")


class ClosedNodes:
    """Names of nodes that a pod cannot use, cached for pods with equal constraints. `clear` it when a node changes."""

    def __init__(self, nodes: Callable[[], Iterable[KubeNode]]) -> None:
        self._nodes = nodes
        self._found: dict[bytes, list[str]] = {}
        #: nodes of Slurm with the feature, perhaps of another Kubernetes
        self._in_slurm: frozenset[str] = frozenset()

    def clear(self) -> None:
        self._found.clear()

    def set_nodes_of_slurm(self, names: Iterable[str]) -> None:
        """Nodes with the feature `kubernetes`. Those that are not in this Kubernetes are closed to all pods."""
        self._in_slurm = frozenset(names)
        self.clear()

    def of(self, pod: Pod) -> list[str]:
        spec = pod.spec
        key = msgspec.json.encode((spec.node_selector, spec.affinity, spec.tolerations, sorted(devices_of(pod))))
        if key not in self._found:
            here = list(self._nodes())
            foreign = sorted(self._in_slurm - {node.name for node in here})
            self._found[key] = [*(node.name for node in here if not admits(node, pod)), *foreign]
        return self._found[key]


def _holds(term: Term, labels: Mapping[str, str]) -> bool:
    lines = [*(term.match_expressions or ()), *(term.match_fields or ())]
    return bool(lines) and all(_matches(line, labels) for line in lines)


def _matches(line: Expression, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(line.key), line.values or []
    if line.operator == "In":
        return value in values
    if line.operator == "NotIn":
        return value not in values
    if line.operator == "Exists":
        return value is not None
    if line.operator == "DoesNotExist":
        return value is None
    try:
        number, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if line.operator == "Gt" else number < bound if line.operator == "Lt" else False


def by_shape(pods: Iterable[Pod]) -> list[tuple[Shape, list[Pod]]]:
    """The pods grouped by their requests. Raises Unfit."""
    groups: dict[Shape, list[Pod]] = {}
    for pod in pods:
        groups.setdefault(shape_of(pod), []).append(pod)
    return list(groups.items())


def closed_to(members: Sequence[Pod], closed_nodes: ClosedNodes) -> list[str]:
    """Nodes that none of these pods of one shape may get."""
    return [*closed_nodes.of(members[0]), *sorted(frozenset().union(*(pod.closed for pod in members)))]


def describe(workload: str, pods: Sequence[Pod], policy: Policy, closed_nodes: ClosedNodes) -> list[dict[str, Any]]:
    """The job of these pods for `Slurm.allocate`: one description for each component. Raises Unfit."""
    descriptions = []
    for pod in pods:
        pod_fields.check(pod)
        policy.check(pod)
        check_gang(pod)
    shapes = by_shape(pods)
    for claim, count in Counter(name for shape, _members in shapes for name in shape.shared).items():
        if count > 1:
            text = (
                f"pods that share ResourceClaim {claim} are on one node, so they must request the same CPUs and memory"
            )
            raise Unfit(text, "spec.resourceClaims")
    for shape, members in shapes:
        first = members[0]
        closed = closed_to(members, closed_nodes)
        desc: dict[str, Any] = {
            **policy.fields(first),
            **options_of(first),
            "flags": ["EXTERNAL_JOB"],
            "constraints": FEATURE,
            "name": workload.split("/")[2][:200],
            "admin_comment": f"{COMMENT}{workload}",
            "current_working_directory": "/",
            "tasks": len(members),
            "cpus_per_task": shape.cpus,
        }
        if shape.memory_mib:
            desc["memory_per_cpu"] = {"set": True, "number": math.ceil(shape.memory_mib / shape.cpus)}
        if shape.gres:
            desc["tres_per_task"] = ",".join(f"gres/{gres}={gres.count}" for gres in shape.gres)
        if shape.shared:
            desc |= {"minimum_nodes": 1, "maximum_nodes": 1}
            desc["tres_per_node"] = ",".join(f"gres/{gres}={gres.count}" for gres in shape.shared_gres)
        if closed:
            desc["excluded_nodes"] = closed
        descriptions.append(desc)
    return descriptions


def components(pods: Sequence[Pod], jobs: Iterable[Job]) -> list[tuple[Shape, list[Pod], Job]]:
    """The component for each shape of pods: that in which some of them are placed already, else the next free one.

    Pods that have ended count too, so that a new worker stays a worker after its leader has ended.
    """
    left = {job.id: job for job in sorted(jobs, key=lambda job: job.id)}
    shapes = by_shape(pods)
    chosen: dict[Shape, Job] = {}
    for shape, members in shapes:
        number = next((pod.job_id for pod in members if pod.job_id in left), 0)
        if number:
            chosen[shape] = left.pop(number)
    free = iter(left.values())
    matched = []
    for shape, members in shapes:
        job = chosen.get(shape) or next(free, None)
        if job is not None:
            matched.append((shape, members, job))
    return matched


def places(job: Job, shape: Shape) -> list[Place]:
    """A place for each of the job's tasks, in the order of its nodes. Devices of shared claims are in each of them."""
    places_of_job: list[Place] = []
    for share in job.allocation.nodes if job.allocation is not None else ():
        common = [
            (wanted.name, number)
            for wanted in shape.shared_gres
            for number in share.devices(wanted.name, wanted.type)[: wanted.count]
        ]
        devices = [(wanted.name, share.devices(wanted.name, wanted.type), wanted.count) for wanted in shape.gres]
        for task in range(share.cpu_count // shape.cpus):
            task_gpus = [
                [(name, number) for number in numbers[task * count : (task + 1) * count]]
                for name, numbers, count in devices
            ]
            if all(len(some) == wanted.count for some, wanted in zip(task_gpus, shape.gres, strict=True)):
                own = [device for some in task_gpus for device in some]
                places_of_job.append(Place(share.node, tuple(own + common)))
    return places_of_job


def seat(pods: Sequence[Pod], offered: Sequence[Place]) -> dict[str, int]:
    """uid -> index of a free place, for pods without one. Places of running pods stay taken."""
    taken = {pod.slot for pod in pods if pod.slot is not None and not pod.is_over}
    free = (number for number in range(len(offered)) if number not in taken)
    return {
        pod.metadata.uid: number
        for pod, number in zip((pod for pod in pods if pod.slot is None and not pod.is_over), free, strict=False)
    }
