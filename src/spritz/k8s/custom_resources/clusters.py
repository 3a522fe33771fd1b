"""Watches our resources, and reconciles SpritzClusters: compares actual with desired objects, and writes the
differences. NodeSets are reconciled by `node_set_pods`, LoginSets and Tokens by `logins`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from lightkube.core.resource import api_info
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.resources.core_v1 import Node as NodeResource
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.http.rest import RestError
from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.custom_resources.cluster_clients import ClusterClients
from spritz.k8s.custom_resources.cluster_objects import (
    ETC,
    GROUP,
    REST_PORT,
    REVISION,
    STARTED,
    VERSION,
    Cluster,
    Condition,
    Configuration,
    configuration,
    control_plane,
    controllers,
    keys,
)
from spritz.k8s.custom_resources.configuration import mistakes
from spritz.k8s.custom_resources.fixed_fields import changed_since_made
from spritz.k8s.custom_resources.login_sets import LoginSet, Token
from spritz.k8s.custom_resources.logins import Logins
from spritz.k8s.custom_resources.node_set_pods import NodeSetPods
from spritz.k8s.custom_resources.node_sets import NODE_SET, MachineNode, NodePod, NodeSet, cloud_lines
from spritz.k8s.custom_resources.objects import AGAIN, SOON, Objects, Resource, leaves, path_of
from spritz.k8s.election import NotLeader
from spritz.k8s.living import keep
from spritz.k8s.watching import Change, Reflector
from spritz.k8s.workqueue import WorkQueue
from spritz.timeouts import within

#: Reasons of Configured with which slurmctld is asked again soon.
_UNDER_WAY: Final = ("Applying", "ClusterAway")

#: Resources looked at concurrently: a look at one whose cluster does not answer lasts as long as its request, and the
#: others must not wait for it. And configurations checked concurrently, each by a process.
_WORKERS: Final = 32
_CHECKS: Final = 2

#: Seconds between looks for a definition that is not there.
_UNDEFINED_SECONDS: Final = 1.0


class _Kind(msgspec.Struct):
    name: str


class _Served(msgspec.Struct):
    """Kinds of a group that the API server serves."""

    resources: list[_Kind] = []


def _resource(kind: str, plural: str) -> type[GenericNamespacedResource]:
    return create_namespaced_resource(group=GROUP, version=VERSION, kind=kind, plural=plural)


def _address(cluster: Cluster) -> str:
    return f"http://{cluster.metadata.name}-rest.{cluster.metadata.namespace}:{REST_PORT}"


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
        now: Callable[[], float] = time.time,  # noqa: TID251  # the operator's own clock
    ) -> None:
        self._api = api
        self._log = log
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
        self.login_sets: Reflector[LoginSet] = Reflector(
            api,
            _resource("LoginSet", "loginsets"),
            decode=msgspec.json.Decoder(LoginSet).decode,
            on_change=lambda change: self.queue.add(("LoginSet", change.key)),
        )
        self.tokens: Reflector[Token] = Reflector(
            api,
            _resource("Token", "tokens"),
            decode=msgspec.json.Decoder(Token).decode,
            on_change=lambda change: self.queue.add(("Token", change.key)),
        )
        #: nodes of Kubernetes, for their conditions and health records
        self.machines: Reflector[MachineNode] = Reflector(
            api,
            NodeResource,
            decode=msgspec.json.Decoder(MachineNode).decode,
            on_change=self._machine_changed,
        )
        self.pods: Reflector[NodePod] = Reflector(
            api,
            PodResource,
            labels=NODE_SET,
            decode=msgspec.json.Decoder(NodePod).decode,
            on_change=self._pod_changed,
        )
        self._objects = Objects(api, log, now)
        self._clients = ClusterClients(api, self._objects, address or _address, now)
        self._logins = Logins(self._objects, self._clients, self.clusters, log, now)
        self._node_set_pods = NodeSetPods(
            api, self._objects, self._clients, self.clusters, self.machines, self.pods, log, now
        )
        #: namespace/name of a cluster -> its slurm.conf, and the mistakes in it
        self._checked: dict[str, tuple[str, str]] = {}
        self._checks = asyncio.Semaphore(_CHECKS)

    def _cluster_changed(self, change: Change[Cluster]) -> None:
        self.queue.add(("SpritzCluster", change.key))
        for key, node_set in zip(self.node_sets.keys(), self.node_sets.values(), strict=True):
            if f"{node_set.metadata.namespace}/{node_set.spec.cluster_ref}" == change.key:
                self.queue.add(("NodeSet", key))

    def _node_set_changed(self, change: Change[NodeSet]) -> None:
        self.queue.add(("NodeSet", change.key))
        for node_set in (change.new, change.old):
            if node_set is not None:
                self.queue.add(("SpritzCluster", f"{node_set.metadata.namespace}/{node_set.spec.cluster_ref}"))

    def _machine_changed(self, change: Change[MachineNode]) -> None:
        # Most changes are heartbeats, which change nothing that is read here.
        if change.old is not None and change.new is not None and change.old.facts() == change.new.facts():
            return
        for node_pod in self.pods.values():
            if node_pod.spec.node_name == change.key:
                self.queue.add(("NodeSet", f"{node_pod.metadata.namespace}/{node_pod.label(NODE_SET)}"))
        for node_set in self.node_sets.values():
            if node_set.spec.per_machine:
                self.queue.add(("NodeSet", node_set.metadata.key))
        for key, cluster in zip(self.clusters.keys(), self.clusters.values(), strict=True):
            if cluster.spec.topology is not None:
                self.queue.add(("SpritzCluster", key))
        record = change.new.record if change.new is not None else None
        if record is not None:
            self.queue.add(("NodeSet", record.node_set))

    def _pod_changed(self, change: Change[NodePod]) -> None:
        if change.new is None and change.old is not None:
            self._node_set_pods.forget(change.old.metadata.uid)
        for node_pod in (change.new, change.old):
            if node_pod is not None:
                self.queue.add(("NodeSet", f"{node_pod.metadata.namespace}/{node_pod.label(NODE_SET)}"))

    async def run(self) -> None:
        """Watch and reconcile until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                reflectors: list[Reflector[Any]] = [
                    self.clusters,
                    self.node_sets,
                    self.login_sets,
                    self.tokens,
                    self.machines,
                    self.pods,
                ]
                for reflector in reflectors:
                    keep(group, reflector.run(), name="clusters.watch")
                # With an incomplete cache, existing pods would be created a second time.
                for reflector in reflectors:
                    await self._listed(reflector)
                looks = self.queue.run(self.look, workers=_WORKERS, on_failure=self._failed)
                keep(group, looks, name="clusters.work")
        finally:
            await self._clients.close()

    async def _listed(self, reflector: Reflector[Any]) -> None:
        """Until all objects of the kind are known. There are none of a kind whose definition was deleted: objects of
        the other definitions wait for the operator to let them go.
        """
        while not reflector.synced.is_set():
            with contextlib.suppress(TimeoutError):
                async with within(_UNDEFINED_SECONDS):
                    await reflector.synced.wait()
            if reflector.counters.failures and await self._is_undefined(reflector.resource):
                return

    async def _is_undefined(self, resource: type[Any]) -> bool:
        """Whether other kinds of ours are served, and this one is not."""
        info = api_info(resource)
        if info.resource.group != GROUP:
            return False
        try:
            served = msgspec.json.decode(await self._api.send("GET", f"apis/{GROUP}/{VERSION}"), type=_Served)
        except ApiFailure:
            return False
        return info.plural not in {each.name for each in served.resources}

    def _failed(self, key: tuple[str, str], error: Exception, failures: int, delay: float) -> None:
        words = error.message if isinstance(error, RestError | ApiFailure) else repr(error)
        self._log("resource.failed", kind=key[0], name=key[1], error=words, failures=failures, again=round(delay, 1))

    def _pods_in(self, namespace: str) -> list[NodePod]:
        return [node_pod for node_pod in self.pods.values() if node_pod.metadata.namespace == namespace]

    async def look(self, key: tuple[str, str]) -> float | None:
        """Compare a resource with the existing objects, and write the differences. Returns seconds to the next look."""
        try:
            return await self._look(key)
        except RestError as failure:
            if not failure.passing:
                await self._stuck(key, "Refused", f"slurmctld: {failure.message}")
            raise
        except ApiFailure as failure:
            if failure.code == 403 or failure.invalid or failure.already_exists:
                await self._stuck(key, "Forbidden" if failure.code == 403 else "Refused", failure.message)
            raise
        except NotLeader:
            raise
        except Exception as error:
            # After an unexpected error too, a resource that the operator cannot maintain must not stay Ready.
            await self._stuck(key, "Failed", f"the operator has failed: {error!r}")
            raise

    async def _stuck(self, key: tuple[str, str], reason: str, message: str) -> None:
        """Report on the resource why it cannot be reconciled, if that can be written."""
        caches: dict[str, Reflector[Any]] = {
            "SpritzCluster": self.clusters,
            "NodeSet": self.node_sets,
            "LoginSet": self.login_sets,
            "Token": self.tokens,
        }
        resource: Resource | None = caches[key[0]].get(key[1])
        if resource is not None:
            with contextlib.suppress(ApiFailure):  # the report matters no more than what it reports
                await self._objects.cannot(f"{key[0].lower()}s", resource, reason, message)

    async def _look(self, key: tuple[str, str]) -> float | None:
        if key[0] == "SpritzCluster":
            cluster = self.clusters.get(key[1])
            if cluster is None:
                self._checked.pop(key[1], None)
                await self._clients.forget(key[1])
                return None
            return await self._cluster(cluster)
        if key[0] == "LoginSet":
            login_set = self.login_sets.get(key[1])
            return await self._logins.login_set(login_set) if login_set is not None and not leaves(login_set) else None
        if key[0] == "Token":
            token = self.tokens.get(key[1])
            return await self._logins.token(token) if token is not None and not leaves(token) else None
        node_set = self.node_sets.get(key[1])
        return await self._node_set_pods.reconcile(node_set) if node_set is not None else None

    async def _cluster(self, cluster: Cluster) -> float | None:
        metadata = cluster.metadata
        node_sets = [
            node_set
            for node_set in self.node_sets.values()
            if node_set.metadata.namespace == metadata.namespace and node_set.spec.cluster_ref == metadata.name
        ]
        if leaves(cluster) and (not node_sets or await self._objects.namespace_leaves(metadata.namespace)):
            await self._objects.hold("spritzclusters", cluster, held=False)
            return None
        if not await self._objects.hold("spritzclusters", cluster, held=True):
            return None
        if await self._objects.find("v1", "Secret", metadata.namespace, f"{metadata.name}-keys") is None:
            if await self._started(cluster):
                # New ones would cut off every machine and job: the daemons still have the old ones.
                words = f"the Secret {metadata.name}-keys is gone: restore it, from a backup or from {ETC} of a pod"
                await self._objects.cannot("spritzclusters", cluster, "KeysMissing", words)
                return SOON
            secret = keys(cluster, *(base64.b64encode(os.urandom(64)).decode() for _ in range(2)))
            try:
                await self._objects.write("POST", secret)
            except ApiFailure as failure:
                if not failure.already_exists:
                    raise
        workloads = []
        lines, devices = cloud_lines(node_sets, self._pods_in(metadata.namespace))
        config = configuration(cluster, lines, devices, self._units(cluster))
        refused = await self._changed_since_made(cluster) or await self._mistakes(cluster, config)
        configured = Condition(type="Configured", status="False", reason="Refused", message="")
        configured.message = f"the daemons keep their present slurm.conf: {refused}"
        restarts = False
        if not refused:
            configured, restarts = await self._configured(cluster, config)
        started = config.revision if restarts else await self._started(cluster) or config.revision
        for wanted in control_plane(cluster, config, started):
            kind, about = wanted["kind"], wanted["metadata"]
            if refused and kind != "Service":
                have = await self._objects.find(wanted["apiVersion"], kind, about["namespace"], about["name"]) or wanted
            else:
                have = await self._objects.ensure(wanted)
            if kind in ("StatefulSet", "Deployment"):
                workloads.append(have)
        await self._remove_unwanted(cluster)
        away = [
            workload["metadata"]["name"]
            for workload in workloads
            if not (workload.get("status") or {}).get("readyReplicas")
        ]
        condition = Condition(
            type="Ready",
            status="False" if away else "True",
            reason="Starting" if away else "Serving",
            message=f"waits for {', '.join(away)}" if away else "all daemons are ready",
            observed_generation=metadata.generation,
        )
        for workload in workloads:
            name = workload["metadata"]["name"]
            if name in away and (refusal := await self._objects.refusal(workload)):
                condition.reason, condition.message = "Refused", f"pods of {name} are refused: {refusal}"
                break
        if leaves(cluster):
            names = ", ".join(sorted(node_set.metadata.name for node_set in node_sets))
            condition.status, condition.reason = "False", "Deleting"
            condition.message = f"waits for the deletion of its NodeSets: {names}"
        configured.observed_generation = metadata.generation
        conditions = self._objects.conditions(cluster.status.conditions, [condition, configured])
        status = {"observedGeneration": metadata.generation, "conditions": conditions}
        await self._objects.report("spritzclusters", cluster, status)
        return SOON if away or configured.reason in _UNDER_WAY else AGAIN

    async def _started(self, cluster: Cluster) -> str:
        """The revision with which slurmctld is to have started; "" before its first start."""
        name = f"{cluster.metadata.name}-controller"
        have = await self._objects.find("apps/v1", "StatefulSet", cluster.metadata.namespace, name)
        marks = have["spec"]["template"]["metadata"].get("annotations") or {} if have is not None else {}
        return str(marks.get(STARTED, ""))

    async def _configured(self, cluster: Cluster, config: Configuration) -> tuple[Condition, bool]:
        """Whether slurmctld has the configuration, which it is told to read if not; and whether it must start again."""
        done = Condition(type="Configured", status="True", reason="Applied", message="the daemons have this slurm.conf")
        wait = Condition(
            type="Configured", status="False", reason="Applying", message="slurmctld reads the configuration"
        )
        kept = await self._objects.find(
            "v1", "ConfigMap", cluster.metadata.namespace, f"{cluster.metadata.name}-config"
        )
        try:
            slurm = await self._clients.of(cluster)
            if await slurm.revision() == config.revision:
                return done, False
            if kept is None or kept["data"] != config.files:
                return wait, False  # it is written by this look, and reaches the pods after it
            for name in controllers(cluster):
                await self._nudge(cluster.metadata.namespace, name, config.revision)
            if not await slurm.reconfigure():
                self._log("config.restart", cluster=cluster.metadata.key, revision=config.revision)
                wait.message = "slurmctld starts again for it"
                return wait, True
            if await slurm.revision() == config.revision:
                self._log("config.applied", cluster=cluster.metadata.key, revision=config.revision)
                return done, False
        except RestError as failure:
            if failure.passing or failure.status in (401, 403):
                wait.status, wait.reason = "Unknown", "ClusterAway"
                wait.message = f"slurmctld cannot be reached: {failure.message}"
            else:
                wait.reason, wait.message = "Refused", f"slurmctld keeps what it has: {failure.message}"
        return wait, False

    async def _nudge(self, namespace: str, name: str, revision: str) -> None:
        """Change the pod, so that its kubelet writes its files now and not within a minute or two."""
        try:
            await self._api.patch(PodResource, name, namespace, {"metadata": {"annotations": {REVISION: revision}}})
        except ApiFailure as failure:
            if not failure.not_found:
                raise

    async def _changed_since_made(self, cluster: Cluster) -> str:
        """A change of what must stay that was stored nevertheless; "" for none."""
        name, namespace = cluster.metadata.name, cluster.metadata.namespace
        return changed_since_made(
            cluster,
            await self._objects.find("v1", "ConfigMap", namespace, f"{name}-config"),
            await self._objects.find("apps/v1", "StatefulSet", namespace, f"{name}-controller"),
        )

    async def _mistakes(self, cluster: Cluster, config: Configuration) -> str:
        """Mistakes in the desired slurm.conf, "" for none; each text is checked once."""
        text = config.files["slurm.conf"]
        known = self._checked.get(cluster.metadata.key)
        if known is None or known[0] != text:
            async with self._checks:
                known = self._checked[cluster.metadata.key] = text, await mistakes(text, cluster.spec.extra_config)
            if known[1]:
                self._log("config.refused", cluster=cluster.metadata.key, error=known[1])
        return known[1]

    def _units(self, cluster: Cluster) -> list[str]:
        """Leaf switches or blocks of the cluster's machines."""
        topology = cluster.spec.topology
        if topology is None:
            return []
        values = {(machine.metadata.labels or {}).get(topology.label, "") for machine in self.machines.values()}
        return sorted(values - {""})

    async def _remove_unwanted(self, cluster: Cluster) -> None:
        """Delete objects of parts that the spec no longer has; objects without the cluster's owner reference stay."""
        spec, metadata = cluster.spec, cluster.metadata
        for api_version, kind, part, wanted in (
            ("apps/v1", "Deployment", "dashboard", spec.dashboard is not None),
            ("v1", "Service", "dashboard", spec.dashboard is not None),
            ("v1", "Service", "metrics", spec.metrics),
        ):
            name = f"{metadata.name}-{part}"
            have = None if wanted else await self._objects.find(api_version, kind, metadata.namespace, name)
            owners = (have or {}).get("metadata", {}).get("ownerReferences") or ()
            if any(reference["uid"] == metadata.uid for reference in owners):
                await self._api.send("DELETE", f"{path_of(api_version, kind, metadata.namespace)}/{name}")
