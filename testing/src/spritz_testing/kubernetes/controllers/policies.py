"""Status of PodDisruptionBudgets (evictions allowed) and of ResourceQuotas (what is used)."""

from __future__ import annotations

from typing import Any

from spritz_testing.kubernetes import admission
from spritz_testing.kubernetes.conditions import set_condition
from spritz_testing.kubernetes.controllers.client import Client, deleting, is_ready, phase_of
from spritz_testing.kubernetes.controllers.deployments import number_of
from spritz_testing.kubernetes.errors import Object
from spritz_testing.kubernetes.selectors import matches_label_selector


async def budget(client: Client, namespace: str, name: str) -> None:
    """Count the healthy pods of a budget, and how many evictions it allows."""
    budget = client.find("poddisruptionbudgets", namespace, name)
    if budget is None:
        return
    spec = budget["spec"]
    pods = [
        pod
        for pod in client.cluster.among("pods", namespace)
        if matches_label_selector(spec.get("selector"), pod["metadata"].get("labels") or {})
        and phase_of(pod) not in ("Succeeded", "Failed")
    ]
    # A number that stays is of the pods that there are; all else is of those that their controllers are to have.
    is_number = isinstance(spec.get("minAvailable"), int)
    expected = len(pods) if is_number else _scale(client, namespace, pods)
    disrupted = {
        pod_name: evicted_at
        for pod_name, evicted_at in ((budget.get("status") or {}).get("disruptedPods") or {}).items()
        if any(pod["metadata"]["name"] == pod_name and not deleting(pod) for pod in pods)
    }
    healthy = sum(is_ready(pod) and not deleting(pod) and pod["metadata"]["name"] not in disrupted for pod in pods)
    if spec.get("maxUnavailable") is not None:
        desired = max(0, expected - number_of(spec["maxUnavailable"], expected, up=True))
    else:
        desired = number_of(spec.get("minAvailable", 1), expected, up=True)

    def report(obj: Object) -> None:
        status = obj.setdefault("status", {})
        allowed = max(0, healthy - desired) if expected else 0
        status.update(currentHealthy=healthy, desiredHealthy=desired, expectedPods=expected, disruptionsAllowed=allowed)
        status["observedGeneration"] = budget["metadata"]["generation"]
        if disrupted:
            status["disruptedPods"] = disrupted
        else:
            status.pop("disruptedPods", None)
        set_condition(
            obj,
            "DisruptionAllowed",
            "True" if allowed else "False",
            client.cluster.timestamp(),
            reason="SufficientPods" if allowed else "InsufficientPods",
        )

    await client.modify("poddisruptionbudgets", namespace, name, report)


def _scale(client: Client, namespace: str, pods: list[Object]) -> int:
    """How many pods the controllers of these are to have, each counted once; pods without one do not count."""
    scales: dict[str, int] = {}
    for pod in pods:
        for owner in pod["metadata"].get("ownerReferences") or ():
            kind = client.cluster.kind_named(owner["apiVersion"], owner["kind"]) if owner.get("controller") else None
            if kind is None:
                continue
            obj = client.cluster.by_uid(owner["uid"])
            path = (kind.scale_paths or {}).get("specReplicasPath", ".spec.replicas")
            found: Any = obj
            for word in path.strip(".").split("."):
                found = found.get(word) if isinstance(found, dict) else None
            if isinstance(found, int):
                scales[owner["uid"]] = found
    return sum(scales.values())


async def quota(client: Client, namespace: str, name: str) -> None:
    """Add up what the objects of a namespace use of a quota."""
    quota = client.find("resourcequotas", namespace, name)
    if quota is None:
        return
    hard = (quota.get("spec") or {}).get("hard") or {}
    used = {
        resource: admission.plain(admission.quota_used(resource, namespace, client.cluster.among)) for resource in hard
    }

    def report(obj: Object) -> None:
        obj["status"] = {"hard": dict(hard), "used": used}

    await client.modify("resourcequotas", namespace, name, report)
