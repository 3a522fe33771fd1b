"""Parse bodies and queries by the document's schemas into Python values, or report all errors in them.

Slurm's parsers are lenient, and clients rely on it: a number may be text, a list may be text with commas, and a number
that may be unset may be plain or `{"set": true, "number": 5}`. An unknown field is ignored with a warning; a value that
does not fit the document is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from spritz.model.ids import INFINITE
from spritz.presentation.json.documents import Json, Operation, resolve

#: `read(value, place, problems)`
Read = Callable[[Any, str, "Problems"], Any]

_UNSET = frozenset(("set", "infinite", "number"))
_YES = ("true", "yes", "on", "1")
_NO = ("false", "no", "off", "0", "")
#: Most characters of a value that an error repeats.
_SHOWN = 80
#: Range of 64-bit numbers, signed or unsigned.
_WHOLE_MIN, _WHOLE_MAX = -(1 << 63), (1 << 64) - 1


class Problem(Struct, frozen=True):
    """An error or warning about a value. `place`: its path in the body or query."""

    place: str
    text: str


class Problems:
    """Errors and warnings of one request, which are reported together."""

    def __init__(self) -> None:
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def error(self, place: str, text: str) -> None:
        """Add an error about an unacceptable value."""
        self.errors.append(Problem(place, text))

    def warn(self, place: str, text: str) -> None:
        """Add a warning about an ignored value."""
        self.warnings.append(Problem(place, text))


class Intake:
    """The readers for the schemas of a version; each is compiled once."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._known: dict[str, Read] = {}

    def of(self, schema: Json) -> Read:
        """The reader for a schema; it returns None for an unacceptable value, after adding an error."""
        name = schema.get("$ref", "")
        if not name:
            return self._compiled(schema)
        reader = self._known.get(name)
        if reader is None:
            self._known[name] = lambda value, place, problems: self._known[name](value, place, problems)
            reader = self._known[name] = self._compiled(resolve(self._version, schema))
        return reader

    def query(self, operation: Operation) -> Callable[[list[tuple[str, str]], Problems], Json]:
        """The reader for a query's (name, text) pairs. A name may be repeated if the document expects a list."""
        readers = {
            parameter.name: self.of(parameter.schema)
            for parameter in operation.parameters
            if parameter.place == "query"
        }
        lists = {
            parameter.name
            for parameter in operation.parameters
            if resolve(self._version, parameter.schema).get("type") == "array"
        }

        def read(pairs: list[tuple[str, str]], problems: Problems) -> Json:
            given: Json = {}
            for name, text in pairs:
                if name not in readers:
                    problems.error(name[:_SHOWN], "Unknown query field")
                elif name in lists and name in given:
                    given[name] = f"{given[name]},{text}"
                else:
                    given[name] = text
            return {name: readers[name](text, name, problems) for name, text in given.items()}

        return read

    def _compiled(self, schema: Json) -> Read:
        kind = schema.get("type")
        if kind == "object":
            properties = schema.get("properties")
            if not properties:
                return _mapping
            if properties.keys() == _UNSET:
                return _maybe_number
            return self._object(properties)
        if kind == "array":
            return self._array(schema)
        if kind == "string":
            return _one_of(tuple(schema["enum"])) if "enum" in schema else _text
        return {"integer": _whole, "number": _number, "boolean": _boolean}.get(str(kind), _anything)

    def _object(self, properties: Json) -> Read:
        members = {name: self.of(member) for name, member in properties.items()}

        def read(value: Any, place: str, problems: Problems) -> Json:
            if not isinstance(value, dict):
                problems.error(place, f"Expected a dictionary but got {_kind(value)}")
                return {}
            fields: Json = {}
            for name, item in value.items():
                inner = f"{place}/{str(name)[:_SHOWN]}"
                member = members.get(name)
                if member is None:
                    problems.warn(inner, f"Ignoring unknown field {str(name)[:_SHOWN]!r}")
                elif item is not None:
                    fields[name] = member(item, inner, problems)
            return fields

        return read

    def _array(self, schema: Json) -> Read:
        item = self.of(schema.get("items", {}))
        choices = resolve(self._version, schema.get("items", {})).get("enum")
        if choices:
            item = _one_of(tuple(choices))

        def read(value: Any, place: str, problems: Problems) -> list[Any]:
            if isinstance(value, str):
                value = [word for word in value.split(",") if word]
            elif isinstance(value, dict):
                value = [
                    f"{name}={element}" if isinstance(element, (str, int, float)) else element
                    for name, element in value.items()
                ]
            elif not isinstance(value, list):
                problems.error(place, f"Expected a list but got {_kind(value)}")
                return []
            return [item(element, f"{place}[{number}]", problems) for number, element in enumerate(value)]

        return read


def _kind(value: Any) -> str:
    names = {dict: "a dictionary", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _refuse(value: Any, place: str, problems: Problems, expected: str) -> None:
    shown = f" {str(value)[:_SHOWN]!r}" if isinstance(value, (str, int, float)) else f" {_kind(value)}"
    problems.error(place, f"Expected {expected} but got{shown}")


def _text(value: Any, place: str, problems: Problems) -> str | None:
    if isinstance(value, str):
        if "\0" in value:
            problems.error(place, "Text may not hold the character NUL")
            return None
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    _refuse(value, place, problems, "text")
    return None


def _one_of(choices: tuple[str, ...]) -> Read:
    by_lower = {choice.lower(): choice for choice in choices}

    def read(value: Any, place: str, problems: Problems) -> str | None:
        spelled = by_lower.get(value.lower()) if isinstance(value, str) else None
        if spelled is None:
            _refuse(value, place, problems, f"one of {', '.join(choices[:12])}{' …' if len(choices) > 12 else ''}")
        return spelled

    return read


def _whole(value: Any, place: str, problems: Problems) -> int | None:
    if isinstance(value, dict) and value.keys() <= _UNSET:
        return _whole_of(value.get("number", 0), place, problems) if value.get("set", True) else None
    return _whole_of(value, place, problems)


def _whole_of(value: Any, place: str, problems: Problems) -> int | None:
    number: int | None = None
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        number = int(value)
    elif isinstance(value, str):
        digits = value.strip().removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 20:
            number = int(value)
    if number is None or not _WHOLE_MIN <= number <= _WHOLE_MAX:
        _refuse(value, place, problems, "a whole number")
        return None
    return number


def _number(value: Any, place: str, problems: Problems) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        _refuse(value, place, problems, "a number")
        return None


def _boolean(value: Any, place: str, problems: Problems) -> bool | None:
    if isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in (*_YES, *_NO):
        # As in Slurm, a flag without a value is set: `?with_deleted`.
        return value == "" or value.lower() in _YES
    _refuse(value, place, problems, "true or false")
    return None


def _maybe_number(value: Any, place: str, problems: Problems) -> float | int | None:
    """Read a number that may be unset (None) or infinite (INFINITE)."""
    if isinstance(value, dict):
        for name in value.keys() - _UNSET:
            problems.warn(f"{place}/{str(name)[:_SHOWN]}", f"Ignoring unknown field {str(name)[:_SHOWN]!r}")
        if _boolean(value.get("infinite", False), f"{place}/infinite", problems):
            return INFINITE
        if not _boolean(value.get("set", True), f"{place}/set", problems) or "number" not in value:
            return None
        value = value["number"]
    if isinstance(value, str) and value.lower() in ("infinite", "unlimited"):
        return INFINITE
    if isinstance(value, str) and value.lower() in ("", "unset", "null"):
        return None
    if isinstance(value, float) and not value.is_integer():
        return value
    return _whole_of(value, place, problems)


def _mapping(value: Any, place: str, problems: Problems) -> Json:
    if isinstance(value, dict):
        return value
    problems.error(place, f"Expected a dictionary but got {_kind(value)}")
    return {}


def _anything(value: Any, place: str, problems: Problems) -> Any:
    return value
