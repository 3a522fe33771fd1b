"""Vague names, and how often src binds each of them.

A binding is an assignment, a parameter, an attribute that is set, a function, a class, or an `as`; reads of a name do
not count. `vague_names.txt` has the numbers that are allowed. They may only fall:

    python -m tests.unit.house.names     # writes the numbers that have fallen
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "src"

TABLE = Path(__file__).with_name("vague_names.txt")


def allowed() -> dict[str, int]:
    """name -> how often src may bind it, with or without leading underscores."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return {name: int(number) for name, number in (line.split() for line in lines if line and line[0] != "#")}


def counts(root: Path, names: frozenset[str]) -> Counter[str]:
    """How often the files below `root` bind each of the names."""
    counted: Counter[str] = Counter(dict.fromkeys(names, 0))
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        counted.update(bare for name in bound(tree) if (bare := name.strip("_")) in names)
    return counted


def bound(tree: ast.AST) -> Iterator[str]:
    """The name of each binding."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.alias(name=original, asname=str(name)) if name != original:
                yield name


def main() -> int:
    """0; 1 if a number has risen."""
    table = allowed()
    counted = counts(SOURCE, frozenset(table))
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    for name, most in table.items():
        lines[lines.index(f"{name} {most}")] = f"{name} {min(most, counted[name])}"
        if counted[name] > most:
            print(f"{name}: {counted[name]}, and {most} are allowed")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(any(counted[name] > most for name, most in table.items()))


if __name__ == "__main__":
    sys.exit(main())
