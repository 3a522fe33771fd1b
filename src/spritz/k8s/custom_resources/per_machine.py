"""NodeSets with a pod on each machine: which machines these are, and the pods' names.

A machine has a pod if it has the labels of `nodeSelector`, no taint that `tolerations` do not allow, and is neither
cordoned nor out of use for its health. The kubelet's own taints, such as not-ready, do not count: jobs outlive them.

Source: Kubernetes, "DaemonSet", "Taints and Tolerations".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from spritz.k8s.custom_resources.health import UNHEALTHY
from spritz.k8s.custom_resources.node_sets import MachineNode, NodeSet

Json = dict[str, Any]

_NAME_LENGTH_MAX: Final = 63


def machines_of(node_set: NodeSet, machines: Iterable[MachineNode]) -> dict[str, str]:
    """Pod -> machine, for all machines of a NodeSet that is per machine."""
    stem, spec = node_set.metadata.name, node_set.spec
    fitting = sorted(
        machine.metadata.name
        for machine in machines
        if _fits(machine, spec.node_selector or {}, spec.tolerations or ())
    )
    return {pod_name(stem, machine): machine for machine in fitting}


def pod_name(node_set: str, machine: str) -> str:
    """Of the pod, which is a host name: machines whose names differ in dots and dashes alone would have the same."""
    name = f"{node_set}-{machine}".replace(".", "-")
    if len(name) <= _NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(machine.encode()).hexdigest()[:8]
    return f"{name[: _NAME_LENGTH_MAX - 9].rstrip('-')}-{digest}"


def _fits(machine: MachineNode, selector: dict[str, str], tolerations: Iterable[Json]) -> bool:
    have = machine.metadata.labels or {}
    if machine.spec.unschedulable or UNHEALTHY in have or machine.metadata.deletion_timestamp:
        return False
    if any(have.get(name) != value for name, value in selector.items()):
        return False
    allowed = list(tolerations)
    return all(
        taint.is_passing or any(taint.is_tolerated(toleration) for toleration in allowed)
        for taint in machine.spec.taints
    )
