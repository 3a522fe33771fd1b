"""The subresources of pods: bindings and evictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz_testing.kubernetes import errors, selectors
from spritz_testing.kubernetes.conditions import set_condition
from spritz_testing.kubernetes.errors import Object, Refusal

if TYPE_CHECKING:
    from spritz_testing.kubernetes.cluster import Cluster, Request


async def bind(cluster: Cluster, namespace: str, name: str, binding: Object, request: Request) -> None:
    """Raises Refusal (409) if the pod is bound, gated or being deleted."""
    kind = cluster.plural("pods")
    node = (binding.get("target") or {}).get("name")
    target = (binding.get("target") or {}).get("kind", "")
    if not node:
        raise errors.invalid_object("Binding", "", name, [errors.required("target.name")])
    if target not in ("", "Node", "Minion"):
        raise errors.invalid_object(
            "Binding", "", name, [errors.unsupported("target.kind", target, ["Node", "<empty>"])]
        )

    def change(pod: Object) -> Object:
        def refuse(why: str) -> Refusal:
            return errors.conflict("pods/binding", "", name, why)

        metadata = pod["metadata"]
        uid = (binding.get("metadata") or {}).get("uid")
        if uid and uid != metadata["uid"]:
            raise refuse(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}")
        if metadata.get("deletionTimestamp"):
            raise refuse(f"pod {name} is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise refuse(f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"')
        if pod["spec"].get("schedulingGates"):
            raise refuse(f"pod {name} has non-empty .spec.schedulingGates")
        pod["spec"]["nodeName"] = node
        added = (binding.get("metadata") or {}).get("annotations")
        if added:
            metadata["annotations"] = (metadata.get("annotations") or {}) | added
        set_condition(pod, "PodScheduled", "True", cluster.timestamp())
        return pod

    await cluster.modify(kind, namespace, name, change, request.manager, subresource="binding", dry_run=request.dry_run)


async def evict(cluster: Cluster, namespace: str, name: str, eviction: Object, request: Request) -> None:
    """Delete the pod unless a PodDisruptionBudget forbids it. Raises Refusal (429)."""
    kind = cluster.plural("pods")
    pod = cluster.get(kind, namespace, name)
    options = eviction.get("deleteOptions") or {}
    wanted = (options.get("preconditions") or {}).get("uid")
    if wanted and wanted != pod["metadata"]["uid"]:
        text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {pod['metadata']['uid']}"
        raise errors.conflict("pods", "", name, text)
    phase = (pod.get("status") or {}).get("phase")
    if phase not in ("Pending", "Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp"):
        await _spend_disruption(cluster, namespace, name, pod)
    if request.dry_run:
        return
    if not pod["metadata"].get("deletionTimestamp") and phase not in ("Succeeded", "Failed"):

        def mark(pod: Object) -> Object:
            set_condition(
                pod,
                "DisruptionTarget",
                "True",
                cluster.timestamp(),
                reason="EvictionByEvictionAPI",
                message="Eviction API: evicting",
            )
            return pod

        await cluster.modify(kind, namespace, name, mark, "kube-apiserver", subresource="status")
    await cluster.delete(kind, namespace, name, options, request)


async def _spend_disruption(cluster: Cluster, namespace: str, name: str, pod: Object) -> None:
    """Count the eviction against the pod's disruption budget. Raises Refusal if the budget allows none."""
    labels = pod["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in cluster.among("poddisruptionbudgets", namespace)
        if selectors.matches_label_selector(budget["spec"].get("selector"), labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise Refusal(500, "InternalError", f"Internal error occurred: {text}")
    (budget,) = budgets
    status = budget.get("status") or {}
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in (pod.get("status") or {}).get("conditions") or ()
    )
    if not ready:
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        if status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0:
            return
    why = ""
    if (status.get("observedGeneration") or 0) < budget["metadata"].get("generation", 0):
        why = f"The disruption budget {budget['metadata']['name']} is still being processed by the server."
    elif status.get("disruptionsAllowed", 0) <= 0:
        why = (
            f"The disruption budget {budget['metadata']['name']} needs {status.get('desiredHealthy', 0)} healthy "
            f"pods and has {status.get('currentHealthy', 0)} currently"
        )
    if why:
        refusal = errors.too_many(
            "Cannot evict pod as it would violate the pod's disruption budget.", 10 if "processed" in why else 0
        )
        refusal.details["causes"] = [{"reason": "DisruptionBudget", "message": why}]
        raise refusal

    def spend(budget: Object) -> Object:
        budget["status"]["disruptionsAllowed"] -= 1
        budget["status"].setdefault("disruptedPods", {})[name] = cluster.timestamp()
        return budget

    await cluster.modify(
        cluster.plural("poddisruptionbudgets"),
        namespace,
        budget["metadata"]["name"],
        spend,
        "kube-apiserver",
        subresource="status",
    )
