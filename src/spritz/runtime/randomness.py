"""Randomness: the only place that draws random numbers. Pure code gets a seed or an id drawn here."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator
from typing import Protocol


class Randomness(Protocol):
    """The source of randomness for shells. The simulator supplies a repeatable one."""

    def uniform(self, low: float, high: float) -> float:
        """A uniform random number between the two."""
        ...

    def token(self, size_bytes: int) -> bytes:
        """Unguessable bytes, for keys and tokens."""
        ...


class SystemRandomness:
    __slots__ = ()

    def uniform(self, low: float, high: float) -> float:
        """A uniform random number between the two; not for secrets."""
        return random.uniform(low, high)

    def token(self, size_bytes: int) -> bytes:
        return secrets.token_bytes(size_bytes)


def backoff(randomness: Randomness, *, first_seconds: float = 0.05, ceiling_seconds: float = 5.0) -> Iterator[float]:
    """Waits between attempts, for ever: doubling up to the ceiling, each shortened at random by up to half.

    The jitter keeps a thousand nodes from connecting at the same time to a controller that has come back.
    """
    wait = first_seconds
    while True:
        yield wait * randomness.uniform(0.5, 1.0)
        wait = min(ceiling_seconds, wait * 2)
