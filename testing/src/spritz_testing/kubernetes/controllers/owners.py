"""Namespaces with their default objects, definitions of resources, and the garbage collection of dependents."""

from __future__ import annotations

import copy
from collections.abc import Callable

from spritz_testing.kubernetes.cluster import DEFINITION_FINALIZER
from spritz_testing.kubernetes.conditions import set_condition
from spritz_testing.kubernetes.controllers.client import Client, deleting, remove_finalizer
from spritz_testing.kubernetes.errors import Object
from spritz_testing.kubernetes.watching import Name, StoreKey

_Place = tuple[StoreKey, Name]


async def namespace(client: Client, _namespace: str, name: str) -> None:
    """Give a namespace its default objects; empty one that is being deleted."""
    namespace_object = client.find("namespaces", "", name)
    if namespace_object is None:
        return
    if not deleting(namespace_object):
        if client.find("serviceaccounts", name, "default") is None:
            await client.create("serviceaccounts", name, {"metadata": {"name": "default"}})
        if client.find("configmaps", name, "kube-root-ca.crt") is None:
            await client.create("configmaps", name, {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}})
        return
    remaining = False
    for kind in list(client.cluster.kinds()):
        if kind.namespaced:
            for obj in list(client.cluster.among(kind.plural, name)):
                remaining = True
                if not deleting(obj):
                    await client.delete(kind.plural, obj)
    if not remaining:
        await client.modify("namespaces", "", name, lambda obj: obj["spec"].update(finalizers=[]), "finalize")
    elif not any(
        True for kind in client.cluster.kinds() if kind.namespaced for _ in client.cluster.among(kind.plural, name)
    ):
        client.mark("namespaces", "", name)


async def definition(client: Client, _namespace: str, name: str) -> None:
    """Accept the names of a custom resource, and establish it; delete the objects of one that is being deleted."""
    present = client.find("customresourcedefinitions", "", name)
    if present is None:
        return
    if deleting(present):
        await _end_definition(client, present)
        return

    def establish(crd: Object) -> None:
        now = client.cluster.timestamp()
        spec = crd["spec"]
        set_condition(crd, "NamesAccepted", "True", now, reason="NoConflicts", message="no conflicts found")
        set_condition(
            crd,
            "Established",
            "True",
            now,
            reason="InitialNamesAccepted",
            message="the initial names have been accepted",
        )
        crd["status"]["acceptedNames"] = copy.deepcopy(spec["names"])
        storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
        stored = crd["status"].setdefault("storedVersions", [])
        if storage not in stored:
            stored.append(storage)

    await client.modify("customresourcedefinitions", "", name, establish)


async def _end_definition(client: Client, crd: Object) -> None:
    """Delete the objects of its kind; when those with finalizers have gone too, let the definition go."""
    spec = crd["spec"]
    objects = [
        stored.obj for stored in client.cluster._stores.get((spec["group"], spec["names"]["plural"]), {}).values()
    ]
    for obj in objects:
        if not deleting(obj):
            await client.delete(spec["names"]["plural"], obj)
    if not client.cluster._stores.get((spec["group"], spec["names"]["plural"])):
        name = crd["metadata"]["name"]
        await client.modify(
            "customresourcedefinitions", "", name, lambda obj: remove_finalizer(obj, DEFINITION_FINALIZER), ""
        )


async def garbage(client: Client, uid: str, _name: str) -> None:
    """Delete the dependents of the object with that uid, or orphan them, as the owner's deletion asks."""
    owner = client.cluster.by_uid(uid)
    dependents = client.dependents(uid)
    if owner is None:
        await _after_the_owner(client, uid, dependents)
        return
    kind = client.cluster.kind_named(owner["apiVersion"], owner["kind"])
    if kind is None or not deleting(owner):
        return
    finalizers = owner["metadata"].get("finalizers") or []
    finalizer = ""
    if "orphan" in finalizers:
        finalizer = "orphan"
        for (_, plural), (namespace, name) in dependents:
            await client.modify(plural, namespace, name, _release(uid), "")
    elif "foregroundDeletion" in finalizers and not await _blocked(client, uid, dependents):
        finalizer = "foregroundDeletion"
    if finalizer:
        metadata = owner["metadata"]
        await client.modify(
            kind.plural,
            metadata.get("namespace", ""),
            metadata["name"],
            lambda obj: remove_finalizer(obj, finalizer),
            "",
        )


async def _after_the_owner(client: Client, uid: str, dependents: list[_Place]) -> None:
    """Delete what the owner leaves behind, except objects with another owner that lives."""
    for key, (namespace, name) in dependents:
        obj = client.cluster._stores[key][namespace, name].obj
        if deleting(obj):
            continue
        owners = obj["metadata"].get("ownerReferences") or ()
        if any(owner["uid"] != uid and client.cluster.by_uid(owner["uid"]) is not None for owner in owners):
            await client.modify(key[1], namespace, name, _keep_living_owners(client, uid), "")
        else:
            await client.delete(key[1], obj, propagationPolicy="Background")
    client.forget_dependents(uid)


def _keep_living_owners(client: Client, uid: str) -> Callable[[Object], None]:
    def change(obj: Object) -> None:
        obj["metadata"]["ownerReferences"] = [
            owner
            for owner in obj["metadata"].get("ownerReferences") or ()
            if owner["uid"] != uid and client.cluster.by_uid(owner["uid"]) is not None
        ]

    return change


def _release(uid: str) -> Callable[[Object], None]:
    """A change that takes the owner with that uid from an object."""

    def change(obj: Object) -> None:
        owners = [owner for owner in obj["metadata"].get("ownerReferences") or () if owner["uid"] != uid]
        if owners:
            obj["metadata"]["ownerReferences"] = owners
        else:
            obj["metadata"].pop("ownerReferences", None)

    return change


async def _blocked(client: Client, uid: str, dependents: list[_Place]) -> bool:
    """Delete the dependents; whether any of them still blocks the owner's deletion in the foreground."""
    blocking = False
    for key, place in dependents:
        dependent = client.cluster._stores[key][place].obj
        reference = next(owner for owner in dependent["metadata"]["ownerReferences"] if owner["uid"] == uid)
        blocking = blocking or bool(reference.get("blockOwnerDeletion"))
        if not deleting(dependent):
            policy = "Foreground" if client.has_dependents(dependent["metadata"]["uid"]) else "Background"
            await client.delete(key[1], dependent, propagationPolicy=policy)
    return blocking and any(place in client.cluster._stores[key] for key, place in dependents)
