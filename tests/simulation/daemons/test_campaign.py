"""Many runs in forked children, which may fail in every way; and the plans of seeds."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz_testing.daemons import faults
from spritz_testing.daemons.plan import Plan, Scale
from spritz_testing.daemons.runs.campaign import Totals, campaign, failed, plan_of, results
from spritz_testing.daemons.runs.run import Result

#: pytest has threads of its own, which the children do not use.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def plans(count: int) -> Iterator[Plan]:
    return (Plan(seed=seed, scale=Scale(), actions=()) for seed in range(1, count + 1))


def well(plan: Plan, root: Path) -> Result:
    (root / "file").write_text("a run may use its directory")
    counts = {"fault kill": 2, "message slurmctld Ping": plan.seed}
    return Result(seed=plan.seed, violations=[], counts=counts, virtual_seconds=100.0, cpu_seconds=0.5, events=7)


def test_results_are_added_up() -> None:
    totals = campaign(plans(5), jobs=2, run=well)
    assert (totals.seeds, totals.virtual_seconds, totals.events, totals.failures) == (5, 500.0, 35, [])
    assert totals.counts == {"fault kill": 10, "message slurmctld Ping": 15}
    assert (totals.faults, totals.ratio) == (10, 200.0)


def test_each_run_is_told() -> None:
    seen: list[int] = []
    campaign(plans(3), jobs=1, run=well, told=lambda totals: seen.append(totals.seeds))
    assert seen == [1, 2, 3]


def test_a_run_that_is_stuck_is_killed() -> None:
    def run(plan: Plan, root: Path) -> Result:
        if plan.seed == 2:
            while True:
                pass
        return well(plan, root)

    totals = campaign(plans(3), jobs=3, run=run, run_seconds_max=1.0)
    assert totals.seeds == 3
    assert [(one.seed, one.violations[0][0]) for one in totals.failures] == [(2, "5: a run comes to its end")]


def test_a_run_that_waits_for_ever_is_killed() -> None:
    def run(plan: Plan, root: Path) -> Result:
        time.sleep(1000)
        return well(plan, root)

    (only,) = campaign(plans(1), run=run, run_seconds_max=0.1).failures
    assert "time.sleep" not in only.violations[0][0]
    assert "in run" in only.violations[0][2], "it says where it waits"


def test_a_run_that_raises_is_a_violation() -> None:
    def run(plan: Plan, root: Path) -> Result:
        raise RuntimeError(f"seed {plan.seed} fails")

    (only,) = campaign(plans(1), run=run).failures
    rule, _, text = only.violations[0]
    assert rule == "the simulation does not fail"
    assert "seed 1 fails" in text


def test_a_run_whose_process_dies_is_a_violation() -> None:
    def run(plan: Plan, root: Path) -> Result:
        os.kill(os.getpid(), signal.SIGKILL)
        return well(plan, root)

    (only,) = campaign(plans(1), run=run).failures
    assert "status" in only.violations[0][2]


def test_it_can_stop_at_the_first_violation() -> None:
    def run(plan: Plan, root: Path) -> Result:
        return failed(plan, "rule", "text", 0.1) if plan.seed == 2 else well(plan, root)

    totals = campaign(plans(50), jobs=1, run=run, stop_at_first=True)
    assert totals.seeds == 2
    assert totals.failures[0].violations == [("rule", 0.0, "text")]


def test_no_run_begins_after_the_time() -> None:
    def run(plan: Plan, root: Path) -> Result:
        time.sleep(0.3)
        return well(plan, root)

    assert 0 < campaign(plans(1000), jobs=1, run=run, seconds_max=0.5).seeds < 10


def test_large_results_come_whole() -> None:
    def run(plan: Plan, root: Path) -> Result:
        result = well(plan, root)
        result.transcript = ["x" * 100] * 50_000
        return result

    ((_, result),) = results(plans(1), run=run)
    assert len(result.transcript) == 50_000


def test_a_seed_has_one_plan() -> None:
    scale = Scale(faults=40)
    assert plan_of(7, scale) == plan_of(7, scale)
    assert plan_of(7, scale) != plan_of(8, scale)
    times = [action.at for action in plan_of(7, scale).actions]
    assert times == sorted(times)


def test_faults_are_over_when_the_busy_part_is() -> None:
    scale = Scale(faults=200, busy_seconds=1000.0)
    for seed in range(20):
        for action in plan_of(seed, scale).actions:
            if action.kind in faults.KINDS:
                assert 0.0 <= action.at + action.data["seconds"] <= 1000.001


def test_some_faults_come_close_after_another() -> None:
    """So that they happen during the recovery from it."""
    scale = Scale(faults=20)
    gaps = []
    for seed in range(10):
        times = [action.at for action in plan_of(seed, scale).actions if action.kind in faults.KINDS]
        gaps += [after - before for before, after in itertools.pairwise(times)]
    assert sum(gap < 1.0 for gap in gaps) > len(gaps) / 10


def test_kinds_of_a_part_need_it() -> None:
    names = {kind.name for kind in faults.injectable(frozenset())}
    assert "kill" in names
    assert "slurmdbd killed" not in names
    assert "slurmdbd killed" in {kind.name for kind in faults.injectable(frozenset({"accounting"}))}


def test_totals_of_no_run_are_empty() -> None:
    assert Totals().ratio == 0.0
