"""What users were told survives kills and losses of power: the real controller and journal on a simulated disk."""

from __future__ import annotations

import pytest

from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.submitters import Submitters


def killed_while_submitting(
    seed: int, kinds: tuple[str, ...], crashes: int
) -> tuple[list[str], dict[str, int], list[str]]:
    """Problems, counts and story of jobs submitted through crashes, each at an operation that the seed draws."""
    run = Submitters(seed)
    world = run.world
    users = run.begin(users=4, jobs=40, pause=8.0)
    for _ in range(crashes):
        if run.random.random() < 0.7:
            world.run_until(lambda: run.unit.is_running, 100.0)
            world.run(run.random.uniform(0.0, 12.0))
        kind = run.random.choice(kinds)
        if kind == "kill now":
            run.unit.kill()
        elif kind == "power now":
            run.disk.lose_power()
        else:
            run.disk.crash(kind, run.random.choice((3, 10, 40)) + run.random.randrange(3))
            world.run_until(lambda: not run.unit.is_running, 60.0)
    run.disk.heal()
    assert world.run_until(lambda: not any(user.is_alive for user in users), 3000.0), world.story[-20:]
    problems = run.problems()
    problems += [f"{process}: {context}" for process, context in world.unhandled]
    problems += [repr(error) for _, _, error in run.unit.ends if error is not None]
    problems += [repr(user.error) for user in users if user.error is not None]
    problems += [repr(violation) for violation in world.violations]
    run.close()
    return problems, world.counts, run.story()


@pytest.mark.parametrize("kinds", [("kill now",), ("kill", "kill now"), ("power", "power now"), ("power",)])
def test_acknowledged_jobs_and_scripts_survive(kinds: tuple[str, ...]) -> None:
    problems, counts, _ = apart(killed_while_submitting, 1, kinds, 30)
    assert problems == []
    assert sum(count for name, count in counts.items() if name.startswith("fault")) >= 10 or kinds == ("kill now",)


def test_the_same_seed_tells_the_same_story() -> None:
    first = apart(killed_while_submitting, 5, ("kill", "power", "kill now"), 6)
    assert apart(killed_while_submitting, 5, ("kill", "power", "kill now"), 6) == first
