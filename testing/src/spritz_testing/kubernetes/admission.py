"""Admission: fields that the server sets and objects that it refuses before it stores them, and webhooks."""

from __future__ import annotations

import base64
import copy
import json
import ssl
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import httpx2

from spritz.runtime.randomness import SystemRandomness
from spritz_testing.kubernetes.access import User
from spritz_testing.kubernetes.errors import Object, Refusal, forbidden
from spritz_testing.kubernetes.kinds import Kind
from spritz_testing.kubernetes.patches import json_patch
from spritz_testing.kubernetes.schema import condition_holds
from spritz_testing.kubernetes.selectors import matches_label_selector
from spritz_testing.kubernetes.strategies import quantity

_randomness = SystemRandomness()

#: (plural, namespace, name) → object
Find = Callable[[str, str, str], Object | None]
#: (plural, namespace or "" for all) → objects
Among = Callable[[str, str], Iterable[Object]]


def new_uid() -> str:
    return str(uuid.UUID(bytes=_randomness.token(16), version=4))


def admit_pod(pod: Object, find: Find, among: Among) -> None:
    """The built-in plugins for a new pod: ServiceAccount, Priority, DefaultTolerationSeconds. Raises Refusal."""
    spec, metadata = pod["spec"], pod["metadata"]
    namespace = metadata["namespace"]
    if "kubernetes.io/config.mirror" not in (metadata.get("annotations") or {}):
        name = spec.get("serviceAccountName") or "default"
        if find("serviceaccounts", namespace, name) is None:
            why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden("pods", "", metadata["name"], why)
        spec["serviceAccountName"] = spec["serviceAccount"] = name
    chosen = spec.get("priorityClassName")
    if chosen:
        priority_class = find("priorityclasses", "", chosen)
        if priority_class is None:
            raise forbidden("pods", "", metadata["name"], f"no PriorityClass with name {chosen} was found")
    else:
        defaults = [candidate for candidate in among("priorityclasses", "") if candidate.get("globalDefault")]
        priority_class = min(defaults, key=lambda candidate: int(candidate["value"])) if defaults else None
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
    priority = priority_class["value"] if priority_class is not None else 0
    if spec.get("priority") not in (None, priority):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden("pods", "", metadata["name"], why)
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", (priority_class or {}).get("preemptionPolicy", "PreemptLowerPriority"))
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            toleration.get("key") in (key, None) and toleration.get("effect") in ("NoExecute", None)
            for toleration in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def pod_usage(pod: Object) -> dict[str, float]:
    """A pod's usage in a quota, by resource."""
    usage: dict[str, float] = {"pods": 1.0, "count/pods": 1.0}
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return {"count/pods": 1.0}
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        for part in ("requests", "limits"):
            for name, value in (resources.get(part) or {}).items():
                amount = quantity(value)
                usage[f"{part}.{name}"] = usage.get(f"{part}.{name}", 0.0) + amount
                if part == "requests" and name in ("cpu", "memory", "ephemeral-storage"):
                    usage[name] = usage.get(name, 0.0) + amount
    return usage


def check_quota(kind: Kind, obj: Object, among: Among) -> None:
    """Raises Refusal if the object exceeds a ResourceQuota of its namespace."""
    namespace = obj["metadata"].get("namespace", "")
    if kind.plural == "resourcequotas":
        return
    for quota in among("resourcequotas", namespace):
        hard = (quota.get("spec") or {}).get("hard") or {}
        if kind.plural == "pods" and not kind.group:
            asked = pod_usage(obj)
            missing = sorted(
                name
                for name in hard
                if name not in asked
                and name.split(".")[0] in ("cpu", "memory", "requests", "limits")
                and "/" not in name
            )
            if missing:
                names = ",".join(container["name"] for container in obj["spec"]["containers"])
                why = f"failed quota: {quota['metadata']['name']}: must specify {','.join(missing)} for: {names}"
                raise forbidden("pods", "", obj["metadata"]["name"], why)
        else:
            qualified = f"count/{kind.plural}" + (f".{kind.group}" if kind.group else "")
            asked = {qualified: 1.0, kind.plural: 1.0}
        over: list[tuple[str, str, str, str]] = []
        for name, limit in hard.items():
            if name not in asked:
                continue
            used = quota_used(name, namespace, among)
            if used + asked[name] > quantity(limit) + 1e-9:
                over.append((name, plain(asked[name]), plain(used), str(limit)))
        if over:
            parts = [",".join(f"{name}={values[index]}" for name, *values in over) for index in range(3)]
            told = f"requested: {parts[0]}, used: {parts[1]}, limited: {parts[2]}"
            why = f"exceeded quota: {quota['metadata']['name']}, {told}"
            raise forbidden(kind.plural, kind.group, obj["metadata"].get("name", ""), why)


def quota_used(name: str, namespace: str, among: Among) -> float:
    """The namespace's usage of a quota's resource."""
    if name.startswith("count/") and name != "count/pods":
        return float(sum(1 for _each in among(name[6:].split(".")[0], namespace)))
    if "." not in name and name in ("services", "secrets", "configmaps", "persistentvolumeclaims", "resourcequotas"):
        return float(sum(1 for _each in among(name, namespace)))
    return sum(pod_usage(pod).get(name, 0.0) for pod in among("pods", namespace))


def plain(amount: float) -> str:
    """A quantity in its shortest form."""
    if amount == int(amount):
        number = int(amount)
        for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if number and number % size == 0:
                return f"{number // size}{suffix}"
        return str(number)
    return f"{round(amount * 1000)}m"


class Webhooks:
    """Calls the webhooks of the cluster's configurations, over HTTPS."""

    def __init__(self, among: Among, find: Find, addresses: dict[tuple[str, str], str]) -> None:
        self._among = among
        self._find = find
        #: (namespace, service) → base URL, for webhooks that are named by their Service
        self._addresses = addresses
        self._clients: dict[str, httpx2.AsyncClient] = {}

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()

    def any(self, plural: str) -> bool:
        return next(iter(self._among(plural, "")), None) is not None

    async def mutate(
        self,
        kind: Kind,
        operation: str,
        subresource: str,
        new: Object | None,
        old: Object | None,
        user: User,
        *,
        dry_run: bool,
        warnings: list[str],
    ) -> Object | None:
        """The object after all mutating webhooks that match it. Raises Refusal."""
        for hook in self._hooks("mutatingwebhookconfigurations", kind, operation, subresource, new, old):
            response = await self._ask(hook, kind, operation, subresource, new, old, user, dry_run, warnings)
            if response is None:
                continue
            patch = response.get("patch")
            if patch and new is not None:
                new = json_patch(new, json.loads(base64.b64decode(patch)))
        return new

    async def validate(
        self,
        kind: Kind,
        operation: str,
        subresource: str,
        new: Object | None,
        old: Object | None,
        user: User,
        *,
        dry_run: bool,
        warnings: list[str],
    ) -> None:
        """Raises Refusal if a validating webhook denies the request."""
        for hook in self._hooks("validatingwebhookconfigurations", kind, operation, subresource, new, old):
            await self._ask(hook, kind, operation, subresource, new, old, user, dry_run, warnings)

    def _hooks(
        self, plural: str, kind: Kind, operation: str, subresource: str, new: Object | None, old: Object | None
    ) -> list[Object]:
        if kind.plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            return []  # otherwise a broken webhook could never be removed
        hooks: list[Object] = []
        obj = new if new is not None else old
        assert obj is not None
        labels = obj["metadata"].get("labels") or {}
        before = (old or {}).get("metadata", {}).get("labels") or {}
        namespace = obj["metadata"].get("namespace") or (
            obj["metadata"].get("name", "") if kind.plural == "namespaces" else ""
        )
        for configuration in sorted(self._among(plural, ""), key=lambda stored: str(stored["metadata"]["name"])):
            for hook in configuration.get("webhooks") or ():
                if not any(_rule_matches(rule, kind, operation, subresource) for rule in hook.get("rules") or ()):
                    continue
                if namespace and hook.get("namespaceSelector"):
                    owner = self._find("namespaces", "", namespace) or {"metadata": {}}
                    if not matches_label_selector(hook["namespaceSelector"], owner["metadata"].get("labels") or {}):
                        continue
                if hook.get("objectSelector") and not (
                    matches_label_selector(hook["objectSelector"], labels)
                    or (old is not None and matches_label_selector(hook["objectSelector"], before))
                ):
                    continue
                data = {"object": new, "oldObject": old, "request": {"operation": operation}}
                conditions = hook.get("matchConditions") or ()
                if all(condition_holds(condition["expression"], data) for condition in conditions):
                    hooks.append(hook)
        return hooks

    async def _ask(
        self,
        hook: Object,
        kind: Kind,
        operation: str,
        subresource: str,
        new: Object | None,
        old: Object | None,
        user: User,
        dry_run: bool,
        warnings: list[str],
    ) -> Object | None:
        """The webhook's answer if it allows the request; None if it failed and may be ignored. Raises Refusal."""
        review = _review(kind, operation, subresource, new, old, user, dry_run)
        name = hook["name"]
        try:
            response = await self._post(hook, review)
        except (httpx2.HTTPError, ValueError, KeyError, ssl.SSLError) as error:
            if hook.get("failurePolicy") == "Ignore":
                return None
            text = f'Internal error occurred: failed calling webhook "{name}": failed to call webhook: {error}'
            raise Refusal(500, "InternalError", text) from error
        warnings += response.get("warnings") or []
        if response.get("allowed"):
            return response
        status = response.get("status") or {}
        why = status.get("message") or status.get("reason") or ""
        text = f'admission webhook "{name}" denied the request{f": {why}" if why else " without explanation"}'
        code = status.get("code") or 403
        raise Refusal(
            code, status.get("reason") or ("Forbidden" if code == 403 else ""), text, details=status.get("details")
        )

    async def _post(self, hook: Object, review: Object) -> Object:
        """The response to a review. Raises httpx2.HTTPError, SSLError, and ValueError or KeyError for a bad answer."""
        url, client = self._client(hook["clientConfig"])
        timeout = hook.get("timeoutSeconds") or 10
        # A service's certificate is for its name, not for its address.
        service = hook["clientConfig"].get("service")
        names = {"sni_hostname": f"{service['name']}.{service['namespace']}.svc"} if service else {}
        answer = await client.post(f"{url}?timeout={timeout}s", json=review, timeout=timeout, extensions=names)
        if answer.status_code != 200:
            raise ValueError(
                f"an error on the server ({answer.text[:100]!r}) has prevented the request from succeeding"
            )
        response: Object = answer.json()["response"]
        if response.get("uid") != review["request"]["uid"]:
            raise ValueError("expected response.uid to be the request's")
        return response

    def _client(self, config: Object) -> tuple[str, httpx2.AsyncClient]:
        service = config.get("service")
        if service is not None:
            base = self._addresses.get((service["namespace"], service["name"]))
            if base is None:
                raise ValueError(f'service "{service["name"]}" not found')
            url = base + (service.get("path") or "/")
        else:
            url = config["url"]
        bundle = config.get("caBundle") or ""
        client = self._clients.get(bundle)
        if client is None:
            context: Any = ssl.create_default_context(cadata=base64.b64decode(bundle).decode() if bundle else None)
            client = self._clients[bundle] = httpx2.AsyncClient(verify=context, trust_env=False)
        return url, client


def _rule_matches(rule: Object, kind: Kind, operation: str, subresource: str) -> bool:
    def has(name: str, value: str) -> bool:
        values = rule.get(name) or ()
        return value in values or "*" in values

    if not (has("operations", operation) and has("apiGroups", kind.group) and has("apiVersions", kind.version)):
        return False
    if (rule.get("scope") == "Cluster" and kind.namespaced) or (
        rule.get("scope") == "Namespaced" and not kind.namespaced
    ):
        return False
    resources = rule.get("resources") or ()
    if subresource:
        names = {f"{kind.plural}/{subresource}", f"{kind.plural}/*", f"*/{subresource}", "*/*"}
    else:
        names = {kind.plural, "*", "*/*"}
    return bool(names & set(resources))


def _review(
    kind: Kind, operation: str, subresource: str, new: Object | None, old: Object | None, user: User, dry_run: bool
) -> Object:
    """The AdmissionReview that a webhook gets."""
    obj = new if new is not None else old
    assert obj is not None
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    gvr = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    request: Object = {
        "uid": new_uid(),
        "kind": gvk,
        "resource": gvr,
        "requestKind": gvk,
        "requestResource": gvr,
        "name": obj["metadata"].get("name", ""),
        "operation": operation,
        "userInfo": user.info(),
        "object": new,
        "oldObject": old,
        "dryRun": dry_run,
        "options": None,
    }
    if subresource:
        request["subResource"] = request["requestSubResource"] = subresource
    if obj["metadata"].get("namespace"):
        request["namespace"] = obj["metadata"]["namespace"]
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": copy.deepcopy(request)}
