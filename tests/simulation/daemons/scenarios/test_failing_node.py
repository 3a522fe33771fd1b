"""A node that fails every job at once swallows the queue.

Six nodes, a queue of four users, and one node on which jobs fail in a moment: it is free again at once, so nearly the
whole queue is started there. What fails before the script runs (prolog, spool, fork) drains the node and queues the job
again, as in Slurm. Where scripts start and fail, slurmctld cannot know whose fault it is: as in Slurm the queue is
lost, unless HealthCheckProgram finds the fault, or the site asks for `drain_failing_nodes`.
"""

from __future__ import annotations

import pytest

from spritz_testing.daemons.plan import Action, Scale
from spritz_testing.daemons.runs.run import Result
from tests.simulation.daemons.scenarios.play import ask, began, ended, fault, play, readings, submission

JOBS = 40
_USERS = ("alice", "bob", "carol", "dave")

_OPTION = {"SlurmctldParameters": "drain_failing_nodes=10"}


def _queue(count: int = JOBS) -> list[Action]:
    """Jobs of whole nodes, faster than they can run."""
    return [
        submission(5 + number / 20, f"j{number}", _USERS[number % 4], seconds=30.0, exclusive=True)
        for number in range(count)
    ]


def _run(kind: str, draw: int = 0, *, seed: int = 1, settings: dict[str, str] | None = None) -> Result:
    scale = Scale(nodes=6, busy_seconds=500.0, quiet_seconds=1800.0, settings=settings or {})
    broken = fault(3, kind, "host of slurmd:1", 400.0, draw)
    return play(scale, broken, *_queue(), ask(390, "sinfo"), seed=seed)


def _states(result: Result) -> dict[str, tuple[str, ...]]:
    """What sinfo said of each node."""
    (shown,) = readings(result, "sinfo")
    return {row[0]: row[1] for row in shown.rows}


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        ("program fails", 1),
        pytest.param("spool full", 0, marks=pytest.mark.slow),
        pytest.param("memory full", 0, marks=pytest.mark.slow),
    ],
)
def test_a_node_that_cannot_start_jobs_is_drained_and_loses_none(kind: str, draw: int) -> None:
    result = _run(kind, draw)
    assert "DRAIN" in _states(result)["n1"]
    assert not ended(result, exit_code=1)
    held = 1 if kind == "program fails" else 0  # the job whose Prolog failed, unless nohold_on_prolog_fail
    assert len(ended(result, exit_code=0)) >= JOBS - held


def test_without_the_option_jobs_that_fail_by_themselves_are_lost_as_in_slurm() -> None:
    """Not a wish: what administrators must know, and why there is an option."""
    result = _run("jobs fail")
    assert len(ended(result, node="n1", exit_code=1)) > JOBS / 2
    assert "DRAIN" not in _states(result)["n1"]


def test_a_node_on_which_ten_jobs_in_a_row_failed_is_drained() -> None:
    result = _run("jobs fail", settings=_OPTION)
    assert len(ended(result, exit_code=1)) == 10
    assert len(ended(result, exit_code=0)) == JOBS - 10
    assert [name for name, states in _states(result).items() if "DRAIN" in states] == ["n1"]


@pytest.mark.slow
def test_broken_jobs_do_not_drain_the_cluster() -> None:
    """Two users' scripts all fail at once, on whatever node. As they all meet on the first free node, that is drained;
    on the next one it is clear that it was not the node.
    """
    scale = Scale(nodes=6, busy_seconds=200.0, quiet_seconds=1800.0, settings=_OPTION)
    broken = [
        submission(5 + number / 10, f"b{number}", _USERS[number % 2], seconds=0.5, exit_status=1)
        for number in range(60)
    ]
    result = play(scale, *broken, ask(150, "sinfo"))
    assert len(ended(result, exit_code=1)) == 60
    assert [name for name, states in _states(result).items() if "DRAIN" in states] == ["n1"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_under_other_faults_no_rule_is_violated(seed: int) -> None:
    scale = Scale(nodes=6, busy_seconds=500.0, quiet_seconds=7200.0, settings=_OPTION)
    result = play(scale, fault(3, "jobs fail", "host of slurmd:1", 400.0), *_queue(), seed=seed, faulty=True)
    assert began(result)
