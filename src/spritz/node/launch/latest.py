"""Values that all nodes of one order share, computed once.

A daemon of many virtual nodes starts the same step on each of them, and all of these nodes have the very same record of
the job. Without this, a step on N such nodes costs N² looks at nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def for_latest(make: Callable[[A], B]) -> Callable[[A], B]:
    """`make`, which remembers its result for its latest argument, compared by identity. The argument is immutable."""
    latest: list[tuple[A, B]] = []

    def made(given: A) -> B:
        if not latest or latest[0][0] is not given:
            latest[:] = [(given, make(given))]
        return latest[0][1]

    return made
