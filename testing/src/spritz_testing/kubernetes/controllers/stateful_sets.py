"""StatefulSet: pods with names of their own, in order, each with its volumes."""

from __future__ import annotations

import copy

from spritz_testing.kubernetes.controllers.client import (
    Client,
    deleting,
    is_ready,
    phase_of,
    pod_of,
    template_hash,
)
from spritz_testing.kubernetes.errors import Object


async def stateful_set(client: Client, namespace: str, name: str) -> None:
    """Create, replace and delete pods one after the other, unless podManagementPolicy is Parallel."""
    stateful_set = client.find("statefulsets", namespace, name)
    if stateful_set is None:
        return
    spec = stateful_set["spec"]
    revision = f"{name}-{template_hash(spec['template'])}"
    pods = {pod["metadata"]["name"]: pod for pod in client.children(stateful_set, "pods")}
    ordered = spec.get("podManagementPolicy") != "Parallel"
    first = (spec.get("ordinals") or {}).get("start", 0)
    pod_names = [f"{name}-{first + index}" for index in range(spec["replicas"])]
    if not deleting(stateful_set) and await _create_pods(client, stateful_set, pod_names, pods, ordered, revision):
        await _remove_pods(client, stateful_set, pod_names, pods, ordered, revision)
    pods = {pod["metadata"]["name"]: pod for pod in client.children(stateful_set, "pods")}

    def report(obj: Object) -> None:
        status = obj.setdefault("status", {})
        ready = sum(is_ready(pod) for pod in pods.values())
        updated = sum(_revision_of(pod) == revision for pod in pods.values())
        status.update(
            replicas=len(pods),
            readyReplicas=ready,
            availableReplicas=ready,
            updatedReplicas=updated,
            updateRevision=revision,
        )
        status["currentReplicas"] = updated
        if updated == len(pods):
            status["currentRevision"] = revision
        status["observedGeneration"] = stateful_set["metadata"]["generation"]

    await client.modify("statefulsets", namespace, name, report)


async def _create_pods(
    client: Client, stateful_set: Object, pod_names: list[str], pods: dict[str, Object], ordered: bool, revision: str
) -> bool:
    """Create the pods that are missing, and delete one that has ended. False if others must wait for that."""
    for pod_name in pod_names:
        pod = pods.get(pod_name)
        if pod is not None and phase_of(pod) in ("Failed", "Succeeded"):
            await client.delete("pods", pod)
            return False
        if pod is None:
            if not await _create_pod(client, stateful_set, pod_name, revision) or ordered:
                return False
        elif ordered and not is_ready(pod):
            # A pod of an old revision that is not ready may be replaced; any other is waited for.
            return _revision_of(pod) != revision and not deleting(pod)
    return True


async def _create_pod(client: Client, stateful_set: Object, pod_name: str, revision: str) -> bool:
    spec = stateful_set["spec"]
    pod = pod_of(stateful_set, "StatefulSet", spec["template"], name=pod_name)
    pod["metadata"].setdefault("labels", {}).update(
        {
            "statefulset.kubernetes.io/pod-name": pod_name,
            "controller-revision-hash": revision,
            "apps.kubernetes.io/pod-index": pod_name.rsplit("-", 1)[1],
        }
    )
    pod["spec"]["hostname"] = pod_name
    if spec.get("serviceName"):
        pod["spec"]["subdomain"] = spec["serviceName"]
    await _add_volumes(client, stateful_set, pod_name, pod)
    return await client.create_pod("statefulsets", stateful_set, pod)


async def _remove_pods(
    client: Client, stateful_set: Object, pod_names: list[str], pods: dict[str, Object], ordered: bool, revision: str
) -> None:
    """Delete pods beyond the number of replicas; then one of an old revision, the last first."""
    extra = sorted((name for name in pods if name not in pod_names), key=_ordinal, reverse=True)
    for pod_name in extra:
        if not deleting(pods[pod_name]):
            await client.delete("pods", pods[pod_name])
        if ordered:
            return
    strategy = stateful_set["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate" or extra:
        return
    partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
    for pod_name in reversed(pod_names):
        pod = pods.get(pod_name)
        if pod is None or _ordinal(pod_name) < partition:
            continue
        if _revision_of(pod) != revision:
            if not deleting(pod):
                await client.delete("pods", pod)
            return
        if not is_ready(pod):
            return


def _ordinal(pod_name: str) -> int:
    return int(pod_name.rsplit("-", 1)[1])


def _revision_of(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get("controller-revision-hash", ""))


async def _add_volumes(client: Client, stateful_set: Object, pod_name: str, pod: Object) -> None:
    """Give a pod the volumes of volumeClaimTemplates, with claims that outlive it."""
    namespace = stateful_set["metadata"]["namespace"]
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        claim = f"{template['metadata']['name']}-{pod_name}"
        if client.find("persistentvolumeclaims", namespace, claim) is None:
            metadata = {
                "name": claim,
                "labels": (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {},
            }
            await client.create(
                "persistentvolumeclaims", namespace, {"metadata": metadata, "spec": copy.deepcopy(template["spec"])}
            )
        volumes = [
            volume for volume in pod["spec"].get("volumes") or () if volume["name"] != template["metadata"]["name"]
        ]
        volumes.append({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}})
        pod["spec"]["volumes"] = volumes
