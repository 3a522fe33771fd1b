"""What every controller uses: objects of the cluster, pods of a workload, and marks for later."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from spritz_testing.kubernetes.access import CONTROLLER
from spritz_testing.kubernetes.cluster import Cluster, Request
from spritz_testing.kubernetes.errors import Object, Refusal
from spritz_testing.kubernetes.kinds import Kind
from spritz_testing.kubernetes.watching import Event, Name, StoreKey

#: (kind of work, namespace, name)
Key = tuple[str, str, str]

MANAGER: Final = "kube-controller-manager"

#: Seconds until a workload whose pod was refused tries again.
_REFUSED_SECONDS = 1.0


class Client:
    """The cluster as controllers see it. `idle` is set while no object is marked."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.idle = asyncio.Event()
        self._marked: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        #: owner's uid -> its dependents
        self._dependents: dict[str, set[tuple[StoreKey, Name]]] = {}

    # Marks

    def mark(self, what: str, namespace: str, name: str) -> None:
        """Have the loop process an object, once however often it is marked before."""
        self._marked[what, namespace, name] = None
        self.idle.clear()
        self._woken.set()

    def mark_later(self, seconds: float, what: str, namespace: str, name: str) -> None:
        """Mark an object after that time; a later call for the same object replaces the time."""
        key = (what, namespace, name)
        if key in self._timers:
            self._timers[key].cancel()

        def ring() -> None:
            self._timers.pop(key, None)
            self.mark(*key)

        self._timers[key] = asyncio.get_running_loop().call_later(max(0.0, seconds), ring)

    async def next_marked(self) -> Key:
        """The object marked first, without its mark. Waits for one."""
        if not self._marked:
            self.idle.set()
            self._woken.clear()
            await self._woken.wait()
        key = next(iter(self._marked))
        del self._marked[key]
        return key

    # Owners

    def note_owners(self, event: Event) -> None:
        """Keep the index of dependents up to date with a write."""
        place = (event.key, event.name)
        for stored, change in ((event.old, set.discard), (event.new, set.add)):
            if stored is not None:
                for owner in stored.obj["metadata"].get("ownerReferences") or ():
                    change(self._dependents.setdefault(owner["uid"], set()), place)

    def dependents(self, uid: str) -> list[tuple[StoreKey, Name]]:
        """Where the stored dependents of an owner are, in order of resource and name."""
        stores = self.cluster._stores
        return [(key, name) for key, name in sorted(self._dependents.get(uid, ())) if name in stores.get(key, {})]

    def has_dependents(self, uid: str) -> bool:
        return bool(self._dependents.get(uid))

    def forget_dependents(self, uid: str) -> None:
        """Drop the index of an owner that has no dependents left."""
        if not self._dependents.get(uid):
            self._dependents.pop(uid, None)

    def children(self, owner: Object, plural: str) -> list[Object]:
        """The objects of that resource that the owner controls, by name."""
        key = self.kind(plural).key
        store = self.cluster._stores[key]
        places = self._dependents.get(owner["metadata"]["uid"], ())
        children = [store[name].obj for at, name in places if at == key and name in store]
        return sorted(children, key=lambda child: str(child["metadata"]["name"]))

    # Objects

    def kind(self, plural: str) -> Kind:
        return self.cluster.plural(plural)

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        """The stored object, which must not be changed; None if there is none."""
        return self.cluster._find(plural, namespace, name)

    async def modify(
        self, plural: str, namespace: str, name: str, change: Callable[[Object], None], subresource: str = "status"
    ) -> None:
        """Apply `change` to a copy of the object, and store it. Raises Refusal."""

        def changed(obj: Object) -> Object:
            change(obj)
            return obj

        await self.cluster.modify(self.kind(plural), namespace, name, changed, MANAGER, subresource=subresource)

    async def create(self, plural: str, namespace: str, obj: Object) -> Object:
        """The object as stored. Raises Refusal."""
        return await self.cluster.create(self.kind(plural), namespace, obj, Request(CONTROLLER, MANAGER))

    async def delete(self, plural: str, obj: Object, **options: Any) -> None:
        """Delete this object, and no other of its name. Does nothing if it is gone or has changed."""
        metadata = obj["metadata"]
        options.setdefault("preconditions", {"uid": metadata["uid"]})
        try:
            await self.cluster.delete(
                self.kind(plural),
                metadata.get("namespace", ""),
                metadata["name"],
                options,
                Request(CONTROLLER, MANAGER),
            )
        except Refusal as refusal:
            if refusal.code not in (404, 409):
                raise

    # Pods

    async def create_pod(self, plural: str, owner: Object, pod: Object) -> bool:
        """Create a pod of a workload. A refusal becomes an event of the owner, which is processed again later."""
        namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
        try:
            await self.create("pods", namespace, pod)
        except Refusal as refusal:
            if refusal.code == 409:
                return False
            await self._event(plural, namespace, name, "FailedCreate", f"Error creating: {refusal.message}")
            self.mark_later(_REFUSED_SECONDS, plural, namespace, name)
            return False
        return True

    async def _event(self, plural: str, namespace: str, name: str, reason: str, message: str) -> None:
        obj = self.find(plural, namespace, name)
        if obj is None:
            return
        kind = self.kind(plural)
        now = self.cluster.timestamp()
        digest = hashlib.sha256(f"{reason}{message}".encode()).hexdigest()[:10]
        event_name = f"{name}.{digest}"

        def repeat(event: Object) -> None:
            event.update(count=event.get("count", 1) + 1, lastTimestamp=now)

        if self.find("events", namespace, event_name) is not None:
            await self.modify("events", namespace, event_name, repeat, "")
            return
        event = {
            "metadata": {"name": event_name},
            "involvedObject": {
                "kind": kind.kind,
                "apiVersion": kind.api_version,
                "namespace": namespace,
                "name": name,
                "uid": obj["metadata"]["uid"],
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": MANAGER},
        }
        await self.create("events", namespace, event)


def pod_of(owner: Object, kind: str, template: Object, **metadata: Any) -> Object:
    """A pod by the template of its owner."""
    pod: Object = {
        "metadata": copy.deepcopy(template.get("metadata") or {}),
        "spec": copy.deepcopy(template["spec"]),
    }
    pod["metadata"].update(metadata)
    pod["metadata"]["ownerReferences"] = [reference(owner, kind)]
    return pod


def template_hash(template: Object) -> str:
    """A digest of a pod's template: it names the revision."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def reference(owner: Object, kind: str) -> Object:
    """An entry of ownerReferences for the controlling owner."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def deleting(obj: Object) -> bool:
    """Whether the object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def phase_of(pod: Object) -> str | None:
    return (pod.get("status") or {}).get("phase")


def is_ready(pod: Object) -> bool:
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in (pod.get("status") or {}).get("conditions") or ()
    )


def is_active(pod: Object) -> bool:
    """Whether the pod has not ended and is not being deleted."""
    return phase_of(pod) not in ("Succeeded", "Failed") and not deleting(pod)


def remove_finalizer(obj: Object, finalizer: str) -> None:
    """Take the finalizer from the object's metadata, and the list if it was the last."""
    finalizers = [name for name in obj["metadata"].get("finalizers") or () if name != finalizer]
    if finalizers:
        obj["metadata"]["finalizers"] = finalizers
    else:
        obj["metadata"].pop("finalizers", None)


def set_counts(status: Object, counts: dict[str, int]) -> None:
    """Write numbers into a status; Kubernetes leaves zeros out."""
    for field, number in counts.items():
        if number:
            status[field] = number
        else:
            status.pop(field, None)
