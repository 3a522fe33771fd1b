"""The algebra of masks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spritz.model.resources import lowest_bits, mask_ids


@given(st.integers(0, (1 << 80) - 1), st.integers(-1, 90))
def test_the_lowest_bits_are_those_that_come_first(mask: int, count: int) -> None:
    assert mask_ids(lowest_bits(mask, count)) == mask_ids(mask)[: max(0, count)]
