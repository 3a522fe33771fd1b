"""What the program's sources name: for tests that hold that no key and no option is decoration."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import spritz

ROOT = Path(spritz.__file__).parent


class Names(NamedTuple):
    """Strings of one file, documentation aside, and attributes and plain names that it reads. `asked`: of each call its
    name and its leading arguments that are strings; subscripts are calls of "", and tests of membership calls of "in".
    """

    strings: frozenset[str]
    attributes: frozenset[str]
    plain: frozenset[str]
    asked: frozenset[tuple[str, ...]]


@cache
def names() -> dict[str, Names]:
    """Of each file of the program, by its path in the package. The syntax trees are large, and are not kept."""
    return {path.relative_to(ROOT).as_posix(): _of(ast.parse(path.read_bytes())) for path in ROOT.rglob("*.py")}


def _of(tree: ast.Module) -> Names:
    strings: dict[int, str] = {}
    documentation: set[int] = set()
    attributes: set[str] = set()
    plain: set[str] = set()
    asked: set[tuple[str, ...]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings[id(node)] = node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            attributes.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            plain.add(node.id)
        elif isinstance(node, ast.Call) and (words := _leading_strings(node.args)):
            function = node.func
            asked.add((getattr(function, "attr", "") or getattr(function, "id", ""), *words))
        elif isinstance(node, ast.Subscript) and (words := _leading_strings([node.slice])):
            asked.add(("", *words))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            asked.add(("in", *_leading_strings([node.left])))
        elif isinstance(node, ast.Expr):
            documentation.add(id(node.value))
    said = frozenset(strings[key] for key in strings.keys() - documentation)
    return Names(said, frozenset(attributes), frozenset(plain), frozenset(asked))


def _leading_strings(nodes: list[ast.expr]) -> list[str]:
    words = []
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            break
        words.append(node.value)
    return words
