"""--extra with SchedulerParameters=extra_constraints: conditions on a node's extra data, `(load<0.5&disk="ssd")|a=1`.

A condition is `key=value`, `!=`, `>`, `>=`, `<` or `<=`. `&` or `,` (and) and `|` (or) join conditions; each level of
parentheses uses one kind only. Blanks and quotes are ordinary characters. A node's data is a JSON object whose values
are texts, numbers and booleans.

Source: https://slurm.schedmd.com/extra_constraints.html
"""

from __future__ import annotations

import re
from json import loads
from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown
from spritz.notation.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    Data = Mapping[str, object]

#: numbers that differ by less are equal
CLOSE = 0.00001
#: deepest nesting of parentheses
_DEPTH_MAX = 100

_TOKEN = r"[()]|[&,|]|!=|>=|<=|[=<>]|[^,&|<>=!()]+"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_COMPARISONS = frozenset({"=", "!=", ">", ">=", "<", "<="})
_SIGNS = _COMPARISONS | {"(", ")", "&", ",", "|"}


class ExtraError(NotationError):
    """The text is not such an expression."""


class Comparison(Value):
    __slots__ = ("key", "operator", "value")

    def __init__(self, key: str, operator: str, value: str) -> None:
        self.key = key
        self.operator = operator
        self.value = value

    def matches(self, data: Data) -> bool:
        """Whether a node with this data meets the condition. Data without the key does not."""
        node_value = data.get(self.key)
        if isinstance(node_value, (bool, int, float)):
            return self._number(node_value)
        return isinstance(node_value, str) and _holds(
            self.operator, (node_value > self.value) - (node_value < self.value)
        )

    def _number(self, node_value: float) -> bool:
        number = float(self.value) if re.fullmatch(_NUMBER, self.value) else None
        if isinstance(node_value, bool):
            truth = {"true": 1.0, "false": 0.0}.get(self.value.lower(), number)
            number = None if truth is None else float(bool(truth))
        if number is None:
            return self.operator == "!="
        return _holds(
            self.operator, 0 if abs(node_value - number) < CLOSE else (node_value > number) - (node_value < number)
        )


class Junction(Value):
    """Conditions that must all hold (and), or of which any must (or)."""

    __slots__ = ("any_of", "parts")

    def __init__(self, parts: tuple[Comparison | Junction, ...], *, any_of: bool) -> None:
        self.parts = parts
        self.any_of = any_of

    def matches(self, data: Data) -> bool:
        """Whether a node with this data meets the expression."""
        results = (part.matches(data) for part in self.parts)
        return any(results) if self.any_of else all(results)


def _holds(operator: str, order: int) -> bool:
    """Whether the operator accepts `order`: -1, 0 or 1 as the node's value is below, equal or above."""
    return order in {"=": (0,), "!=": (-1, 1), ">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}[operator]


def data_of(text: str) -> Data:
    """A node's extra data; empty where the text is no JSON object."""
    try:
        data = loads(text, parse_int=float) if text else {}
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def is_met(expression: str, extra_text: str) -> bool:
    """Whether a node's extra data meets the expression. Text that is no expression is met by no node."""
    try:
        return parse(expression).matches(data_of(extra_text))
    except ExtraError:
        return False


def parse(text: str) -> Junction:
    """The expression of `text`. Raises ExtraError."""
    tokens = re.findall(_TOKEN, text)
    if sum(map(len, tokens)) != len(text):
        raise ExtraError(f"{shown(text)}: a ! without =")
    junction, end = _level(text, tokens, 0, 0)
    if end != len(tokens):
        raise ExtraError(f"{shown(text)}: a ) without (")
    return junction


def _level(text: str, tokens: list[str], at: int, depth: int) -> tuple[Junction, int]:
    """Read one level of parentheses from `at`; return it with the index of its end."""
    if depth > _DEPTH_MAX:
        raise ExtraError(f"{shown(text)}: more than {_DEPTH_MAX} levels")
    parts: list[Comparison | Junction] = []
    joined = ""
    while True:
        part, at = _part(text, tokens, at, depth)
        parts.append(part)
        sign = tokens[at] if at < len(tokens) else ")"
        if sign == ")":
            return Junction(tuple(parts), any_of=joined == "|"), at
        kind = {"|": "|", "&": "&", ",": "&"}.get(sign)
        if kind is None or (joined and kind != joined):
            raise ExtraError(f"{shown(text)}: one of & and | is expected before {shown(sign)}, the same on each level")
        joined, at = kind, at + 1


def _part(text: str, tokens: list[str], at: int, depth: int) -> tuple[Comparison | Junction, int]:
    if at < len(tokens) and tokens[at] == "(":
        inside, end = _level(text, tokens, at + 1, depth + 1)
        if end >= len(tokens):
            raise ExtraError(f"{shown(text)}: a ( without )")
        return inside, end + 1
    key, operator, value = (*tokens[at : at + 3], "", "", "")[:3]
    if key in _SIGNS or operator not in _COMPARISONS or value in _SIGNS or not (key and value):
        raise ExtraError(f"{shown(text)}: a comparison such as key=value is expected")
    return Comparison(key, operator, value), at + 3
