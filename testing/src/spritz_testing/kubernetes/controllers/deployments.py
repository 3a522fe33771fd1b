"""Deployment and ReplicaSet: replicas of a template, and the move from an old template to a new one."""

from __future__ import annotations

import copy
import math
from typing import Any

from spritz_testing.kubernetes.conditions import set_condition
from spritz_testing.kubernetes.controllers.client import (
    Client,
    deleting,
    is_active,
    is_ready,
    pod_of,
    reference,
    set_counts,
    template_hash,
)
from spritz_testing.kubernetes.errors import Object, Refusal


async def deployment(client: Client, namespace: str, name: str) -> None:
    """Have one ReplicaSet for the present template, and move replicas to it."""
    deployment = client.find("deployments", namespace, name)
    if deployment is None or deleting(deployment):
        return
    digest = template_hash(deployment["spec"]["template"])
    sets = client.children(deployment, "replicasets")
    current = next((obj for obj in sets if obj["metadata"].get("labels", {}).get("pod-template-hash") == digest), None)
    old = [obj for obj in sets if obj is not current]
    if current is None:
        try:
            current = await client.create("replicasets", namespace, _replica_set_of(deployment, digest, first=not old))
        except Refusal as refusal:
            if refusal.code == 409:
                return
            raise
    await _roll(client, namespace, deployment["spec"], current, old)
    sets = client.children(deployment, "replicasets")
    now = client.cluster.timestamp()
    await client.modify(
        "deployments", namespace, name, lambda obj: _report(obj, deployment, sets, f"{name}-{digest}", now)
    )


def _replica_set_of(deployment: Object, digest: str, *, first: bool) -> Object:
    """The ReplicaSet of the present template: all replicas if it is the first, else none yet."""
    spec = deployment["spec"]
    template = copy.deepcopy(spec["template"])
    labels = {**(template.setdefault("metadata", {}).get("labels") or {}), "pod-template-hash": digest}
    template["metadata"]["labels"] = labels
    selector = copy.deepcopy(spec["selector"])
    selector.setdefault("matchLabels", {})["pod-template-hash"] = digest
    metadata = {
        "name": f"{deployment['metadata']['name']}-{digest}",
        "labels": labels,
        "ownerReferences": [reference(deployment, "Deployment")],
    }
    replicas = spec["replicas"] if first else 0
    return {"metadata": metadata, "spec": {"replicas": replicas, "selector": selector, "template": template}}


def _report(obj: Object, deployment: Object, sets: list[Object], current: str, now: str) -> None:
    """Write the deployment's status. `current`: name of the ReplicaSet of the present template."""
    spec = deployment["spec"]
    status = obj.setdefault("status", {})
    statuses = {replica_set["metadata"]["name"]: replica_set.get("status") or {} for replica_set in sets}

    def total(field: str) -> int:
        return sum(status_of_set.get(field, 0) for status_of_set in statuses.values())

    available = total("availableReplicas")
    set_counts(
        status,
        {
            "replicas": total("replicas"),
            "updatedReplicas": statuses.get(current, {}).get("replicas", 0),
            "readyReplicas": total("readyReplicas"),
            "availableReplicas": available,
            "unavailableReplicas": max(0, spec["replicas"] - available),
        },
    )
    status["observedGeneration"] = deployment["metadata"]["generation"]
    enough = available >= spec["replicas"] - _share(spec["strategy"], "maxUnavailable", spec["replicas"], up=False)
    set_condition(
        obj,
        "Available",
        "True" if enough else "False",
        now,
        reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
        message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    )


async def _roll(client: Client, namespace: str, spec: Object, current: Object, old: list[Object]) -> None:
    """Move replicas from the old sets to the current one, as far as surge and unavailability allow."""
    replicas = spec["replicas"]
    strategy = spec["strategy"]
    if spec.get("paused"):
        return
    alive = [replica_set for replica_set in old if replica_set["spec"]["replicas"] > 0]
    if strategy["type"] == "Recreate":
        for replica_set in alive:
            await _resize(client, namespace, replica_set, 0)
        if any((replica_set.get("status") or {}).get("replicas", 0) for replica_set in old):
            return
        await _resize(client, namespace, current, replicas)
        return
    surge = _share(strategy, "maxSurge", replicas, up=True)
    unavailable = _share(strategy, "maxUnavailable", replicas, up=False)
    if surge == unavailable == 0:
        unavailable = 1
    others = sum(replica_set["spec"]["replicas"] for replica_set in old)
    size = min(replicas, max(0, replicas + surge - others)) if others else replicas
    if size > current["spec"]["replicas"] or not others:
        await _resize(client, namespace, current, size)
    ready = sum((replica_set.get("status") or {}).get("availableReplicas", 0) for replica_set in [*old, current])
    spare = ready - (replicas - unavailable)
    for replica_set in alive:
        # Remove replicas that are not ready first.
        broken = replica_set["spec"]["replicas"] - (replica_set.get("status") or {}).get("availableReplicas", 0)
        less = min(replica_set["spec"]["replicas"], max(0, broken) + max(0, spare))
        if less > 0:
            spare -= max(0, less - max(0, broken))
            await _resize(client, namespace, replica_set, replica_set["spec"]["replicas"] - less)


async def _resize(client: Client, namespace: str, replica_set: Object, replicas: int) -> None:
    if replica_set["spec"]["replicas"] != replicas:
        await client.modify(
            "replicasets",
            namespace,
            replica_set["metadata"]["name"],
            lambda obj: obj["spec"].update(replicas=replicas),
            "",
        )


async def replica_set(client: Client, namespace: str, name: str) -> None:
    """Create pods until there are enough, or delete the least valuable ones."""
    replica_set = client.find("replicasets", namespace, name)
    if replica_set is None:
        return
    pods = [pod for pod in client.children(replica_set, "pods") if is_active(pod)]
    if not deleting(replica_set):
        missing = replica_set["spec"]["replicas"] - len(pods)
        for _ in range(max(0, missing)):
            pod = pod_of(replica_set, "ReplicaSet", replica_set["spec"]["template"], generateName=f"{name}-")
            if not await client.create_pod("replicasets", replica_set, pod):
                break
        for pod in sorted(pods, key=_worth)[: max(0, -missing)]:
            await client.delete("pods", pod)
    pods = [pod for pod in client.children(replica_set, "pods") if is_active(pod)]
    ready = sum(is_ready(pod) for pod in pods)

    def report(obj: Object) -> None:
        status = obj.setdefault("status", {})
        status["replicas"] = len(pods)
        set_counts(status, {"fullyLabeledReplicas": len(pods), "readyReplicas": ready, "availableReplicas": ready})
        status["observedGeneration"] = replica_set["metadata"]["generation"]

    await client.modify("replicasets", namespace, name, report)


def _worth(pod: Object) -> tuple[bool, bool, str]:
    """Sort key for scale-in: pods that are not bound, not ready, or young come first."""
    age = str(pod["metadata"]["creationTimestamp"])
    return bool(pod["spec"].get("nodeName")), is_ready(pod), "".join(chr(255 - ord(char)) for char in age)


def _share(strategy: Object, field: str, of: int, *, up: bool) -> int:
    return number_of((strategy.get("rollingUpdate") or {}).get(field, 0), of, up=up)


def number_of(value: Any, of: int, *, up: bool) -> int:
    """A number, or a percentage of `of`, rounded up or down."""
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * of / 100
        return math.ceil(part) if up else math.floor(part)
    return int(value)
