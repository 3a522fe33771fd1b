"""Kubernetes' own controllers that matter to an operator: owners' garbage collection, namespaces, service accounts,
definitions, the workloads that create pods (Deployment, ReplicaSet, StatefulSet, DaemonSet, Job), ResourceClaims of
pods, and the status of PodDisruptionBudgets and ResourceQuotas.

Level-triggered: a write marks the objects that it may concern, and a loop processes the marked objects. They act on the
store, with the real controllers' names as field managers.
"""

from __future__ import annotations

import asyncio
import copy
import datetime
import hashlib
import json
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from spritz.runtime.tasks import Supervisor
from spritz.testing.kubernetes import admission
from spritz.testing.kubernetes.access import CONTROLLER
from spritz.testing.kubernetes.cluster import Cluster, Request
from spritz.testing.kubernetes.conditions import set_condition
from spritz.testing.kubernetes.errors import Object, Refusal
from spritz.testing.kubernetes.kinds import Kind
from spritz.testing.kubernetes.selectors import matches_label_selector
from spritz.testing.kubernetes.watching import Event, Name, StoreKey


def _own(each: Object, owners: list[Object]) -> None:
    each["metadata"].update(ownerReferences=owners)


#: (kind of work, namespace, name)
Key = tuple[str, str, str]

_MANAGER: Final = "kube-controller-manager"
_CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_WORKLOADS: Final = {
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}


def _claim_names(pod: Object) -> list[str]:
    made = [each.get("resourceClaimName") for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()]
    named = [each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims") or ()]
    return [name for name in (*made, *named) if name]


class Controllers:
    """The loop. `idle` is set while no object is marked."""

    def __init__(self, cluster: Cluster, tasks: Supervisor) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._dirty: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self.idle = asyncio.Event()
        #: owner's uid → its dependents
        self._dependents: dict[str, set[tuple[StoreKey, Name]]] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._handlers: dict[str, Callable[[str, str], Awaitable[None]]] = {
            "namespaces": self._namespace,
            "customresourcedefinitions": self._definition,
            "garbage": self._garbage,
            "deployments": self._deployment,
            "replicasets": self._replica_set,
            "statefulsets": self._stateful_set,
            "daemonsets": self._daemon_set,
            "jobs": self._job,
            "poddisruptionbudgets": self._budget,
            "resourcequotas": self._quota,
            "claims-of": self._claims_of_pod,
            "resourceclaims": self._resource_claim,
        }

    def start(self) -> None:
        self._cluster.listeners.append(self._heard)
        for namespace in list(self._cluster.among("namespaces")):
            self._mark("namespaces", "", namespace["metadata"]["name"])
        self._tasks.spawn_contained(self._loop(), name="controllers")

    # What a write concerns

    def _mark(self, what: str, namespace: str, name: str) -> None:
        self._dirty[what, namespace, name] = None
        self.idle.clear()
        self._woken.set()

    def _later(self, seconds: float, what: str, namespace: str, name: str) -> None:
        key = (what, namespace, name)
        if key in self._timers:
            self._timers[key].cancel()

        def ring() -> None:
            self._timers.pop(key, None)
            self._mark(*key)

        self._timers[key] = asyncio.get_running_loop().call_later(max(0.0, seconds), ring)

    def _heard(self, event: Event) -> None:
        obj = event.last.obj
        namespace, name = event.name
        place = (event.key, event.name)
        for stored, change in ((event.old, set.discard), (event.new, set.add)):
            if stored is not None:
                for owner in stored.obj["metadata"].get("ownerReferences") or ():
                    change(self._dependents.setdefault(owner["uid"], set()), place)
        _group, plural = event.key
        if plural in self._handlers:
            self._mark(plural, namespace, name)
        if event.new is None or obj["metadata"].get("deletionTimestamp"):
            self._mark("garbage", obj["metadata"]["uid"], "")
            if namespace:
                owner = self._cluster._find("namespaces", "", namespace)
                if owner is not None and owner["metadata"].get("deletionTimestamp"):
                    self._mark("namespaces", "", namespace)
        owners = obj["metadata"].get("ownerReferences") or ()
        if owners and (event.old is None or event.new is None):
            for owner in owners:
                self._mark("garbage", owner["uid"], "")
        for owner in owners:
            if owner.get("controller") and owner["kind"] in _WORKLOADS:
                self._mark(_WORKLOADS[owner["kind"]], namespace, owner["name"])
        if plural == "pods":
            for budget in self._cluster.among("poddisruptionbudgets", namespace):
                self._mark("poddisruptionbudgets", namespace, budget["metadata"]["name"])
            if obj["spec"].get("resourceClaims"):
                self._mark("claims-of", namespace, name)
                for claim in _claim_names(obj):
                    self._mark("resourceclaims", namespace, claim)
        elif plural == "nodes":
            for each in self._cluster.among("daemonsets"):
                self._mark("daemonsets", each["metadata"]["namespace"], each["metadata"]["name"])
        if namespace and plural not in ("resourcequotas", "events"):
            for quota in self._cluster.among("resourcequotas", namespace):
                self._mark("resourcequotas", namespace, quota["metadata"]["name"])

    async def _loop(self) -> None:
        while True:
            if not self._dirty:
                self.idle.set()
                self._woken.clear()
                await self._woken.wait()
            key = next(iter(self._dirty))
            del self._dirty[key]
            what, namespace, name = key
            try:
                await self._handlers[what](namespace, name)
            except Refusal as refusal:
                if refusal.code not in (404, 409):
                    self._later(0.2, *key)
            # Let requests run between two objects.
            await asyncio.sleep(0)

    # Helpers

    def _kind(self, plural: str) -> Kind:
        return self._cluster.plural(plural)

    def _find(self, plural: str, namespace: str, name: str) -> Object | None:
        return self._cluster._find(plural, namespace, name)

    async def _set(
        self, plural: str, namespace: str, name: str, change: Callable[[Object], None], subresource: str = "status"
    ) -> None:
        def changed(obj: Object) -> Object:
            change(obj)
            return obj

        await self._cluster.modify(self._kind(plural), namespace, name, changed, _MANAGER, subresource=subresource)

    async def _create(self, plural: str, namespace: str, obj: Object) -> Object:
        return await self._cluster.create(self._kind(plural), namespace, obj, Request(CONTROLLER, _MANAGER))

    async def _delete(self, plural: str, obj: Object, **options: Any) -> None:
        metadata = obj["metadata"]
        options.setdefault("preconditions", {"uid": metadata["uid"]})
        try:
            await self._cluster.delete(
                self._kind(plural),
                metadata.get("namespace", ""),
                metadata["name"],
                options,
                Request(CONTROLLER, _MANAGER),
            )
        except Refusal as refusal:
            if refusal.code not in (404, 409):
                raise

    def _children(self, owner: Object, plural: str) -> list[Object]:
        """The objects of that resource that the owner controls, by name."""
        key = self._kind(plural).key
        store = self._cluster._stores[key]
        places = self._dependents.get(owner["metadata"]["uid"], ())
        children = [store[name].obj for at, name in places if at == key and name in store]
        return sorted(children, key=lambda each: str(each["metadata"]["name"]))

    # Namespaces, definitions, owners

    async def _namespace(self, _namespace: str, name: str) -> None:
        namespace_object = self._find("namespaces", "", name)
        if namespace_object is None:
            return
        if not namespace_object["metadata"].get("deletionTimestamp"):
            if self._find("serviceaccounts", name, "default") is None:
                await self._create("serviceaccounts", name, {"metadata": {"name": "default"}})
            if self._find("configmaps", name, "kube-root-ca.crt") is None:
                await self._create(
                    "configmaps", name, {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}}
                )
            return
        remaining = False
        for kind in list(self._cluster.kinds()):
            if kind.namespaced:
                for obj in list(self._cluster.among(kind.plural, name)):
                    remaining = True
                    if not obj["metadata"].get("deletionTimestamp"):
                        await self._delete(kind.plural, obj)
        if not remaining:
            await self._set("namespaces", "", name, lambda each: each["spec"].update(finalizers=[]), "finalize")
        elif not any(
            True for kind in self._cluster.kinds() if kind.namespaced for _ in self._cluster.among(kind.plural, name)
        ):
            self._mark("namespaces", "", name)

    async def _definition(self, _namespace: str, name: str) -> None:
        definition = self._find("customresourcedefinitions", "", name)
        if definition is None:
            return

        def establish(each: Object) -> None:
            now = self._cluster.timestamp()
            spec = each["spec"]
            set_condition(each, "NamesAccepted", "True", now, reason="NoConflicts", message="no conflicts found")
            set_condition(
                each,
                "Established",
                "True",
                now,
                reason="InitialNamesAccepted",
                message="the initial names have been accepted",
            )
            each["status"]["acceptedNames"] = copy.deepcopy(spec["names"])
            storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
            stored = each["status"].setdefault("storedVersions", [])
            if storage not in stored:
                stored.append(storage)

        await self._set("customresourcedefinitions", "", name, establish)

    async def _garbage(self, uid: str, _name: str) -> None:
        """Delete the dependents of the object with that uid, or orphan them."""
        owner = self._cluster.by_uid(uid)
        dependents = [
            (key, name)
            for key, name in sorted(self._dependents.get(uid, ()))
            if name in self._cluster._stores.get(key, {})
        ]
        if owner is None:
            for key, name in dependents:
                obj = self._cluster._stores[key][name].obj
                if obj["metadata"].get("deletionTimestamp"):
                    continue
                living = [
                    each
                    for each in obj["metadata"].get("ownerReferences") or ()
                    if each["uid"] != uid and self._cluster.by_uid(each["uid"]) is not None
                ]
                if living:
                    await self._set(
                        key[1],
                        name[0],
                        name[1],
                        partial(_own, owners=living),
                        "",
                    )
                else:
                    await self._delete(key[1], obj, propagationPolicy="Background")
            self._dependents.pop(uid, None) if not self._dependents.get(uid) else None
            return
        obj = owner
        kind = self._cluster.kind_named(obj["apiVersion"], obj["kind"])
        if kind is None:
            return
        finalizers = obj["metadata"].get("finalizers") or []
        if not obj["metadata"].get("deletionTimestamp"):
            return
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        if "orphan" in finalizers:
            for key, place in dependents:

                def release(each: Object) -> None:
                    kept = [one for one in each["metadata"].get("ownerReferences") or () if one["uid"] != uid]
                    if kept:
                        each["metadata"]["ownerReferences"] = kept
                    else:
                        each["metadata"].pop("ownerReferences", None)

                await self._set(key[1], place[0], place[1], release, "")
            await self._set(kind.plural, namespace, name, lambda each: _without(each, "orphan"), "")
        elif "foregroundDeletion" in finalizers:
            blocking = False
            for key, place in dependents:
                dependent = self._cluster._stores[key][place].obj
                reference = next(each for each in dependent["metadata"]["ownerReferences"] if each["uid"] == uid)
                blocking = blocking or bool(reference.get("blockOwnerDeletion"))
                if not dependent["metadata"].get("deletionTimestamp"):
                    await self._delete(
                        key[1],
                        dependent,
                        propagationPolicy="Foreground"
                        if self._dependents.get(dependent["metadata"]["uid"])
                        else "Background",
                    )
            if not blocking or not [1 for key, place in dependents if place in self._cluster._stores[key]]:
                await self._set(kind.plural, namespace, name, lambda each: _without(each, "foregroundDeletion"), "")

    # Workloads

    def _pod(self, owner: Object, kind: str, template: Object, **metadata: Any) -> Object:
        pod: Object = {
            "metadata": copy.deepcopy(template.get("metadata") or {}),
            "spec": copy.deepcopy(template["spec"]),
        }
        pod["metadata"].update(metadata)
        pod["metadata"]["ownerReferences"] = [_reference(owner, kind)]
        return pod

    async def _try_pod(self, plural: str, namespace: str, name: str, pod: Object) -> bool:
        try:
            await self._create("pods", namespace, pod)
        except Refusal as refusal:
            if refusal.code == 409:
                return False
            await self._event(plural, namespace, name, "FailedCreate", f"Error creating: {refusal.message}")
            self._later(1.0, plural, namespace, name)
            return False
        return True

    async def _event(self, plural: str, namespace: str, name: str, reason: str, message: str) -> None:
        obj = self._find(plural, namespace, name)
        if obj is None:
            return
        kind = self._kind(plural)
        now = self._cluster.timestamp()
        digest = hashlib.sha256(f"{reason}{message}".encode()).hexdigest()[:10]
        event_name = f"{name}.{digest}"
        about = {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "namespace": namespace,
            "name": name,
            "uid": obj["metadata"]["uid"],
        }
        known = self._find("events", namespace, event_name)
        if known is not None:
            await self._set(
                "events",
                namespace,
                event_name,
                lambda each: each.update(count=each.get("count", 1) + 1, lastTimestamp=now),
                "",
            )
            return
        event = {
            "metadata": {"name": event_name},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": _MANAGER},
        }
        await self._create("events", namespace, event)

    async def _deployment(self, namespace: str, name: str) -> None:
        deployment = self._find("deployments", namespace, name)
        if deployment is None or deployment["metadata"].get("deletionTimestamp"):
            return
        spec = deployment["spec"]
        digest = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
        sets = self._children(deployment, "replicasets")
        current = next(
            (each for each in sets if each["metadata"].get("labels", {}).get("pod-template-hash") == digest), None
        )
        old = [each for each in sets if each is not current]
        if current is None:
            template = copy.deepcopy(spec["template"])
            labels = {**(template.setdefault("metadata", {}).get("labels") or {}), "pod-template-hash": digest}
            template["metadata"]["labels"] = labels
            selector = copy.deepcopy(spec["selector"])
            selector.setdefault("matchLabels", {})["pod-template-hash"] = digest
            metadata = {
                "name": f"{name}-{digest}",
                "labels": labels,
                "ownerReferences": [_reference(deployment, "Deployment")],
            }
            replicas = 0 if old else spec["replicas"]
            try:
                current = await self._create(
                    "replicasets",
                    namespace,
                    {"metadata": metadata, "spec": {"replicas": replicas, "selector": selector, "template": template}},
                )
            except Refusal as refusal:
                if refusal.code == 409:
                    return
                raise
        await self._roll(namespace, spec, current, old)
        sets = self._children(deployment, "replicasets")

        def report(each: Object) -> None:
            status = each.setdefault("status", {})
            totals = [(one.get("status") or {}) for one in sets]
            mine = next((one.get("status") or {} for one in sets if one["metadata"]["name"] == f"{name}-{digest}"), {})
            available = sum(total.get("availableReplicas", 0) for total in totals)
            numbers = {
                "replicas": sum(total.get("replicas", 0) for total in totals),
                "updatedReplicas": mine.get("replicas", 0),
                "readyReplicas": sum(total.get("readyReplicas", 0) for total in totals),
                "availableReplicas": available,
                "unavailableReplicas": max(0, spec["replicas"] - available),
            }
            for field, number in numbers.items():
                if number:
                    status[field] = number
                else:
                    status.pop(field, None)
            status["observedGeneration"] = deployment["metadata"]["generation"]
            enough = available >= spec["replicas"] - _share(
                spec["strategy"], "maxUnavailable", spec["replicas"], up=False
            )
            now = self._cluster.timestamp()
            set_condition(
                each, "Available", "True" if enough else "False", now,
                reason="MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
                message=f"Deployment {'has' if enough else 'does not have'} minimum availability.",
            )  # fmt: skip

        await self._set("deployments", namespace, name, report)

    async def _roll(self, namespace: str, spec: Object, current: Object, old: list[Object]) -> None:
        """Move replicas from the old sets to the current one, as far as surge and unavailability allow."""
        replicas = spec["replicas"]
        strategy = spec["strategy"]
        if spec.get("paused"):
            return
        alive = [replica_set for replica_set in old if replica_set["spec"]["replicas"] > 0]
        if strategy["type"] == "Recreate":
            for replica_set in alive:
                await self._resize(namespace, replica_set, 0)
            if any((replica_set.get("status") or {}).get("replicas", 0) for replica_set in old):
                return
            await self._resize(namespace, current, replicas)
            return
        surge = _share(strategy, "maxSurge", replicas, up=True)
        unavailable = _share(strategy, "maxUnavailable", replicas, up=False)
        if surge == unavailable == 0:
            unavailable = 1
        others = sum(replica_set["spec"]["replicas"] for replica_set in old)
        size = min(replicas, max(0, replicas + surge - others)) if others else replicas
        if size > current["spec"]["replicas"] or not others:
            await self._resize(namespace, current, size)
        ready = sum((replica_set.get("status") or {}).get("availableReplicas", 0) for replica_set in [*old, current])
        spare = ready - (replicas - unavailable)
        for replica_set in alive:
            # Remove replicas that are not ready first.
            broken = replica_set["spec"]["replicas"] - (replica_set.get("status") or {}).get("availableReplicas", 0)
            less = min(replica_set["spec"]["replicas"], max(0, broken) + max(0, spare))
            if less > 0:
                spare -= max(0, less - max(0, broken))
                await self._resize(namespace, replica_set, replica_set["spec"]["replicas"] - less)

    async def _resize(self, namespace: str, each: Object, replicas: int) -> None:
        if each["spec"]["replicas"] != replicas:
            await self._set(
                "replicasets",
                namespace,
                each["metadata"]["name"],
                lambda one: one["spec"].update(replicas=replicas),
                "",
            )

    async def _replica_set(self, namespace: str, name: str) -> None:
        replica_set = self._find("replicasets", namespace, name)
        if replica_set is None:
            return
        pods = [pod for pod in self._children(replica_set, "pods") if _active(pod)]
        if not replica_set["metadata"].get("deletionTimestamp"):
            missing = replica_set["spec"]["replicas"] - len(pods)
            for _ in range(max(0, missing)):
                pod = self._pod(replica_set, "ReplicaSet", replica_set["spec"]["template"], generateName=f"{name}-")
                if not await self._try_pod("replicasets", namespace, name, pod):
                    break
            for pod in sorted(pods, key=_worth)[: max(0, -missing)]:
                await self._delete("pods", pod)
        pods = [pod for pod in self._children(replica_set, "pods") if _active(pod)]
        ready = sum(is_ready(pod) for pod in pods)

        def report(each: Object) -> None:
            status = each.setdefault("status", {})
            status["replicas"] = len(pods)
            for field, number in (
                ("fullyLabeledReplicas", len(pods)),
                ("readyReplicas", ready),
                ("availableReplicas", ready),
            ):
                if number:
                    status[field] = number
                else:
                    status.pop(field, None)
            status["observedGeneration"] = replica_set["metadata"]["generation"]

        await self._set("replicasets", namespace, name, report)

    async def _stateful_set(self, namespace: str, name: str) -> None:
        stateful_set = self._find("statefulsets", namespace, name)
        if stateful_set is None:
            return
        spec = stateful_set["spec"]
        digest = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
        revision = f"{name}-{digest}"
        pods = {pod["metadata"]["name"]: pod for pod in self._children(stateful_set, "pods")}
        ordered = spec.get("podManagementPolicy") != "Parallel"
        first = (spec.get("ordinals") or {}).get("start", 0)
        pod_names = [f"{name}-{first + index}" for index in range(spec["replicas"])]
        if not stateful_set["metadata"].get("deletionTimestamp"):
            await self._stateful_pods(namespace, stateful_set, pod_names, pods, ordered, revision)
        pods = {pod["metadata"]["name"]: pod for pod in self._children(stateful_set, "pods")}

        def report(each: Object) -> None:
            status = each.setdefault("status", {})
            ready = sum(is_ready(pod) for pod in pods.values())
            updated = sum(
                pod["metadata"]["labels"].get("controller-revision-hash") == revision for pod in pods.values()
            )
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

        await self._set("statefulsets", namespace, name, report)

    async def _stateful_pods(
        self,
        namespace: str,
        stateful_set: Object,
        pod_names: list[str],
        pods: dict[str, Object],
        ordered: bool,
        revision: str,
    ) -> None:
        spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
        for pod_name in pod_names:
            pod = pods.get(pod_name)
            if pod is not None and (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
                await self._delete("pods", pod)
                return
            if pod is None:
                made = self._pod(stateful_set, "StatefulSet", spec["template"], name=pod_name)
                labels = made["metadata"].setdefault("labels", {})
                ordinal = pod_name.rsplit("-", 1)[1]
                labels.update(
                    {
                        "statefulset.kubernetes.io/pod-name": pod_name,
                        "controller-revision-hash": revision,
                        "apps.kubernetes.io/pod-index": ordinal,
                    }
                )
                made["spec"]["hostname"] = pod_name
                if spec.get("serviceName"):
                    made["spec"]["subdomain"] = spec["serviceName"]
                await self._claims(namespace, stateful_set, pod_name, made)
                if not await self._try_pod("statefulsets", namespace, name, made) or ordered:
                    return
            elif ordered and not is_ready(pod):
                if pod["metadata"]["labels"].get("controller-revision-hash") == revision or pod["metadata"].get(
                    "deletionTimestamp"
                ):
                    return
                break
        extra = sorted((pod for pod in pods if pod not in pod_names), key=lambda each: -int(each.rsplit("-", 1)[1]))
        for pod_name in extra:
            if not pods[pod_name]["metadata"].get("deletionTimestamp"):
                await self._delete("pods", pods[pod_name])
            if ordered:
                return
        if spec["updateStrategy"]["type"] != "RollingUpdate" or extra:
            return
        partition = (spec["updateStrategy"].get("rollingUpdate") or {}).get("partition", 0)
        for pod_name in reversed(pod_names):
            pod = pods.get(pod_name)
            if pod is None or int(pod_name.rsplit("-", 1)[1]) < partition:
                continue
            if pod["metadata"]["labels"].get("controller-revision-hash") != revision:
                if not pod["metadata"].get("deletionTimestamp"):
                    await self._delete("pods", pod)
                return
            if not is_ready(pod):
                return

    async def _claims(self, namespace: str, stateful_set: Object, pod_name: str, pod: Object) -> None:
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{pod_name}"
            if self._find("persistentvolumeclaims", namespace, claim) is None:
                metadata = {
                    "name": claim,
                    "labels": (stateful_set["spec"].get("selector") or {}).get("matchLabels") or {},
                }
                await self._create(
                    "persistentvolumeclaims", namespace, {"metadata": metadata, "spec": copy.deepcopy(template["spec"])}
                )
            volumes = [
                each for each in pod["spec"].get("volumes") or () if each["name"] != template["metadata"]["name"]
            ]
            volumes.append({"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}})
            pod["spec"]["volumes"] = volumes

    async def _daemon_set(self, namespace: str, name: str) -> None:
        daemon_set = self._find("daemonsets", namespace, name)
        if daemon_set is None:
            return
        template = daemon_set["spec"]["template"]
        selector = template["spec"].get("nodeSelector") or {}
        nodes = [
            node["metadata"]["name"]
            for node in self._cluster.among("nodes")
            if all((node["metadata"].get("labels") or {}).get(key) == value for key, value in selector.items())
        ]
        pods = {
            _daemon_node(pod): pod
            for pod in self._children(daemon_set, "pods")
            if not pod["metadata"].get("deletionTimestamp")
        }
        if not daemon_set["metadata"].get("deletionTimestamp"):
            for node in nodes:
                if node not in pods:
                    pod = self._pod(daemon_set, "DaemonSet", template, generateName=f"{name}-")
                    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                    pod["spec"]["affinity"] = {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
                        }
                    }
                    if not await self._try_pod("daemonsets", namespace, name, pod):
                        break
            for node, pod in pods.items():
                if node not in nodes or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
                    await self._delete("pods", pod)
        ready = sum(is_ready(pod) for pod in pods.values())

        def report(each: Object) -> None:
            numbers = {
                "currentNumberScheduled": len(pods),
                "desiredNumberScheduled": len(nodes),
                "numberMisscheduled": 0,
                "numberReady": ready,
            }
            each.setdefault("status", {}).update(numbers, observedGeneration=daemon_set["metadata"]["generation"])

        await self._set("daemonsets", namespace, name, report)

    async def _job(self, namespace: str, name: str) -> None:
        job = self._find("jobs", namespace, name)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        spec, status = job["spec"], job.get("status") or {}
        if any(
            each["type"] in ("Complete", "Failed") and each["status"] == "True"
            for each in status.get("conditions") or ()
        ):
            return
        pods = self._children(job, "pods")
        phases = [(pod.get("status") or {}).get("phase") for pod in pods]
        indexed = spec.get("completionMode") == "Indexed"
        done = (
            {_index(pod) for pod, phase in zip(pods, phases, strict=True) if phase == "Succeeded"} if indexed else set()
        )
        succeeded = len(done) if indexed else phases.count("Succeeded")
        failed = phases.count("Failed")
        active = [pod for pod in pods if _active(pod)]
        completions = spec.get("completions")
        now = self._cluster.timestamp()
        finished, reason, message = "", "", ""
        if (completions is not None and succeeded >= completions) or (completions is None and succeeded and not active):
            finished, reason, message = "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        elif failed > spec["backoffLimit"]:
            finished, reason, message = "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = spec.get("activeDeadlineSeconds")
        if not finished and deadline is not None and status.get("startTime"):
            started = datetime.datetime.fromisoformat(status["startTime"].replace("Z", "+00:00")).timestamp()
            left = started + deadline - self._cluster.now()
            if left <= 0:
                finished, reason, message = (
                    "Failed",
                    "DeadlineExceeded",
                    "Job was active longer than specified deadline",
                )
            else:
                self._later(left, "jobs", namespace, name)
        if finished == "Failed" or spec.get("suspend"):
            for pod in active:
                await self._delete("pods", pod)
            active = []
        elif not finished:
            missing = spec["parallelism"] - len(active)
            if completions is not None:
                missing = min(missing, completions - succeeded - len(active))
            elif succeeded:
                missing = 0
            taken = done | {_index(pod) for pod in active} if indexed else set()
            free = [index for index in range(completions or 0) if index not in taken] if indexed else []
            for _ in range(max(0, missing)):
                pod = self._pod(job, "Job", spec["template"], generateName=f"{name}-")
                if indexed:
                    index = str(free.pop(0))
                    pod["metadata"]["generateName"] = f"{name}-{index}-"
                    for part in ("annotations", "labels"):
                        pod["metadata"].setdefault(part, {})["batch.kubernetes.io/job-completion-index"] = index
                    for container in pod["spec"]["containers"]:
                        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": index})
                if not await self._try_pod("jobs", namespace, name, pod):
                    break
            active = [pod for pod in self._children(job, "pods") if _active(pod)]
        ready = sum(is_ready(pod) for pod in active)

        def report(each: Object) -> None:
            state = each.setdefault("status", {})
            if spec.get("suspend"):
                state.pop("startTime", None)
                set_condition(each, "Suspended", "True", now, reason="JobSuspended", message="Job suspended")
            else:
                state.setdefault("startTime", now)
                if any(one["type"] == "Suspended" for one in state.get("conditions") or ()):
                    set_condition(each, "Suspended", "False", now, reason="JobResumed", message="Job resumed")
            for field, number in (
                ("active", len(active)),
                ("succeeded", succeeded),
                ("failed", failed),
                ("ready", ready),
            ):
                if number or field == "ready":
                    state[field] = number
                else:
                    state.pop(field, None)
            if finished:
                set_condition(each, finished, "True", now, reason=reason, message=message)
                if finished == "Complete":
                    state["completionTime"] = now

        await self._set("jobs", namespace, name, report)

    # Budgets and quotas

    async def _budget(self, namespace: str, name: str) -> None:
        budget = self._find("poddisruptionbudgets", namespace, name)
        if budget is None:
            return
        spec = budget["spec"]
        pods = [
            pod
            for pod in self._cluster.among("pods", namespace)
            if matches_label_selector(spec.get("selector"), pod["metadata"].get("labels") or {})
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        expected = len(pods)
        disrupted = {
            pod: when
            for pod, when in ((budget.get("status") or {}).get("disruptedPods") or {}).items()
            if any(each["metadata"]["name"] == pod and not each["metadata"].get("deletionTimestamp") for each in pods)
        }
        healthy = sum(
            is_ready(pod) and not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        if spec.get("maxUnavailable") is not None:
            desired = max(0, expected - _number(spec["maxUnavailable"], expected, up=True))
        else:
            desired = _number(spec.get("minAvailable", 1), expected, up=True)

        def report(each: Object) -> None:
            status = each.setdefault("status", {})
            allowed = max(0, healthy - desired) if expected else 0
            status.update(
                currentHealthy=healthy, desiredHealthy=desired, expectedPods=expected, disruptionsAllowed=allowed
            )
            status["observedGeneration"] = budget["metadata"]["generation"]
            if disrupted:
                status["disruptedPods"] = disrupted
            else:
                status.pop("disruptedPods", None)
            set_condition(
                each,
                "DisruptionAllowed",
                "True" if allowed else "False",
                self._cluster.timestamp(),
                reason="SufficientPods" if allowed else "InsufficientPods",
            )

        await self._set("poddisruptionbudgets", namespace, name, report)

    async def _claims_of_pod(self, namespace: str, name: str) -> None:
        """Make the claims that the pod has templates for."""
        pod = self._find("pods", namespace, name)
        if pod is None or pod["metadata"].get("deletionTimestamp"):
            return
        made = {each["name"] for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        for reference in pod["spec"].get("resourceClaims") or ():
            template = self._find("resourceclaimtemplates", namespace, reference.get("resourceClaimTemplateName") or "")
            if template is None or reference["name"] in made:
                continue
            spec = copy.deepcopy(template["spec"])
            metadata = {**(spec.get("metadata") or {}), "generateName": f"{name}-{reference['name']}-"}
            metadata["ownerReferences"] = [_reference(pod, "Pod")]
            body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
            claim = await self._create("resourceclaims", namespace, {**body, "spec": spec["spec"]})
            status = {"name": reference["name"], "resourceClaimName": claim["metadata"]["name"]}

            def report(each: Object, status: Object = status) -> None:
                each.setdefault("status", {}).setdefault("resourceClaimStatuses", []).append(status)

            await self._set("pods", namespace, name, report)

    async def _resource_claim(self, namespace: str, name: str) -> None:
        """Take the claim's devices back when no pod that lives has it reserved."""
        claim = self._find("resourceclaims", namespace, name)
        if claim is None or not (claim.get("status") or {}).get("reservedFor"):
            return
        living = {
            pod["metadata"]["uid"]
            for pod in self._cluster.among("pods", namespace)
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        }
        left = [each for each in claim["status"]["reservedFor"] if each["uid"] in living]
        if len(left) == len(claim["status"]["reservedFor"]):
            return

        def report(each: Object) -> None:
            each["status"] = {**each["status"], "reservedFor": left} if left else {}

        await self._set("resourceclaims", namespace, name, report)
        if not left:
            await self._set("resourceclaims", namespace, name, lambda each: _without(each, _CLAIM_FINALIZER), "")

    async def _quota(self, namespace: str, name: str) -> None:
        quota = self._find("resourcequotas", namespace, name)
        if quota is None:
            return
        hard = (quota.get("spec") or {}).get("hard") or {}
        used = {each: admission.plain(admission.quota_used(each, namespace, self._cluster.among)) for each in hard}

        def report(each: Object) -> None:
            each["status"] = {"hard": dict(hard), "used": used}

        await self._set("resourcequotas", namespace, name, report)


def is_ready(pod: Object) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in (pod.get("status") or {}).get("conditions") or ()
    )


def _active(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") and not pod["metadata"].get(
        "deletionTimestamp"
    )


def _worth(pod: Object) -> tuple[bool, bool, str]:
    """Sort key for scale-in: pods that are not bound, not ready, or young come first."""
    age = str(pod["metadata"]["creationTimestamp"])
    return bool(pod["spec"].get("nodeName")), is_ready(pod), "".join(chr(255 - ord(char)) for char in age)


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", -1))


def _daemon_node(pod: Object) -> str:
    """The node that a DaemonSet's pod is for, bound or not."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or [{}]
    return str(((terms[0].get("matchFields") or [{}])[0].get("values") or [""])[0])


def _reference(owner: Object, kind: str) -> Object:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _without(obj: Object, finalizer: str) -> None:
    kept = [each for each in obj["metadata"].get("finalizers") or () if each != finalizer]
    if kept:
        obj["metadata"]["finalizers"] = kept
    else:
        obj["metadata"].pop("finalizers", None)


def _number(value: Any, of: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        part = int(value[:-1]) * of / 100
        return math.ceil(part) if up else math.floor(part)
    return int(value)


def _share(strategy: Object, field: str, of: int, *, up: bool) -> int:
    return _number((strategy.get("rollingUpdate") or {}).get(field, 0), of, up=up)
