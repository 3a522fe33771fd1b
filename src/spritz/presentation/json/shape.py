"""Converts answers to the schema of a version's document.

Records are created in one form: that of v0.0.43 (`envelope.DEFAULT`), with additional keys of other versions. A
`Shape` is compiled from a schema: it keeps the keys in the schema, fills missing ones with their type's empty value,
and converts types that differ in another version (a list or a text with commas, a plain number or one that may be
unset). So every answer has exactly the keys of its document, in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spritz.presentation.json.documents import Json, resolve

#: a value in, the value of the answer out
Convert = Callable[[Any], Any]

#: stands for a missing value
MISSING: Any = object()

_UNSET = {"set": False, "infinite": False, "number": 0}


class Shapes:
    """The shapes of one version, each compiled once."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._known: dict[str, Convert] = {}

    def of(self, schema: Json) -> Convert:
        """The conversion to a schema. `MISSING` gives its empty value."""
        name = schema.get("$ref", "")
        if not name:
            return self._compiled(schema)
        compiled = self._known.get(name)
        if compiled is None:
            # A schema may contain itself: until it is compiled, it is looked up at the time of use.
            self._known[name] = lambda value: self._known[name](value)
            compiled = self._known[name] = self._compiled(resolve(self._version, schema))
        return compiled

    def member(self, answer: Json, name: str) -> dict[str, Convert]:
        """For each key, the conversion in members of the list `name` of an answer."""
        listed = resolve(self._version, resolve(self._version, answer)["properties"][name])
        properties = resolve(self._version, listed["items"])["properties"]
        return {key: self.of(schema) for key, schema in properties.items()}

    def value(self, answer: Json, name: str) -> Convert:
        """The conversion of the value under one key of an answer."""
        return self.of(resolve(self._version, answer)["properties"][name])

    def _compiled(self, schema: Json) -> Convert:
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return _choice(tuple(schema["enum"])) if "enum" in schema else _text
        if kind == "integer":
            return _integer
        if kind == "number":
            return _number
        if kind == "boolean":
            return _boolean
        return _anything

    def _object(self, schema: Json) -> Convert:
        properties = schema.get("properties")
        if not properties:
            return _mapping
        if properties.keys() == _UNSET.keys():
            is_whole = resolve(self._version, properties["number"]).get("type") == "integer"
            return _maybe_whole if is_whole else _maybe_number
        members = [(name, self.of(member_schema)) for name, member_schema in properties.items()]

        def convert(value: Any) -> Json:
            if not isinstance(value, dict):
                value = {}
            get = value.get
            return {name: member(get(name, MISSING)) for name, member in members}

        return convert

    def _array(self, schema: Json) -> Convert:
        items = schema.get("items", {})
        choices = frozenset(resolve(self._version, items).get("enum", ()))
        item = self.of(items)

        def chosen(value: Any) -> list[Any]:
            return [item_value for item_value in _listed(value) if item_value in choices]

        def convert(value: Any) -> list[Any]:
            return [item(item_value) for item_value in _listed(value)]

        return chosen if choices else convert


def _listed(value: Any) -> Any:
    if value is MISSING or value is None:
        return ()
    if isinstance(value, str):
        return [word for word in value.split(",") if word]
    return value if isinstance(value, (list, tuple)) else (value,)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is MISSING or value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    if isinstance(value, dict):
        return str(value["number"]) if value.get("set") else ""
    return str(value)


def _choice(choices: tuple[str, ...]) -> Convert:
    def convert(value: Any) -> str:
        text = _text(value)
        return text if text in choices else choices[0]

    return convert


def _integer(value: Any) -> int:
    if isinstance(value, (int, float)):
        return int(value)
    if isinstance(value, dict):
        return int(value.get("number", 0))
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    return 0


def _number(value: Any) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    return float(value.get("number", 0)) if isinstance(value, dict) else 0.0


def _boolean(value: Any) -> bool:
    return value is not MISSING and bool(value)


def _maybe_whole(value: Any) -> Json:
    if isinstance(value, dict):
        number = value.get("number", 0)
        return value if isinstance(number, int) else {**value, "number": int(number)}
    if isinstance(value, (int, float)):
        return {"set": True, "infinite": False, "number": int(value)}
    return _UNSET


def _maybe_number(value: Any) -> Json:
    if isinstance(value, dict):
        return {**value, "number": float(value.get("number", 0))}
    if isinstance(value, (int, float)):
        return {"set": True, "infinite": False, "number": float(value)}
    return {"set": False, "infinite": False, "number": 0.0}


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _anything(value: Any) -> Any:
    return None if value is MISSING else value
