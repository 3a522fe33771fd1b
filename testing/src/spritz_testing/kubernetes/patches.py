"""JSON patch, JSON merge patch and strategic merge patch. None of them modifies its arguments.

Source: RFC 6902, RFC 7386, Kubernetes "Strategic Merge Patch".
"""

from __future__ import annotations

import copy
from typing import Any

from spritz_testing.kubernetes.errors import Refusal, bad_request
from spritz_testing.kubernetes.schema import Schema


def merge(target: Any, patch: Any) -> Any:
    """The target after a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """The target after a JSON patch (RFC 6902). Raises Refusal."""
    if not isinstance(operations, list):
        raise bad_request("json patch must be a list of operations")
    result = copy.deepcopy(target)
    for operation in operations:
        if not isinstance(operation, dict) or "op" not in operation or "path" not in operation:
            raise bad_request("each operation of a json patch needs an op and a path")
        try:
            result = _operate(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            what = f"{operation['op']} operation does not apply: doc is missing path: {operation['path']}"
            raise Refusal(
                422, "Invalid", f"the server rejected our request due to an error in our request: {what}"
            ) from error
    return result


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation["op"], _pointer(operation["path"])
    if kind == "test":
        if _at(document, path) != operation.get("value"):
            raise Refusal(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request: "
                f"testing value {operation['path']} failed",
            )
        return document
    if kind in ("add", "replace"):
        if kind == "replace":
            _at(document, path)
        return _put(document, path, copy.deepcopy(operation["value"]), insert=kind == "add")
    if kind == "remove":
        return _remove(document, path)
    if kind in ("move", "copy"):
        source = _pointer(operation["from"])
        value = copy.deepcopy(_at(document, source))
        if kind == "move":
            document = _remove(document, source)
        return _put(document, path, value, insert=True)
    raise bad_request(f"Unexpected kind: {kind}")


def _pointer(text: str) -> list[str]:
    if text == "":
        return []
    if not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _at(document: Any, path: list[str]) -> Any:
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    parent = _at(document, path[:-1])
    last = path[-1]
    if isinstance(parent, list):
        if insert:
            index = len(parent) if last == "-" else int(last)
            if index > len(parent):
                raise IndexError(last)
            parent.insert(index, value)
        else:
            parent[int(last)] = value
    else:
        parent[last] = value
    return document


def _remove(document: Any, path: list[str]) -> Any:
    parent = _at(document, path[:-1])
    if isinstance(parent, list):
        del parent[int(path[-1])]
    else:
        del parent[path[-1]]
    return document


def strategic(target: Any, patch: Any, schema: Schema) -> Any:
    """Strategic merge patch: lists with a merge key are merged by it, and the `$` directives are followed."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith("$setElementOrder/") or key in ("$patch", "$retainKeys"):
            continue
        if key.startswith("$deleteFromPrimitiveList/"):
            name = key.split("/", 1)[1]
            result[name] = [item for item in result.get(name) or [] if item not in value]
            continue
        child = schema.child(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = strategic(result.get(key), value, child)
        elif isinstance(value, list):
            result[key] = _strategic_list(result.get(key) or [], value, child)
        else:
            result[key] = value
    if "$retainKeys" in patch:
        result = {key: value for key, value in result.items() if key in patch["$retainKeys"]}
    for key, order in patch.items():
        if key.startswith("$setElementOrder/"):
            name = key.split("/", 1)[1]
            if isinstance(result.get(name), list):
                result[name] = _ordered(result[name], order, schema.child(name))
    return result


def _strategic_list(current: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    keys = schema.merge_keys
    if schema.list_type == "set" and not keys:
        return current + [item for item in patch if item not in current]
    if not keys or not all(isinstance(item, dict) for item in patch):
        return patch
    if any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    key = keys[0]
    result = list(current)
    for item in patch:
        position = next((i for i, known in enumerate(result) if known.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if position is not None:
                del result[position]
        elif position is None:
            result.append(strategic({}, item, schema.item()))
        else:
            result[position] = strategic(result[position], item, schema.item())
    return result


def _ordered(items: list[Any], order: list[Any], schema: Schema) -> list[Any]:
    keys = schema.merge_keys
    key = keys[0] if keys else None

    def place(item: Any) -> int:
        wanted = {key: item.get(key)} if key is not None and isinstance(item, dict) else item
        return order.index(wanted) if wanted in order else len(order)

    return sorted(items, key=place)
