"""What is tried again without a pause is reported, once."""

from __future__ import annotations

from pathlib import Path

from spritz.sim.daemons import rates
from spritz.sim.daemons.world import World


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
