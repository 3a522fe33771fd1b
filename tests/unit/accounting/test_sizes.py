"""Jobs by size, day by day. Source: sreport(1) job reports."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from spritz.accounting.rollup.amounts import add_text, text_of
from spritz.accounting.rollup.hours import Holder, Used
from spritz.accounting.rollup.sizes import Days, Size, Sums, days_ending, merge

DAY = 86_400


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def job(start: int, end: int, cpus: int = 2, suspended: tuple[tuple[int, int], ...] = ()) -> Used:
    tres = f"cpu={cpus},mem=10M"
    return Used(Holder("a", "u", "w"), "", start, start, end, cpus, 1, tres, "n1", suspended, cpus=cpus, partition="p")


def summed(bounds: list[int], jobs: list[Used]) -> list[Sums]:
    days = Days(bounds)
    for one in jobs:
        days.add(one)
    return [sums for _, sums in days.each()]


def plain(sums: Sums) -> dict[Size, tuple[int, int, dict[str, int]]]:
    return {size: (one.running + one.begun, one.seconds, one.used) for size, one in sums.items()}


def test_a_job_of_three_days_begins_once_and_is_counted_in_each() -> None:
    bounds = [DAY, 2 * DAY, 3 * DAY, 4 * DAY]
    found = summed(bounds, [job(DAY + 100, 3 * DAY + 50, suspended=((2 * DAY - 30, 2 * DAY + 40),))])
    size = Size("a", "w", "p", 2)
    assert [(one[size].running, one[size].begun, one[size].seconds) for one in found] == [
        (0, 1, DAY - 130),
        (1, 0, DAY - 40),
        (1, 0, 50),
    ]
    assert found[2][size].used == {"cpu": 100, "mem": 500}


def test_days_put_together_are_what_one_span_of_them_would_be() -> None:
    draw = random.Random(3)
    jobs = []
    for _ in range(200):
        start = draw.randrange(8 * DAY)
        end = draw.choice((0, start, start + draw.randrange(3 * DAY), (start // DAY + 1) * DAY))
        jobs.append(job(start, end, draw.choice((1, 2)), ((start + 5, start + 50),) if draw.random() < 0.2 else ()))
    bounds = [DAY * number for number in range(1, 8)]
    together: Sums = {}
    for number, one in enumerate(summed(bounds, jobs)):
        merge(together, one, follows=number > 0)
    assert plain(together) == plain(summed([bounds[0], bounds[-1]], jobs)[0])


def test_what_never_ran_or_was_given_nothing_is_of_no_size() -> None:
    waiting, nothing = job(0, 0), job(DAY, DAY + 5, cpus=0)
    assert summed([DAY, 2 * DAY], [waiting, nothing]) == [{}]


def test_a_job_that_was_over_within_its_first_second_is_not_counted() -> None:
    assert summed([DAY, 2 * DAY], [job(DAY + 5, DAY + 5)]) == [{}]


def test_days_that_end_in_a_piece_are_told_from_their_beginning() -> None:
    assert days_ending(DAY + 3600, DAY + 7200) == []
    assert days_ending(2 * DAY - 3600, 2 * DAY) == [DAY, 2 * DAY]
    week = days_ending(3 * DAY, 10 * DAY + 3600)
    assert (week[0], week[-1]) == (3 * DAY, 10 * DAY)
    assert {later - first for first, later in pairwise(week)} == {DAY}


def test_amounts_are_texts_and_numbers_again() -> None:
    sums = {"cpu": 3600, "gres/gpu:a100": 1 << 50, "energy": 0}
    again: dict[str, int] = {"cpu": 1}
    add_text(again, text_of(sums))
    add_text(again, "")
    assert again == sums | {"cpu": 3601}
