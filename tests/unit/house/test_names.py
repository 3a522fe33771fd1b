"""Vague names become fewer (docs: `tests/unit/house/names.py`)."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.unit.house import names


def test_vague_names_only_become_fewer() -> None:
    table = names.allowed()
    counted = names.counts(names.SOURCE, frozenset(table))
    risen = {name: (counted[name], most) for name, most in table.items() if counted[name] > most}
    assert risen == {}, "(there are, allowed): take a word of the field; glossary.md has them"
    fallen = {name: counted[name] for name, most in table.items() if counted[name] < most}
    assert fallen == {}, "run `python -m tests.unit.house.names`, so that they stay as few"


def test_every_sort_of_binding_counts_and_no_read(tmp_path: Path) -> None:
    source = """
import os as item
def item(item): ...
class item: ...
async def item(*item, **_item): ...
item = 1
_item: int = 2
self.item = other.item
for item in [item for item in items]: ...
with open(item) as item: ...
try: ...
except OSError as item: ...
match x:
    case [item, *item]: ...
    case {"item": _}: ...
f(item=item)
"""
    (tmp_path / "one.py").write_text(source)
    assert names.counts(tmp_path, frozenset({"item"}))["item"] == 16
    assert list(names.bound(ast.parse("from a import item as item, value"))) == []
