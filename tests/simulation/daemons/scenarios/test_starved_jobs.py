"""Large jobs are starved by backfill.

A stream of small jobs keeps every node a little busy, so a job of all nodes finds no moment when they are free.
Backfill promises it a start, when the running jobs have reached their limits, and starts only what ends before. The
promise outlives restarts of the controller; only what the documentation lists may move it: a job that outranks it, a
lost node, a raised limit, a restart.

Source: docs/explanation/scheduling.md, Backfill and planned starts.
"""

from __future__ import annotations

import pytest

from spritz_testing.daemons.plan import Action, Scale
from spritz_testing.daemons.system.world import EPOCH
from tests.simulation.daemons.scenarios.play import ask, began, fault, ids, play, readings, submission

_SCALE = Scale(nodes=4, busy_seconds=900.0, quiet_seconds=3600.0, faults=6, preemption="")

_LARGE_AT = 60.0

#: Seconds until the small jobs that run when the large job is submitted have reached their limits.
_LIMIT_SECONDS = 300.0

_USERS = ("alice", "bob", "carol")


def _plan(until: float) -> list[Action]:
    """More small jobs than the nodes can run, for so long; a job of all nodes behind the first."""
    small = [
        submission(
            5 + 8 * number,
            f"s{number}",
            _USERS[number % 3],
            cpus_per_task=4 + 4 * (number % 2),
            seconds=90.0 + 10 * (number % 15),
            time_limit_minutes=5,
        )
        for number in range(int(until / 8))
    ]
    large = submission(
        _LARGE_AT, "large", "dave", nodes_min=4, tasks=4, exclusive=True, seconds=60.0, time_limit_minutes=5
    )
    looks = [ask(_LARGE_AT + 20 * number, "expected_starts") for number in range(1, int((until - _LARGE_AT) / 20))]
    return [*small, large, *looks]


def test_a_job_of_all_nodes_starts_when_the_jobs_before_it_have_reached_their_limits() -> None:
    """The check of promised starts looks at each that users were shown."""
    result = play(_SCALE, *_plan(400.0))
    large = ids(result)["large"]
    (start,) = (one for one in began(result, job_id=large) if one.script)
    assert start.at - EPOCH < _LARGE_AT + _LIMIT_SECONDS + 30.0
    promised = [row[1] for shown in readings(result, "expected_starts") for row in shown.rows if row[0] == large]
    assert promised
    assert promised == sorted(promised, reverse=True), "it moves only earlier"
    assert start.at <= promised[0] + 30.0


@pytest.mark.slow
def test_restarts_of_the_controller_do_not_starve_it() -> None:
    restarts = [fault(80 + 50 * number, ("kill", "restart")[number % 2], "slurmctld:1", 3.0) for number in range(6)]
    result = play(_SCALE, *_plan(400.0), *restarts)
    (start,) = (one for one in began(result, job_id=ids(result)["large"]) if one.script)
    assert start.at - EPOCH < _LARGE_AT + _LIMIT_SECONDS + 60.0


@pytest.mark.slow
def test_a_lost_node_moves_it_until_the_node_is_back() -> None:
    lost = fault(200, "power loss", "host of slurmd:2", 300.0)
    result = play(_SCALE, *_plan(900.0), lost)
    (start,) = (one for one in began(result, job_id=ids(result)["large"]) if one.script)
    assert start.at - EPOCH < 500 + _LIMIT_SECONDS + 60.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_under_other_faults_no_rule_is_violated(seed: int) -> None:
    play(_SCALE, *_plan(400.0), seed=seed, faulty=True)
