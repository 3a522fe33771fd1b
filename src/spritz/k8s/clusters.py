"""Reconciles SpritzClusters and NodeSets: compares actual with desired objects, and writes the differences.

A resource is reconciled when it or one of its pods changes, and every half minute for the states of its nodes in
slurmctld. An object that has all desired fields is not written; fields of other managers stay.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource
from lightkube.resources.core_v1 import Node as NodeResource
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.k8s.api import APPLY, MERGE, Api, ApiFailure
from spritz.k8s.cluster_objects import (
    GROUP,
    NETWORK,
    REST_PORT,
    REVISION,
    STARTED,
    VERSION,
    Cluster,
    Condition,
    Configuration,
    Json,
    Metadata,
    configuration,
    control_plane,
    controller_address,
    controllers,
    keys,
    owner,
)
from spritz.k8s.configuration import mistakes
from spritz.k8s.control import ClusterNode, Control, token_of
from spritz.k8s.login_sets import (
    LIFESPAN,
    LOGIN_SET,
    LoginSet,
    LoginSetStatus,
    Token,
    TokenStatus,
    asked_for,
    host_key,
    host_keys_secret,
    login_objects,
    ready,
    secret_of,
)
from spritz.k8s.login_sets import join_secret as login_secret
from spritz.k8s.machine_health import MachineHealth
from spritz.k8s.node_sets import (
    BUSY,
    FINALIZER,
    FORCE,
    NODE_SET,
    OURS,
    MachineNode,
    NodePod,
    NodeSet,
    Plan,
    budget,
    cloud_lines,
    differs,
    is_absent,
    is_known,
    join_secret,
    plan,
    pod,
    pod_template,
    revision_of,
)
from spritz.k8s.per_machine import machines_of
from spritz.k8s.pods import PREFIX
from spritz.k8s.policy import features_of
from spritz.k8s.slurm import SlurmFailure
from spritz.k8s.watching import Change, Reflector
from spritz.k8s.workqueue import WorkQueue

#: Seconds between looks at a resource: while something is under way, and otherwise.
_SOON, _AGAIN = 2.0, 30.0

#: Reasons of Configured with which slurmctld is asked again soon.
_UNDER_WAY: Final = ("Applying", "ClusterAway")

#: Lifetime of the operator's tokens, and how long before its end a token is replaced. Seconds.
_LIFESPAN, _SPARE = 3600, 600

#: Lifetime of a pod's join token, and the remaining lifetime below which it is replaced if the pod has not joined.
#: Seconds.
_JOIN_LIFESPAN, _JOIN_SPARE = 900.0, 300.0

#: Seconds for which a silent node is not taken for lost: after a start of slurmctld its slurmds reconnect.
_SETTLE: Final = 15.0

#: Annotation of a Secret: when its token expires, in seconds since the epoch.
EXPIRES: Final = f"{PREFIX}expires"

#: Annotation of a Secret: a hash of what its token permits.
_ASKED: Final = f"{PREFIX}asked"

_Resource = Cluster | NodeSet | LoginSet | Token

#: Annotations of busy pods, and their values for busy and idle, for cluster-autoscaler, Karpenter and ReplicaSets.
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
        now: Callable[[], float] = time.time,  # noqa: TID251  # the operator's own clock
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
        self._health = MachineHealth(api, log, self.machines, now)
        #: uid of a pod -> the switch or block of the network that its node was put in
        self._placed: dict[str, str] = {}
        #: uid of a pod -> time since which its node does not answer
        self._absent: dict[str, float] = {}
        #: uid of a cluster -> its slurm.conf, and the mistakes in it
        self._checked: dict[str, tuple[str, str]] = {}
        #: uid of a cluster -> the client of its slurmrestd, and when the client's token expires
        self._slurms: dict[str, tuple[Control, float]] = {}

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
            self._absent.pop(change.old.metadata.uid, None)
            self._placed.pop(change.old.metadata.uid, None)
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
                    group.create_task(reflector.run(), name="clusters.watch")
                # With an incomplete cache, existing pods would be created a second time.
                for reflector in reflectors:
                    await reflector.synced.wait()
                group.create_task(self.queue.run(self.look, workers=4, on_failure=self._failed), name="clusters.work")
        finally:
            for slurm, _until in self._slurms.values():
                await slurm.close()

    def _failed(self, key: tuple[str, str], error: Exception, failures: int, delay: float) -> None:
        words = error.message if isinstance(error, SlurmFailure | ApiFailure) else repr(error)
        self._log("resource.failed", kind=key[0], name=key[1], error=words, failures=failures, again=round(delay, 1))

    def _pods_in(self, namespace: str) -> list[NodePod]:
        return [node_pod for node_pod in self.pods.values() if node_pod.metadata.namespace == namespace]

    async def look(self, key: tuple[str, str]) -> float | None:
        """Compare a resource with the existing objects, and write the differences. Returns seconds to the next look."""
        try:
            return await self._look(key)
        except (ApiFailure, SlurmFailure) as failure:
            if isinstance(failure, SlurmFailure) and not failure.passing:
                await self._stuck(key, "Refused", f"slurmctld: {failure.message}")
            elif isinstance(failure, ApiFailure) and failure.code in (403, 422):
                await self._stuck(key, "Forbidden" if failure.code == 403 else "Refused", failure.message)
            raise

    async def _stuck(self, key: tuple[str, str], reason: str, message: str) -> None:
        """Report on the resource why it cannot be reconciled, if that can be written."""
        caches: dict[str, Reflector[Any]] = {
            "SpritzCluster": self.clusters,
            "NodeSet": self.node_sets,
            "LoginSet": self.login_sets,
            "Token": self.tokens,
        }
        resource: _Resource | None = caches[key[0]].get(key[1])
        if resource is not None:
            with contextlib.suppress(ApiFailure):  # the report matters no more than what it reports
                await self._cannot(f"{key[0].lower()}s", resource, reason, message)

    async def _look(self, key: tuple[str, str]) -> float | None:
        if key[0] == "SpritzCluster":
            cluster = self.clusters.get(key[1])
            return await self._cluster(cluster) if cluster is not None else None
        if key[0] == "LoginSet":
            login_set = self.login_sets.get(key[1])
            return await self._login_set(login_set) if login_set is not None and not _leaves(login_set) else None
        if key[0] == "Token":
            token = self.tokens.get(key[1])
            return await self._token(token) if token is not None and not _leaves(token) else None
        node_set = self.node_sets.get(key[1])
        return await self._node_set(node_set) if node_set is not None else None

    # A cluster

    async def _cluster(self, cluster: Cluster) -> float | None:
        metadata = cluster.metadata
        node_sets = [
            node_set
            for node_set in self.node_sets.values()
            if node_set.metadata.namespace == metadata.namespace and node_set.spec.cluster_ref == metadata.name
        ]
        if not node_sets and _leaves(cluster):
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
        lines, devices = cloud_lines(node_sets, self._pods_in(metadata.namespace))
        config = configuration(cluster, lines, devices, self._units(cluster))
        refused = await self._mistakes(cluster, config)
        configured = Condition(type="Configured", status="False", reason="Refused", message="")
        configured.message = f"the daemons keep their present slurm.conf: {refused}"
        restarts = False
        if not refused:
            configured, restarts = await self._configured(cluster, config)
        started = config.revision if restarts else await self._started(cluster) or config.revision
        for wanted in control_plane(cluster, config, started):
            kind, about = wanted["kind"], wanted["metadata"]
            if refused and kind != "Service":
                have = await self._find(wanted["apiVersion"], kind, about["namespace"], about["name"]) or wanted
            else:
                have = await self._ensure(wanted)
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
        if _leaves(cluster):
            names = ", ".join(sorted(node_set.metadata.name for node_set in node_sets))
            condition.status, condition.reason = "False", "Deleting"
            condition.message = f"waits for the deletion of its NodeSets: {names}"
        configured.observed_generation = metadata.generation
        conditions = self._conditions(cluster.status.conditions, [condition, configured])
        status = {"observedGeneration": metadata.generation, "conditions": conditions}
        await self._report("spritzclusters", cluster, status)
        return _SOON if away or configured.reason in _UNDER_WAY else _AGAIN

    async def _started(self, cluster: Cluster) -> str:
        """The revision with which slurmctld is to have started; "" before its first start."""
        name = f"{cluster.metadata.name}-controller"
        have = await self._find("apps/v1", "StatefulSet", cluster.metadata.namespace, name)
        marks = have["spec"]["template"]["metadata"].get("annotations") or {} if have is not None else {}
        return str(marks.get(STARTED, ""))

    async def _configured(self, cluster: Cluster, config: Configuration) -> tuple[Condition, bool]:
        """Whether slurmctld has the configuration, which it is told to read if not; and whether it must start again."""
        done = Condition(type="Configured", status="True", reason="Applied", message="the daemons have this slurm.conf")
        wait = Condition(
            type="Configured", status="False", reason="Applying", message="slurmctld reads the configuration"
        )
        kept = await self._find("v1", "ConfigMap", cluster.metadata.namespace, f"{cluster.metadata.name}-config")
        try:
            slurm = await self._slurm(cluster)
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
        except SlurmFailure as failure:
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

    async def _mistakes(self, cluster: Cluster, config: Configuration) -> str:
        """Mistakes in the desired slurm.conf, "" for none; each text is checked once."""
        text = config.files["slurm.conf"]
        known = self._checked.get(cluster.metadata.uid)
        if known is None or known[0] != text:
            known = self._checked[cluster.metadata.uid] = text, await mistakes(text, cluster.spec.extra_config)
            if known[1]:
                self._log("config.refused", cluster=cluster.metadata.key, error=known[1])
        return known[1]

    # A node set

    async def _node_set(self, node_set: NodeSet) -> float | None:
        metadata = node_set.metadata
        pods = [node_pod for node_pod in self._pods_in(metadata.namespace) if node_pod.label(NODE_SET) == metadata.name]
        cluster = self.clusters.get(f"{metadata.namespace}/{node_set.spec.cluster_ref}")
        forced = FORCE in (metadata.annotations or {})
        if node_set.leaves and (cluster is None or forced):
            # Without the cluster there are no jobs to wait for; with `force-delete` an administrator gives them up.
            await self._health.forget(node_set)
            for node_pod in pods:
                await self._api.delete(
                    PodResource, node_pod.metadata.name, metadata.namespace, uid=node_pod.metadata.uid
                )
            await self._hold("nodesets", node_set, held=False)
            return None
        if not await self._hold("nodesets", node_set, held=True):
            return None
        if cluster is None:
            await self._cannot(
                "nodesets",
                node_set,
                "NoCluster",
                f"SpritzCluster {node_set.spec.cluster_ref} does not exist in this namespace",
            )
            return _AGAIN
        try:
            slurm = await self._slurm(cluster)
            nodes = {node.name: node for node in await slurm.cluster_nodes()}
        except (SlurmFailure, ApiFailure) as failure:
            # While slurmctld is away, every pod may have jobs, so none is deleted.
            await self._cannot("nodesets", node_set, "ClusterAway", f"slurmctld cannot be reached: {failure.message}")
            return _SOON
        await self._label(node_set, pods, nodes, slurm)
        await self._put(cluster, pods, nodes, slurm)
        template = pod_template(cluster, node_set)
        faults = await self._health.look(cluster, node_set, pods, nodes, slurm)
        machines = machines_of(node_set, self.machines.values()) if node_set.spec.per_machine else {}
        unsettled = self._unsettled(pods, nodes)
        actions = plan(node_set, pods, nodes, revision_of(template, node_set), self._now(), faults, unsettled, machines)
        refused = ""
        if not node_set.leaves:
            await self._ensure(budget(node_set))
            refused = await self._make(cluster, node_set, actions, slurm, template, machines)
        await self._carry_out(node_set, actions, slurm)
        if node_set.leaves and not pods and not actions.forget:
            await self._health.forget(node_set)
            await self._hold("nodesets", node_set, held=False)
            return None
        await self._renew_tokens(node_set, [node_pod for node_pod in pods if not is_known(node_pod, nodes)], slurm)
        if refused:
            actions.status.conditions[0].reason = "Refused"
            actions.status.conditions[0].status = "False"
            actions.status.conditions[0].message += f"; a pod was refused: {refused}"
        conditions = self._conditions(node_set.status.conditions, actions.status.conditions)
        status = {**msgspec.to_builtins(actions.status), "conditions": conditions}
        await self._report("nodesets", node_set, status)
        waits = faults or actions.create or actions.delete or actions.drain or conditions[0]["status"] != "True"
        return _SOON if waits or node_set.leaves or node_set.spec.autoscaling is not None else _AGAIN

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
            machine, node = self.machines.get(node_pod.spec.node_name), nodes.get(node_pod.metadata.name)
            if machine is None or node is None or not is_known(node_pod, nodes):
                continue
            values = features_of(machine.metadata.labels, node_set.spec.feature_labels)
            wanted = [node_set.metadata.name, *values]
            if values and set(node.features) != set(wanted):
                await slurm.update_node(node.name, features=wanted, features_act=wanted)

    def _units(self, cluster: Cluster) -> list[str]:
        """Leaf switches or blocks of the cluster's machines."""
        topology = cluster.spec.topology
        if topology is None:
            return []
        values = {(machine.metadata.labels or {}).get(topology.label, "") for machine in self.machines.values()}
        return sorted(values - {""})

    async def _put(self, cluster: Cluster, pods: list[NodePod], nodes: dict[str, ClusterNode], slurm: Control) -> None:
        """Give nodes the places of their machines in the cluster's network."""
        topology = cluster.spec.topology
        if topology is None:
            return
        places: dict[str, str] | None = None
        for node_pod in pods:
            machine, node = self.machines.get(node_pod.spec.node_name), nodes.get(node_pod.metadata.name)
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
            except SlurmFailure as failure:
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
                await self._write("POST", pod(cluster, node_set, name, template, machines.get(name, "")))
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
        await self._write("PATCH", secret)

    async def _renew_tokens(self, node_set: NodeSet, waiting: list[NodePod], slurm: Control) -> None:
        """Renew tokens of pods that have not joined: they may wait long for a machine or an image."""
        for node_pod in waiting:
            name = node_pod.metadata.name
            if node_pod.is_leaving or node_pod.is_over:
                continue
            have = await self._find("v1", "Secret", node_set.metadata.namespace, join_secret(name))
            until = ((have or {}).get("metadata", {}).get("annotations") or {}).get(EXPIRES, "0")
            if not until.isdigit() or int(until) - _JOIN_SPARE < self._now():
                await self._give_token(node_set, name, slurm)

    async def _carry_out(self, node_set: NodeSet, actions: Plan, slurm: Control) -> None:
        namespace = node_set.metadata.namespace
        for name, why in actions.drain.items():
            await slurm.update_node(name, state=["DRAIN"], reason=why)
        for name, why in actions.down.items():
            await slurm.update_node(name, state=["DOWN"], reason=why)
            self._log("node.deadline", node=name, nodeset=node_set.metadata.key)
        for name in actions.resume:
            await slurm.update_node(name, state=["RESUME"])
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
            have = self.pods.get(f"{namespace}/{name}")
            if have is not None:
                await self._api.delete(PodResource, name, namespace, uid=have.metadata.uid)
                await self._dismiss(node_set, name, slurm)
                self._log("node.retired", node=name, nodeset=node_set.metadata.key)
        for name in (*actions.lost, *actions.forget):
            if await self._find("v1", "Pod", namespace, name) is not None:
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
        path = f"{_path('v1', 'Secret', node_set.metadata.namespace)}/{join_secret(name)}"
        try:
            await self._api.send("DELETE", path)
        except ApiFailure as failure:
            if not failure.not_found:
                raise

    async def _hold(self, plural: str, resource: _Resource, *, held: bool) -> bool:
        """Add or remove the operator's finalizer. Returns whether the resource has it."""
        finalizers = resource.metadata.finalizers
        if held == (FINALIZER in finalizers) or (held and _leaves(resource)):
            return FINALIZER in finalizers
        wanted = [finalizer for finalizer in finalizers if finalizer != FINALIZER] + [FINALIZER] * held
        path = f"apis/{GROUP}/{VERSION}/namespaces/{resource.metadata.namespace}/{plural}/{resource.metadata.name}"
        change = {"metadata": {"finalizers": wanted, "resourceVersion": resource.metadata.resource_version}}
        try:
            await self._merge(path, change)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
        return held

    async def _cannot(self, plural: str, resource: _Resource, reason: str, message: str) -> None:
        generation, have = resource.metadata.generation, resource.status.conditions
        condition = Condition(type="Ready", status="False", reason=reason, message=message)
        condition.observed_generation = generation
        others = [each for each in have if each.type != "Ready"]
        await self._report(plural, resource, {"conditions": self._conditions(have, [condition, *others])})

    # Login hosts and tokens

    async def _login_set(self, login_set: LoginSet) -> float:
        metadata = login_set.metadata
        cluster = self.clusters.get(f"{metadata.namespace}/{login_set.spec.cluster_ref}")
        status = LoginSetStatus(observed_generation=metadata.generation, selector=f"{LOGIN_SET}={metadata.name}")
        if cluster is None:
            status.conditions = ready(False, "NoCluster", f"no SpritzCluster {login_set.spec.cluster_ref}", metadata)
            return await self._tell("loginsets", login_set, status, _AGAIN)
        name = host_keys_secret(metadata.name)
        if await self._find("v1", "Secret", metadata.namespace, name) is None:
            data = {"ssh_host_ed25519_key": base64.b64encode(host_key()).decode()}
            try:
                await self._write("POST", secret_of("LoginSet", metadata, name, data, {}))
            except ApiFailure as failure:
                if not failure.already_exists:
                    raise
        try:
            slurm = await self._slurm(cluster)
            await self._keep_token("LoginSet", metadata, login_secret(metadata.name), cluster, slurm, "login", LIFESPAN)
        except (SlurmFailure, ApiFailure) as failure:
            status.conditions = ready(False, "ClusterAway", f"no token for login hosts: {failure.message}", metadata)
            return await self._tell("loginsets", login_set, status, _SOON)
        service, workload = login_objects(cluster, login_set)
        await self._ensure(service)
        have = (await self._ensure(workload)).get("status") or {}
        up, wanted = have.get("readyReplicas", 0), login_set.spec.replicas
        status.replicas, status.ready_replicas = have.get("replicas", 0), up
        message = f"{up} of {wanted} login hosts serve"
        status.conditions = ready(up >= wanted, "Serving" if up >= wanted else "Starting", message, metadata)
        return await self._tell("loginsets", login_set, status, _SOON if up < wanted else _AGAIN)

    async def _token(self, token: Token) -> float:
        metadata, spec = token.metadata, token.spec
        cluster = self.clusters.get(f"{metadata.namespace}/{spec.cluster_ref}")
        status = TokenStatus(observed_generation=metadata.generation, expires_at=token.status.expires_at)
        if cluster is None:
            status.conditions = ready(
                False, "NoCluster", f"there is no SpritzCluster {spec.cluster_ref} here", metadata
            )
            return await self._tell("tokens", token, status, _AGAIN)
        name = spec.secret_name or metadata.name
        try:
            slurm = await self._slurm(cluster)
            until = await self._keep_token(
                "Token",
                metadata,
                name,
                cluster,
                slurm,
                spec.role,
                spec.lifetime_seconds,
                uses=spec.uses,
                host=spec.host,
            )
        except (SlurmFailure, ApiFailure) as failure:
            status.conditions = ready(False, "ClusterAway", f"no token can be had: {failure.message}", metadata)
            return await self._tell("tokens", token, status, _SOON)
        status.expires_at = self._moment(until)
        status.conditions = ready(True, "Good", f"the token is in the Secret {name}", metadata)
        return await self._tell("tokens", token, status, _AGAIN)

    async def _keep_token(
        self,
        kind: str,
        metadata: Metadata,
        name: str,
        cluster: Cluster,
        slurm: Control,
        role: str,
        lifetime: int,
        *,
        uses: int = 0,
        host: str = "",
    ) -> int:
        """Write a Secret with a token unless a third of its lifetime is left. Returns its expiry in epoch seconds."""
        asked = asked_for(role, lifetime, uses, host)
        have = ((await self._find("v1", "Secret", metadata.namespace, name)) or {}).get("metadata", {})
        marks = have.get("annotations") or {}
        until = marks.get(EXPIRES, "0")
        if have and marks.get(_ASKED) is None:
            raise ApiFailure(409, "AlreadyExists", f"the Secret {name} is not the operator's")
        if marks.get(_ASKED) == asked and until.isdigit() and int(until) - lifetime // 3 > self._now():
            return int(until)
        token = await slurm.create_token(role, lifetime, uses=uses, host=host)
        end = int(self._now()) + lifetime
        texts = {"token": token, "address": controller_address(cluster)}
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        await self._write("PATCH", secret_of(kind, metadata, name, data, {EXPIRES: str(end), _ASKED: asked}))
        self._log("token.stored", kind=kind, name=metadata.key, secret=name)
        return end

    async def _tell(
        self, plural: str, resource: LoginSet | Token, status: LoginSetStatus | TokenStatus, again: float
    ) -> float:
        conditions = self._conditions(resource.status.conditions, status.conditions)
        await self._report(plural, resource, {**msgspec.to_builtins(status), "conditions": conditions})
        return again

    # slurmrestd

    async def _slurm(self, cluster: Cluster) -> Control:
        cached = self._slurms.get(cluster.metadata.uid)
        if cached is not None and self._now() < cached[1] - _SPARE:
            return cached[0]
        name = f"{cluster.metadata.name}-keys"
        secret = await self._find("v1", "Secret", cluster.metadata.namespace, name)
        if secret is None:
            raise SlurmFailure(f"the Secret {name} does not exist yet")
        known = self._slurms.get(cluster.metadata.uid)
        if known is not cached and known is not None:
            return known[0]  # another worker has made it meanwhile
        until = self._now() + _LIFESPAN
        key = base64.b64decode(secret["data"]["jwt.key"])
        slurm = Control(self._address(cluster), token_of(key, "root", int(self._now()), int(until)))
        slurm.guard = self._api.guard
        # Before the old connections are closed: other workers look here meanwhile.
        self._slurms[cluster.metadata.uid] = (slurm, until)
        if cached is not None:
            await cached[0].close()
        return slurm

    # Objects

    async def _find(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        body = await self._api.find_path(f"{_path(api_version, kind, namespace)}/{name}")
        return msgspec.json.decode(body) if body is not None else None

    async def _ensure(self, wanted: Json) -> Json:
        """Apply the object unless the existing one has all these fields. Returns the object as it is then."""
        metadata = wanted["metadata"]
        have = await self._find(wanted["apiVersion"], wanted["kind"], metadata["namespace"], metadata["name"])
        if have is not None and not differs(have, wanted):
            return have
        self._log("object.applied", kind=wanted["kind"], name=metadata["name"], namespace=metadata["namespace"])
        return await self._write("PATCH", wanted)

    async def _remove_unwanted(self, cluster: Cluster) -> None:
        """Delete objects of parts that the spec no longer has; objects without the cluster's owner reference stay."""
        spec, metadata = cluster.spec, cluster.metadata
        for api_version, kind, part, wanted in (
            ("apps/v1", "Deployment", "dashboard", spec.dashboard is not None),
            ("v1", "Service", "dashboard", spec.dashboard is not None),
            ("v1", "Service", "metrics", spec.metrics),
        ):
            name = f"{metadata.name}-{part}"
            have = None if wanted else await self._find(api_version, kind, metadata.namespace, name)
            owners = (have or {}).get("metadata", {}).get("ownerReferences") or ()
            if any(reference["uid"] == metadata.uid for reference in owners):
                await self._api.send("DELETE", f"{_path(api_version, kind, metadata.namespace)}/{name}")

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

    async def _merge(self, path: str, change: Json) -> None:
        manager = {"fieldManager": self._api.field_manager}
        body = msgspec.json.encode(change)
        await self._api.send("PATCH", path, parameters=manager, body=body, content_type=MERGE)

    async def _report(self, plural: str, resource: _Resource, status: Json) -> None:
        if not differs(msgspec.to_builtins(resource.status), status):
            return
        path = f"apis/{GROUP}/{VERSION}/namespaces/{resource.metadata.namespace}/{plural}/{resource.metadata.name}"
        try:
            await self._merge(f"{path}/status", {"status": status})
        except ApiFailure as failure:
            if not failure.not_found:  # deleted meanwhile
                raise

    @staticmethod
    def _moment(seconds: float) -> str:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def _conditions(self, have: list[Condition], wanted: list[Condition]) -> list[Json]:
        """The conditions as JSON, each with the time of its last change of status."""
        since = {(condition.type, condition.status): condition.last_transition_time for condition in have}
        now = self._moment(self._now())
        for condition in wanted:
            condition.last_transition_time = since.get((condition.type, condition.status)) or now
        conditions: list[Json] = msgspec.to_builtins(wanted)
        return conditions


def _path(api_version: str, kind: str, namespace: str) -> str:
    root = "api" if "/" not in api_version else "apis"
    return f"{root}/{api_version}/namespaces/{namespace}/{_PLURALS[kind]}"


def _leaves(resource: _Resource) -> bool:
    return resource.metadata.deletion_timestamp is not None
