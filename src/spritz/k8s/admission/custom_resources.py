"""Admission of the operator's own resources: what their definitions cannot say, since it depends on other objects.

Refused, with the field and a remedy: a slurm.conf with mistakes; names and databases that two resources would share;
pods that the API server would not take. What may be right a moment later is a warning: a reference to an object that is
not there yet (helm creates NodeSets before their cluster), nodes that wait for jobs.

Deletions are not looked at, and neither is a resource that leaves or whose spec stays as it is: nothing here holds up
the end of a resource. Mistakes that are stored while no operator answers are told by conditions.
"""

from __future__ import annotations

import asyncio
import difflib
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec
from lightkube.resources.core_v1 import Node as NodeResource

from spritz.k8s.admission.pods import Cause, refusal
from spritz.k8s.api import APPLY, Api, ApiFailure
from spritz.k8s.custom_resources.cluster_objects import (
    GROUP,
    PARTS,
    VERSION,
    Cluster,
    Database,
    Json,
    configuration,
    control_plane,
)
from spritz.k8s.custom_resources.configuration import mistakes
from spritz.k8s.custom_resources.fixed_fields import changes_of_cluster, changes_of_token
from spritz.k8s.custom_resources.login_sets import LoginSet, Token, login_objects
from spritz.k8s.custom_resources.node_sets import (
    BUSY,
    NODE_SET,
    MachineNode,
    NodeSet,
    cloud_lines,
    is_numbered,
    pod,
    pod_template,
)
from spritz.k8s.custom_resources.objects import is_anothers, path_of
from spritz.k8s.custom_resources.per_machine import machines_of

T = TypeVar("T")

#: Checks at once; others wait, and are ignored by the API server if they wait too long.
_AT_ONCE: Final = 4

_NO_RIGHTS: Final = (
    "the operator lacks rights here; bind the ClusterRole spritz-clusters-namespace (clusters.namespaces)"
)

#: The path of the webhook.
PATH: Final = "/validate-resources"

_TYPES: Final[dict[str, type[Any]]] = {
    "SpritzCluster": Cluster,
    "NodeSet": NodeSet,
    "LoginSet": LoginSet,
    "Token": Token,
}


class Findings(msgspec.Struct):
    causes: list[Cause] = []
    warnings: list[str] = []

    def refuse(self, field: str, message: str) -> None:
        self.causes.append(Cause(field, message))

    def warn(self, field: str, message: str) -> None:
        self.warnings.append(f"{field}: {message}")


class ResourceAdmission:
    """Answers AdmissionReviews. Reads what it needs from the API server."""

    def __init__(self, api: Api) -> None:
        self._api = api
        # The port is open to the network, and a check may start a process.
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._checks: dict[str, Callable[[Any, Any, Findings], Awaitable[None]]] = {
            "SpritzCluster": self._cluster,
            "NodeSet": self._node_set,
            "LoginSet": self._login_set,
            "Token": self._token,
        }

    async def answer(self, review: Json) -> Json:
        """The AdmissionReview with its answer. Raises KeyError for a kind that is not ours, and ApiFailure."""
        request = review["request"]
        kind = request["kind"]["kind"]
        new, old = request["object"], request.get("oldObject") or {}
        found = Findings([], [])
        leaves = new["metadata"].get("deletionTimestamp")
        if not leaves and new.get("spec") != old.get("spec"):
            new["metadata"].setdefault("name", new["metadata"].get("generateName", ""))
            new["metadata"].setdefault("namespace", request.get("namespace", "default"))
            resource = msgspec.convert(new, _TYPES[kind])
            before = msgspec.convert(old, _TYPES[kind]) if old else None
            async with self._turns:
                try:
                    await self._checks[kind](resource, before, found)
                except ApiFailure as failure:
                    if failure.code != 403:
                        raise
                    found.warn("metadata.namespace", f"{_NO_RIGHTS}: {failure.message}")
        response: Json = {"uid": request["uid"], "allowed": True}
        if found.causes:
            response |= refusal(kind, found.causes)
        if found.warnings:
            response["warnings"] = found.warnings
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}

    # Clusters

    async def _cluster(self, cluster: Cluster, before: Cluster | None, found: Findings) -> None:
        metadata, spec = cluster.metadata, cluster.spec
        for field, message in changes_of_cluster(cluster, before) if before is not None else ():
            found.refuse(field, message)
        node_sets = [
            node_set
            for node_set in await self._all("nodesets", NodeSet, metadata.namespace)
            if node_set.spec.cluster_ref == metadata.name
        ]
        if before is None:
            for words in await self._names_of_others(control_plane(cluster, configuration(cluster), "")):
                found.refuse("metadata.name", words)
        await self._check_slurm_conf(cluster, node_sets, "spec", found)
        for other in await self._all("spritzclusters", Cluster):
            if other.metadata.key != metadata.key and spec.database is not None and other.spec.database is not None:
                _check_databases(cluster, spec.database, other, other.spec.database, found)
        for number, partition in enumerate(spec.partitions):
            for name in partition.node_sets or ():
                if name not in {node_set.metadata.name for node_set in node_sets}:
                    names = [node_set.metadata.name for node_set in node_sets]
                    field = f"spec.partitions[{number}].nodeSets"
                    found.warn(field, f"there is no NodeSet {name} of this cluster yet{_near(name, names)}")
        if spec.database is not None:
            await self._secret(
                spec.database.password_secret.name, metadata.namespace, "spec.database.passwordSecret", found
            )
        oidc = spec.dashboard.oidc if spec.dashboard is not None else None
        if oidc is not None and oidc.secret is not None:
            await self._secret(oidc.secret.name, metadata.namespace, "spec.dashboard.oidc.secret", found)
        proxy = spec.dashboard.proxy if spec.dashboard is not None else None
        if proxy is not None:
            try:
                ipaddress.ip_network(proxy.from_)
            except ValueError as error:
                found.refuse("spec.dashboard.proxy.from", str(error))
        _check_room(cluster, node_sets, "spec.maxNodes", found)

    async def _check_slurm_conf(self, cluster: Cluster, node_sets: list[NodeSet], field: str, found: Findings) -> None:
        text = configuration(cluster, *cloud_lines(node_sets)).files["slurm.conf"]
        words = await mistakes(text, cluster.spec.extra_config)
        if words:
            path, _, rest = words.partition(": ")
            path, rest = (path, rest) if path.startswith("spec.extraConfig") else (field, f"slurm.conf: {words}")
            found.refuse(path, rest)

    # NodeSets

    async def _node_set(self, node_set: NodeSet, before: NodeSet | None, found: Findings) -> None:
        metadata, spec = node_set.metadata, node_set.spec
        others = [
            each
            for each in await self._all("nodesets", NodeSet, metadata.namespace)
            if each.metadata.name != metadata.name
        ]
        clusters = await self._all("spritzclusters", Cluster, metadata.namespace)
        _check_parts(metadata.name, clusters, found)
        for other in others:
            _check_nodes(node_set, other, found)
        await self._check_machines(node_set, found)
        if spec.replicas != 1 and (spec.per_machine or spec.autoscaling is not None):
            which = "perMachine" if spec.per_machine else "autoscaling"
            found.warn("spec.replicas", f"has no effect with {which}, which says how many nodes there are")
        if before is not None:
            await self._check_shrinking(node_set, before, found)
        cluster = _cluster_of(spec.cluster_ref, clusters, found)
        if cluster is None:
            return
        together = [node_set, *(each for each in others if each.spec.cluster_ref == spec.cluster_ref)]
        if spec.autoscaling is not None:
            await self._check_slurm_conf(cluster, together, "spec", found)
        _check_room(cluster, together, "spec", found)
        wanted = pod(cluster, node_set, f"{metadata.name}-dry-run", pod_template(cluster, node_set))
        await self._try("pods", wanted, found)

    async def _check_machines(self, node_set: NodeSet, found: Findings) -> None:
        selector = node_set.spec.node_selector
        if not selector:
            return
        machines = (await self._api.list_as(_machine, NodeResource)).items
        if not any(selector.items() <= (machine.metadata.labels or {}).items() for machine in machines):
            found.warn("spec.nodeSelector", "no machine has these labels now")
        elif node_set.spec.per_machine and not machines_of(node_set, machines):
            found.warn(
                "spec.tolerations", "each machine of nodeSelector has a taint that they do not allow, or is cordoned"
            )

    async def _check_shrinking(self, node_set: NodeSet, before: NodeSet, found: Findings) -> None:
        spec = node_set.spec
        now, then = (
            (spec.autoscaling.max_replicas, before.spec.autoscaling.max_replicas)
            if spec.autoscaling is not None and before.spec.autoscaling is not None
            else (spec.replicas, before.spec.replicas)
        )
        if now >= then or spec.per_machine:
            return
        name, namespace = node_set.metadata.name, node_set.metadata.namespace
        selector = f"{NODE_SET}={name},{BUSY}=true"
        path = f"api/v1/namespaces/{namespace}/pods"
        listed = await self._api.send("GET", path, parameters={"labelSelector": selector})
        busy = len(msgspec.json.decode(listed)["items"])
        if busy > now:
            field = "spec.autoscaling.maxReplicas" if spec.autoscaling is not None else "spec.replicas"
            words = f"{busy} nodes have jobs: {busy - now} of them are drained, and go when their jobs have ended"
            found.warn(field, words)

    # LoginSets and Tokens

    async def _login_set(self, login_set: LoginSet, before: LoginSet | None, found: Findings) -> None:
        metadata, spec = login_set.metadata, login_set.spec
        clusters = await self._all("spritzclusters", Cluster, metadata.namespace)
        _check_parts(metadata.name, clusters, found)
        for node_set in await self._all("nodesets", NodeSet, metadata.namespace):
            if is_numbered(metadata.name, node_set.metadata.name):
                words = f"a node of NodeSet {node_set.metadata.name} may have this name, and a Secret that goes by it"
                found.refuse("metadata.name", f"{words}; choose another")
        if spec.authorized_keys and not await self._is_there("configmaps", metadata.namespace, spec.authorized_keys):
            words = f"there is no ConfigMap {spec.authorized_keys} yet: no pod starts without it"
            found.warn("spec.authorizedKeys", words)
        cluster = _cluster_of(spec.cluster_ref, clusters, found)
        if cluster is not None:
            objects = login_objects(cluster, login_set)
            if before is None:
                for words in await self._names_of_others(objects):
                    found.refuse("metadata.name", words)
            for wanted in objects:
                await self._try({"Service": "services", "Deployment": "deployments"}[wanted["kind"]], wanted, found)

    async def _token(self, token: Token, before: Token | None, found: Findings) -> None:
        metadata, spec = token.metadata, token.spec
        for field, message in changes_of_token(token, before) if before is not None else ():
            found.refuse(field, message)
        name = spec.secret_name or metadata.name
        field = "spec.secretName" if spec.secret_name else "metadata.name"
        secret = await self._find("secrets", metadata.namespace, name)
        owners = (secret or {}).get("metadata", {}).get("ownerReferences") or ()
        if secret is not None and not any(
            (owner["kind"], owner["name"]) == ("Token", metadata.name) for owner in owners
        ):
            found.refuse(field, f"there is a Secret {name} of another already; give another spec.secretName")
        for other in await self._all("tokens", Token, metadata.namespace):
            if other.metadata.name != metadata.name and (other.spec.secret_name or other.metadata.name) == name:
                found.refuse(field, f"Token {other.metadata.name} has the Secret {name}; give another spec.secretName")
        _cluster_of(spec.cluster_ref, await self._all("spritzclusters", Cluster, metadata.namespace), found)

    # Objects

    async def _all(self, plural: str, kind: type[T], namespace: str = "") -> list[T]:
        where = f"namespaces/{namespace}/" if namespace else ""
        text = await self._api.send("GET", f"apis/{GROUP}/{VERSION}/{where}{plural}")
        return [msgspec.convert(each, kind) for each in msgspec.json.decode(text)["items"]]

    async def _find(self, plural: str, namespace: str, name: str) -> Json | None:
        body = await self._api.find_path(f"api/v1/namespaces/{namespace}/{plural}/{name}")
        return msgspec.json.decode(body) if body is not None else None

    async def _is_there(self, plural: str, namespace: str, name: str) -> bool:
        return await self._find(plural, namespace, name) is not None

    async def _secret(self, name: str, namespace: str, field: str, found: Findings) -> None:
        if not await self._is_there("secrets", namespace, name):
            found.warn(field, f"there is no Secret {name} yet: no pod starts without it")

    async def _names_of_others(self, objects: Iterable[Json]) -> list[str]:
        """What others have that a new resource needs. Objects of an earlier resource of its name are to go."""
        taken = []
        for wanted in objects:
            about = wanted["metadata"]
            path = f"{path_of(wanted['apiVersion'], wanted['kind'], about['namespace'])}/{about['name']}"
            body = await self._api.find_path(path)
            if body is None or not is_anothers(have := msgspec.json.decode(body), wanted):
                continue
            (resource,) = about["ownerReferences"]
            owners = have["metadata"].get("ownerReferences") or ()
            if (resource["kind"], resource["name"]) not in {(owner["kind"], owner["name"]) for owner in owners}:
                taken.append(f"there is a {wanted['kind']} {about['name']} of another already; choose another name")
        return taken

    async def _try(self, plural: str, wanted: Json, found: Findings) -> None:
        """What the API server would say to an object of ours."""
        root = "api/v1" if plural in ("pods", "services") else "apis/apps/v1"
        path = f"{root}/namespaces/{wanted['metadata']['namespace']}/{plural}/{wanted['metadata']['name']}"
        parameters: dict[str, str | None] = {"fieldManager": self._api.field_manager, "force": "true", "dryRun": "All"}
        try:
            await self._api.send(
                "PATCH", path, parameters=parameters, body=msgspec.json.encode(wanted), content_type=APPLY
            )
        except ApiFailure as failure:
            if failure.invalid:
                found.refuse("spec", f"the {wanted['kind']} that it makes would be refused: {failure.message}")
            elif failure.code == 403:
                found.warn("spec", f"the {wanted['kind']} that it makes would be refused now: {failure.message}")
            else:
                raise


def _check_databases(cluster: Cluster, own: Database, other: Cluster, theirs: Database, found: Findings) -> None:
    if (own.host, own.port) != (theirs.host, theirs.port):
        return
    names = [each.spec.cluster_name or each.metadata.name for each in (cluster, other)]
    if own.name == theirs.name and names[0] == names[1]:
        words = f"SpritzCluster {other.metadata.key} has its accounting in the same database under this name"
        found.refuse("spec.clusterName", f"{words}; give another clusterName, or another database.name")
    if own.journal == theirs.journal and cluster.spec.controllers > 1 and other.spec.controllers > 1:
        words = f"{own.journal} is the journal of SpritzCluster {other.metadata.key}"
        found.refuse("spec.database.journal", f"{words}: each cluster needs its own")


def _check_parts(name: str, clusters: Iterable[Cluster], found: Findings) -> None:
    for cluster in clusters:
        if name in {f"{cluster.metadata.name}-{part}" for part in PARTS}:
            found.refuse(
                "metadata.name", f"a part of SpritzCluster {cluster.metadata.name} has this name; choose another"
            )


def _check_nodes(node_set: NodeSet, other: NodeSet, found: Findings) -> None:
    """Of a NodeSet per machine all names that begin with its own are nodes."""
    mine, theirs = node_set.metadata.name, other.metadata.name
    if other.spec.per_machine and mine.startswith(f"{theirs}-"):
        words = f"NodeSet {theirs} is per machine, and names of its nodes begin with {theirs}- too"
        found.refuse("metadata.name", f"{words}; choose another")
    if node_set.spec.per_machine and theirs.startswith(f"{mine}-"):
        words = f"names of its nodes would begin with {mine}-, as those of NodeSet {theirs} do"
        found.refuse("metadata.name", f"{words}; choose another, or leave perMachine out")


def _check_room(cluster: Cluster, node_sets: Iterable[NodeSet], field: str, found: Findings) -> None:
    count = 0
    for node_set in node_sets:
        scaling = node_set.spec.autoscaling
        count += (
            0 if node_set.spec.per_machine else scaling.max_replicas if scaling is not None else node_set.spec.replicas
        )
    if count > cluster.spec.max_nodes:
        words = f"NodeSets of {cluster.metadata.name} have {count} nodes, of which {cluster.spec.max_nodes} can join"
        found.warn(field, f"{words}: raise maxNodes of the SpritzCluster")


def _cluster_of(name: str, clusters: list[Cluster], found: Findings) -> Cluster | None:
    for cluster in clusters:
        if cluster.metadata.name == name:
            return cluster
    near = _near(name, [each.metadata.name for each in clusters])
    found.warn("spec.clusterRef", f"there is no SpritzCluster {name} in this namespace yet{near}")
    return None


def _near(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""


_machine = msgspec.json.Decoder(MachineNode).decode
