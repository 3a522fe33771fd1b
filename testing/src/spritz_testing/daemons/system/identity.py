"""Hashes of objects that do not depend on addresses in memory: the order of a set must come again with the seed.

Python hashes an object without a hash of its own by its address, which differs from run to run. Here such an object
gets a number when it is first hashed.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from types import ModuleType
from typing import Any

_numbers = itertools.count(1)


def by_number(instance: Any) -> int:
    """Stands for `object.__hash__`."""
    number: int | None = getattr(instance, "_number_of_hash", None)
    if number is None:
        number = next(_numbers)
        object.__setattr__(instance, "_number_of_hash", number)
    return number


class Task(asyncio.Task[Any]):
    """Task groups keep tasks in sets, and cancel them in their order."""

    __hash__ = by_number


class Future(asyncio.Future[Any]):
    __hash__ = by_number


def number_all() -> None:
    """Let all classes of Spritz that are loaded, and have no hash of their own, hash by number."""
    for name, module in list(sys.modules.items()):
        if name.startswith("spritz.") and isinstance(module, ModuleType):
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name and _may_be_numbered(value):
                    value.__hash__ = by_number  # type: ignore[assignment]


def _may_be_numbered(kind: type[Any]) -> bool:
    has_none: bool = getattr(kind, "__hash__", None) is object.__hash__
    return has_none and kind.__dictoffset__ != 0
