"""Limits of production code that some runs make small."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz_testing.daemons.runs import small_limits
from spritz_testing.daemons.system.world import World


def _drawn(seed: int, root: Path) -> dict[str, object]:
    with pytest.MonkeyPatch.context() as changes:
        for module, name, _ in small_limits._LIMITS:
            changes.setattr(module, name, getattr(module, name))
        before = {name: getattr(module, name) for module, name, _ in small_limits._LIMITS}
        small_limits.draw(World(seed, root))
        drawn = {name: getattr(module, name) for module, name, _ in small_limits._LIMITS}
    return {name: value for name, value in drawn.items() if value != before[name]}


def test_a_seed_draws_the_same_limits_each_time(tmp_path: Path) -> None:
    assert _drawn(3, tmp_path) == _drawn(3, tmp_path)


def test_some_runs_have_small_limits_and_each_limit_is_drawn(tmp_path: Path) -> None:
    runs = [_drawn(seed, tmp_path) for seed in range(1, 61)]
    assert any(not drawn for drawn in runs)
    assert {name for drawn in runs for name in drawn} == {name for _, name, _ in small_limits._LIMITS}
