"""Rules of built-in kinds for create and update: defaults, fields that users may not set, and immutable fields.

Only rules that matter to this project's operators and users; messages are Kubernetes' own.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from spritz_testing.kubernetes.errors import Cause, Object, forbidden_field, invalid, required, unsupported
from spritz_testing.kubernetes.kinds import Kind
from spritz_testing.kubernetes.schema import default_errors, of_definition, rule_errors
from spritz_testing.kubernetes.selectors import matches_label_selector

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LABEL_NAMES: Final = frozenset({"namespaces", "services"})
_PATH_NAMES: Final = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
#: kinds with a pod template at spec.template
TEMPLATED: Final = frozenset({"deployments", "replicasets", "statefulsets", "daemonsets", "jobs"})


def metadata_errors(kind: Kind, obj: Object) -> list[Cause]:
    metadata = obj["metadata"]
    causes: list[Cause] = []
    name = metadata.get("name", "")
    if kind.plural in _PATH_NAMES:
        if name in (".", "..") or "/" in name or "%" in name:
            causes.append(invalid("metadata.name", name, "may not contain '/'"))
    elif kind.plural in _LABEL_NAMES:
        if len(name) > 63 or not _LABEL.fullmatch(name):
            causes.append(invalid("metadata.name", name, _LABEL_TEXT))
    elif len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        causes.append(invalid("metadata.name", name, _SUBDOMAIN_TEXT))
    for key, value in (metadata.get("labels") or {}).items():
        causes += _key_errors("metadata.labels", key)
        if value and (len(value) > 63 or not _QUALIFIED.fullmatch(value)):
            causes.append(invalid("metadata.labels", value, _VALUE_TEXT))
    for key in metadata.get("annotations") or {}:
        causes += _key_errors("metadata.annotations", key.lower())
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion"):
            text = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid(f"metadata.finalizers[{index}]", finalizer, text))
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                text = {"apiVersion": "version must not be empty"}.get(field, "must not be empty")
                causes.append(invalid(f"metadata.ownerReferences[{index}].{field}", "", text))
    if sum(bool(owner.get("controller")) for owner in metadata.get("ownerReferences") or ()) > 1:
        text = "Only one reference can have Controller set to true"
        causes.append(invalid("metadata.ownerReferences", metadata["ownerReferences"], text))
    return causes


def _key_errors(field: str, key: str) -> list[Cause]:
    prefix, _slash, name = key.rpartition("/")
    if len(name) > 63 or not _QUALIFIED.fullmatch(name) or (_slash and not _SUBDOMAIN.fullmatch(prefix)):
        text = (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
        return [invalid(field, key, text)]
    return []


# Defaults


def _default(holder: Object, **values: Any) -> None:
    for name, value in values.items():
        if holder.get(name) is None:
            holder[name] = copy.copy(value)


def pod_defaults(spec: Object) -> None:
    """Defaults of a pod's specification, also in templates."""
    _default(
        spec,
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
    )
    for container in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        if not isinstance(container, dict):
            continue
        _default(
            container,
            resources={},
            terminationMessagePath="/dev/termination-log",
            terminationMessagePolicy="File",
        )
        image = container.get("image") or ""
        latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
        _default(container, imagePullPolicy="Always" if latest and "@" not in image else "IfNotPresent")
        limits = container["resources"].get("limits") or {}
        if limits:
            container["resources"]["requests"] = limits | (container["resources"].get("requests") or {})
        for port in container.get("ports") or ():
            _default(port, protocol="TCP")
        for variable in container.get("env") or ():
            reference = (variable.get("valueFrom") or {}).get("fieldRef")
            if reference is not None:
                _default(reference, apiVersion="v1")
    for volume in spec.get("volumes") or ():
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if volume.get(source) is not None:
                _default(volume[source], defaultMode=420)


def _selector_of_job(obj: Object) -> None:
    spec, uid = obj["spec"], obj["metadata"]["uid"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    for name, value in (("controller-uid", uid), ("job-name", obj["metadata"]["name"])):
        labels[name] = labels[f"batch.kubernetes.io/{name}"] = value
    spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})


def set_defaults(kind: Kind, obj: Object) -> None:
    """The defaults of a built-in kind, in place; on create and update."""
    spec = obj.get("spec")
    if kind.plural in TEMPLATED and isinstance(spec, dict):
        template = spec.get("template")
        if isinstance(template, dict) and isinstance(template.get("spec"), dict):
            template.setdefault("metadata", {})
            pod_defaults(template["spec"])
    if kind.plural in _SPEC_DEFAULTS and isinstance(spec, dict):
        _SPEC_DEFAULTS[kind.plural](spec)
    elif kind.plural in _OBJECT_DEFAULTS:
        _OBJECT_DEFAULTS[kind.plural](obj)


def _pod_defaults(spec: Object) -> None:
    pod_defaults(spec)
    _default(spec, enableServiceLinks=True)


def _deployment_defaults(spec: Object) -> None:
    _default(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    _default(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        _default(spec["strategy"], rollingUpdate={})
        _default(spec["strategy"]["rollingUpdate"], maxSurge="25%", maxUnavailable="25%")


def _claim_defaults(spec: Object) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        if isinstance(request.get("exactly"), dict):
            _default(request["exactly"], allocationMode="ExactCount")
            if request["exactly"]["allocationMode"] == "ExactCount":
                _default(request["exactly"], count=1)


def _stateful_set_defaults(spec: Object) -> None:
    _default(spec, replicas=1, podManagementPolicy="OrderedReady", revisionHistoryLimit=10, updateStrategy={})
    _default(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _default(spec["updateStrategy"], rollingUpdate={})
        _default(spec["updateStrategy"]["rollingUpdate"], partition=0)
    _default(spec, persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"})


def _daemon_set_defaults(spec: Object) -> None:
    _default(spec, revisionHistoryLimit=10, updateStrategy={})
    _default(spec["updateStrategy"], type="RollingUpdate")


def _job_defaults(spec: Object) -> None:
    _default(
        spec, backoffLimit=6, completionMode="NonIndexed", suspend=False, podReplacementPolicy="TerminatingOrFailed"
    )
    if spec.get("completions") is None and spec.get("parallelism") is None:
        _default(spec, completions=1)
    _default(spec, parallelism=1)


def _definition_defaults(spec: Object) -> None:
    names = spec.get("names") or {}
    _default(names, listKind=f"{names.get('kind', '')}List", singular=names.get("kind", "").lower())
    _default(spec, conversion={"strategy": "None"})


#: resource -> defaults of its `spec`
_SPEC_DEFAULTS: dict[str, Callable[[Object], None]] = {
    "pods": _pod_defaults,
    "deployments": _deployment_defaults,
    "resourceclaims": _claim_defaults,
    "replicasets": lambda spec: _default(spec, replicas=1),
    "statefulsets": _stateful_set_defaults,
    "daemonsets": _daemon_set_defaults,
    "jobs": _job_defaults,
    "persistentvolumeclaims": lambda spec: _default(spec, volumeMode="Filesystem"),
    "customresourcedefinitions": _definition_defaults,
}


def _service_defaults(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    _default(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    for port in spec.get("ports") or ():
        _default(port, protocol="TCP")
        _default(port, targetPort=port.get("port"))


def _secret_defaults(obj: Object) -> None:
    _default(obj, type="Opaque")
    texts = obj.pop("stringData", None)
    if texts:
        data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
        obj["data"] = (obj.get("data") or {}) | data


def _namespace_defaults(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")


def _webhook_defaults(obj: Object) -> None:
    for hook in obj.get("webhooks") or ():
        _default(hook, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
        _default(hook, namespaceSelector={}, objectSelector={})
        service = (hook.get("clientConfig") or {}).get("service")
        if service is not None:
            _default(service, port=443)
        for rule in hook.get("rules") or ():
            _default(rule, scope="*")


def _mutating_webhook_defaults(obj: Object) -> None:
    _webhook_defaults(obj)
    for hook in obj.get("webhooks") or ():
        _default(hook, reinvocationPolicy="Never")


def _binding_defaults(obj: Object) -> None:
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            _default(subject, apiGroup="rbac.authorization.k8s.io")


#: resource -> defaults of the whole object
_OBJECT_DEFAULTS: dict[str, Callable[[Object], None]] = {
    "services": _service_defaults,
    "secrets": _secret_defaults,
    "namespaces": _namespace_defaults,
    "priorityclasses": lambda obj: _default(obj, preemptionPolicy="PreemptLowerPriority"),
    "mutatingwebhookconfigurations": _mutating_webhook_defaults,
    "validatingwebhookconfigurations": _webhook_defaults,
    "rolebindings": _binding_defaults,
    "clusterrolebindings": _binding_defaults,
}


def prepare_create(kind: Kind, obj: Object) -> None:
    """Set, in place, the fields that the server itself sets when an object of a built-in kind is created."""
    plural = kind.plural
    if kind.has_status and plural != "nodes":
        obj.pop("status", None)
    if plural == "pods":
        obj["status"] = {"phase": "Pending", "qosClass": quality(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            obj["status"]["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": obj["metadata"]["creationTimestamp"],
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
    elif plural == "namespaces":
        obj["status"] = {"phase": "Active"}
    elif plural in ("persistentvolumeclaims", "persistentvolumes"):
        obj["status"] = {"phase": "Pending"}
    elif plural == "services":
        obj["status"] = {"loadBalancer": {}}
    elif plural in ("replicasets", "statefulsets"):
        obj["status"] = {"replicas": 0}
    elif plural == "daemonsets":
        counts = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
        obj["status"] = dict.fromkeys(counts, 0)
    elif plural in ("deployments", "jobs", "resourcequotas", "resourceclaims"):
        obj["status"] = {}
    elif plural == "poddisruptionbudgets":
        counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        obj["status"] = dict.fromkeys(counts, 0)
    if plural == "jobs":
        _selector_of_job(obj)


def quality(spec: Object) -> str:
    """The pod's quality of service class: Guaranteed, Burstable or BestEffort."""
    parts = [container.get("resources") or {} for container in spec.get("containers") or ()]
    if not any(part.get("requests") or part.get("limits") for part in parts):
        return "BestEffort"
    for part in parts:
        limits, requests = part.get("limits") or {}, part.get("requests") or {}
        if not all(limits.get(name) and limits[name] == requests.get(name, limits[name]) for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


# Validation


_UNITS: Final = {
    "": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "n": 1e-9, "u": 1e-6,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)")


def quantity(value: Any) -> float:
    """A resource quantity (`500m`, `2Gi`, `1e3`). Raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    match = _QUANTITY.fullmatch(str(value))
    if match is None or match.group(2) not in _UNITS:
        text = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        raise ValueError(text)
    return float(match.group(1)) * _UNITS[match.group(2)]


def _pod_errors(spec: Object, path: str, claimed: Iterable[Object] = ()) -> list[Cause]:
    """`claimed`: a StatefulSet's volumeClaimTemplates, which are volumes of its pods."""
    causes: list[Cause] = []
    containers = spec.get("containers") or []
    if not containers:
        causes.append(required(f"{path}.containers"))
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        causes.append(unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), ["Always", "OnFailure", "Never"]))
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    volumes |= {(claim.get("metadata") or {}).get("name") for claim in claimed}
    claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            place = f"{path}.{group}[{index}]"
            name = container.get("name", "")
            if name and (len(name) > 63 or not _LABEL.fullmatch(name)):
                causes.append(invalid(f"{place}.name", name, _LABEL_TEXT))
            if not container.get("image"):
                causes.append(required(f"{place}.image"))
            causes += _resource_errors(container.get("resources") or {}, f"{place}.resources", claims)
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                if mount.get("name") not in volumes:
                    text = f'Not found: "{mount.get("name")}"'
                    causes.append(Cause(f"{place}.volumeMounts[{number}].name", "FieldValueNotFound", text))
    return causes


def _resource_errors(resources: Object, path: str, claims: set[Any]) -> list[Cause]:
    causes: list[Cause] = []
    amounts: dict[tuple[str, str], float] = {}
    for part in ("limits", "requests"):
        for name, value in (resources.get(part) or {}).items():
            try:
                amounts[part, name] = quantity(value)
            except ValueError as error:
                causes.append(invalid(f"{path}.{part}[{name}]", value, str(error)))
                continue
            if amounts[part, name] < 0:
                causes.append(invalid(f"{path}.{part}[{name}]", value, "must be greater than or equal to 0"))
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in requests.items():
        given = amounts.get(("requests", name)), amounts.get(("limits", name))
        if given[0] is not None and given[1] is not None and given[0] > given[1]:
            text = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(invalid(f"{path}.requests", value, text))
        extended = "/" in name or name.startswith("hugepages-")
        if extended and name not in limits:
            causes.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif extended and amounts.get(("limits", name)) != amounts.get(("requests", name)):
            text = f"must be equal to {name} limit of {limits[name]}"
            causes.append(invalid(f"{path}.requests", value, text))
    for index, claim in enumerate(resources.get("claims") or ()):
        if claim.get("name") not in claims:
            text = f'Not found: "{claim.get("name")}"'
            causes.append(Cause(f"{path}.claims[{index}]", "FieldValueNotFound", text))
    return causes


def validate(kind: Kind, obj: Object) -> list[Cause]:
    """Errors in an object of a built-in kind, beyond its types."""
    causes = _template_errors(kind.plural, obj.get("spec") or {}) if kind.plural in TEMPLATED else []
    check = _CHECKS.get((kind.group, kind.plural))
    return causes + check(obj) if check is not None else causes


def _template_errors(plural: str, spec: Object) -> list[Cause]:
    """Errors in a workload: in its template for pods, its selector and its numbers."""
    template = spec.get("template") or {}
    claimed = spec.get("volumeClaimTemplates") or ()
    causes = _pod_errors(template.get("spec") or {}, "spec.template.spec", claimed)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if plural == "jobs" and policy == "Always":
        text = 'Required value: valid values: "OnFailure", "Never"'
        causes.append(Cause("spec.template.spec.restartPolicy", "FieldValueRequired", text))
    elif plural != "jobs" and policy not in (None, "Always"):
        causes.append(unsupported("spec.template.spec.restartPolicy", policy, ["Always"]))
    selector = spec.get("selector")
    labels = (template.get("metadata") or {}).get("labels") or {}
    if plural != "jobs" and selector is not None and not matches_label_selector(selector, labels):
        causes.append(invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))
    for field in ("replicas", "parallelism", "completions"):
        if isinstance(spec.get(field), int) and spec[field] < 0:
            causes.append(invalid(f"spec.{field}", spec[field], "must be greater than or equal to 0"))
    return causes


def _service_errors(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    needs_ports = spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName"
    return [required("spec.ports")] if needs_ports and not spec.get("ports") else []


def _lease_errors(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    causes = []
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        causes.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def _event_errors(obj: Object) -> list[Cause]:
    about = (obj.get("involvedObject") or {}).get("namespace") or ""
    if (about or "default") == obj["metadata"].get("namespace", ""):
        return []
    return [invalid("involvedObject.namespace", about, "does not match event.namespace")]


def _budget_errors(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    if spec.get("minAvailable") is None or spec.get("maxUnavailable") is None:
        return []
    return [invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")]


def _webhook_errors(obj: Object) -> list[Cause]:
    causes = []
    for index, hook in enumerate(obj.get("webhooks") or ()):
        effects, name = hook.get("sideEffects"), hook.get("name")
        if effects not in ("None", "NoneOnDryRun"):
            causes.append(unsupported(f"webhooks[{index}].sideEffects", effects, ["None", "NoneOnDryRun"]))
        if (name or "").count(".") < 2:
            text = "should be a domain with at least three segments separated by dots"
            causes.append(invalid(f"webhooks[{index}].name", name, text))
    return causes


def _definition_errors(obj: Object) -> list[Cause]:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    causes: list[Cause] = []
    full_name = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if obj["metadata"].get("name") != full_name:
        causes.append(invalid("metadata.name", obj["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group'))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        causes.append(unsupported("spec.scope", spec.get("scope"), ["Cluster", "Namespaced"]))
    if sum(bool(version.get("storage")) for version in spec.get("versions") or ()) != 1:
        causes.append(invalid("spec.versions", None, "must have exactly one version marked as storage version"))
    for index, version in enumerate(spec.get("versions") or ()):
        place = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            causes.append(required(place, "schemas are required"))
            continue
        if schema.get("type") != "object":
            causes.append(invalid(f"{place}.type", schema.get("type"), 'must be "object" at the root'))
        causes += _structural_errors(schema, place)
        causes += rule_errors(schema, place) or default_errors(of_definition(schema), place)
    return causes


#: (API group, resource) -> errors of an object
_CHECKS: dict[tuple[str, str], Callable[[Object], list[Cause]]] = {
    ("", "pods"): lambda obj: _pod_errors(obj.get("spec") or {}, "spec"),
    ("", "services"): _service_errors,
    ("", "events"): _event_errors,
    ("coordination.k8s.io", "leases"): _lease_errors,
    ("policy", "poddisruptionbudgets"): _budget_errors,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _webhook_errors,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _webhook_errors,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _definition_errors,
}


def _structural_errors(schema: Object, place: str) -> list[Cause]:
    """Errors for parts of a schema that are not structural: a property without type, or defaults of another type."""
    causes: list[Cause] = []
    for name, child in (schema.get("properties") or {}).items():
        here = f"{place}.properties[{name}]"
        flexible = child.get("x-kubernetes-int-or-string") or child.get("x-kubernetes-preserve-unknown-fields")
        if not child.get("type") and not flexible:
            causes.append(required(f"{here}.type", "must not be empty for specified object fields"))
        causes += _structural_errors(child, here)
    if isinstance(schema.get("items"), dict):
        here = f"{place}.items"
        flexible = schema["items"].get("x-kubernetes-int-or-string") or schema["items"].get(
            "x-kubernetes-preserve-unknown-fields"
        )
        if not schema["items"].get("type") and not flexible:
            causes.append(required(f"{here}.type", "must not be empty for specified array items"))
        causes += _structural_errors(schema["items"], here)
    if schema.get("properties") and schema.get("additionalProperties"):
        causes.append(
            forbidden_field(f"{place}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        )
    if schema.get("x-kubernetes-list-type") == "map":
        keys = schema.get("x-kubernetes-list-map-keys") or []
        if not keys:
            causes.append(
                required(f"{place}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
            )
        items = schema.get("items") or {}
        for key in keys:
            if key not in (items.get("required") or []) and "default" not in (
                (items.get("properties") or {}).get(key) or {}
            ):
                where, rule = f"{place}.items.properties[{key}].default", "x-kubernetes-list-map-keys"
                text = f"this property is in {rule}, so it must have a default or be a required property"
                causes.append(required(where, text))
    return causes


# Immutable fields

_IMMUTABLE: Final[dict[str, tuple[str, ...]]] = {
    "deployments": ("spec.selector",),
    "replicasets": ("spec.selector",),
    "daemonsets": ("spec.selector",),
    "jobs": ("spec.selector", "spec.completionMode"),
    "secrets": ("type",),
    "storageclasses": ("provisioner", "parameters", "reclaimPolicy"),
    "resourceclaims": ("spec",),
    "podgroups": ("spec",),
    "customresourcedefinitions": ("spec.group", "spec.scope", "spec.names.kind", "spec.names.plural"),
}
_POD_MUTABLE: Final = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")


def _at(obj: Any, path: str) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def validate_update(kind: Kind, new: Object, old: Object) -> list[Cause]:
    """What of an update of a built-in kind's object is not allowed."""
    causes: list[Cause] = []
    plural = kind.plural
    for path in _IMMUTABLE.get(plural, ()):
        if _at(old, path) != _at(new, path):
            causes.append(invalid(path, _at(new, path), "field is immutable"))
    check = _UPDATES.get(plural)
    if check is not None:
        causes += check(new, old)
    return causes


def _pod_update(new: Object, old: Object) -> list[Cause]:
    before, after = dict(old["spec"]), dict(new["spec"])
    gates_before = [gate["name"] for gate in before.get("schedulingGates") or ()]
    gates_after = [gate["name"] for gate in after.get("schedulingGates") or ()]
    if any(gate not in gates_before for gate in gates_after):
        added = [gate for gate in gates_after if gate not in gates_before]
        return [
            forbidden_field(
                "spec.schedulingGates", f"only deletion is allowed, but found new scheduling gates '{','.join(added)}'"
            )
        ]
    tolerations = after.get("tolerations") or []
    if any(toleration not in tolerations for toleration in before.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden_field("spec.tolerations", text)]
    for spec in (before, after):
        for name in _POD_MUTABLE:
            spec.pop(name, None)
        for group in ("containers", "initContainers"):
            if group in spec:
                spec[group] = [
                    {key: value for key, value in container.items() if key != "image"} for container in spec[group]
                ]
        if gates_before:
            # A gated pod's constraints may become narrower.
            spec.pop("nodeSelector", None)
            spec.pop("affinity", None)
    if before == after:
        return []
    return [
        forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )
    ]


def _stateful_set_update(new: Object, old: Object) -> list[Cause]:
    mutable = {
        "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
    }  # fmt: skip
    before = {key: value for key, value in old["spec"].items() if key not in mutable}
    after = {key: value for key, value in new["spec"].items() if key not in mutable}
    if before == after:
        return []
    text = (
        "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
        "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
    )
    return [forbidden_field("spec", text)]


def _job_update(new: Object, old: Object) -> list[Cause]:
    causes: list[Cause] = []
    if old["spec"].get("completionMode") != "Indexed" and old["spec"].get("completions") != new["spec"].get(
        "completions"
    ):
        causes.append(invalid("spec.completions", new["spec"].get("completions"), "field is immutable"))
    started = (old.get("status") or {}).get("startTime") is not None
    suspended = bool(old["spec"].get("suspend"))
    if old["spec"]["template"] != new["spec"]["template"]:
        relaxed = copy.deepcopy(new["spec"]["template"])
        if suspended and not started:
            for name in ("nodeSelector", "tolerations", "affinity", "schedulingGates"):
                for target, source in ((relaxed["spec"], old["spec"]["template"]["spec"]),):
                    if name in source:
                        target[name] = source[name]
                    else:
                        target.pop(name, None)
            for name in ("labels", "annotations"):
                if name in old["spec"]["template"].get("metadata", {}):
                    relaxed.setdefault("metadata", {})[name] = old["spec"]["template"]["metadata"][name]
                else:
                    relaxed.get("metadata", {}).pop(name, None)
        if relaxed != old["spec"]["template"]:
            causes.append(invalid("spec.template", new["spec"]["template"], "field is immutable"))
    return causes


def _service_update(new: Object, old: Object) -> list[Cause]:
    before, after = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
    if before and before != after and old["spec"].get("type") == new["spec"].get("type"):
        return [invalid("spec.clusterIPs[0]", after, "may not change once set")]
    return []


def _binding_update(new: Object, old: Object) -> list[Cause]:
    if new.get("roleRef") != old.get("roleRef"):
        return [invalid("roleRef", new.get("roleRef"), "cannot change roleRef")]
    return []


def _priority_class_update(new: Object, old: Object) -> list[Cause]:
    return (
        [forbidden_field("value", "may not be changed in an update.")] if new.get("value") != old.get("value") else []
    )


def _frozen_update(new: Object, old: Object) -> list[Cause]:
    if not old.get("immutable"):
        return []
    if not new.get("immutable"):
        return [forbidden_field("immutable", "field is immutable when `immutable` is set")]
    if new.get("data") != old.get("data"):
        return [forbidden_field("data", "field is immutable when `immutable` is set")]
    return []


def _claim_update(new: Object, old: Object) -> list[Cause]:
    before = {key: value for key, value in old["spec"].items() if key not in ("resources", "volumeName")}
    after = {key: value for key, value in new["spec"].items() if key not in ("resources", "volumeName")}
    if before == after:
        return []
    text = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden_field("spec", text)]


_UPDATES: Final[dict[str, Callable[[Object, Object], list[Cause]]]] = {
    "pods": _pod_update,
    "statefulsets": _stateful_set_update,
    "jobs": _job_update,
    "services": _service_update,
    "rolebindings": _binding_update,
    "clusterrolebindings": _binding_update,
    "priorityclasses": _priority_class_update,
    "configmaps": _frozen_update,
    "secrets": _frozen_update,
    "persistentvolumeclaims": _claim_update,
}
