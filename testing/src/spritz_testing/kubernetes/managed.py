"""Field management: which manager owns which field, and server-side apply.

Sets of fields have the form of FieldsV1, nested dicts (`{"f:spec": {"f:replicas": {}}}`): a key is a member of the set
if its dict is empty or contains ".".

Source: Kubernetes, "Server-Side Apply"; sigs.k8s.io/structured-merge-diff (the semantics; the code is our own).
"""

from __future__ import annotations

import json
from typing import Any, Final

from spritz_testing.kubernetes.errors import Object, Refusal
from spritz_testing.kubernetes.schema import Schema

Fields = dict[str, Any]

#: these have no owner
_UNOWNED: Final[Fields] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:deletionTimestamp": {},
        "f:deletionGracePeriodSeconds": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}


def _member(node: Fields) -> bool:
    return not node or "." in node


def union(first: Fields, second: Fields) -> Fields:
    result: Fields = {}
    for key in first.keys() | second.keys():
        if key == ".":
            continue
        left, right = first.get(key), second.get(key)
        if left is None or right is None:
            result[key] = right if left is None else left
            continue
        children = union(left, right)
        if children and (_member(left) or _member(right)):
            children["."] = {}
        result[key] = children
    return result


def subtract(first: Fields, second: Fields) -> Fields:
    """The members of the first that are not members of the second."""
    result: Fields = {}
    for key, left in first.items():
        if key == ".":
            continue
        right = second.get(key)
        if right is None:
            result[key] = left
            continue
        children = subtract(left, right)
        keep = _member(left) and not _member(right)
        if children:
            if keep:
                children["."] = {}
            result[key] = children
        elif keep:
            result[key] = {}
    return result


def subtract_below(first: Fields, second: Fields) -> Fields:
    """`subtract`, and what is below a member of the second goes too."""
    result: Fields = {}
    for key, left in first.items():
        right = second.get(key) if key != "." else None
        if right is None:
            result[key] = left
        elif not _member(right):
            children = subtract_below(left, right)
            if children:
                result[key] = children
    return result


def intersect(first: Fields, second: Fields) -> Fields:
    result: Fields = {}
    for key, left in first.items():
        right = second.get(key)
        if key == "." or right is None:
            continue
        children = intersect(left, right)
        both = _member(left) and _member(right)
        if children:
            if both:
                children["."] = {}
            result[key] = children
        elif both:
            result[key] = {}
    return result


def _item_key(item: Any, schema: Schema) -> str | None:
    """The name of a list's item in a set of fields, or None for lists that are one value."""
    if schema.list_type == "map":
        if not isinstance(item, dict):
            return None
        key = {name: _default_key(name, item) for name in sorted(schema.merge_keys)}
        return "k:" + json.dumps(key, separators=(",", ":"))
    if schema.list_type == "set":
        return "v:" + json.dumps(item, separators=(",", ":"))
    return None


def _default_key(name: str, item: Object) -> Any:
    return item.get(name, "TCP" if name == "protocol" else None)


def _granular(value: Any, schema: Schema) -> bool:
    """Whether parts of the value have owners of their own."""
    if isinstance(value, dict):
        return not schema.atomic
    return isinstance(value, list) and schema.list_type in ("map", "set")


def fields_of(value: Any, schema: Schema) -> Fields:
    """The fields that a configuration sets."""
    result: Fields = {}
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.child(key)
            if _granular(item, child) and item:
                children = fields_of(item, child)
                if schema.properties is None or key not in schema.properties:
                    children["."] = {}
                result[f"f:{key}"] = children
            else:
                result[f"f:{key}"] = {}
    elif isinstance(value, list):
        for item in value:
            name = _item_key(item, schema)
            if name is None:
                continue
            if isinstance(item, dict):
                result[name] = {".": {}} | fields_of(item, schema.item())
            else:
                result[name] = {}
    return result


def differences(old: Any, new: Any, schema: Schema) -> tuple[Fields, Fields]:
    """(fields added or changed, fields removed)."""
    changed: Fields = {}
    removed: Fields = {}
    if isinstance(new, dict):
        before: Object = old if isinstance(old, dict) else {}
        for key, item in new.items():
            _differ(f"f:{key}", before.get(key), item, schema.child(key), changed, removed)
        for key, item in before.items():
            if key not in new:
                removed[f"f:{key}"] = _whole(item, schema.child(key))
    elif isinstance(new, list):
        items = {_item_key(item, schema): item for item in (old if isinstance(old, list) else ())}
        names: set[str | None] = set()
        for item in new:
            name = _item_key(item, schema)
            names.add(name)
            if name is not None:
                _differ(name, items.get(name), item, schema.item(), changed, removed)
        for name, item in items.items():
            if name is not None and name not in names:
                removed[name] = _whole(item, schema.item())
    return changed, removed


def _differ(name: str, old: Any, new: Any, schema: Schema, changed: Fields, removed: Fields) -> None:
    if old is new or old == new:
        return
    if not _granular(new, schema) or (old is not None and type(old) is not type(new)):
        changed[name] = {}
        return
    more, fewer = differences(old, new, schema)
    if old is None:
        changed[name] = more | {".": {}} if more else {}
    elif more:
        changed[name] = more
    if fewer:
        removed[name] = fewer


def _whole(value: Any, schema: Schema) -> Fields:
    """The value's own path and all paths below it."""
    return {".": {}} | fields_of(value, schema) if _granular(value, schema) and value else {}


def strip(fields: Fields, *, drop: str | None) -> Fields:
    """The fields without those that have no owner, and without `drop` ("f:status", or "f:spec" for a status)."""
    result = subtract(fields, _UNOWNED)
    metadata = result.get("f:metadata")
    if metadata == {}:
        del result["f:metadata"]
    if drop is not None:
        result.pop(drop, None)
    return result


class Manager:
    """An entry of managedFields: the fields that one manager owns through one operation."""

    __slots__ = ("fields", "name", "operation", "subresource", "time", "version")

    def __init__(self, name: str, operation: str, subresource: str, version: str, time: str, fields: Fields) -> None:
        self.name = name
        self.operation = operation
        self.subresource = subresource
        self.version = version
        self.time = time
        self.fields = fields

    @property
    def key(self) -> tuple[str, str, str]:
        return self.name, self.operation, self.subresource


def read(obj: Object) -> list[Manager]:
    return [
        Manager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("subresource", ""),
            entry.get("apiVersion", ""),
            entry.get("time", ""),
            entry.get("fieldsV1") or {},
        )
        for entry in obj["metadata"].get("managedFields") or ()
    ]


def write(obj: Object, managers: list[Manager]) -> None:
    entries: list[Object] = []
    for manager in managers:
        if not manager.fields:
            continue
        entry: Object = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.version,
            "time": manager.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": manager.fields,
        }
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    if entries:
        obj["metadata"]["managedFields"] = entries
    else:
        obj["metadata"].pop("managedFields", None)


def note_update(
    old: Object | None, new: Object, schema: Schema, *, manager: str, subresource: str, now: str, drop: str | None
) -> None:
    """Record in `new` (in place) that the manager changed it from `old` by a write that is not an apply."""
    managers = read(old) if old is not None else []
    if new["metadata"].get("managedFields") == [{}] or (
        old is not None and new["metadata"].get("managedFields") == [] and old["metadata"].get("managedFields")
    ):
        managers = []  # a client's request to forget all managers
    new["metadata"].pop("managedFields", None)
    before = {key: value for key, value in (old or {}).items() if key not in ("apiVersion", "kind")}
    if "metadata" in before:
        before["metadata"] = {key: value for key, value in before["metadata"].items() if key != "managedFields"}
    changed, removed = differences(before, new, schema)
    changed, removed = strip(changed, drop=drop), strip(removed, drop=None)
    if removed:
        for entry in managers:
            entry.fields = subtract(entry.fields, removed)
    if changed:
        key = (manager, "Update", subresource)
        current = next((entry for entry in managers if entry.key == key), None)
        for entry in managers:
            if entry is not current:
                entry.fields = subtract(entry.fields, changed)
        if current is None:
            current = Manager(manager, "Update", subresource, new.get("apiVersion", ""), now, {})
            managers.append(current)
        fields = union(current.fields, changed)
        current.fields, current.time, current.version = fields, now, new.get("apiVersion", "")
    write(new, managers)


def apply(
    live: Object | None,
    config: Object,
    schema: Schema,
    *,
    manager: str,
    subresource: str,
    now: str,
    force: bool,
    drop: str | None,
) -> Object:
    """The object after an apply of `config`. Does not modify its arguments. Raises Refusal with the conflicts."""
    managers = read(live) if live is not None else []
    key = (manager, "Apply", subresource)
    current = next((entry for entry in managers if entry.key == key), None)
    if drop is not None:
        config = {name: value for name, value in config.items() if name != drop[2:]}
    applied = strip(fields_of(config, schema), drop=drop)
    merged: Object = merge_values(live or {}, config, schema)
    changed, _removed = differences(live or {}, merged, schema)
    conflicts: list[tuple[Manager, Fields]] = []
    for entry in managers:
        if entry is current:
            continue
        shared = intersect(entry.fields, intersect(changed, applied))
        if shared:
            conflicts.append((entry, shared))
    if conflicts and not force:
        raise _conflict(conflicts)
    for entry, shared in conflicts:
        entry.fields = subtract(entry.fields, shared)
    if current is not None:
        given_up = subtract(current.fields, applied)
        others: Fields = {}
        for entry in managers:
            if entry is not current:
                others = union(others, entry.fields)
        _prune(merged, given_up, union(others, applied), schema)
        changed_fields = current.fields != applied
        current.fields = applied
        if changed_fields or merged != live:
            current.time, current.version = now, config.get("apiVersion", current.version)
    else:
        managers.insert(0, Manager(manager, "Apply", subresource, config.get("apiVersion", ""), now, applied))
    write(merged, managers)
    return merged


def _conflict(conflicts: list[tuple[Manager, Fields]]) -> Refusal:
    causes: list[Object] = []
    parts: list[str] = []
    for entry, shared in conflicts:
        paths = _paths(shared)
        for path in paths:
            causes.append(
                {
                    "reason": "FieldManagerConflict",
                    "message": f'conflict with "{entry.name}"{_using(entry)}',
                    "field": path,
                }
            )
        listed = paths[0] if len(paths) == 1 else "\n" + "\n".join(f"- {path}" for path in paths)
        parts.append(
            f'conflict with "{entry.name}"{_using(entry)}: {listed}'
            if len(paths) == 1
            else f'conflicts with "{entry.name}"{_using(entry)}:{listed}'
        )
    count = len(causes)
    text = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: " + "\n".join(parts)
    return Refusal(409, "Conflict", text, details={"causes": causes})


def _using(entry: Manager) -> str:
    status = ' with subresource "status"' if entry.subresource else ""
    return f"{status} using {entry.version}" if entry.operation == "Update" else status


def _paths(fields: Fields, prefix: str = "") -> list[str]:
    paths: list[str] = []
    for key in sorted(fields):
        if key == ".":
            continue
        if key.startswith("f:"):
            path = f"{prefix}.{key[2:]}"
        elif key.startswith("k:"):
            pairs = json.loads(key[2:])
            path = prefix + "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in pairs.items()) + "]"
        else:
            path = f"{prefix}[={key[2:]}]"
        if _member(fields[key]):
            paths.append(path)
        paths += _paths(fields[key], path)
    return paths


def merge_values(live: Any, config: Any, schema: Schema) -> Any:
    """The live value, merged with the configuration's."""
    if isinstance(config, dict) and isinstance(live, dict) and not schema.atomic:
        result = dict(live)
        for key, value in config.items():
            result[key] = merge_values(live[key], value, schema.child(key)) if key in live else value
        return result
    if isinstance(config, list) and isinstance(live, list) and schema.list_type in ("map", "set"):
        position = {_item_key(item, schema): index for index, item in enumerate(live)}
        items = list(live)
        for item in config:
            index = position.get(_item_key(item, schema))
            if index is None:
                items.append(item)
            elif isinstance(item, dict):
                items[index] = merge_values(live[index], item, schema.item())
        return items
    return config


def _prune(value: Any, fields: Fields, kept: Fields, schema: Schema) -> bool:
    """Remove the fields from the value, in place, except those kept. True if it is empty then."""
    if isinstance(value, dict):
        for key in list(value):
            name = f"f:{key}"
            if name not in fields:
                continue
            child = schema.child(key)
            if _goes(value, key, fields[name], kept.get(name), child):
                del value[key]
        return not value
    if isinstance(value, list):
        remaining: list[Any] = []
        for index, item in enumerate(list(value)):
            name = _item_key(item, schema) or ""
            if name not in fields or not _goes(value, index, fields[name], kept.get(name), schema.item()):
                remaining.append(value[index])
        value[:] = remaining
        return not value
    return False


def _goes(holder: Any, key: Any, fields: Fields, kept: Fields | None, schema: Schema) -> bool:
    if kept is None and _member(fields):
        return True
    if kept is not None and _member(kept) and not (fields and _granular(holder[key], schema)):
        return False
    if not isinstance(holder[key], (dict, list)):
        return kept is None
    holder[key] = holder[key].copy()  # the live object's own
    empty = _prune(holder[key], fields, kept or {}, schema)
    return empty and kept is None
