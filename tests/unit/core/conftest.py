"""The `world` fixture: a machine that is checked for invariants, replay and images when its test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spritz_testing.builders import World


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Makes worlds with other nodes or settings; all are checked when the test ends."""
    worlds: list[World] = []

    def make(**fields: Any) -> World:
        worlds.append(World(**fields))
        return worlds[-1]

    yield make
    for one in worlds:
        one.check()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """Four nodes of eight CPUs, in one partition."""
    return make_world()
