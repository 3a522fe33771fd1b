"""Authentication and authorization: tokens, roles and bindings.

Source: Kubernetes, "Using RBAC Authorization".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from spritz_testing.kubernetes.errors import Object, unauthorized
from spritz_testing.kubernetes.selectors import matches_label_selector


class User:
    """The authenticated sender of a request; anonymous requests have one too."""

    __slots__ = ("extra", "groups", "name", "uid")

    def __init__(self, name: str, groups: Iterable[str] = (), uid: str = "", extra: Object | None = None) -> None:
        self.name = name
        self.groups = (*groups, "system:authenticated") if name != "system:anonymous" else tuple(groups)
        self.uid = uid
        self.extra = extra or {}

    def info(self) -> Object:
        """The user as a UserInfo of admission and authentication reviews."""
        info: Object = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = self.extra
        return info


ADMIN = User("kubernetes-admin", ["system:masters"])
#: The user of the server's own controllers.
CONTROLLER = User("system:kube-controller-manager", ["system:masters"])
ANONYMOUS = User("system:anonymous", ["system:unauthenticated"])


def service_account(namespace: str, name: str, uid: str = "", extra: Object | None = None) -> User:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra)


class Tokens:
    """Bearer tokens: fixed tokens, and signed tokens of service accounts with an expiry."""

    def __init__(self, secret: bytes, now: Callable[[], float], find: Callable[[str, str, str], Object | None]) -> None:
        self._secret = secret
        self._now = now
        #: (plural, namespace, name) → object: a token ends with its service account and its pod
        self._find = find
        self.fixed: dict[str, User] = {}
        self.revoked: set[str] = set()

    def issue(
        self, namespace: str, account: Object, seconds: int, audiences: list[str], bound: Object | None
    ) -> tuple[str, float]:
        """(token, its end in seconds since the epoch)."""
        ends = self._now() + seconds
        claims: Object = {
            "aud": audiences,
            "exp": int(ends),
            "iat": int(self._now()),
            "iss": "https://kubernetes.default.svc",
            "sub": f"system:serviceaccount:{namespace}:{account['metadata']['name']}",
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": account["metadata"]["name"], "uid": account["metadata"]["uid"]},
            },
        }
        if bound is not None:
            claims["kubernetes.io"][bound["kind"].lower()] = {"name": bound["name"], "uid": bound.get("uid", "")}
        head = _encode({"alg": "HS256", "typ": "JWT"})
        signed = f"{head}.{_encode(claims)}"
        return f"{signed}.{self._sign(signed)}", ends

    def user(self, token: str) -> tuple[User, list[str]]:
        """(the token's user, its audiences). Raises Refusal."""
        if token in self.revoked:
            raise unauthorized()
        fixed = self.fixed.get(token)
        if fixed is not None:
            return fixed, []
        signed, _dot, signature = token.rpartition(".")
        if not signed or not hmac.compare_digest(self._sign(signed), signature):
            raise unauthorized()
        claims = _decode(signed.partition(".")[2])
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        living = self._find("serviceaccounts", namespace, account["name"])
        if claims["exp"] <= self._now() or living is None or living["metadata"]["uid"] != account["uid"]:
            raise unauthorized()
        extra: Object = {}
        if "pod" in about:
            pod = self._find("pods", namespace, about["pod"]["name"])
            if pod is None or (about["pod"]["uid"] and pod["metadata"]["uid"] != about["pod"]["uid"]):
                raise unauthorized()
            extra = {
                "authentication.kubernetes.io/pod-name": [about["pod"]["name"]],
                "authentication.kubernetes.io/pod-uid": [about["pod"]["uid"]],
            }
        return service_account(namespace, account["name"], account["uid"], extra), claims["aud"]

    def _sign(self, text: str) -> str:
        return base64.urlsafe_b64encode(hmac.digest(self._secret, text.encode(), hashlib.sha256)).rstrip(b"=").decode()


def _encode(value: Object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _decode(text: str) -> Object:
    result: Object = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    return result


class AccessAttributes:
    """The action that a request asks for."""

    __slots__ = ("group", "name", "namespace", "path", "resource", "subresource", "verb")

    def __init__(
        self,
        verb: str,
        group: str = "",
        resource: str = "",
        namespace: str = "",
        name: str = "",
        subresource: str = "",
        path: str = "",
    ) -> None:
        self.verb = verb
        self.group = group
        self.resource = resource
        self.namespace = namespace
        self.name = name
        self.subresource = subresource
        #: for requests that are not for a resource, such as /healthz
        self.path = path

    def refusal(self, user: User) -> str:
        """Kubernetes' message for a forbidden action."""
        if self.path:
            return f'User "{user.name}" cannot {self.verb} path "{self.path}"'
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user.name}" cannot {self.verb} resource "{resource}" in API group "{self.group}" {where}'


class Rules:
    """Decides by the roles and bindings of the store. `objects(plural)` returns all objects of an RBAC kind."""

    def __init__(self, objects: Callable[[str], Iterable[Object]], version: Callable[[], int]) -> None:
        self._objects = objects
        self._version = version
        self._seen = -1
        #: subject → (namespace or "" for all, rules)
        self._by_subject: dict[tuple[str, str], list[tuple[str, list[Object]]]] = {}

    def allowed(self, user: User, asked: AccessAttributes) -> bool:
        if "system:masters" in user.groups:
            return True
        return any(_covers(rule, asked) for rule in self.rules_of(user, asked.namespace))

    def rules_of(self, user: User, namespace: str) -> Iterator[Object]:
        """The rules that the user has in the namespace (cluster-wide ones included)."""
        self._index()
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        for subject in subjects:
            for scope, rules in self._by_subject.get(subject, ()):
                if scope in ("", namespace):
                    yield from rules

    def _index(self) -> None:
        version = self._version()
        if version == self._seen:
            return
        self._seen = version
        roles: dict[tuple[str, str], list[Object]] = {}
        cluster_roles = list(self._objects("clusterroles"))
        for role in cluster_roles:
            roles["", role["metadata"]["name"]] = _with_aggregated(role, cluster_roles)
        for role in self._objects("roles"):
            roles[role["metadata"]["namespace"], role["metadata"]["name"]] = role.get("rules") or []
        self._by_subject = {}
        for plural in ("clusterrolebindings", "rolebindings"):
            for binding in self._objects(plural):
                namespace = binding["metadata"].get("namespace", "")
                reference = binding["roleRef"]
                holder = "" if reference["kind"] == "ClusterRole" else namespace
                rules = roles.get((holder, reference["name"]), [])
                for subject in binding.get("subjects") or ():
                    if subject["kind"] == "ServiceAccount":
                        where = subject.get("namespace") or namespace
                        key = ("User", f"system:serviceaccount:{where}:{subject['name']}")
                    else:
                        key = (subject["kind"], subject["name"])
                    self._by_subject.setdefault(key, []).append((namespace, rules))


def _with_aggregated(role: Object, roles: list[Object]) -> list[Object]:
    rules = list(role.get("rules") or [])
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        for other in roles:
            if matches_label_selector(selector, other["metadata"].get("labels") or {}):
                rules += other.get("rules") or []
    return rules


def _covers(rule: Object, asked: AccessAttributes) -> bool:
    verbs = rule.get("verbs") or ()
    if asked.verb not in verbs and "*" not in verbs:
        return False
    if asked.path:
        for path in rule.get("nonResourceURLs") or ():
            if path == asked.path or (path.endswith("*") and asked.path.startswith(path[:-1])):
                return True
        return False
    groups: Any = rule.get("apiGroups") or ()
    if asked.group not in groups and "*" not in groups:
        return False
    resources: Any = rule.get("resources") or ()
    resource_name = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    any_of = f"*/{asked.subresource}" if asked.subresource else "*"
    if not {resource_name, any_of, "*"} & set(resources):
        return False
    names = rule.get("resourceNames")
    return not names or asked.name in names
