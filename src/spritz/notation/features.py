"""Constraints of --constraint: `a&b`, `a|b`, `(a|b)&c`, `[a|b]`, `[a*2&b*4]`, `a*2`; a comma is `&`.

Parsing gives a tree whose leaves are features. The tree answers two questions: may this node serve (`matches`), and
what must hold for all nodes together (`alternatives`, `counts`). Must not choose nodes: the scheduler does.

Source: sbatch(1) --constraint. As in Slurm `&` and `|` do not mix without parentheses, and counts stand outside
parentheses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

if TYPE_CHECKING:
    from collections.abc import Collection

_OPERATORS = "&|()[]*,"
_COUNT_MAX = 0x7FFFFFFF
_PARTS_MAX = 1024


class FeatureError(NotationError):
    """The text is not a constraint. The message begins with Slurm's `Invalid feature specification`."""


class Feature(Value):
    """One feature, which `count` nodes must have (0: all of the job's)."""

    __slots__ = ("count", "name")

    def __init__(self, name: str, count: int = 0) -> None:
        self.name = name
        self.count = count

    def matches(self, features: Collection[str]) -> bool:
        """Whether a node with these features may serve the job. With a count, any node may: see `counts`."""
        return bool(self.count) or self.name in features


class Group(Value):
    """Constraints joined by `kind`: `and`; `or`; `one` for `[a|b]`, where all nodes of the job match the same part;
    `apart` for `[a*2&b*4]`, where each node counts for one part alone.

    `count` as in `Feature`: `[(a&b)*2&c*1]`.
    """

    __slots__ = ("count", "kind", "parts")

    def __init__(self, kind: str, parts: tuple[Constraint, ...], count: int = 0) -> None:
        self.kind = kind
        self.parts = parts
        self.count = count

    def matches(self, features: Collection[str]) -> bool:
        """Whether one node fits; a group with a count fits every node, since the count concerns all nodes together."""
        if self.count:
            return True
        if self.kind in ("and", "apart"):
            return all(part.matches(features) for part in self.parts)
        return any(part.matches(features) for part in self.parts)


Constraint = Feature | Group


def parse(text: str) -> Constraint | None:
    """The tree, or None for an empty text. Raises FeatureError."""
    tokens = _tokens(text)
    if not tokens:
        return None
    parser = _Parser(text, tokens)
    tree = parser.expression("")
    if parser.position < len(tokens):
        raise parser.fail(f"unexpected `{shown(parser.peek())}'")
    return tree


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    start = 0
    for position, letter in enumerate(text):
        if letter in _OPERATORS:
            if start < position:
                tokens.append(text[start:position])
            tokens.append("&" if letter == "," else letter)
            start = position + 1
        elif letter in "! \t\n\r\"'" or not letter.isprintable():
            raise FeatureError(f"Invalid feature specification: {shown(text)} (`{shown(letter)}' is not allowed)")
        if len(tokens) > 4 * _PARTS_MAX:
            raise FeatureError(f"Invalid feature specification: {shown(text)} (too long)")
    if start < len(text):
        tokens.append(text[start:])
    return tokens


class _Parser:
    """Recursive descent.

    expression := term (("&" term)* | ("|" term)*) term := (name | "(" expression ")" | "[" expression "]") ["*" count]

    Brackets nest as in Slurm: parentheses may stand inside square brackets, no other nesting is allowed.
    """

    __slots__ = ("position", "text", "tokens")

    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text = text
        self.tokens = tokens
        self.position = 0

    def fail(self, why: str) -> FeatureError:
        return FeatureError(f"Invalid feature specification: {shown(self.text)} ({why})")

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def expression(self, within: str) -> Constraint:
        parts = [self.term(within)]
        operator = self.peek() if self.peek() in ("&", "|") else ""
        while operator and self.peek() == operator:
            self.position += 1
            parts.append(self.term(within))
        if self.peek() in ("&", "|"):
            raise self.fail("& and | are mixed: use parentheses")
        if operator == "|" and any(part.count for part in parts):
            raise self.fail("counts do not go with |")
        if within == "(" and any(part.count for part in parts):
            raise self.fail("counts stand outside parentheses")
        if within == "[" and operator != "&":
            return Group("one", tuple(parts)) if len(parts) > 1 else parts[0]
        if within == "[" and any(part.count for part in parts):
            return Group("apart", tuple(parts))
        return Group("and" if operator == "&" else "or", tuple(parts)) if len(parts) > 1 else parts[0]

    def term(self, within: str) -> Constraint:
        token = self.peek()
        if token == "(" and within != "(":
            tree = self.enclosed("(", ")")
        elif token == "[" and not within:
            tree = self.enclosed("[", "]")
        elif not token or token in _OPERATORS:
            raise self.fail(f"a feature is missing before `{token}'" if token else "a feature is missing at the end")
        else:
            self.position += 1
            tree = Feature(token)
        if self.peek() != "*":
            return tree
        self.position += 1
        count = unsigned(self.peek(), _COUNT_MAX)
        if not count:
            raise self.fail(f"`{shown(self.peek())}' is not a number of nodes")
        self.position += 1
        if isinstance(tree, Group):
            return Group(tree.kind, tree.parts, count)
        return Feature(tree.name, count)

    def enclosed(self, opening: str, closing: str) -> Constraint:
        self.position += 1
        tree = self.expression(opening)
        if self.peek() != closing:
            raise self.fail(f"`{opening}' is not closed")
        self.position += 1
        return tree


def names(constraint: Constraint | None) -> list[str]:
    """All features of the constraint, each once, in order."""
    seen: dict[str, None] = {}
    stack = [constraint] if constraint else []
    while stack:
        part = stack.pop()
        if isinstance(part, Feature):
            seen[part.name] = None
        else:
            stack.extend(reversed(part.parts))
    return list(seen)


def alternatives(constraint: Constraint) -> list[Constraint]:
    """Constraints of which one must hold on all nodes of the job: one for each part of `[a|b]`, else the whole.

    `[a|b]&c` gives `a&c` and `b&c`.
    """
    if isinstance(constraint, Feature):
        return [constraint]
    if constraint.kind == "one":
        return list(constraint.parts)
    if constraint.kind == "or":
        return (
            [constraint] if not _has_one(constraint) else [a for part in constraint.parts for a in alternatives(part)]
        )
    chosen: list[tuple[Constraint, ...]] = [()]
    for part in constraint.parts:
        options = alternatives(part)
        if len(chosen) * len(options) > _PARTS_MAX:
            raise FeatureError(f"Invalid feature specification (more than {_PARTS_MAX} alternatives)")
        chosen = [(*before, option) for before in chosen for option in options]
    return [Group(constraint.kind, parts, constraint.count) if len(parts) > 1 else parts[0] for parts in chosen]


def _has_one(constraint: Constraint) -> bool:
    return isinstance(constraint, Group) and (constraint.kind == "one" or any(map(_has_one, constraint.parts)))


def counts(constraint: Constraint) -> list[tuple[Constraint, int]]:
    """Pairs of a constraint and how many nodes must meet it: `[a*2&b*4]` -> (a, 2), (b, 4). Empty without counts."""
    if isinstance(constraint, Feature):
        return [(Feature(constraint.name), constraint.count)] if constraint.count else []
    if constraint.count:
        return [(Group(constraint.kind, constraint.parts), constraint.count)]
    return [pair for part in constraint.parts for pair in counts(part)]


def counted_sets(constraint: Constraint) -> list[list[tuple[Constraint, int]]]:
    """The pairs of `counts` in sets. Within one set (`[a*2&b*4]`) each node counts for one pair alone, so that six
    nodes are needed; in `a*2&b*4` a node with both features counts for both.
    """
    if isinstance(constraint, Feature) or constraint.count or constraint.kind == "apart":
        pairs = counts(constraint)
        return [pairs] if pairs else []
    return [pairs for part in constraint.parts for pairs in counted_sets(part)]


def nodes_counted(text: str) -> int:
    """The number of nodes that the counts of a constraint need; 0 without counts, or if it is malformed."""
    if "*" not in text:
        return 0
    try:
        tree = parse(text)
        ways = alternatives(tree) if tree is not None else []
    except FeatureError:
        return 0
    return min(
        (max((sum(count for _, count in pairs) for pairs in counted_sets(way)), default=0) for way in ways), default=0
    )


def format(constraint: Constraint | None) -> str:
    """Inverse of `parse`, with no more parentheses than needed."""
    if constraint is None:
        return ""
    suffix = f"*{constraint.count}" if constraint.count else ""
    if isinstance(constraint, Feature):
        return constraint.name + suffix
    if constraint.kind == "one":
        return f"[{'|'.join(_inside(part) for part in constraint.parts)}]{suffix}"
    if constraint.kind == "apart":
        return f"[{'&'.join(_inside(part) for part in constraint.parts)}]{suffix}"
    text = ("&" if constraint.kind == "and" else "|").join(_inside(part) for part in constraint.parts)
    return f"({text}){suffix}" if suffix else text


def _inside(part: Constraint) -> str:
    text = format(part)
    return f"({text})" if isinstance(part, Group) and part.kind in ("and", "or") and not part.count else text
