"""A NodeSet and what is to be done for it: pods with slurmd to make, nodes to drain, pods to delete.

A pod's name is its node's. Pods are made and deleted here and not by a StatefulSet, which always takes the last one:
which pod goes depends on the jobs. Scale-in takes pods that are not ready, then idle ones, then those that drain
already, then busy ones; an update takes pods of another template, `maxUnavailable` at a time. Either way the node is
drained with a reason of ours, and its pod is deleted when no job is left on it. Drains of others are kept.

All of it is planned anew from what there is: pods, nodes and the resource.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from spritz.k8s.cluster_objects import CLUSTER, ETC, STATE, Cluster, Condition, Json, Metadata, labels, owner
from spritz.k8s.pods import PREFIX, amount
from spritz.k8s.slurm import Node

#: On pods: the NodeSet, the hash of the template, and whether a job is on the node.
NODE_SET: Final = f"{PREFIX}node-set"
REVISION: Final = f"{PREFIX}revision"
BUSY: Final = f"{PREFIX}busy"

#: Reasons of drains that are ours.
OURS: Final = "spritz-operator: "

_OCCUPIED = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_ABSENT = frozenset({"DOWN", "NOT_RESPONDING"})


class NodeSetSpec(msgspec.Struct, rename="camel"):
    cluster_ref: str
    cpus: int
    memory: str
    replicas: int = 1
    max_unavailable: int = 1
    image: str = ""
    gpus: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] | None = None
    tolerations: list[Json] | None = None
    privileged: bool = True


class NodeSetStatus(msgspec.Struct, rename="camel", omit_defaults=True):
    observed_generation: int = 0
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


class PodStatus(msgspec.Struct):
    phase: str = "Pending"


class NodePod(msgspec.Struct):
    """A pod of a NodeSet, as far as the NodeSet goes."""

    metadata: Metadata
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

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
    busy: dict[str, bool] = {}
    status: NodeSetStatus = msgspec.field(default_factory=NodeSetStatus)


def plan(node_set: NodeSet, pods: Sequence[NodePod], nodes: Mapping[str, Node], revision: str) -> Plan:
    """What to do now. `nodes`: all of the cluster; `revision`: of the template that pods are to have."""
    spec, found = node_set.spec, Plan(create=[], delete=[], drain={}, resume=[], forget=[], busy={})
    here = {pod.metadata.name: pod for pod in pods}
    # A pod that has ended makes room for another with its name.
    found.delete += [name for name, pod in here.items() if pod.is_over and not pod.is_leaving]
    living = [pod for pod in pods if not pod.is_over and not pod.is_leaving]

    excess = sorted(living, key=lambda pod: _worth(pod, nodes.get(pod.metadata.name)))
    excess = excess[: max(0, len(living) - spec.replicas)]
    for pod in excess:
        _retire(found, pod.metadata.name, nodes.get(pod.metadata.name), "scale-in")
    wanted = [pod for pod in living if pod not in excess]

    away = sum(not _is_up(nodes.get(pod.metadata.name)) for pod in wanted) + max(0, spec.replicas - len(wanted))
    stale = [pod for pod in wanted if pod.label(REVISION) != revision]
    for pod in sorted(stale, key=lambda pod: _worth(pod, nodes.get(pod.metadata.name))):
        node = nodes.get(pod.metadata.name)
        if _is_up(node):
            if away >= spec.max_unavailable:
                continue
            away += 1
        _retire(found, pod.metadata.name, node, "update")
    retired = {*found.drain, *found.delete}
    for pod in wanted:
        node = nodes.get(pod.metadata.name)
        if node is None or pod.metadata.name in retired or pod in stale:
            continue
        if _is_ours(node) and not _is_absent(node):
            found.resume.append(pod.metadata.name)

    free = (name for number in range(1 << 20) if (name := f"{node_set.metadata.name}-{number}") not in here)
    found.create = [next(free) for _ in range(spec.replicas - len(wanted))]
    for name, node in nodes.items():
        if name in here or not _is_named(name, node_set.metadata.name) or _is_busy(node):
            continue
        # A slurmd that has gone is noticed after SlurmdTimeout; what we drained needs no such wait.
        if _is_absent(node) or _is_ours(node):
            found.forget.append(name)
    for pod in living:
        busy = _is_busy(nodes.get(pod.metadata.name))
        if busy != (pod.label(BUSY) == "true"):
            found.busy[pod.metadata.name] = busy
    found.status = _status(node_set, wanted, stale, found, nodes)
    return found


def _retire(found: Plan, name: str, node: Node | None, why: str) -> None:
    """Delete the pod when it has no job; until then the node takes no more of them."""
    if node is None or (_is_absent(node) and not _is_busy(node)):
        found.delete.append(name)
    elif "DRAIN" not in node.state:
        found.drain[name] = f"{OURS}{why}"
    elif not _is_busy(node):
        found.delete.append(name)


def _status(
    node_set: NodeSet, wanted: list[NodePod], stale: list[NodePod], found: Plan, nodes: Mapping[str, Node]
) -> NodeSetStatus:
    spec, name = node_set.spec, node_set.metadata.name
    up = sum(_is_up(nodes.get(pod.metadata.name)) for pod in wanted)
    ready = up >= spec.replicas and not stale
    waiting = sorted(pod.metadata.name for pod in stale if _is_busy(nodes.get(pod.metadata.name)))
    message = f"{up} of {spec.replicas} nodes serve"
    if stale:
        message += f"; {len(stale)} to replace"
    if waiting:
        message += f", waits for the jobs on {', '.join(waiting[:5])}{' and others' if len(waiting) > 5 else ''}"
    return NodeSetStatus(
        observed_generation=node_set.metadata.generation,
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


def _worth(pod: NodePod, node: Node | None) -> tuple[int, int]:
    """What goes first is worth least: not ready, idle, draining, busy; of equals, the highest number."""
    rank = 0 if node is None or _is_absent(node) else 3 if _is_busy(node) else 2 if "DRAIN" in node.state else 1
    if node is not None and rank > 1 and _is_ours(node):
        rank = 1  # what we drain already goes on draining
    number = pod.metadata.name.rpartition("-")[2]
    return rank, -int(number) if number.isdigit() else 0


def _is_up(node: Node | None) -> bool:
    return node is not None and not _is_absent(node) and "DRAIN" not in node.state


def _is_absent(node: Node) -> bool:
    return not _ABSENT.isdisjoint(node.state)


def _is_busy(node: Node | None) -> bool:
    return node is not None and not _OCCUPIED.isdisjoint(node.state)


def _is_ours(node: Node) -> bool:
    return "DRAIN" in node.state and node.reason.startswith(OURS)


def _is_named(name: str, node_set: str) -> bool:
    stem, _dash, number = name.rpartition("-")
    return stem == node_set and number.isdigit()


def revision_of(template: Json) -> str:
    """Differs when the pods' template does."""
    return hashlib.sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:10]


def pod_template(cluster: Cluster, node_set: NodeSet) -> Json:
    """The spec of a pod, but for its name."""
    spec, name = node_set.spec, cluster.metadata.name
    limits: Json = {"cpu": str(spec.cpus), "memory": spec.memory}
    if spec.gpus:
        limits[spec.gpu_resource] = str(spec.gpus)
    # slurmd finds the machine's CPUs and memory, of which the pod has a part.
    memory = int(amount(spec.memory) / 2**20 * 0.9)
    line = f"CPUs={spec.cpus} RealMemory={memory} Feature={node_set.metadata.name}"
    server = f"{name}-controller.{cluster.metadata.namespace}"
    container = {
        "name": "slurmd",
        "image": spec.image or cluster.spec.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": ["slurmd", "-D", "-Z", "-N", "$(NODE_NAME)", "--conf-server", server, "--conf", line],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"requests": limits, "limits": limits},
        "securityContext": {"privileged": spec.privileged},
        "volumeMounts": [
            {"name": "keys", "mountPath": ETC, "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }
    # slurmd needs the cluster's key; the key of tokens is the control plane's.
    items = [{"key": "slurm.key", "path": "slurm.key"}]
    found: Json = {
        "containers": [container],
        "volumes": [
            {"name": "keys", "secret": {"secretName": f"{name}-keys", "defaultMode": 0o400, "items": items}},
            {"name": "state", "emptyDir": {}},
        ],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Always",
    }
    if spec.node_selector:
        found["nodeSelector"] = spec.node_selector
    if spec.tolerations:
        found["tolerations"] = spec.tolerations
    return found


def pod(cluster: Cluster, node_set: NodeSet, name: str, template: Json) -> Json:
    """A pod of the NodeSet."""
    marks = {NODE_SET: node_set.metadata.name, REVISION: revision_of(template), BUSY: "false"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": node_set.metadata.namespace,
            "labels": {**labels(cluster.metadata.name, "node"), **marks},
            "ownerReferences": owner("NodeSet", node_set.metadata),
        },
        "spec": {**template, "hostname": name},
    }


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
