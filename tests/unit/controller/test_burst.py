"""A row of submissions waits for its end, and a lone one for nothing."""

from __future__ import annotations

import pytest

from spritz.controller.burst import PAUSE_SECONDS, Burst


def submitted(*moments: float) -> Burst:
    burst = Burst()
    for at in moments:
        burst.submitted(at)
    return burst


def test_who_is_alone_does_not_wait() -> None:
    assert Burst().seconds_left(0.0, 1.0) == 0.0
    assert submitted(5.0).seconds_left(5.0, 1.0) == 0.0
    assert submitted(5.0, 5.0 + 2 * PAUSE_SECONDS).seconds_left(5.0 + 2 * PAUSE_SECONDS, 1.0) == 0.0


def test_a_row_waits_for_a_pause() -> None:
    row = submitted(5.0, 5.01)
    assert row.seconds_left(5.01, 1.0) == pytest.approx(PAUSE_SECONDS)
    assert row.seconds_left(5.01 + PAUSE_SECONDS, 1.0) == 0.0


def test_a_row_without_an_end_waits_for_so_long_and_again_after_each_look() -> None:
    burst = submitted(*(5.0 + number / 100 for number in range(101)))
    assert burst.seconds_left(5.99, 1.0) == pytest.approx(0.01)
    assert burst.seconds_left(6.0, 1.0) == 0.0
    burst.over(6.0)
    burst.submitted(6.01)
    assert burst.seconds_left(6.01, 1.0) == pytest.approx(PAUSE_SECONDS)


def test_where_none_is_to_wait_none_does() -> None:
    assert submitted(5.0, 5.01).seconds_left(5.01, 0.0) == 0.0
