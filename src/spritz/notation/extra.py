"""--extra with SchedulerParameters=extra_constraints: what a node's extra data must say, `(load<0.5&disk="ssd")|a=1`.

Comparisons `key=value`, `!=`, `>`, `>=`, `<`, `<=`, joined by `&` or `,` (and) or `|` (or), one kind at each level of
parentheses. Blanks and quotes are letters like others. A node's data is a JSON object of texts, numbers and truths.

Source: https://slurm.schedmd.com/extra_constraints.html
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown
from spritz.notation.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Data = Mapping[str, object]

#: numbers that are closer are equal
CLOSE = 0.00001
#: parentheses within parentheses
_DEPTH_MAX = 100

_TOKEN = r"[()]|[&,|]|!=|>=|<=|[=<>]|[^,&|<>=!()]+"
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_COMPARISONS = frozenset({"=", "!=", ">", ">=", "<", "<="})
_SIGNS = _COMPARISONS | {"(", ")", "&", ",", "|"}


class ExtraError(NotationError):
    """No such expression."""


class Comparison(Value):
    """`key OPERATOR value`."""

    __slots__ = ("key", "operator", "value")

    def __init__(self, key: str, operator: str, value: str) -> None:
        self.key = key
        self.operator = operator
        self.value = value

    def matches(self, data: Data) -> bool:
        """Is it so on a node of this data? Not where the data has no such key."""
        mine = data.get(self.key)
        if isinstance(mine, (bool, int, float)):
            return self._number(mine)
        return isinstance(mine, str) and _holds(self.operator, (mine > self.value) - (mine < self.value))

    def _number(self, mine: float) -> bool:
        import re

        number = float(self.value) if re.fullmatch(_NUMBER, self.value) else None
        if isinstance(mine, bool):
            truth = {"true": 1.0, "false": 0.0}.get(self.value.lower(), number)
            number = None if truth is None else float(bool(truth))
        if number is None:
            return self.operator == "!="
        return _holds(self.operator, 0 if abs(mine - number) < CLOSE else (mine > number) - (mine < number))


class Junction(Value):
    """All of the parts, or any of them."""

    __slots__ = ("any_of", "parts")

    def __init__(self, parts: tuple[Comparison | Junction, ...], *, any_of: bool) -> None:
        self.parts = parts
        self.any_of = any_of

    def matches(self, data: Data) -> bool:
        """Is it so on a node of this data?"""
        found = (part.matches(data) for part in self.parts)
        return any(found) if self.any_of else all(found)


def _holds(operator: str, order: int) -> bool:
    """`order`: -1, 0, 1 as the node's value is below, equal, above."""
    return order in {"=": (0,), "!=": (-1, 1), ">": (1,), ">=": (0, 1), "<": (-1,), "<=": (-1, 0)}[operator]


def data_of(text: str) -> Data:
    """A node's extra data; empty where the text is no JSON object."""
    from json import loads

    try:
        found = loads(text, parse_int=float) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def says(wanted: str, said: str) -> bool:
    """Is a node's extra data as asked for? Not where that is no expression."""
    try:
        return parse(wanted).matches(data_of(said))
    except ExtraError:
        return False


def parse(text: str) -> Junction:
    """Raises ExtraError."""
    import re

    tokens = re.findall(_TOKEN, text)
    if sum(map(len, tokens)) != len(text):
        raise ExtraError(f"{shown(text)}: a ! without =")
    found, rest = _level(text, tokens, 0, 0)
    if rest != len(tokens):
        raise ExtraError(f"{shown(text)}: a ) without (")
    return found


def _level(text: str, tokens: list[str], at: int, depth: int) -> tuple[Junction, int]:
    """One level of parentheses from `at` on, and where it ends."""
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
