"""What the production core, cycle and ledger do without faults of daemons is accepted by all checks."""

from __future__ import annotations

import pytest

from tests.simulation.daemons.core_day import CoreDay


@pytest.mark.parametrize("seed", range(4))
def test_a_day_of_the_core_is_accepted(seed: int) -> None:
    assert [violation.text for violation in CoreDay(seed).check()] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_days_of_the_core_are_accepted(seed: int) -> None:
    assert [violation.text for violation in CoreDay(seed).check()] == []
