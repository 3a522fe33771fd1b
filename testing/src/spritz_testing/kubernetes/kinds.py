"""The resources that the server has: built-in ones from lightkube's tables, custom ones from their definitions."""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from typing import Any, Final

from lightkube.core import resource as lightkube_resource

from spritz_testing.kubernetes.errors import Object
from spritz_testing.kubernetes.schema import Schema, of_definition, of_model

#: groups and versions that are served, by lightkube's modules
_MODULES: Final = (
    "core_v1",
    "apps_v1",
    "batch_v1",
    "policy_v1",
    "scheduling_v1",
    "scheduling_v1beta1",
    "scheduling_v1alpha3",
    "rbac_authorization_v1",
    "coordination_v1",
    "resource_v1",
    "networking_v1",
    "admissionregistration_v1",
    "apiextensions_v1",
    "storage_v1",
    "discovery_v1",
    "autoscaling_v1",
    "node_v1",
)
_SHORT: Final[dict[str, tuple[str, ...]]] = {
    "configmaps": ("cm",),
    "customresourcedefinitions": ("crd", "crds"),
    "daemonsets": ("ds",),
    "deployments": ("deploy",),
    "events": ("ev",),
    "horizontalpodautoscalers": ("hpa",),
    "ingresses": ("ing",),
    "namespaces": ("ns",),
    "networkpolicies": ("netpol",),
    "nodes": ("no",),
    "persistentvolumeclaims": ("pvc",),
    "persistentvolumes": ("pv",),
    "poddisruptionbudgets": ("pdb",),
    "pods": ("po",),
    "priorityclasses": ("pc",),
    "replicasets": ("rs",),
    "resourcequotas": ("quota",),
    "serviceaccounts": ("sa",),
    "services": ("svc",),
    "statefulsets": ("sts",),
    "storageclasses": ("sc",),
}
_ALL: Final = frozenset(
    {"pods", "services", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"}
)
#: kinds whose metadata.generation counts changes of the specification
_GENERATION: Final = frozenset(
    {
        "pods",
        "deployments",
        "replicasets",
        "statefulsets",
        "daemonsets",
        "jobs",
        "cronjobs",
        "poddisruptionbudgets",
        "networkpolicies",
        "ingresses",
        "priorityclasses",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "customresourcedefinitions",
        "resourceslices",
        "podgroups",
        "workloads",
    }
)
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "jobs": ("status.successful",),
    "resourceslices": ("spec.nodeName", "spec.driver"),
}


class Kind:
    """A resource: where it is served, and what its objects must be."""

    __slots__ = (
        "categories",
        "columns",
        "custom",
        "fields",
        "generation",
        "group",
        "kind",
        "namespaced",
        "plural",
        "scale_paths",
        "schema",
        "short",
        "singular",
        "subresources",
        "version",
    )

    def __init__(
        self,
        group: str,
        version: str,
        kind: str,
        plural: str,
        *,
        namespaced: bool,
        schema: Schema,
        subresources: frozenset[str] = frozenset(),
        custom: bool = False,
        singular: str = "",
        short: tuple[str, ...] = (),
        categories: tuple[str, ...] = (),
        fields: tuple[str, ...] = (),
        generation: bool = False,
        columns: tuple[Object, ...] = (),
        scale_paths: Object | None = None,
    ) -> None:
        self.group = group
        self.version = version
        self.kind = kind
        self.plural = plural
        self.namespaced = namespaced
        self.schema = schema
        self.subresources = subresources
        self.custom = custom
        self.singular = singular or kind.lower()
        self.short = short
        self.categories = categories
        self.fields = ("metadata.name", "metadata.namespace", *fields) if namespaced else ("metadata.name", *fields)
        self.generation = generation
        self.columns = columns
        self.scale_paths = scale_paths

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> tuple[str, str]:
        """Versions of a resource share what is stored under this."""
        return self.group, self.plural

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def __repr__(self) -> str:
        return f"Kind({self.api_version}, {self.kind})"


@cache
def built_in() -> tuple[Kind, ...]:
    """The kinds of Kubernetes itself, from lightkube's generated resources."""
    resources: dict[tuple[str, str], tuple[Any, Any]] = {}
    subresources: dict[tuple[str, str], set[str]] = {}
    for name in _MODULES:
        module = importlib.import_module(f"lightkube.resources.{name}")
        for member in vars(module).values():
            if not (inspect.isclass(member) and member.__module__ == module.__name__ and hasattr(member, "_api_info")):
                continue
            info = member._api_info
            if info.action is not None:
                parent = info.parent or info.resource
                subresources.setdefault((parent.group, info.plural), set()).add(info.action)
            elif "list" in info.verbs:
                resources[(info.resource.group, info.plural)] = (info, member)
    kinds: list[Kind] = []
    for (group, plural), (info, member) in resources.items():
        kinds.append(
            Kind(
                group,
                info.resource.version,
                info.resource.kind,
                plural,
                namespaced=issubclass(member, lightkube_resource.NamespacedResource),
                schema=of_model(member),
                subresources=frozenset(subresources.get((group, plural), ())),
                short=_SHORT.get(plural, ()),
                categories=("all",) if plural in _ALL else (),
                fields=_FIELDS.get(plural, ()),
                generation=plural in _GENERATION,
            )
        )
    return tuple(kinds)


def of_custom_resource(definition: Object) -> list[Kind]:
    """The kinds that a CustomResourceDefinition defines, one a served version."""
    spec = definition["spec"]
    names = spec["names"]
    kinds: list[Kind] = []
    metadata = next(kind for kind in built_in() if kind.plural == "configmaps").schema.child("metadata")
    for version in spec["versions"]:
        if not version.get("served", False):
            continue
        schema = of_definition((version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"})
        schema.properties = dict(schema.properties or {})
        string = Schema("string")
        schema.properties.update({"apiVersion": string, "kind": string, "metadata": metadata})
        subresources = version.get("subresources") or {}
        kinds.append(
            Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                namespaced=spec["scope"] == "Namespaced",
                schema=schema,
                subresources=frozenset(subresources),
                custom=True,
                singular=names.get("singular") or names["kind"].lower(),
                short=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                fields=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
                generation=True,
                columns=tuple(version.get("additionalPrinterColumns") or ()),
                scale_paths=subresources.get("scale"),
            )
        )
    return kinds
