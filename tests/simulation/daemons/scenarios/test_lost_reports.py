"""Completion reports are lost while the controller restarts.

Jobs end while slurmctld is killed again and again, each time in the middle of its work, and slurmd now and then. In the
end each end is known, with the exit code that the node saw, and no node stays busy with a job that is gone.
"""

from __future__ import annotations

from random import Random

import pytest

from spritz_testing.daemons.plan import Action, Scale
from tests.simulation.daemons.scenarios.play import ask, ended, fault, ids, play, readings, submission

JOBS = 30

_SCALE = Scale(nodes=4, busy_seconds=400.0, quiet_seconds=3600.0, faults=6)


def _plan(seed: int) -> list[Action]:
    """Jobs whose ends meet restarts."""
    random = Random(seed)
    actions = [
        submission(
            5 + number / 5,
            f"j{number}",
            ("alice", "bob")[number % 2],
            seconds=20.0 + 4 * number,
            exit_status=number % 7,
            cpus_per_task=1 + number % 3,
            requeue=False,
        )
        for number in range(JOBS)
    ]
    for number in range(20):
        at = 25 + 10 * number + random.uniform(0.0, 5.0)
        actions.append(fault(at, "kill at a callback", "slurmctld:1", 10.0, random.randrange(1 << 30)))
    for number in range(5):
        actions.append(fault(40 + 45 * number, ("kill", "restart")[number % 2], f"slurmd:{1 + number % 4}", 5.0))
    return actions


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_end_is_known_however_often_the_controller_restarts(seed: int) -> None:
    """The checks compare the exit code of each job's record with the one that its node saw."""
    shown = [ask(380, "show_job", tag=f"j{number}") for number in range(JOBS)]
    result = play(_SCALE, *_plan(seed), *shown, ask(385, "sinfo"), seed=seed)
    assert result.counts["fault kill at a callback"] >= 8
    numbers = ids(result)
    for number in range(JOBS):
        (end,) = ended(result, job_id=numbers[f"j{number}"])
        assert (end.exit_code, end.signal) == (number % 7, 0)
    states = {row[0]: row[1] for reading in readings(result, "job") for row in reading.rows}
    assert states == {numbers[f"j{number}"]: "FAILED" if number % 7 else "COMPLETED" for number in range(JOBS)}
    (nodes,) = readings(result, "sinfo")
    assert [(row[0], row[2:]) for row in nodes.rows] == [(f"n{number}", (0, 0, ())) for number in range(1, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_under_other_faults_no_rule_is_violated(seed: int) -> None:
    play(_SCALE, *_plan(seed), seed=seed, faulty=True)
