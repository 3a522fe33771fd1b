"""What the API server says of itself: health, version, groups, resources, the part of OpenAPI that kubectl reads."""

from __future__ import annotations

from typing import Final

import msgspec

from spritz_testing.kubernetes import errors
from spritz_testing.kubernetes.cluster import Cluster
from spritz_testing.kubernetes.errors import Object

VERSION: Final = {"major": "1", "minor": "36", "gitVersion": "v1.36.0-spritz", "platform": "linux/amd64"}
#: Virtual resources, which are not stored: (group, plural, namespaced).
REVIEWS: Final = {
    ("authentication.k8s.io", "tokenreviews", "TokenReview"),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
}
#: subresource -> (kind, group, version) of its objects
_SUBRESOURCES: Final = {
    "binding": ("Binding", "", "v1"),
    "eviction": ("Eviction", "policy", "v1"),
    "scale": ("Scale", "autoscaling", "v1"),
    "token": ("TokenRequest", "authentication.k8s.io", "v1"),
}
PLAIN: Final = frozenset({"/healthz", "/livez", "/readyz"})


def discovery(cluster: Cluster, path: str) -> bytes:
    """The answer for a path that names no object: health, version, groups, resources, OpenAPI. Raises Refusal (404)."""
    path = path.rstrip("/") or "/"
    if path in PLAIN:
        return b"ok"
    if path == "/version":
        return msgspec.json.encode(VERSION)
    if path == "/api":
        return msgspec.json.encode({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    groups = _groups(cluster)
    if path == "/apis":
        return msgspec.json.encode(
            {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(name, groups[name]) for name in groups if name],
            }
        )
    parts = path.strip("/").split("/")
    if parts[0] == "apis" and len(parts) == 2 and parts[1] in groups:
        return msgspec.json.encode({"kind": "APIGroup", "apiVersion": "v1"} | _group(parts[1], groups[parts[1]]))
    if parts == ["api", "v1"]:
        return msgspec.json.encode(_resources(cluster, "", "v1"))
    if parts[0] == "apis" and len(parts) == 3 and parts[2] in groups.get(parts[1], ()):
        return msgspec.json.encode(_resources(cluster, parts[1], parts[2]))
    if path == "/openapi/v3":
        paths = {
            place: {"serverRelativeURL": f"/openapi/v3/{place}?hash=0"}
            for group, versions in groups.items()
            for place in (f"apis/{group}/{version}" if group else f"api/{version}" for version in versions)
        }
        return msgspec.json.encode({"paths": paths})
    if parts[:2] == ["openapi", "v3"] and len(parts) in (4, 5):
        return msgspec.json.encode(_open_api(cluster, parts[3] if len(parts) == 5 else "", parts[-1]))
    raise errors.no_such_path()


def _groups(cluster: Cluster) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {"": ["v1"]}
    for kind in cluster.kinds():
        versions = groups.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    for group, _plural, _kind in REVIEWS:
        groups.setdefault(group, ["v1"])
    return groups


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(cluster: Cluster, group: str, version: str) -> Object:
    resources: list[Object] = []
    for kind in cluster.kinds():
        if (kind.group, kind.version) != (group, version):
            continue
        entry: Object = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        }
        if kind.short:
            entry["shortNames"] = list(kind.short)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        resources.append(entry)
        for name in sorted(kind.subresources):
            sub: Object = {
                "name": f"{kind.plural}/{name}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": ["get", "patch", "update"],
            }
            if name in _SUBRESOURCES:
                sub["kind"], sub["group"], sub["version"] = _SUBRESOURCES[name]
                sub["verbs"] = ["get", "patch", "update"] if name == "scale" else ["create"]
            elif name == "log":
                sub["verbs"] = ["get"]
            resources.append(sub)
    for review_group, plural, review in REVIEWS:
        if review_group == group:
            resources.append(
                {
                    "name": plural,
                    "singularName": review.lower(),
                    "namespaced": False,
                    "kind": review,
                    "verbs": ["create"],
                }
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _open_api(cluster: Cluster, group: str, version: str) -> Object:
    """Enough for kubectl: that patches know fieldValidation."""
    paths: Object = {}
    for kind in cluster.kinds():
        if (kind.group, kind.version) != (group, version):
            continue
        prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
        where = "/namespaces/{namespace}" if kind.namespaced else ""
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string"}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        responses = {"200": {"description": "OK"}}
        paths[f"{prefix}{where}/{kind.plural}/{{name}}"] = {
            "patch": {
                "parameters": parameters,
                "responses": responses,
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": gvk,
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": paths,
        "components": {"schemas": {}},
    }
