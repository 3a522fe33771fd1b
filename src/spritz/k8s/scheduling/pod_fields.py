"""What the scheduler makes of each field of a PodSpec that bears on where the pod runs.

A field is kept (`pods`, `placing`, `claims` read it), or refused with its path where the pod demands what the scheduler
cannot keep, or it is only a wish, and the pod's owner is warned that it is not followed. A field that this table does
not name, of a later Kubernetes, is warned about too: nothing is passed over in silence.

Source: Kubernetes, PodSpec v1 core; "Scheduling Framework", the default plugins (what the default scheduler looks at).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from spritz.k8s.pods import Container, Pod, Unfit, gres_type


class Treatment(Enum):
    """What becomes of a field."""

    #: the pod gets what the field demands
    KEPT = "kept"
    #: parts of it are refused or warned about (`demands`, `wishes`); the others are kept
    PARTLY = "partly"
    #: it says nothing about nodes, or others than the scheduler act on it
    ELSEWHERE = "elsewhere"


#: field of PodSpec -> treatment
FIELDS: Mapping[str, Treatment] = {
    "activeDeadlineSeconds": Treatment.KEPT,  # the job's time limit
    "affinity": Treatment.PARTLY,
    "containers": Treatment.PARTLY,
    "initContainers": Treatment.PARTLY,
    "nodeName": Treatment.KEPT,  # the pod has its node: it is not queued
    "nodeSelector": Treatment.KEPT,
    "overhead": Treatment.KEPT,
    "preemptionPolicy": Treatment.PARTLY,
    "priorityClassName": Treatment.KEPT,  # by the administrator's policy
    "resourceClaims": Treatment.KEPT,
    "resources": Treatment.KEPT,
    "schedulerName": Treatment.KEPT,
    "schedulingGates": Treatment.KEPT,
    "schedulingGroup": Treatment.KEPT,
    "serviceAccountName": Treatment.KEPT,  # by the administrator's policy
    "tolerations": Treatment.KEPT,
    "topologySpreadConstraints": Treatment.PARTLY,
    "volumes": Treatment.PARTLY,
    "workloadRef": Treatment.KEPT,
    # The API server copies the overhead, selector and tolerations of a runtime class, and the number of a priority
    # class, into the pod; nodes of an operating system are chosen by their label.
    "runtimeClassName": Treatment.ELSEWHERE,
    "priority": Treatment.ELSEWHERE,
    "os": Treatment.ELSEWHERE,
    # The kubelet, the API server or controllers act on these.
    **dict.fromkeys(
        (
            "automountServiceAccountToken",
            "dnsConfig",
            "dnsPolicy",
            "enableServiceLinks",
            "ephemeralContainers",
            "evictionResponders",
            "hostAliases",
            "hostIPC",
            "hostNetwork",  # its ports are looked at with the containers
            "hostPID",
            "hostUsers",
            "hostname",
            "hostnameOverride",
            "imagePullSecrets",
            "readinessGates",
            "restartPolicy",
            "securityContext",
            "serviceAccount",
            "setHostnameAsFQDN",
            "shareProcessNamespace",
            "subdomain",
            "terminationGracePeriodSeconds",
        ),
        Treatment.ELSEWHERE,
    ),
}

_DURING = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def demands(pod: Pod) -> Iterator[Unfit]:
    """What the pod demands and the scheduler cannot keep."""
    spec = pod.spec
    if (affinity := spec.affinity) is not None:
        for name, terms in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
            if terms is not None and terms.required:
                text = "is not supported: use preferred terms, which are not followed, or another scheduler"
                yield Unfit(text, f"spec.affinity.{name}.{_DURING}")
    for number, constraint in enumerate(spec.topology_spread_constraints or ()):
        if constraint.when_unsatisfiable != "ScheduleAnyway":
            text = "DoNotSchedule is not supported: use ScheduleAnyway, which is not followed, or another scheduler"
            yield Unfit(text, f"spec.topologySpreadConstraints[{number}].whenUnsatisfiable")
    if not spec.host_network:
        for field, container in _containers(pod):
            for number, port in enumerate(container.ports or ()):
                if port.host_port:
                    text = "host ports are not supported, since two pods with one port may get one node: leave it out"
                    yield Unfit(text, f"{field}.ports[{number}].hostPort")


def check(pod: Pod) -> None:
    """Raises Unfit for the first of `demands`, with its path in the text: pods that came past the webhook get it by an
    event.
    """
    for unfit in demands(pod):
        raise Unfit(f"{unfit.field} {unfit}", unfit.field)


def wishes(pod: Pod) -> Iterator[str]:
    """What the pod would like and does not get, for a warning to its owner."""
    spec = pod.spec
    if (affinity := spec.affinity) is not None:
        for name, terms in (
            ("nodeAffinity", affinity.node_affinity),
            ("podAffinity", affinity.pod_affinity),
            ("podAntiAffinity", affinity.pod_anti_affinity),
        ):
            if terms is not None and terms.preferred:
                yield f"spec.affinity.{name}.{_PREFERRED}: preferences are not followed"
    for number, constraint in enumerate(spec.topology_spread_constraints or ()):
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            yield f"spec.topologySpreadConstraints[{number}]: preferences are not followed"
    if spec.preemption_policy == "Never":
        yield "spec.preemptionPolicy: is not followed; the QOS of the job says what it preempts"
    for number, volume in enumerate(spec.volumes or ()):
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            yield (
                f"spec.volumes[{number}]: on which nodes the volume can be used is not looked at; "
                "choose them by nodeSelector, and use a storage class with volumeBindingMode Immediate"
            )
    if spec.host_network and any(container.ports for _field, container in _containers(pod)):
        yield "spec.hostNetwork: ports of the node are not looked at; two pods with one port may get one node"
    uncounted = sorted({name for _field, container in _containers(pod) for name in _uncounted(container)})
    for name in uncounted:
        yield f"{name}: is not counted; the pod gets a node that has it, and fails there if too little is left"


def unknown(spec: Mapping[str, Any]) -> list[str]:
    """Warnings about fields of a later Kubernetes."""
    return [f"spec.{name}: this release does not know it; it is not looked at" for name in sorted(spec.keys() - FIELDS)]


def _uncounted(container: Container) -> Iterable[str]:
    names = {*(container.resources.requests or ()), *(container.resources.limits or ())}
    return (name for name in names if name not in ("cpu", "memory") and gres_type(name) is None)


def _containers(pod: Pod) -> Iterator[tuple[str, Container]]:
    """Containers with the paths of their fields."""
    for kind, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers or ())):
        for number, container in enumerate(containers):
            yield f"spec.{kind}[{number}]", container
