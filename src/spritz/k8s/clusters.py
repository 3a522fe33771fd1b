"""Reconciles SpritzClusters and NodeSets: compares what is with what is to be, and writes the difference.

A resource is looked at when it changes, when a pod of it changes, and every half minute for what slurmctld says of its
nodes. An object that has all that we want of it is not written; fields of others in it stay.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import os
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.k8s.api import APPLY, MERGE, Api, ApiFailure
from spritz.k8s.cluster_objects import (
    GROUP,
    REST_PORT,
    VERSION,
    Cluster,
    Condition,
    Json,
    control_plane,
    keys,
    owner,
)
from spritz.k8s.control import Control, token_of
from spritz.k8s.node_sets import (
    BUSY,
    FINALIZER,
    FORCE,
    NODE_SET,
    NodePod,
    NodeSet,
    Plan,
    budget,
    cloud_lines,
    differs,
    is_known,
    join_secret,
    plan,
    pod,
    pod_template,
    revision_of,
)
from spritz.k8s.pods import PREFIX
from spritz.k8s.slurm import SlurmFailure
from spritz.k8s.watching import Change, Reflector
from spritz.k8s.workqueue import WorkQueue

#: Seconds after which a resource is looked at again: with something under way, and with nothing.
_SOON, _AGAIN = 2.0, 30.0

#: Seconds for which a token is made, and before whose end it is replaced.
_LIFESPAN, _SPARE = 3600, 600

#: Seconds for which a pod may join by a token, and what of them must be left for one that has not joined.
_JOIN_LIFESPAN, _JOIN_SPARE = 900.0, 300.0

#: Until when the token in a Secret is good, in seconds since the epoch.
EXPIRES: Final = f"{PREFIX}expires"

#: Marks of busy pods for autoscalers of the cluster's machines: cluster-autoscaler, Karpenter, and ReplicaSets' order.
_DISRUPTION: Final = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": ("false", "true"),
    "karpenter.sh/do-not-disrupt": ("true", None),
    "controller.kubernetes.io/pod-deletion-cost": ("1000", None),
}

_PLURALS: Final = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "StatefulSet": "statefulsets",
    "Deployment": "deployments",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
}


def _resource(kind: str, plural: str) -> type[GenericNamespacedResource]:
    return create_namespaced_resource(group=GROUP, version=VERSION, kind=kind, plural=plural)


class Clusters:
    """Keeps all clusters and node sets of the API server. `run` returns when it is cancelled.

    `address` says where the slurmrestd of a cluster is.
    """

    def __init__(
        self,
        api: Api,
        log: Callable[..., None],
        *,
        address: Callable[[Cluster], str] | None = None,
        now: Callable[[], float] = time.time,  # noqa: TID251  # the operator's own clock, beside no core
    ) -> None:
        self._api = api
        self._log = log
        self._now = now
        self._address = address or (
            lambda cluster: f"http://{cluster.metadata.name}-rest.{cluster.metadata.namespace}:{REST_PORT}"
        )
        #: (kind, namespace/name)
        self.queue: WorkQueue[tuple[str, str]] = WorkQueue()
        self.clusters: Reflector[Cluster] = Reflector(
            api,
            _resource("SpritzCluster", "spritzclusters"),
            decode=msgspec.json.Decoder(Cluster).decode,
            on_change=self._cluster_changed,
        )
        self.node_sets: Reflector[NodeSet] = Reflector(
            api,
            _resource("NodeSet", "nodesets"),
            decode=msgspec.json.Decoder(NodeSet).decode,
            on_change=self._node_set_changed,
        )
        self.pods: Reflector[NodePod] = Reflector(
            api,
            PodResource,
            labels=NODE_SET,
            decode=msgspec.json.Decoder(NodePod).decode,
            on_change=self._pod_changed,
        )
        #: cluster -> its slurmrestd, the end of our token for it, and the secret's key
        self._slurms: dict[str, tuple[Control, float]] = {}

    def _cluster_changed(self, change: Change[Cluster]) -> None:
        self.queue.add(("SpritzCluster", change.key))
        for key, node_set in zip(self.node_sets.keys(), self.node_sets.values(), strict=True):
            if f"{node_set.metadata.namespace}/{node_set.spec.cluster_ref}" == change.key:
                self.queue.add(("NodeSet", key))

    def _node_set_changed(self, change: Change[NodeSet]) -> None:
        self.queue.add(("NodeSet", change.key))
        for found in (change.new, change.old):
            if found is not None:
                self.queue.add(("SpritzCluster", f"{found.metadata.namespace}/{found.spec.cluster_ref}"))

    def _pod_changed(self, change: Change[NodePod]) -> None:
        for found in (change.new, change.old):
            if found is not None:
                self.queue.add(("NodeSet", f"{found.metadata.namespace}/{found.label(NODE_SET)}"))

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                reflectors: list[Reflector[Any]] = [self.clusters, self.node_sets, self.pods]
                for reflector in reflectors:
                    group.create_task(reflector.run(), name="clusters.watch")
                # An incomplete cache would make pods twice.
                for reflector in reflectors:
                    await reflector.synced.wait()
                group.create_task(self.queue.run(self._look, workers=4, on_failure=self._failed), name="clusters.work")
        finally:
            for slurm, _until in self._slurms.values():
                await slurm.close()

    def _failed(self, key: tuple[str, str], error: Exception, failures: int, delay: float) -> None:
        words = error.message if isinstance(error, SlurmFailure | ApiFailure) else repr(error)
        self._log("resource.failed", kind=key[0], name=key[1], error=words, failures=failures, again=round(delay, 1))

    def _pods_in(self, namespace: str) -> list[NodePod]:
        return [each for each in self.pods.values() if each.metadata.namespace == namespace]

    async def _look(self, key: tuple[str, str]) -> float | None:
        if key[0] == "SpritzCluster":
            cluster = self.clusters.get(key[1])
            return await self._cluster(cluster) if cluster is not None else None
        node_set = self.node_sets.get(key[1])
        return await self._node_set(node_set) if node_set is not None else None

    # A cluster

    async def _cluster(self, cluster: Cluster) -> float | None:
        metadata = cluster.metadata
        mine = [
            node_set
            for node_set in self.node_sets.values()
            if node_set.metadata.namespace == metadata.namespace and node_set.spec.cluster_ref == metadata.name
        ]
        if not mine and _leaves(cluster):
            await self._hold("spritzclusters", cluster, held=False)
            return None
        if not await self._hold("spritzclusters", cluster, held=True):
            return None
        if await self._find("v1", "Secret", metadata.namespace, f"{metadata.name}-keys") is None:
            secret = keys(cluster, *(base64.b64encode(os.urandom(64)).decode() for _ in range(2)))
            try:
                await self._write("POST", secret)
            except ApiFailure as failure:
                if not failure.already_exists:
                    raise
        workloads = []
        for wanted in control_plane(cluster, *cloud_lines(mine, self._pods_in(metadata.namespace))):
            have = await self._ensure(wanted)
            if wanted["kind"] in ("StatefulSet", "Deployment"):
                workloads.append(have)
        away = [each["metadata"]["name"] for each in workloads if not (each.get("status") or {}).get("readyReplicas")]
        condition = Condition(
            type="Ready",
            status="False" if away else "True",
            reason="Starting" if away else "Serving",
            message=f"waits for {', '.join(away)}" if away else "all daemons serve",
            observed_generation=metadata.generation,
        )
        if _leaves(cluster):
            names = ", ".join(sorted(node_set.metadata.name for node_set in mine))
            condition.status, condition.reason = "False", "Deleting"
            condition.message = f"is deleted when its NodeSets are: {names}"
        conditions = self._conditions(cluster.status.conditions, [condition])
        status = {"observedGeneration": metadata.generation, "conditions": conditions}
        await self._report("spritzclusters", cluster, status)
        return _SOON if away else _AGAIN

    # A node set

    async def _node_set(self, node_set: NodeSet) -> float | None:
        metadata = node_set.metadata
        have = [each for each in self._pods_in(metadata.namespace) if each.label(NODE_SET) == metadata.name]
        cluster = self.clusters.get(f"{metadata.namespace}/{node_set.spec.cluster_ref}")
        forced = FORCE in (metadata.annotations or {})
        if node_set.leaves and (cluster is None or forced):
            # No job is left to wait for, or an administrator has said so.
            for each in have:
                await self._api.delete(PodResource, each.metadata.name, metadata.namespace, uid=each.metadata.uid)
            await self._hold("nodesets", node_set, held=False)
            return None
        if not await self._hold("nodesets", node_set, held=True):
            return None
        if cluster is None:
            await self._cannot(node_set, "NoCluster", f"there is no SpritzCluster {node_set.spec.cluster_ref} here")
            return _AGAIN
        try:
            slurm = await self._slurm(cluster)
            nodes = {node.name: node for node in await slurm.cluster_nodes()}
        except (SlurmFailure, ApiFailure) as failure:
            # Without slurmctld's word no pod may go: it may have jobs.
            await self._cannot(node_set, "ClusterAway", f"slurmctld cannot be asked: {failure.message}")
            return _SOON
        template = pod_template(cluster, node_set)
        found = plan(node_set, have, nodes, revision_of(template), self._now())
        refused = ""
        if not node_set.leaves:
            await self._ensure(budget(node_set))
            refused = await self._make(cluster, node_set, found, slurm, template)
        await self._carry_out(node_set, found, slurm)
        if node_set.leaves and not have and not found.forget:
            await self._hold("nodesets", node_set, held=False)
            return None
        await self._renew_tokens(node_set, [each for each in have if not is_known(each, nodes)], slurm)
        if refused:
            found.status.conditions[0].reason = "Refused"
            found.status.conditions[0].status = "False"
            found.status.conditions[0].message += f"; a pod was refused: {refused}"
        conditions = self._conditions(node_set.status.conditions, found.status.conditions)
        status = {**msgspec.to_builtins(found.status), "conditions": conditions}
        await self._report("nodesets", node_set, status)
        waits = found.create or found.delete or found.drain or conditions[0]["status"] != "True"
        return _SOON if waits or node_set.leaves or node_set.spec.autoscaling is not None else _AGAIN

    async def _make(self, cluster: Cluster, node_set: NodeSet, found: Plan, slurm: Control, template: Json) -> str:
        """The pods that are missing; why one was refused, or ""."""
        for name in found.create:
            await self._give_token(node_set, name, slurm)
            try:
                await self._write("POST", pod(cluster, node_set, name, template))
            except ApiFailure as failure:
                if failure.already_exists:
                    continue
                if failure.code in (403, 422):  # a quota, a policy: the others would fare no better
                    self._log("pod.refused", pod=name, nodeset=node_set.metadata.key, error=failure.message)
                    return failure.message
                raise
            self._log("pod.created", pod=name, nodeset=node_set.metadata.key)
        return ""

    async def _give_token(self, node_set: NodeSet, name: str, slurm: Control) -> None:
        """A Secret by which the pod of this name, and no other, joins."""
        token, _id = await slurm.create_token("node", _JOIN_LIFESPAN, host=name)
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
        await self._write("PATCH", secret)

    async def _renew_tokens(self, node_set: NodeSet, waiting: list[NodePod], slurm: Control) -> None:
        """Pods that come late, behind a queue of machines or an image, still join."""
        for each in waiting:
            name = each.metadata.name
            if each.is_leaving or each.is_over:
                continue
            have = await self._find("v1", "Secret", node_set.metadata.namespace, join_secret(name))
            until = ((have or {}).get("metadata", {}).get("annotations") or {}).get(EXPIRES, "0")
            if not until.isdigit() or int(until) - _JOIN_SPARE < self._now():
                await self._give_token(node_set, name, slurm)

    async def _carry_out(self, node_set: NodeSet, found: Plan, slurm: Control) -> None:
        namespace = node_set.metadata.namespace
        for name, why in found.drain.items():
            await slurm.update_node(name, state=["DRAIN"], reason=why)
        for name, why in found.down.items():
            await slurm.update_node(name, state=["DOWN"], reason=why)
            self._log("node.deadline", node=name, nodeset=node_set.metadata.key)
        for name in found.resume:
            await slurm.update_node(name, state=["RESUME"])
        for name in found.wake:
            await slurm.update_node(name, state=["POWER_UP"])
        for name, busy in found.busy.items():
            marks = {mark: values[0] if busy else values[1] for mark, values in _DISRUPTION.items()}
            change = {"metadata": {"labels": {BUSY: "true" if busy else "false"}, "annotations": marks}}
            try:
                await self._api.patch(PodResource, name, namespace, change)
            except ApiFailure as failure:
                if not failure.not_found:
                    raise
        for name in found.delete:
            have = self.pods.get(f"{namespace}/{name}")
            if have is not None:
                await self._api.delete(PodResource, name, namespace, uid=have.metadata.uid)
                await self._dismiss(node_set, name, slurm)
                self._log("node.retired", node=name, nodeset=node_set.metadata.key)
        for name in found.forget:
            await slurm.delete_node(name)
            await self._dismiss(node_set, name, slurm)

    async def _dismiss(self, node_set: NodeSet, name: str, slurm: Control) -> None:
        """What the pod joined by, and became by it, is worth nothing any more."""
        await slurm.dismiss_machine(name)
        path = f"{_path('v1', 'Secret', node_set.metadata.namespace)}/{join_secret(name)}"
        try:
            await self._api.send("DELETE", path)
        except ApiFailure as failure:
            if not failure.not_found:
                raise

    async def _hold(self, plural: str, resource: Cluster | NodeSet, *, held: bool) -> bool:
        """Set or take our finalizer; whether the resource has it."""
        finalizers = resource.metadata.finalizers
        if held == (FINALIZER in finalizers) or (held and _leaves(resource)):
            return FINALIZER in finalizers
        wanted = [each for each in finalizers if each != FINALIZER] + [FINALIZER] * held
        path = f"apis/{GROUP}/{VERSION}/namespaces/{resource.metadata.namespace}/{plural}/{resource.metadata.name}"
        change = {"metadata": {"finalizers": wanted, "resourceVersion": resource.metadata.resource_version}}
        try:
            await self._api.send("PATCH", path, body=msgspec.json.encode(change), content_type=MERGE)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
        return held

    async def _cannot(self, node_set: NodeSet, reason: str, message: str) -> None:
        condition = Condition(
            type="Ready",
            status="False",
            reason=reason,
            message=message,
            observed_generation=node_set.metadata.generation,
        )
        await self._report(
            "nodesets", node_set, {"conditions": self._conditions(node_set.status.conditions, [condition])}
        )

    # slurmrestd

    async def _slurm(self, cluster: Cluster) -> Control:
        found = self._slurms.get(cluster.metadata.uid)
        if found is not None and self._now() < found[1] - _SPARE:
            return found[0]
        name = f"{cluster.metadata.name}-keys"
        secret = await self._find("v1", "Secret", cluster.metadata.namespace, name)
        if secret is None:
            raise SlurmFailure(f"the Secret {name} is not there yet")
        until = self._now() + _LIFESPAN
        key = base64.b64decode(secret["data"]["jwt.key"])
        if found is not None:
            await found[0].close()
        slurm = Control(self._address(cluster), token_of(key, "root", int(self._now()), int(until)))
        self._slurms[cluster.metadata.uid] = (slurm, until)
        return slurm

    # Objects

    async def _find(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        try:
            found: Json = msgspec.json.decode(
                await self._api.send("GET", f"{_path(api_version, kind, namespace)}/{name}")
            )
        except ApiFailure as failure:
            if failure.not_found:
                return None
            raise
        return found

    async def _ensure(self, wanted: Json) -> Json:
        """Write the object unless it has all of this; the object as it is then."""
        metadata = wanted["metadata"]
        have = await self._find(wanted["apiVersion"], wanted["kind"], metadata["namespace"], metadata["name"])
        if have is not None and not differs(have, wanted):
            return have
        self._log("object.applied", kind=wanted["kind"], name=metadata["name"], namespace=metadata["namespace"])
        return await self._write("PATCH", wanted)

    async def _write(self, method: str, wanted: Json) -> Json:
        path = _path(wanted["apiVersion"], wanted["kind"], wanted["metadata"]["namespace"])
        parameters: dict[str, str | None] = {"fieldManager": self._api.field_manager}
        body = msgspec.json.encode(wanted)
        if method == "POST":
            answer = await self._api.send("POST", path, parameters=parameters, body=body, repeatable=False)
        else:
            path = f"{path}/{wanted['metadata']['name']}"
            parameters["force"] = "true"
            answer = await self._api.send("PATCH", path, parameters=parameters, body=body, content_type=APPLY)
        made: Json = msgspec.json.decode(answer)
        return made

    async def _report(self, plural: str, resource: Cluster | NodeSet, status: Json) -> None:
        if not differs(msgspec.to_builtins(resource.status), status):
            return
        path = f"apis/{GROUP}/{VERSION}/namespaces/{resource.metadata.namespace}/{plural}/{resource.metadata.name}"
        body = msgspec.json.encode({"status": status})
        try:
            await self._api.send("PATCH", f"{path}/status", body=body, content_type=MERGE)
        except ApiFailure as failure:
            if not failure.not_found:  # deleted meanwhile
                raise

    def _conditions(self, have: list[Condition], wanted: list[Condition]) -> list[Json]:
        """The conditions, each with the time since when it has its status."""
        since = {(each.type, each.status): each.last_transition_time for each in have}
        now = datetime.datetime.fromtimestamp(self._now(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for each in wanted:
            each.last_transition_time = since.get((each.type, each.status)) or now
        found: list[Json] = msgspec.to_builtins(wanted)
        return found


def _path(api_version: str, kind: str, namespace: str) -> str:
    root = "api" if "/" not in api_version else "apis"
    return f"{root}/{api_version}/namespaces/{namespace}/{_PLURALS[kind]}"


def _leaves(resource: Cluster | NodeSet) -> bool:
    return resource.metadata.deletion_timestamp is not None
