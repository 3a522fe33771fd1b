"""Schemas of objects: built-in kinds' from lightkube's typed models, custom resources' from their definitions.

A schema prunes unknown fields, sets defaults, validates in the API server's words, and says how lists and maps merge
(sets, lists that are maps by key, atomic values), which server-side apply and strategic merge patches go by.

Source: Kubernetes, "Specifying a structural schema", "Merge strategy"; the lists that are maps in built-in kinds are
those with `x-kubernetes-list-type` or a patch merge key in Kubernetes' OpenAPI document.
"""

from __future__ import annotations

import copy
import datetime
import re
import types
import typing
from functools import cache
from typing import Any, Final

import msgspec
from lightkube.models.apiextensions_v1 import JSONSchemaProps

from spritz_testing.kubernetes.errors import Cause, Object, invalid, required, shown, unsupported

try:
    from cel_expr_python import cel
except ImportError:  # without it CEL rules are not evaluated, which a CRD that has some is told in a warning
    cel = None

#: Keys of lists that are maps, by model and field.
_LIST_MAPS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("ObjectMeta", "ownerReferences"): ("uid",),
    ("PodSpec", "containers"): ("name",),
    ("PodSpec", "initContainers"): ("name",),
    ("PodSpec", "ephemeralContainers"): ("name",),
    ("PodSpec", "volumes"): ("name",),
    ("PodSpec", "imagePullSecrets"): ("name",),
    ("PodSpec", "hostAliases"): ("ip",),
    ("PodSpec", "resourceClaims"): ("name",),
    ("PodSpec", "schedulingGates"): ("name",),
    ("PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("Container", "env"): ("name",),
    ("Container", "ports"): ("containerPort", "protocol"),
    ("Container", "volumeMounts"): ("mountPath",),
    ("Container", "volumeDevices"): ("devicePath",),
    ("ResourceRequirements", "claims"): ("name",),
    ("PodStatus", "conditions"): ("type",),
    ("PodStatus", "podIPs"): ("ip",),
    ("PodStatus", "resourceClaimStatuses"): ("name",),
    ("NodeStatus", "conditions"): ("type",),
    ("NodeStatus", "addresses"): ("type",),
    ("ServiceSpec", "ports"): ("port", "protocol"),
    ("ServiceStatus", "conditions"): ("type",),
    ("ServiceAccount", "secrets"): ("name",),
    ("NamespaceStatus", "conditions"): ("type",),
    ("PersistentVolumeClaimStatus", "conditions"): ("type",),
    ("DeploymentStatus", "conditions"): ("type",),
    ("ReplicaSetStatus", "conditions"): ("type",),
    ("StatefulSetStatus", "conditions"): ("type",),
    ("DaemonSetStatus", "conditions"): ("type",),
    ("PodDisruptionBudgetStatus", "conditions"): ("type",),
    ("PodGroupStatus", "conditions"): ("type",),
    ("MutatingWebhookConfiguration", "webhooks"): ("name",),
    ("ValidatingWebhookConfiguration", "webhooks"): ("name",),
    ("CustomResourceDefinitionStatus", "conditions"): ("type",),
    ("JSONSchemaProps", "x_kubernetes_validations"): ("rule",),
    ("ResourceClaimStatus", "reservedFor"): ("uid",),
    ("ResourceClaimStatus", "devices"): ("driver", "device", "pool"),
    ("AllocatedDeviceStatus", "conditions"): ("type",),
}
#: Lists merged by key in strategic merge patches, and replaced as a whole by server-side apply.
_STRATEGIC_ONLY: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("NodeSpec", "taints"): ("key",),
    ("JobStatus", "conditions"): ("type",),
}
_SETS: Final = frozenset({("ObjectMeta", "finalizers"), ("NodeSpec", "podCIDRs"), ("PodSpec", "schedulingGroups")})
#: Structs and maps that are replaced as a whole.
_ATOMIC: Final = frozenset(
    {
        "LabelSelector",
        "NodeSelector",
        "NodeSelectorTerm",
        "LocalObjectReference",
        "TypedLocalObjectReference",
        "ObjectReference",
        "SecretReference",
        "ConfigMapKeySelector",
        "SecretKeySelector",
        "ObjectFieldSelector",
        "ResourceFieldSelector",
        "AggregationRule",
        "RoleRef",
    }
)
_ATOMIC_FIELDS: Final = frozenset({("PodSpec", "nodeSelector"), ("ServiceSpec", "selector")})


class Schema:
    """The schema of a value. `kind`: object, array, string, integer, number, boolean, int-or-string, object-or-boolean
    or any.
    """

    __slots__ = (
        "additional",
        "atomic",
        "constraints",
        "default",
        "embedded",
        "has_default",
        "items",
        "kind",
        "list_type",
        "merge_keys",
        "nullable",
        "preserve",
        "properties",
        "required",
        "rules",
    )

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.properties: dict[str, Schema] | None = None
        self.additional: Schema | None = None
        self.items: Schema | None = None
        self.required: tuple[str, ...] = ()
        #: atomic, set or map
        self.list_type = "atomic"
        self.merge_keys: tuple[str, ...] = ()
        #: an object that is one value to server-side apply
        self.atomic = False
        #: unknown fields stay
        self.preserve = False
        self.nullable = False
        self.embedded = False
        self.has_default = False
        self.default: Any = None
        self.constraints: Object = {}
        self.rules: list[_Rule] = []

    def child(self, key: str) -> Schema:
        if self.properties is not None and key in self.properties:
            return self.properties[key]
        return self.additional or ANY

    def item(self) -> Schema:
        return self.items or ANY

    def knows(self, key: str) -> bool:
        return self.preserve or self.additional is not None or (self.properties is not None and key in self.properties)


ANY: Final = Schema("any")
ANY.preserve = True


class _StructSchema(Schema):
    """The schema of a typed model; its fields are compiled at their first use, since models may be deep."""

    __slots__ = ("_model", "_properties")

    def __init__(self, model: type[msgspec.Struct]) -> None:
        self._model = model
        self._properties: dict[str, Schema] | None = None
        super().__init__("object")
        self.atomic = model.__name__ in _ATOMIC
        self.required = tuple(field.encode_name for field in msgspec.structs.fields(model) if field.required)

    @property
    def properties(self) -> dict[str, Schema]:
        if self._properties is None:
            hints = typing.get_type_hints(self._model)
            names = {field.name: field.encode_name for field in msgspec.structs.fields(self._model)}
            self._properties = {
                names[name]: _of_type(hint, self._model.__name__, name) for name, hint in hints.items() if name in names
            }
        return self._properties

    @properties.setter
    def properties(self, value: dict[str, Schema] | None) -> None:
        self._properties = value


@cache
def of_model(model: type[msgspec.Struct]) -> Schema:
    """The schema of a typed model of lightkube."""
    return _StructSchema(model)


def _of_type(hint: Any, owner: str, field: str) -> Schema:
    if owner == "JSONSchemaProps" and field in _SUBSCHEMAS:
        return _subschema(field)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        members = [argument for argument in arguments if argument is not type(None)]
        if len(members) == 1:
            return _of_type(members[0], owner, field)
        return Schema("int-or-string") if set(members) == {int, str} else ANY
    if origin is list:
        schema = Schema("array")
        schema.items = _of_type(arguments[0], owner, field)
        place = (owner, field)
        if place in _LIST_MAPS:
            schema.list_type, schema.merge_keys = "map", _LIST_MAPS[place]
        elif place in _STRATEGIC_ONLY:
            schema.merge_keys = _STRATEGIC_ONLY[place]
        elif place in _SETS:
            schema.list_type = "set"
        elif field == "conditions" and owner.endswith("Status"):
            schema.list_type, schema.merge_keys = "map", ("type",)
        return schema
    if hint is dict or origin is dict:
        schema = Schema("object")
        schema.additional = _of_type(arguments[1], owner, field) if arguments else ANY
        schema.atomic = (owner, field) in _ATOMIC_FIELDS
        if owner == "ManagedFieldsEntry" or not arguments:
            schema.preserve = True
            schema.additional = Schema("string") if field in ("labels", "annotations", "matchLabels") else ANY
        return schema
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint.__name__ in ("FieldsV1", "RawExtension"):
            return ANY
        return of_model(hint)
    if hint is str and field in ("cpu", "memory", "divisor", "value", "averageValue", "sizeLimit", "min", "max"):
        return Schema("int-or-string") if field != "value" or owner == "DeviceCapacity" else Schema("string")
    if hint is str and owner in _QUANTITY_MAPS and field in _QUANTITY_MAPS[owner]:
        return Schema("int-or-string")
    simple = {str: "string", int: "integer", float: "number", bool: "boolean", datetime.datetime: "string"}
    name = simple.get(hint)
    if name is None:
        return ANY
    schema = Schema(name)
    schema.nullable = field == "lastProbeTime"  # Go writes a time that is not set as null
    return schema


#: Fields of a JSON schema that have schemas, or one; lightkube's model says nothing about what they have.
_SUBSCHEMAS: Final = frozenset({"properties", "patternProperties", "definitions", "items", "additionalProperties"})


def _subschema(field: str) -> Schema:
    if field in ("items", "additionalProperties"):
        schema = _StructSchema(JSONSchemaProps)
        schema.kind = "object-or-boolean"
        return schema
    by_name = Schema("object")
    by_name.additional = of_model(JSONSchemaProps)
    return by_name


#: maps whose values are quantities, which may be numbers too
_QUANTITY_MAPS: Final[dict[str, frozenset[str]]] = {
    "ResourceRequirements": frozenset({"limits", "requests"}),
    "VolumeResourceRequirements": frozenset({"limits", "requests"}),
    "NodeStatus": frozenset({"capacity", "allocatable"}),
    "ResourceQuotaSpec": frozenset({"hard"}),
    "ResourceQuotaStatus": frozenset({"hard", "used"}),
    "PersistentVolumeSpec": frozenset({"capacity"}),
    "PersistentVolumeClaimStatus": frozenset({"capacity", "allocatedResources"}),
    "PodSpec": frozenset({"overhead"}),
}


def of_definition(text: Object) -> Schema:
    """The schema of an `openAPIV3Schema` of a custom resource."""
    if text.get("x-kubernetes-int-or-string"):
        schema = Schema("int-or-string")
    else:
        schema = Schema(text.get("type") or "any")
    schema.preserve = bool(text.get("x-kubernetes-preserve-unknown-fields"))
    schema.embedded = bool(text.get("x-kubernetes-embedded-resource"))
    schema.nullable = bool(text.get("nullable"))
    schema.atomic = text.get("x-kubernetes-map-type") == "atomic"
    schema.list_type = text.get("x-kubernetes-list-type") or "atomic"
    schema.merge_keys = tuple(text.get("x-kubernetes-list-map-keys") or ())
    schema.required = tuple(text.get("required") or ())
    if "default" in text:
        schema.has_default, schema.default = True, text["default"]
    if "properties" in text:
        schema.properties = {name: of_definition(property_text) for name, property_text in text["properties"].items()}
    additional = text.get("additionalProperties")
    if isinstance(additional, dict):
        schema.additional = of_definition(additional)
    elif additional:
        schema.additional = ANY
    if "items" in text:
        schema.items = of_definition(text["items"])
    schema.constraints = {
        name: text[name] for name in _CONSTRAINTS if name in text and not (name == "format" and text[name] == "")
    }
    if cel is not None:
        schema.rules = [_Rule(rule) for rule in text.get("x-kubernetes-validations") or ()]
    return schema


_CONSTRAINTS: Final = (
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
)


class _Rule:
    """A CEL rule of a custom resource's schema."""

    def __init__(self, text: Object) -> None:
        self.rule: str = text["rule"]
        self.message: str = text.get("message") or f"failed rule: {self.rule.strip()}"
        self.field_path: str = text.get("fieldPath") or ""
        self.reason: str = text.get("reason") or "FieldValueInvalid"
        #: a rule that compares with the old value says nothing about a new one
        self.of_change = re.search(r"\boldSelf\b", self.rule) is not None and not text.get("optionalOldSelf")
        self._program = _environment().compile(self.rule)
        expression = text.get("messageExpression")
        self._message = _environment().compile(expression) if expression else None

    def check(self, value: Any, old: Any) -> str | None:
        """The message if the rule does not hold."""
        data = {"self": value, "oldSelf": old}
        result = self._program.eval(data=data)
        if result.type() == cel.Type.BOOL:
            if result.value():
                return None
            if self._message is not None:
                told = self._message.eval(data=data)
                if told.type() == cel.Type.STRING:
                    return str(told.value())
            return self.message
        return f"rule evaluation error: {result.value()}"


@cache
def _environment() -> Any:
    return cel.NewEnv(variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN})


@cache
def _conditions() -> Any:
    return cel.NewEnv(variables=dict.fromkeys(("object", "oldObject", "request"), cel.Type.DYN))


def condition_holds(expression: str, data: Object) -> bool:
    """A match condition of a webhook, of `object`, `oldObject` and `request`. Without CEL every condition holds."""
    return cel is None or bool(_conditions().compile(expression).eval(data=data).value())


def rule_errors(text: Object, path: str) -> list[Cause]:
    """CEL rules of a definition that do not compile."""
    causes: list[Cause] = []
    for index, rule in enumerate(text.get("x-kubernetes-validations") or ()):
        if cel is None:
            break
        try:
            _Rule(rule)
        except RuntimeError as error:
            causes.append(
                invalid(f"{path}.x-kubernetes-validations[{index}].rule", rule, f"compilation failed: {error}")
            )
    for name, property_text in (text.get("properties") or {}).items():
        causes += rule_errors(property_text, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(text.get(name), dict):
            causes += rule_errors(text[name], f"{path}.{name}")
    return causes


def default_errors(schema: Schema, path: str) -> list[Cause]:
    """What a definition's schema refuses of its own defaults, as they are written, without the defaults within them.

    Its rules are asked too, those of changes with the default as the value before.
    """
    causes: list[Cause] = []
    if schema.has_default:
        unknown: list[str] = []
        value = copy.deepcopy(schema.default)
        prune(value, schema, "", unknown)
        causes += [invalid(f"{path}.default", schema.default, f"{field}: unknown field") for field in unknown]
        validate(value, schema, f"{path}.default", causes, copy.deepcopy(value))
    for name, child in (schema.properties or {}).items():
        causes += default_errors(child, f"{path}.properties[{name}]")
    for word, each in (("items", schema.items), ("additionalProperties", schema.additional)):
        causes += default_errors(each, f"{path}.{word}") if each is not None and each.kind != "any" else []
    return causes


def prune(value: Any, schema: Schema, path: str, unknown: list[str]) -> None:
    """Remove unknown fields from the value, in place, and note their paths."""
    if isinstance(value, dict):
        if schema.kind == "any" and schema.preserve and schema.properties is None:
            return
        for key in list(value):
            if schema.properties is not None and key in schema.properties:
                prune(value[key], schema.properties[key], f"{path}.{key}" if path else key, unknown)
            elif schema.additional is not None:
                prune(value[key], schema.additional, f"{path}.{key}" if path else key, unknown)
            elif schema.embedded and key in ("apiVersion", "kind", "metadata"):
                continue
            elif not schema.preserve and schema.kind in ("object", "object-or-boolean"):
                unknown.append(f"{path}.{key}" if path else key)
                del value[key]
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            prune(item, schema.items, f"{path}[{index}]", unknown)


def drop_nulls(value: Any, schema: Schema) -> None:
    """Remove nulls, in place, since they mean "not set", except where the schema allows them."""
    if isinstance(value, dict):
        for key in list(value):
            child = schema.child(key)
            if value[key] is None:
                if not child.nullable and child is not ANY:
                    del value[key]
            else:
                drop_nulls(value[key], child)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item, schema.item())


def set_defaults(value: Any, schema: Schema) -> None:
    """Set the defaults of absent fields, in place."""
    if isinstance(value, dict):
        if schema.properties is not None and not isinstance(schema, _StructSchema):
            for name, child in schema.properties.items():
                if child.has_default and (name not in value or (value[name] is None and not child.nullable)):
                    value[name] = copy.deepcopy(child.default)
                if name in value:
                    set_defaults(value[name], child)
        if schema.additional is not None:
            for name, item in value.items():
                if schema.properties is None or name not in schema.properties:
                    set_defaults(item, schema.additional)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            set_defaults(item, schema.items)


def validate(value: Any, schema: Schema, path: str, causes: list[Cause], old: Any = None) -> None:
    """Add the value's errors to `causes`."""
    if value is None and schema.nullable:
        return
    kind = schema.kind
    if kind != "any" and not _is(value, kind):
        type_found = _type_name(value)
        causes.append(
            Cause(
                path,
                "FieldValueTypeInvalid",
                f'Invalid value: "{type_found}": {path} in body must be of type {_wanted(kind)}: "{type_found}"',
            )
        )
        return
    if schema.constraints:
        _constrain(value, schema.constraints, path, causes)
    if isinstance(value, dict):
        for name in schema.required:
            if name not in value or value[name] is None:
                causes.append(required(f"{path}.{name}" if path else name))
        for key, item in value.items():
            if schema.properties is not None and key in schema.properties:
                child, place = schema.properties[key], f"{path}.{key}" if path else key
            elif schema.additional is not None:
                child, place = schema.additional, f"{path}.{key}" if path else key
            else:
                continue
            validate(item, child, place, causes, old.get(key) if isinstance(old, dict) else None)
    elif isinstance(value, list) and schema.items is not None:
        before = _by_key(old, schema.merge_keys) if schema.list_type == "map" else {}
        seen: set[Any] = set()
        for index, item in enumerate(value):
            previous = None
            if schema.list_type == "map" and isinstance(item, dict):
                key = tuple(repr(item.get(name)) for name in schema.merge_keys)
                previous = before.get(key)
                if key in seen:
                    shown_key = {name: item.get(name) for name in schema.merge_keys}
                    causes.append(
                        Cause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {shown(shown_key)}")
                    )
                seen.add(key)
            elif schema.list_type == "set":
                if repr(item) in seen:
                    causes.append(Cause(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {shown(item)}"))
                seen.add(repr(item))
            validate(item, schema.items, f"{path}[{index}]", causes, previous)
    for rule in schema.rules:
        if rule.of_change and old is None:
            continue
        message = rule.check(value, old)
        if message is not None:
            place = path + rule.field_path
            shown_value = f'"{_type_name(value)}"' if isinstance(value, (dict, list)) else shown(value)
            text = f"Invalid value: {shown_value}: {message}"
            if rule.reason == "FieldValueForbidden":
                text = f"Forbidden: {message}"
            causes.append(Cause(place or "<nil>", rule.reason, text))


def _by_key(values: Any, keys: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    if not isinstance(values, list):
        return {}
    return {tuple(repr(item.get(name)) for name in keys): item for item in values if isinstance(item, dict)}


def _is(value: Any, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "object":
        return isinstance(value, dict)
    if kind == "array":
        return isinstance(value, list)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "object-or-boolean":
        return isinstance(value, dict | bool)
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind == "number":
        return isinstance(value, (int, float))
    return isinstance(value, (int, str, float))


def _wanted(kind: str) -> str:
    return {"int-or-string": "integer,string", "object-or-boolean": "object,boolean"}.get(kind, kind)


def _type_name(value: Any) -> str:
    names: list[tuple[type, str]] = [
        (bool, "boolean"),
        (str, "string"),
        (int, "integer"),
        (float, "number"),
        (dict, "object"),
        (list, "array"),
    ]
    return next((name for of, name in names if isinstance(value, of)), "null")


def _constrain(value: Any, limits: Object, path: str, causes: list[Cause]) -> None:
    if "enum" in limits and value not in limits["enum"]:
        causes.append(unsupported(path, value, limits["enum"]))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        lowest, highest = limits.get("minimum"), limits.get("maximum")
        if lowest is not None and (value < lowest or (limits.get("exclusiveMinimum") and value == lowest)):
            than = "greater than" if limits.get("exclusiveMinimum") else "greater than or equal to"
            causes.append(invalid(path, value, f"{path} in body should be {than} {lowest}"))
        if highest is not None and (value > highest or (limits.get("exclusiveMaximum") and value == highest)):
            than = "less than" if limits.get("exclusiveMaximum") else "less than or equal to"
            causes.append(invalid(path, value, f"{path} in body should be {than} {highest}"))
        if "multipleOf" in limits and value % limits["multipleOf"]:
            causes.append(invalid(path, value, f"{path} in body should be a multiple of {limits['multipleOf']}"))
    if isinstance(value, str):
        if len(value) < limits.get("minLength", 0):
            causes.append(invalid(path, value, f"{path} in body should be at least {limits['minLength']} chars long"))
        if "maxLength" in limits and len(value) > limits["maxLength"]:
            text = f"Too long: may not be more than {limits['maxLength']} bytes"
            causes.append(Cause(path, "FieldValueTooLong", text))
        if "pattern" in limits and not re.search(limits["pattern"], value):
            causes.append(invalid(path, value, f"{path} in body should match '{limits['pattern']}'"))
        if limits.get("format") == "date-time" and not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", value):
            causes.append(invalid(path, value, f"{path} in body must be of type date-time: {shown(value)}"))
    if isinstance(value, list):
        if len(value) < limits.get("minItems", 0):
            causes.append(invalid(path, len(value), f"{path} in body should have at least {limits['minItems']} items"))
        if "maxItems" in limits and len(value) > limits["maxItems"]:
            text = f"Too many: {len(value)}: must have at most {limits['maxItems']} items"
            causes.append(Cause(path, "FieldValueTooMany", text))
    if isinstance(value, dict):
        if len(value) < limits.get("minProperties", 0):
            causes.append(
                invalid(path, len(value), f"{path} in body should have at least {limits['minProperties']} properties")
            )
        if "maxProperties" in limits and len(value) > limits["maxProperties"]:
            text = f"Too many: {len(value)}: must have at most {limits['maxProperties']} items"
            causes.append(Cause(path, "FieldValueTooMany", text))
    _combine(value, limits, path, causes)


def _combine(value: Any, limits: Object, path: str, causes: list[Cause]) -> None:
    def holds(text: Object) -> bool:
        wrong: list[Cause] = []
        validate(value, of_definition(text), path, wrong)
        return not wrong

    for name, most in (("anyOf", None), ("oneOf", 1)):
        holding = sum(holds(limit) for limit in limits.get(name) or ())
        if name in limits and (not holding or (most is not None and holding > most)):
            causes.append(
                Cause(
                    path or "<nil>",
                    "FieldValueInvalid",
                    f'Invalid value: "": "{path}" must validate '
                    + ("at least one schema (anyOf)" if name == "anyOf" else "one and only one schema (oneOf)"),
                )
            )
    for limit in limits.get("allOf") or ():
        validate(value, of_definition(limit), path, causes)
    if "not" in limits and holds(limits["not"]):
        causes.append(
            Cause(
                path or "<nil>", "FieldValueInvalid", f'Invalid value: "": "{path}" must not validate the schema (not)'
            )
        )
