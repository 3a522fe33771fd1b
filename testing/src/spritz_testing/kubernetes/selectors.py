"""Label and field selectors, compiled to functions.

Source: Kubernetes, "Labels and Selectors" and "Field Selectors".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from spritz_testing.kubernetes.errors import Object, bad_request

Matches = Callable[[Object], bool]

_TOKEN = re.compile(r"\s*(!=|==|=|!|,|\(|\)|[^\s=!,()]+)")


def labels(text: str) -> Matches | None:
    """A function that returns whether an object matches the label selector; None if all match. Raises Refusal."""
    if not text.strip():
        return None
    tests = [_requirement(clause) for clause in _clauses(text)]

    def matches(obj: Object) -> bool:
        labels_of_object = obj["metadata"].get("labels") or {}
        return all(test(labels_of_object) for test in tests)

    return matches


def matches_label_selector(selector: Object | None, object_labels: dict[str, str]) -> bool:
    """Whether labels match a LabelSelector: an empty selector matches all labels, None matches none."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if object_labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or []
        operator = expression["operator"]
        if operator == "In" and object_labels.get(key) not in values:
            return False
        if operator == "NotIn" and object_labels.get(key) in values:
            return False
        if operator == "Exists" and key not in object_labels:
            return False
        if operator == "DoesNotExist" and key in object_labels:
            return False
    return True


def fields(text: str, allowed: Iterable[str]) -> Matches | None:
    """A function that returns whether an object matches the field selector. Raises Refusal for other fields."""
    if not text.strip():
        return None
    tests: list[tuple[tuple[str, ...], str, bool]] = []
    known = frozenset(allowed)
    for clause in text.split(","):
        match = re.fullmatch(r"\s*([^=!\s]+)\s*(!=|==|=)\s*(.*?)\s*", clause)
        if match is None:
            raise bad_request(f"invalid selector: '{clause}'; can't understand '{clause}'")
        path, operator, value = match.groups()
        if path not in known:
            raise bad_request(f"field label not supported: {path}")
        tests.append((tuple(path.split(".")), value, operator != "!="))

    def matches(obj: Object) -> bool:
        return all((_field(obj, path) == value) is equal for path, value, equal in tests)

    return matches


def both(first: Matches | None, second: Matches | None) -> Matches | None:
    if first is None or second is None:
        return first or second
    left, right = first, second
    return lambda obj: left(obj) and right(obj)


def _field(obj: Any, path: tuple[str, ...]) -> str:
    for part in path:
        if not isinstance(obj, dict):
            return ""
        obj = obj.get(part)
    if obj is None:
        return "false" if path[-1] in ("unschedulable", "hostNetwork") else ""
    if isinstance(obj, bool):
        return "true" if obj else "false"
    return str(obj)


def _clauses(text: str) -> list[list[str]]:
    tokens: list[str] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: {text!r}")
        tokens.append(match.group(1))
        position = match.end()
    clauses: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if token == "," and depth == 0:
            clauses.append([])
        else:
            clauses[-1].append(token)
    return clauses


def _requirement(tokens: list[str]) -> Callable[[dict[str, str]], bool]:
    match tokens:
        case [key] if key not in "=!,()":
            return lambda found: key in found
        case ["!", key]:
            return lambda found: key not in found
        case [key, "=" | "=="]:
            return lambda found: found.get(key) == ""
        case [key, "=" | "==", value]:
            return lambda found: found.get(key) == value
        case [key, "!="]:
            return lambda found: found.get(key) != ""
        case [key, "!=", value]:
            return lambda found: found.get(key) != value
        case [key, "in", "(", *values, ")"]:
            allowed = frozenset(value for value in values if value != ",")
            return lambda found: found.get(key) in allowed
        case [key, "notin", "(", *values, ")"]:
            excluded = frozenset(value for value in values if value != ",")
            return lambda found: found.get(key) not in excluded
    raise bad_request(
        f"unable to parse requirement: found '{' '.join(tokens)}', expected: '=', '!=', '==', 'in', notin'"
    )
