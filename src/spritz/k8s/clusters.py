"""Reconciles SpritzClusters and NodeSets: compares what is with what is to be, and writes the difference.

A resource is looked at when it changes, when a pod of it changes, and every half minute for what slurmctld says of its
nodes. An object that has all that we want of it is not written; fields of others in it stay.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import hmac
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
)
from spritz.k8s.node_sets import (
    BUSY,
    NODE_SET,
    NodePod,
    NodeSet,
    Plan,
    budget,
    differs,
    plan,
    pod,
    pod_template,
    revision_of,
)
from spritz.k8s.slurm import Slurm, SlurmFailure
from spritz.k8s.watching import Change, Reflector
from spritz.k8s.workqueue import WorkQueue

#: Seconds after which a resource is looked at again: with something under way, and with nothing.
_SOON, _AGAIN = 2.0, 30.0

#: Seconds for which a token is made, and before whose end it is replaced.
_LIFESPAN, _SPARE = 3600, 600

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
            on_change=lambda change: self.queue.add(("NodeSet", change.key)),
        )
        self.pods: Reflector[NodePod] = Reflector(
            api,
            PodResource,
            labels=NODE_SET,
            decode=msgspec.json.Decoder(NodePod).decode,
            on_change=self._pod_changed,
        )
        #: cluster -> its slurmrestd, the end of our token for it, and the secret's key
        self._slurms: dict[str, tuple[Slurm, float]] = {}

    def _cluster_changed(self, change: Change[Cluster]) -> None:
        self.queue.add(("SpritzCluster", change.key))
        for key, node_set in zip(self.node_sets.keys(), self.node_sets.values(), strict=True):
            if f"{node_set.metadata.namespace}/{node_set.spec.cluster_ref}" == change.key:
                self.queue.add(("NodeSet", key))

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

    async def _look(self, key: tuple[str, str]) -> float | None:
        if key[0] == "SpritzCluster":
            cluster = self.clusters.get(key[1])
            return await self._cluster(cluster) if cluster is not None and not _leaves(cluster) else None
        node_set = self.node_sets.get(key[1])
        return await self._node_set(node_set) if node_set is not None and not _leaves(node_set) else None

    # A cluster

    async def _cluster(self, cluster: Cluster) -> float:
        metadata = cluster.metadata
        if await self._find("v1", "Secret", metadata.namespace, f"{metadata.name}-keys") is None:
            secret = keys(cluster, *(base64.b64encode(os.urandom(64)).decode() for _ in range(2)))
            try:
                await self._write("POST", secret)
            except ApiFailure as failure:
                if not failure.already_exists:
                    raise
        workloads = []
        for wanted in control_plane(cluster):
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
        conditions = self._conditions(cluster.status.conditions, [condition])
        status = {"observedGeneration": metadata.generation, "conditions": conditions}
        await self._report("spritzclusters", cluster, status)
        return _SOON if away else _AGAIN

    # A node set

    async def _node_set(self, node_set: NodeSet) -> float:
        metadata = node_set.metadata
        cluster = self.clusters.get(f"{metadata.namespace}/{node_set.spec.cluster_ref}")
        if cluster is None:
            await self._cannot(node_set, "NoCluster", f"there is no SpritzCluster {node_set.spec.cluster_ref} here")
            return _AGAIN
        try:
            slurm = await self._slurm(cluster)
            nodes = {node.name: node for node in await slurm.nodes()}
        except (SlurmFailure, ApiFailure) as failure:
            # Without slurmctld's word no pod may go: it may have jobs.
            await self._cannot(node_set, "ClusterAway", f"slurmctld cannot be asked: {failure.message}")
            return _SOON
        template = pod_template(cluster, node_set)
        have = [
            each
            for each in self.pods.values()
            if each.metadata.namespace == metadata.namespace and each.label(NODE_SET) == metadata.name
        ]
        found = plan(node_set, have, nodes, revision_of(template))
        await self._ensure(budget(node_set))
        for name in found.create:
            try:
                await self._write("POST", pod(cluster, node_set, name, template))
            except ApiFailure as failure:
                if not failure.already_exists:
                    raise
        await self._carry_out(node_set, found, slurm)
        conditions = self._conditions(node_set.status.conditions, found.status.conditions)
        status = {**msgspec.to_builtins(found.status), "conditions": conditions}
        await self._report("nodesets", node_set, status)
        waits = found.create or found.delete or found.drain or conditions[0]["status"] != "True"
        return _SOON if waits else _AGAIN

    async def _carry_out(self, node_set: NodeSet, found: Plan, slurm: Slurm) -> None:
        namespace = node_set.metadata.namespace
        for name, why in found.drain.items():
            await slurm.update_node(name, state=["DRAIN"], reason=why)
        for name in found.resume:
            await slurm.update_node(name, state=["RESUME"])
        for name, busy in found.busy.items():
            change = {"metadata": {"labels": {BUSY: "true" if busy else "false"}}}
            await self._api.patch(PodResource, name, namespace, change)
        for name in found.delete:
            have = self.pods.get(f"{namespace}/{name}")
            if have is not None:
                await self._api.delete(PodResource, name, namespace, uid=have.metadata.uid)
                self._log("node.retired", node=name, nodeset=node_set.metadata.key)
        for name in found.forget:
            await slurm.delete_node(name)

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

    async def _slurm(self, cluster: Cluster) -> Slurm:
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
        slurm = Slurm(self._address(cluster), token_of(key, "root", int(self._now()), int(until)))
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


def token_of(key: bytes, user: str, issued: int, until: int) -> str:
    """A token for slurmrestd. Source: RFC 7519; slurm's `sun`."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"iat": issued, "exp": until, "sun": user}]
    text = ".".join(_text(msgspec.json.encode(part)) for part in parts)
    return f"{text}.{_text(hmac.new(key, text.encode(), hashlib.sha256).digest())}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _path(api_version: str, kind: str, namespace: str) -> str:
    root = "api" if "/" not in api_version else "apis"
    return f"{root}/{api_version}/namespaces/{namespace}/{_PLURALS[kind]}"


def _leaves(resource: Cluster | NodeSet) -> bool:
    return resource.metadata.deletion_timestamp is not None
