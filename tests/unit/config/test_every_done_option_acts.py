"""No option of a command is decoration: what is not refused is read, and what it fills is used.

As crude as its sister for configuration keys, and as honest. Source of the options: the commands' own tables.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import msgspec
import pytest

import spritz
from spritz.cli.submit.rows import rows_of
from spritz.model.job import JobSpec
from spritz.model.step import StepSpec

ROOT = Path(spritz.__file__).parent

#: Fields that nothing acts on, with the reason why the option is kept all the same.
_RECORDED = {
    "JobSpec.system_comment": "shown",
    "JobSpec.submit_session": "shown as AllocNode:Sid",
    "JobSpec.export": "recorded; the command has acted on it",
    "JobSpec.memory_bind": "only none, which is what happens",
    "JobSpec.wait_all_nodes": "nodes are ready when they are given: one that does not answer is not",
    "StepSpec.memory_bind": "only none, which is what happens",
    "StepSpec.exclusive": "acts as --exact, which is set with it",
}

_SHOWING = ("cli/format/", "cli/jsonview/", "config/")


@cache
def _trees() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")
    }


@cache
def _texts() -> frozenset[str]:
    """Every string outside the table of options."""
    return frozenset(
        node.value
        for name, tree in _trees().items()
        if not name.endswith("/rows.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def _attributes() -> frozenset[str]:
    return frozenset(
        node.attr
        for name, tree in _trees().items()
        if not name.startswith(_SHOWING)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


@pytest.mark.parametrize("letter", ["b", "a", "s"])
def test_every_option_that_is_not_refused_is_read(letter: str) -> None:
    taken = {row.name for row in rows_of(letter) if not row.refused and not row.alias}
    assert taken - _texts() == set(), "options in cli/submit/rows.py that nothing looks for"


@pytest.mark.parametrize("record", [JobSpec, StepSpec])
def test_what_options_fill_is_used(record: type[msgspec.Struct]) -> None:
    unused = {f"{record.__name__}.{name}" for name in record.__struct_fields__ if name not in _attributes()}
    assert unused - set(_RECORDED) == set(), "fields of requests that nothing acts on"
