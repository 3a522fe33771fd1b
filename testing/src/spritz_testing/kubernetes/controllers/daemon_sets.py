"""DaemonSet: a pod on each node that its template selects."""

from __future__ import annotations

from spritz_testing.kubernetes.controllers.client import Client, deleting, is_ready, phase_of, pod_of
from spritz_testing.kubernetes.errors import Object


async def daemon_set(client: Client, namespace: str, name: str) -> None:
    """Create the pods that nodes lack; delete those of other nodes, and those that have ended."""
    daemon_set = client.find("daemonsets", namespace, name)
    if daemon_set is None:
        return
    template = daemon_set["spec"]["template"]
    selector = template["spec"].get("nodeSelector") or {}
    nodes = [
        node["metadata"]["name"]
        for node in client.cluster.among("nodes")
        if all((node["metadata"].get("labels") or {}).get(key) == value for key, value in selector.items())
    ]
    pods = {_node_of(pod): pod for pod in client.children(daemon_set, "pods") if not deleting(pod)}
    if not deleting(daemon_set):
        for node in nodes:
            if node not in pods:
                pod = pod_of(daemon_set, "DaemonSet", template, generateName=f"{name}-")
                term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                pod["spec"]["affinity"] = {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
                }
                if not await client.create_pod("daemonsets", daemon_set, pod):
                    break
        for node, pod in pods.items():
            if node not in nodes or phase_of(pod) in ("Failed", "Succeeded"):
                await client.delete("pods", pod)
    ready = sum(is_ready(pod) for pod in pods.values())

    def report(obj: Object) -> None:
        obj.setdefault("status", {}).update(
            currentNumberScheduled=len(pods),
            desiredNumberScheduled=len(nodes),
            numberMisscheduled=0,
            numberReady=ready,
            observedGeneration=daemon_set["metadata"]["generation"],
        )

    await client.modify("daemonsets", namespace, name, report)


def _node_of(pod: Object) -> str:
    """The node that a DaemonSet's pod is for, bound or not."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or [{}]
    return str(((terms[0].get("matchFields") or [{}])[0].get("values") or [""])[0])
