"""An option of a list that the program reads is declared, and declared done: otherwise it acts, and a warning says that
it has no effect.

Source of the options: `config.schema.options`; of what is done: `config.schema.status`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import cache

import pytest

from spritz.config.schema import status
from spritz.config.schema.options import OPTIONS
from tests.unit.config.sources import ROOT

#: One process reads the sources, once.
pytestmark = pytest.mark.xdist_group("sources")

#: Where the scheduler reads its options: a function made of nothing else.
_POLICY = ("scheduling/view/parameters.py", "_policy")
#: Words in it that are values, not options.
_VALUES = {"", "easy", "slowdown", "min", "-1"}
#: Words of something else in functions that also read options.
_OTHERS = {"singleton"}


@cache
def _trees() -> dict[str, ast.Module]:
    """Files that read options, by their paths in the package."""
    trees = {}
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        if "option(" in text or "scheduler_parameters" in text or "options.get(" in text:
            trees[path.relative_to(ROOT).as_posix()] = ast.parse(text)
    return trees


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _by_key(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """(key, option) of calls such as `settings.option("SlurmctldParameters", "journal")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            words = [text for text in map(_text, node.args) if text is not None]
            if called in ("option", "has_option", "_option"):
                yield from ((key, option) for key, option in itertools.pairwise(words) if key in OPTIONS)


def _of_the_scheduler(function: ast.AST) -> Iterator[str]:
    """Words with which a function compares, or looks up, names of SchedulerParameters."""
    for node in ast.walk(function):
        if isinstance(node, ast.Compare):
            yield from filter(None, map(_text, [node.left, *node.comparators]))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            yield from filter(None, map(_text, node.args[:1]))


def _read() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for name, tree in _trees().items():
        found.update(_by_key(tree))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef) or name.startswith(("config/", "sim/")):
                continue
            if (name, function.name) == _POLICY:
                words = {text for node in ast.walk(function) if (text := _text(node)) is not None} - _VALUES
                found.update(("SchedulerParameters", word) for word in words if " " not in word)
            elif any(
                isinstance(node, ast.Attribute) and node.attr == "scheduler_parameters" for node in ast.walk(function)
            ):
                found.update(
                    ("SchedulerParameters", word) for word in _of_the_scheduler(function) if word not in _OTHERS
                )
    return found


def test_what_is_read_is_declared_done() -> None:
    known = {(key, option.lower()) for key, options in OPTIONS.items() for option in options}
    done = {name.lower() for name in status.DONE}
    wrong = {
        f"{key}={option}"
        for key, option in _read()
        if (key, option.lower()) not in known or f"{key}.{option}".lower() not in done
    }
    assert wrong == set(), "read, and said to have no effect: see config/schema/options.py and status.py"


def test_the_readings_are_found() -> None:
    """This test would be blind if the program read its options in another way."""
    found = _read()
    assert ("SlurmctldParameters", "journal") in found
    assert ("SchedulerParameters", "bf_window") in found
    assert ("SchedulerParameters", "enable_user_top") in found
    assert ("SchedulerParameters", "ignore_prefer_validation") in found
    assert len(found) > 60
