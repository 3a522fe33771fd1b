"""Ends the process that simulations were forked from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.daemons import apart


@pytest.fixture(scope="package", autouse=True)
def parent_of_simulations() -> Iterator[None]:
    yield
    apart.end()
