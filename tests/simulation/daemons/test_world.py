"""Virtual time, and what clocks of hosts show."""

from __future__ import annotations

from pathlib import Path

from spritz_testing.daemons.runs.final import _clocks
from spritz_testing.daemons.system.world import EPOCH, World


def test_a_clock_that_was_set_back_shows_no_time_before_the_world_began(tmp_path: Path) -> None:
    """Else what it showed an hour back would count as seen then, when nothing had happened yet."""
    world = World(1, tmp_path)
    host = world.host("ctl1", "10.0.0.1")
    world.run(100.0)
    host.set_clock(-3600.0)
    assert next(iter(_clocks(host))) == (EPOCH, EPOCH + 100.0, 0.0)
