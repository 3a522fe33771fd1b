"""Strict validation of objects without a server: what a real control plane would refuse of them.

Built-in kinds are checked against lightkube's models, which are generated from Kubernetes' OpenAPI document; ours
against the structural schemas of the definitions.
"""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from spritz_testing.kubernetes import strategies
from spritz_testing.kubernetes.errors import Cause
from spritz_testing.kubernetes.kinds import Kind, built_in, of_custom_resource
from spritz_testing.kubernetes.schema import prune, set_defaults, validate

Json = dict[str, Any]

PACKAGED = Path(__file__).parents[2] / "packaging/kubernetes"

#: Kinds of definitions that are not ours.
FOREIGN = frozenset({"ServiceMonitor"})

_WORDS = frozenset(
    {
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-validations",
    }
)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in a map, as Kubernetes' decoder does."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [self.construct_object(key, deep=True) for key, _value in node.value]
        twice = sorted({str(name) for name in names if names.count(name) > 1})
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"{', '.join(twice)} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def load(text: str) -> list[Json]:
    """Objects of a manifest. Raises yaml.YAMLError, also for a key that stands twice."""
    return [document for document in yaml.load_all(text, _StrictLoader) if document]  # a SafeLoader


@cache
def kinds() -> dict[tuple[str, str], Kind]:
    """(apiVersion, kind) -> the kind."""
    definitions = load((PACKAGED / "crds.yaml").read_text())
    known = [*built_in(), *(kind for definition in definitions for kind in of_custom_resource(definition))]
    return {(kind.api_version, kind.kind): kind for kind in known}


def faults(wanted: Json) -> list[str]:
    """What an API server refuses or drops of an object: unknown fields, nulls, wrong types, broken rules."""
    kind = kinds().get((wanted.get("apiVersion", ""), wanted.get("kind", "")))
    if kind is None:
        return [f"no such kind: {wanted.get('apiVersion')} {wanted.get('kind')}"]
    subject = copy.deepcopy(wanted)
    found = [f"{path}: null" for path in _nulls(subject, "")]
    unknown: list[str] = []
    prune(subject, kind.schema, "", unknown)
    found += [f"{path}: field not declared in schema" for path in unknown]
    causes: list[Cause] = []
    set_defaults(subject, kind.schema)
    validate(subject, kind.schema, "", causes)
    if not kind.custom:
        strategies.set_defaults(kind, subject)
        causes += strategies.validate(kind, subject)
    return [*found, *map(str, causes)]


def _nulls(value: Any, path: str) -> list[str]:
    if value is None:
        return [path]
    if isinstance(value, dict):
        return [place for key, each in value.items() for place in _nulls(each, f"{path}.{key}")]
    if isinstance(value, list):
        return [place for index, each in enumerate(value) for place in _nulls(each, f"{path}[{index}]")]
    return []


def not_structural(schema: Json, path: str = "") -> list[str]:
    """Places of a definition's schema that "Specifying a structural schema" does not allow."""
    found = []
    flexible = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not flexible:
        found.append(f"{path}: no type")
    if "properties" in schema and "additionalProperties" in schema:
        found.append(f"{path}: properties and additionalProperties")
    if schema.get("type") == "array" and "items" not in schema:
        found.append(f"{path}: no items")
    if schema.get("type") == "object" and not flexible and not {"properties", "additionalProperties"} & set(schema):
        found.append(f"{path}: an object without fields")
    if "$ref" in schema or schema.get("uniqueItems"):
        found.append(f"{path}: $ref or uniqueItems")
    found += [f"{path}: {word}" for word in schema if word.startswith("x-") and word not in _WORDS]
    found += [f"{path}: requires {name}" for name in schema.get("required", ()) if name not in schema["properties"]]
    if schema.get("x-kubernetes-list-type") == "map":
        fields = schema["items"]
        for key in schema.get("x-kubernetes-list-map-keys") or [""]:
            if key not in fields.get("required", ()) and "default" not in fields["properties"].get(key, {}):
                found.append(f"{path}: the key {key!r} is neither required nor has a default")
    for name, child in (schema.get("properties") or {}).items():
        found += not_structural(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            found += not_structural(schema[name], f"{path}.{name}")
    return found
