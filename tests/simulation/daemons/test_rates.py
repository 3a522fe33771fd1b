"""What is tried again without a pause is reported, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.model.queries.jobs import AwaitEnd
from spritz.wire.frames import PREFIX_BYTES
from spritz_testing.daemons import coverage
from spritz_testing.daemons.system import rates, threads
from spritz_testing.daemons.system.world import World


def test_what_happens_too_often_within_a_second_is_reported_once(tmp_path: Path) -> None:
    world = World(1, tmp_path)
    for number in range(30):
        world.now = 100.0 + number / 3
        rates.note(world, "it is tried", 3)
    assert world.violations == []
    world.now = 200.0
    for _ in range(9):
        rates.note(world, "it is tried", 3)
    ((rule, _, text),) = world.violations
    assert (rule, text) == (rates.RETRIES_PAUSE, "it is tried, more than 3 times within 1 s")


def test_requests_are_counted_when_they_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that was stopped reads all at once, however far apart they were sent."""
    world = World(1, tmp_path)
    monkeypatch.setattr(threads, "_world", world)
    frames = []
    for number in range(2 * rates.REQUESTS_MAX):
        world.now = 100.0 + number
        frames.append(coverage.encode_request(1, AwaitEnd(job_id=number)))
    for frame in frames:
        coverage.decode_envelope(frame[PREFIX_BYTES:])
    assert world.violations == []
    for number in range(rates.REQUESTS_MAX + 1):
        coverage.encode_request(1, AwaitEnd(job_id=number))
    ((rule, _, text),) = world.violations
    assert (rule, text) == (rates.RETRIES_PAUSE, f"AwaitEnd is sent, more than {rates.REQUESTS_MAX} times within 1 s")
