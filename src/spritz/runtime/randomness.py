"""Chance: the one place that draws it. Pure code takes a seed or an id that was drawn here."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from typing import Protocol


class Randomness(Protocol):
    """What shells need of chance. The simulator supplies one that repeats."""

    def uniform(self, low: float, high: float) -> float:
        """A number between the two, evenly."""
        ...

    def token(self, size_bytes: int) -> bytes:
        """Bytes that nobody can guess."""
        ...


class SystemRandomness:
    """The machine's."""

    __slots__ = ()

    def uniform(self, low: float, high: float) -> float:
        """A number between the two, evenly; not for secrets."""
        return random.uniform(low, high)

    def token(self, size_bytes: int) -> bytes:
        """Bytes that nobody can guess."""
        return secrets.token_bytes(size_bytes)


def backoff(randomness: Randomness, *, first_seconds: float = 0.05, ceiling_seconds: float = 5.0) -> Iterator[float]:
    """Waits between attempts, for ever: doubling up to the ceiling, each shortened at random by up to half.

    The jitter keeps a thousand nodes from knocking at once at a controller that has come back.
    """
    wait = first_seconds
    while True:
        yield wait * randomness.uniform(0.5, 1.0)
        wait = min(ceiling_seconds, wait * 2)
