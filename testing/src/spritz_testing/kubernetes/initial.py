"""The objects that a new cluster has: namespaces, priority classes, and Kubernetes' own roles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spritz_testing.kubernetes.errors import Object

_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
#: name -> value
_PRIORITY_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

_RBAC: Final = "rbac.authorization.k8s.io"
_HEALTH: Final = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY: Final = ["/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"]
_ABOUT_ONESELF: Final = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
#: role -> (its rules, the groups that have it)
_ROLES: Final[dict[str, tuple[list[Object], list[str]]]] = {
    "cluster-admin": (
        [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ],
        ["system:masters"],
    ),
    "system:discovery": (
        [{"nonResourceURLs": [*_DISCOVERY, *_HEALTH], "verbs": ["get"]}],
        ["system:authenticated"],
    ),
    "system:basic-user": (
        [
            {"apiGroups": ["authorization.k8s.io"], "resources": _ABOUT_ONESELF, "verbs": ["create"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
        ],
        ["system:authenticated"],
    ),
    "system:public-info-viewer": (
        [{"nonResourceURLs": _HEALTH, "verbs": ["get"]}],
        ["system:authenticated", "system:unauthenticated"],
    ),
}


def initial_objects() -> Iterator[Object]:
    """In the order in which they are made."""
    for name in _NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": {"phase": "Active"}}
    for name, value in _PRIORITY_CLASSES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
    for name, (rules, groups) in _ROLES.items():
        yield {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "Group", "name": group, "apiGroup": _RBAC} for group in groups],
        }
