"""Jobs of a federation while controllers, slurmdbd and nodes are killed, stopped and cut off.

Three clusters share a slurmdbd that passes their requests on. Each job has a copy wherever it may start; one of them
runs. Whatever is lost, late or repeated, no job runs twice, none is lost, and in the end all clusters agree.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.scenarios.federation import BUSY_SECONDS, NAMES, Federation

JOBS = 24


def _play(seed: int, faults: int) -> int:
    """How many jobs ran elsewhere than where they were submitted."""
    played = Federation(seed)
    random, world = played.random, played.world
    began_at = world.now
    for number in range(JOBS):
        words = random.choice((NAMES[0], *NAMES)), f"j{number}", random.uniform(5.0, 60.0), random.choice((1, 1, 2))
        world.at(began_at + random.uniform(0.0, BUSY_SECONDS / 2), partial(played.submit, *words))
    for _ in range(4):
        world.at(began_at + random.uniform(30.0, BUSY_SECONDS / 2), partial(played.cancel, random.random()))
    at = 0.0
    for _ in range(faults):
        # Every other one comes while things recover from the one before.
        at = at + random.uniform(0.01, 30.0) if at and random.random() < 0.5 else random.uniform(10.0, BUSY_SECONDS)
        played.disturb(began_at + min(at, BUSY_SECONDS))
    world.run(BUSY_SECONDS + 100.0)
    states = played.settle()
    assert len(played.accepted) == JOBS, "each was accepted once"
    played.check(states)
    moved = [number for number, name in played.accepted.items() if states[number].get(name) == "REVOKED"]
    played.close()
    return len(moved)


def test_jobs_run_wherever_there_is_room() -> None:
    assert apart(_play, 1, 0) > 3


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 101))])
def test_no_job_runs_twice_or_is_lost_whatever_goes_wrong(seed: int) -> None:
    apart(_play, seed, 16)
