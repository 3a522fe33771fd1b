"""Objects of the API server as the operator for clusters writes them: only where they differ, and as its field manager.

An object that has all desired fields is not written; fields of other managers stay. The server may write a field in
another way than it was sent (a quantity `1000m` as `1`, a `false` left out), so an object is compared with what the
server made of the last write as well.

An object that is no part of the resource, but has the name of one, is left alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final

import msgspec

from spritz.k8s.api import APPLY, MERGE, Api, ApiFailure
from spritz.k8s.custom_resources.cluster_objects import GROUP, VERSION, Cluster, Condition, Json
from spritz.k8s.custom_resources.login_sets import LoginSet, Token
from spritz.k8s.custom_resources.node_sets import FINALIZER, SELECTOR, NodeSet, differs
from spritz.k8s.pods import PREFIX

#: Seconds between looks at a resource: while something is under way, and otherwise.
SOON, AGAIN = 2.0, 30.0

#: Most objects whose last write is remembered; without it an object may be written once more than it need be.
_APPLIED_MAX: Final = 50_000

#: Annotation of a Secret: when its token expires, in seconds since the epoch.
EXPIRES: Final = f"{PREFIX}expires"

Resource = Cluster | NodeSet | LoginSet | Token

_PLURALS: Final = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Service": "services",
    "StatefulSet": "statefulsets",
    "Deployment": "deployments",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
}


class Objects:
    """Reads and writes objects, and reports on our own resources."""

    def __init__(self, api: Api, log: Callable[..., None], now: Callable[[], float]) -> None:
        self._api = api
        self._log = log
        self._now = now
        #: kind, namespace, name -> what was applied last, and these fields of the server's answer
        self._applied: dict[tuple[str, str, str], tuple[Json, Json]] = {}

    async def find(self, api_version: str, kind: str, namespace: str, name: str) -> Json | None:
        """The object; None if there is none."""
        body = await self._api.find_path(f"{path_of(api_version, kind, namespace)}/{name}")
        return msgspec.json.decode(body) if body is not None else None

    async def ensure(self, wanted: Json) -> Json:
        """Apply the object unless the existing one has all these fields. Returns the object as it is then.

        Raises ApiFailure, also for an object of another that has the name.
        """
        metadata = wanted["metadata"]
        have = await self.find(wanted["apiVersion"], wanted["kind"], metadata["namespace"], metadata["name"])
        key = wanted["kind"], metadata["namespace"], metadata["name"]
        if have is not None:
            if is_anothers(have, wanted):
                words = f"there is a {wanted['kind']} {metadata['name']} of another, whose name this resource needs"
                raise ApiFailure(409, "AlreadyExists", words)
            sent, answered = self._applied.get(key, (None, wanted))
            if not differs(have, answered if sent == wanted else wanted):
                return have
        self._log("object.applied", kind=wanted["kind"], name=metadata["name"], namespace=metadata["namespace"])
        answer = await self.write("PATCH", wanted)
        if len(self._applied) >= _APPLIED_MAX:
            self._applied.clear()
        self._applied[key] = wanted, _part_of(answer, wanted)
        return answer

    async def write(self, method: str, wanted: Json) -> Json:
        """POST creates the object, PATCH applies it. Returns the object as it is then."""
        path = path_of(wanted["apiVersion"], wanted["kind"], wanted["metadata"]["namespace"])
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

    async def refusal(self, workload: Json) -> str:
        """Why the API server refuses the pods of a StatefulSet or Deployment, of which there is none; "" otherwise."""
        metadata, spec = workload["metadata"], workload["spec"]
        if (workload.get("status") or {}).get("replicas"):
            return ""
        template = spec["template"]
        claims = [
            {"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
            for claim in spec.get("volumeClaimTemplates") or ()
        ]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": f"{metadata['name']}-dry-run"},
            "spec": {**template["spec"], "volumes": [*(template["spec"].get("volumes") or ()), *claims]},
        }
        path = path_of("v1", "Pod", metadata["namespace"])
        try:
            await self._api.send("POST", path, parameters={"dryRun": "All"}, body=msgspec.json.encode(pod))
        except ApiFailure as failure:
            return failure.message if failure.invalid or failure.code == 403 else ""
        return ""

    async def merge(self, path: str, change: Json) -> None:
        """Merge these fields into the object at the path."""
        manager = {"fieldManager": self._api.field_manager}
        body = msgspec.json.encode(change)
        await self._api.send("PATCH", path, parameters=manager, body=body, content_type=MERGE)

    async def report(self, plural: str, resource: Resource, status: Json) -> None:
        """Write the resource's status where it differs."""
        if not differs(msgspec.to_builtins(resource.status), status):
            return
        path = f"apis/{GROUP}/{VERSION}/namespaces/{resource.metadata.namespace}/{plural}/{resource.metadata.name}"
        try:
            await self.merge(f"{path}/status", {"status": status})
        except ApiFailure as failure:
            if not failure.not_found:  # deleted meanwhile
                raise

    @staticmethod
    def moment(seconds: float) -> str:
        """A time of the epoch as Kubernetes writes it."""
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def conditions(self, have: list[Condition], wanted: list[Condition]) -> list[Json]:
        """The conditions as JSON, each with the time of its last change of status."""
        since = {(condition.type, condition.status): condition.last_transition_time for condition in have}
        now = self.moment(self._now())
        for condition in wanted:
            condition.last_transition_time = since.get((condition.type, condition.status)) or now
        conditions: list[Json] = msgspec.to_builtins(wanted)
        return conditions

    async def hold(self, plural: str, resource: Resource, *, held: bool) -> bool:
        """Add or remove the operator's finalizer. Returns whether the resource has it."""
        finalizers = resource.metadata.finalizers
        if held == (FINALIZER in finalizers) or (held and leaves(resource)):
            return FINALIZER in finalizers
        wanted = [finalizer for finalizer in finalizers if finalizer != FINALIZER] + [FINALIZER] * held
        path = f"apis/{GROUP}/{VERSION}/namespaces/{resource.metadata.namespace}/{plural}/{resource.metadata.name}"
        change = {"metadata": {"finalizers": wanted, "resourceVersion": resource.metadata.resource_version}}
        try:
            await self.merge(path, change)
        except ApiFailure as failure:
            if not failure.not_found:
                raise
        return held

    async def namespace_leaves(self, namespace: str) -> bool:
        """Whether the namespace is being deleted, with all that is in it: nothing can be created there any more."""
        body = await self._api.find_path(f"api/v1/namespaces/{namespace}")
        return body is None or "deletionTimestamp" in msgspec.json.decode(body)["metadata"]

    async def cannot(self, plural: str, resource: Resource, reason: str, message: str) -> None:
        """Report that the resource is not Ready, and why."""
        generation, have = resource.metadata.generation, resource.status.conditions
        condition = Condition(type="Ready", status="False", reason=reason, message=message)
        condition.observed_generation = generation
        others = [each for each in have if each.type != "Ready"]
        await self.report(plural, resource, {"conditions": self.conditions(have, [condition, *others])})


def is_anothers(have: Json, wanted: Json) -> bool:
    """Whether the object is no part of the resource that is to own it.

    An object without a controller that has our labels is: its resource was deleted and made again, and the object was
    kept (`--cascade=orphan`).
    """
    there, ours = have["metadata"], wanted["metadata"]
    owners = there.get("ownerReferences") or ()
    if {owner["uid"] for owner in ours["ownerReferences"]} & {owner["uid"] for owner in owners}:
        return False
    labels = there.get("labels") or {}
    return any(owner.get("controller") for owner in owners) or not ours["labels"].items() <= labels.items()


def _part_of(answer: Any, wanted: Any) -> Any:
    """The fields of `wanted` as the answer has them. A list of another length is wholly the server's."""
    if isinstance(answer, dict) and isinstance(wanted, dict):
        return {
            name: answer[name] if name == SELECTOR else _part_of(answer[name], part)
            for name, part in wanted.items()
            if name in answer
        }
    if isinstance(answer, list) and isinstance(wanted, list) and len(answer) == len(wanted):
        return [_part_of(*pair) for pair in zip(answer, wanted, strict=True)]
    return answer


def path_of(api_version: str, kind: str, namespace: str) -> str:
    """Of the objects of a kind in a namespace."""
    root = "api" if "/" not in api_version else "apis"
    return f"{root}/{api_version}/namespaces/{namespace}/{_PLURALS[kind]}"


def leaves(resource: Resource) -> bool:
    """Whether the resource is being deleted."""
    return resource.metadata.deletion_timestamp is not None
