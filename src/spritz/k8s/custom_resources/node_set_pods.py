"""Reconciles NodeSets: carries out what `node_sets` plans, and joins their pods to the cluster.

A NodeSet is reconciled when it or one of its pods changes, and every half minute for the states of its nodes in
slurmctld.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.http.rest import RestError
from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.custom_resources.cluster_clients import ClusterClients
from spritz.k8s.custom_resources.cluster_objects import NETWORK, Cluster, Json, owner
from spritz.k8s.custom_resources.control import ClusterNode, Control
from spritz.k8s.custom_resources.machine_health import MachineHealth
from spritz.k8s.custom_resources.node_sets import (
    BUSY,
    FORCE,
    NODE_SET,
    OURS,
    MachineNode,
    NodePod,
    NodeSet,
    Plan,
    budget,
    is_absent,
    is_known,
    is_node_of,
    join_secret,
    plan,
    pod,
    pod_template,
    revision_of,
)
from spritz.k8s.custom_resources.objects import AGAIN, EXPIRES, SOON, Objects, leaves, path_of
from spritz.k8s.custom_resources.per_machine import machines_of
from spritz.k8s.policy import features_of
from spritz.k8s.watching import Reflector

#: Lifetime of a pod's join token, and the remaining lifetime below which it is replaced if the pod has not joined.
#: Seconds.
_JOIN_LIFESPAN, _JOIN_SPARE = 900.0, 300.0

#: Seconds for which a silent node is not taken for lost: after a start of slurmctld its slurmds reconnect.
_SETTLE: Final = 15.0

#: Seconds for which `force-delete` waits for slurmctld to delete the nodes.
_GIVE_UP: Final = 120.0

#: Annotations of busy pods, and their values for busy and idle, for cluster-autoscaler, Karpenter and ReplicaSets.
_DISRUPTION: Final = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": ("false", "true"),
    "karpenter.sh/do-not-disrupt": ("true", None),
    "controller.kubernetes.io/pod-deletion-cost": ("1000", None),
}


class NodeSetPods:
    """Pods of all NodeSets. `clusters`, `machines`, `pods`: caches of SpritzClusters, Kubernetes' nodes, and pods."""

    def __init__(
        self,
        api: Api,
        objects: Objects,
        clients: ClusterClients,
        clusters: Reflector[Cluster],
        machines: Reflector[MachineNode],
        pods: Reflector[NodePod],
        log: Callable[..., None],
        now: Callable[[], float],
    ) -> None:
        self._api = api
        self._objects = objects
        self._clients = clients
        self._clusters = clusters
        self._machines = machines
        self._pods = pods
        self._log = log
        self._now = now
        self._health = MachineHealth(api, log, machines, now)
        #: uid of a pod -> the switch or block of the network that its node was put in
        self._placed: dict[str, str] = {}
        #: uid of a pod -> time since which its node does not answer
        self._absent: dict[str, float] = {}
        #: uid of a NodeSet with `force-delete` -> since when its nodes are being removed
        self._giving_up: dict[str, float] = {}

    def forget(self, uid: str) -> None:
        """The pod has gone."""
        self._absent.pop(uid, None)
        self._placed.pop(uid, None)

    async def reconcile(self, node_set: NodeSet) -> float | None:
        """Returns seconds to the next look, or None."""
        metadata = node_set.metadata
        pods = [
            node_pod
            for node_pod in self._pods.values()
            if node_pod.metadata.namespace == metadata.namespace and node_pod.label(NODE_SET) == metadata.name
        ]
        cluster = self._clusters.get(f"{metadata.namespace}/{node_set.spec.cluster_ref}")
        forced = FORCE in (metadata.annotations or {})
        empty = cluster is None or (leaves(cluster) and not pods)
        if node_set.leaves and (empty or forced or await self._objects.namespace_leaves(metadata.namespace)):
            # Without the cluster, or without a pod of a cluster that leaves, which may never have come up, there are no
            # jobs to wait for; with `force-delete` an administrator gives them up; and with the namespace go the pods,
            # the cluster's keys, and the cluster.
            return await self._give_up(node_set, cluster if forced and not empty else None, pods)
        if not await self._objects.hold("nodesets", node_set, held=True):
            return None
        if cluster is None:
            await self._objects.cannot(
                "nodesets",
                node_set,
                "NoCluster",
                f"SpritzCluster {node_set.spec.cluster_ref} does not exist in this namespace",
            )
            return AGAIN
        if not node_set.leaves:
            await self._objects.ensure(budget(node_set))
        try:
            slurm = await self._clients.of(cluster)
            nodes = {node.name: node for node in await slurm.cluster_nodes()}
        except (RestError, ApiFailure) as failure:
            # While slurmctld is away, every pod may have jobs, so none is deleted.
            await self._objects.cannot(
                "nodesets", node_set, "ClusterAway", f"slurmctld cannot be reached: {failure.message}"
            )
            return SOON
        await self._label(node_set, pods, nodes, slurm)
        await self._put(cluster, pods, nodes, slurm)
        template = pod_template(cluster, node_set)
        faults = await self._health.look(cluster, node_set, pods, nodes, slurm)
        machines = machines_of(node_set, self._machines.values()) if node_set.spec.per_machine else {}
        unsettled = self._unsettled(pods, nodes)
        actions = plan(node_set, pods, nodes, revision_of(template, node_set), self._now(), faults, unsettled, machines)
        refused = ""
        if not node_set.leaves:
            refused = await self._make(cluster, node_set, actions, slurm, template, machines)
        await self._carry_out(node_set, actions, slurm)
        if node_set.leaves and not pods and not actions.forget:
            await self._health.forget(node_set)
            await self._objects.hold("nodesets", node_set, held=False)
            return None
        await self._renew_tokens(node_set, [node_pod for node_pod in pods if not is_known(node_pod, nodes)], slurm)
        if refused:
            actions.status.conditions[0].reason = "Refused"
            actions.status.conditions[0].status = "False"
            actions.status.conditions[0].message += f"; a pod was refused: {refused}"
        conditions = self._objects.conditions(node_set.status.conditions, actions.status.conditions)
        status = {**msgspec.to_builtins(actions.status), "conditions": conditions}
        await self._objects.report("nodesets", node_set, status)
        waits = faults or actions.create or actions.delete or actions.drain or conditions[0]["status"] != "True"
        return SOON if waits or node_set.leaves or node_set.spec.autoscaling is not None else AGAIN

    async def _give_up(self, node_set: NodeSet, cluster: Cluster | None, pods: list[NodePod]) -> float | None:
        """Delete pods whatever runs on them, and the nodes of the cluster, if there is one. As `reconcile`."""
        await self._health.forget(node_set)
        for node_pod in pods:
            name, namespace = node_pod.metadata.name, node_pod.metadata.namespace
            await self._api.delete(PodResource, name, namespace, uid=node_pod.metadata.uid)
        if cluster is not None:
            try:
                undone = await self._remove_nodes(node_set, await self._clients.of(cluster))
            except (RestError, ApiFailure) as failure:
                undone = f"slurmctld cannot be reached: {failure.message}"
            if undone and self._now() < self._giving_up.setdefault(node_set.metadata.uid, self._now()) + _GIVE_UP:
                await self._objects.cannot("nodesets", node_set, "Deleting", undone)
                return SOON
            if undone:
                self._log("nodeset.nodes_stay", nodeset=node_set.metadata.key, error=undone)
        self._giving_up.pop(node_set.metadata.uid, None)
        await self._objects.hold("nodesets", node_set, held=False)
        return None

    async def _remove_nodes(self, node_set: NodeSet, slurm: Control) -> str:
        """End the jobs of the NodeSet's nodes, and delete these. Returns what is left to do, or ""."""
        nodes = [node for node in await slurm.cluster_nodes() if is_node_of(node_set, node.name, node)]
        refused = []
        for node in nodes:
            if "DOWN" not in node.state:
                await slurm.update_node(node.name, state=["DOWN"], reason=f"{OURS}force-delete")
            await self._dismiss(node_set, node.name, slurm)
            if node_set.spec.autoscaling is not None:
                continue  # it is a line of slurm.conf, which goes with the NodeSet
            try:
                await slurm.delete_node(node.name)
            except RestError as failure:
                if failure.passing:
                    raise
                refused.append(f"node {node.name}: {failure.message}")
        return "; ".join(refused)[:1000]

    def _unsettled(self, pods: list[NodePod], nodes: dict[str, ClusterNode]) -> set[str]:
        """Names of pods whose nodes have been silent for less than `_SETTLE` seconds."""
        unsettled = set()
        for node_pod in pods:
            node = nodes.get(node_pod.metadata.name)
            if node is None or not is_absent(node):
                self._absent.pop(node_pod.metadata.uid, None)
            elif self._now() < self._absent.setdefault(node_pod.metadata.uid, self._now()) + _SETTLE:
                unsettled.add(node_pod.metadata.name)
        return unsettled

    async def _label(
        self, node_set: NodeSet, pods: list[NodePod], nodes: dict[str, ClusterNode], slurm: Control
    ) -> None:
        """Set the labels of machines as features of their nodes in Slurm."""
        for node_pod in pods:
            machine, node = self._machines.get(node_pod.spec.node_name), nodes.get(node_pod.metadata.name)
            if machine is None or node is None or not is_known(node_pod, nodes):
                continue
            values = features_of(machine.metadata.labels, node_set.spec.feature_labels)
            wanted = [node_set.metadata.name, *values]
            if values and set(node.features) != set(wanted):
                await slurm.update_node(node.name, features=wanted, features_act=wanted)

    async def _put(self, cluster: Cluster, pods: list[NodePod], nodes: dict[str, ClusterNode], slurm: Control) -> None:
        """Give nodes the places of their machines in the cluster's network."""
        topology = cluster.spec.topology
        if topology is None:
            return
        places: dict[str, str] | None = None
        for node_pod in pods:
            machine, node = self._machines.get(node_pod.spec.node_name), nodes.get(node_pod.metadata.name)
            if machine is None or node is None or not is_known(node_pod, nodes):
                continue
            unit = (machine.metadata.labels or {}).get(topology.label, "")
            if node_pod.metadata.uid not in self._placed:
                places = await slurm.places(NETWORK) if places is None else places
                self._placed[node_pod.metadata.uid] = places.get(node.name, "")
            if self._placed[node_pod.metadata.uid] == unit:
                continue
            try:
                await slurm.update_node(node.name, topology_str=f"{NETWORK}:{unit}")
            except RestError as failure:
                if failure.passing:
                    raise
                # slurmctld does not know the machine's unit yet: it gets its configuration in a moment.
                self._log("node.not_placed", node=node.name, unit=unit, error=failure.message)
            else:
                self._placed[node_pod.metadata.uid] = unit

    async def _make(
        self,
        cluster: Cluster,
        node_set: NodeSet,
        actions: Plan,
        slurm: Control,
        template: Json,
        machines: Mapping[str, str],
    ) -> str:
        """Create the missing pods. Returns why the API server refused one, or ""."""
        for name in actions.create:
            await self._give_token(node_set, name, slurm)
            try:
                await self._objects.write("POST", pod(cluster, node_set, name, template, machines.get(name, "")))
            except ApiFailure as failure:
                if failure.already_exists:
                    continue
                if failure.code == 403 or failure.invalid:  # a quota, a policy: the others would fare no better
                    self._log("pod.refused", pod=name, nodeset=node_set.metadata.key, error=failure.message)
                    return failure.message
                raise
            self._log("pod.created", pod=name, nodeset=node_set.metadata.key)
        return ""

    async def _give_token(self, node_set: NodeSet, name: str, slurm: Control) -> None:
        """Write a Secret with a token by which only the pod of this name can join."""
        token = await slurm.create_token("node", _JOIN_LIFESPAN, host=name)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": join_secret(name),
                "namespace": node_set.metadata.namespace,
                "labels": {NODE_SET: node_set.metadata.name},
                "annotations": {EXPIRES: str(int(self._now() + _JOIN_LIFESPAN))},
                "ownerReferences": owner("NodeSet", node_set.metadata),
            },
            "type": "Opaque",
            "data": {"token": base64.b64encode(token.encode()).decode()},
        }
        await self._objects.write("PATCH", secret)

    async def _renew_tokens(self, node_set: NodeSet, waiting: list[NodePod], slurm: Control) -> None:
        """Renew tokens of pods that have not joined: they may wait long for a machine or an image."""
        for node_pod in waiting:
            name = node_pod.metadata.name
            if node_pod.is_leaving or node_pod.is_over:
                continue
            have = await self._objects.find("v1", "Secret", node_set.metadata.namespace, join_secret(name))
            until = ((have or {}).get("metadata", {}).get("annotations") or {}).get(EXPIRES, "0")
            if not until.isdecimal() or int(until) - _JOIN_SPARE < self._now():
                await self._give_token(node_set, name, slurm)

    async def _carry_out(self, node_set: NodeSet, actions: Plan, slurm: Control) -> None:
        namespace = node_set.metadata.namespace
        for name, why in actions.drain.items():
            await slurm.update_node(name, state=["DRAIN"], reason=why)
        for name, why in actions.down.items():
            await slurm.update_node(name, state=["DOWN"], reason=why)
            self._log("node.deadline", node=name, nodeset=node_set.metadata.key)
        for name in actions.resume:
            try:
                await slurm.update_node(name, state=["RESUME"])
            except RestError as failure:
                if failure.passing:
                    raise
                # It registered with less than its line says, a GPU perhaps: the other nodes must not wait for it.
                self._log("node.not_resumed", node=name, error=failure.message)
        for name in actions.wake:
            await slurm.update_node(name, state=["POWER_UP"])
        for name, busy in actions.busy.items():
            marks = {mark: values[0] if busy else values[1] for mark, values in _DISRUPTION.items()}
            change = {"metadata": {"labels": {BUSY: "true" if busy else "false"}, "annotations": marks}}
            try:
                await self._api.patch(PodResource, name, namespace, change)
            except ApiFailure as failure:
                if not failure.not_found:
                    raise
        for name in actions.delete:
            have = self._pods.get(f"{namespace}/{name}")
            if have is not None:
                await self._api.delete(PodResource, name, namespace, uid=have.metadata.uid)
                await self._dismiss(node_set, name, slurm)
                self._log("node.retired", node=name, nodeset=node_set.metadata.key)
        for name in (*actions.lost, *actions.forget):
            if await self._objects.find("v1", "Pod", namespace, name) is not None:
                continue  # created just now, and not reported by the watch yet
            if name in actions.lost:
                await slurm.update_node(name, state=["DOWN"], reason=f"{OURS}its pod is gone")
                self._log("node.lost", node=name, nodeset=node_set.metadata.key)
                continue
            await slurm.delete_node(name)
            await self._dismiss(node_set, name, slurm)

    async def _dismiss(self, node_set: NodeSet, name: str, slurm: Control) -> None:
        """Revoke the pod's token, and the certificate that the pod got by it."""
        await slurm.dismiss_machine(name)
        path = f"{path_of('v1', 'Secret', node_set.metadata.namespace)}/{join_secret(name)}"
        try:
            await self._api.send("DELETE", path)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
