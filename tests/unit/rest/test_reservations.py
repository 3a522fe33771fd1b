"""A reservation made by REST is the one that scontrol makes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from spritz.model.commands.reservation import CreateReservation
from spritz.rest.operations.reservations import request_of
from spritz_testing.builders import World

DAY = 86_400.0


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def asked(**more: Any) -> dict[str, Any]:
    start = int(time.mktime((2026, 3, 27, 9, 0, 0, 0, 0, -1)))
    return {"name": "r", "users": ["alice"], "node_count": 1, "start_time": start, "duration": 60, **more}


@pytest.mark.parametrize("flag", ["DAILY", "WEEKLY", "WEEKDAY", "WEEKEND"])
def test_a_repeating_reservation_keeps_its_local_time(flag: str) -> None:
    """Clocks go forward on 29 March 2026."""
    given = asked(flags=[flag])
    world = World(nodes=2)
    world.now = given["start_time"] - 600.0
    world.ok(CreateReservation(request=request_of(given, world.now)))
    starts = set()
    for _ in range(60):
        starts.add(world.state.reservations["r"].start_at)
        world.advance(DAY / 4)
    local = [time.localtime(start) for start in sorted(starts)]
    assert len(local) >= 2
    assert {(clock.tm_hour, clock.tm_min) for clock in local} == {(9, 0)}
    days = {"WEEKDAY": range(5), "WEEKEND": range(5, 7)}.get(flag)
    assert days is None or all(clock.tm_wday in days for clock in local[1:])


def test_a_floating_reservation_stays_ahead_of_the_clock() -> None:
    given = asked(flags=["TIME_FLOAT"])
    now = given["start_time"] - 1800.0
    assert request_of(given, now).float_seconds == 1800.0
