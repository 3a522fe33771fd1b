"""A failing plan is made smaller: with runs that a test plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spritz_testing.daemons.plan import Action, Plan, Scale
from spritz_testing.daemons.runs.run import Result
from spritz_testing.daemons.runs.shrink import shrink


def plan_of(count: int, nodes: int = 6) -> Plan:
    actions = tuple(Action(at=float(number), kind=str(number)) for number in range(count))
    return Plan(seed=1, scale=Scale(nodes=nodes), actions=actions)


def result(*violations: tuple[str, float, str]) -> Result:
    return Result(seed=1, violations=list(violations), counts={}, virtual_seconds=0, cpu_seconds=0, events=0)


class Runs:
    """Runs that violate "rule" where `fails` says so, and another rule otherwise."""

    def __init__(self, fails: Callable[[Plan], bool]) -> None:
        self.fails = fails
        self.plans: list[Plan] = []

    def __call__(self, plans: Sequence[Plan]) -> list[Result]:
        self.plans += plans
        return [result(("rule" if self.fails(plan) else "another rule", 5.0, "text")) for plan in plans]


def kinds(plan: Plan) -> set[str]:
    return {action.kind for action in plan.actions}


def test_only_the_actions_that_are_needed_remain() -> None:
    runs = Runs(lambda plan: {"3", "41"} <= kinds(plan))
    found = shrink(plan_of(60), "rule", 5000.0, runs)
    assert kinds(found.plan) == {"3", "41"}
    assert found.result is not None
    assert found.runs == len(runs.plans)


def test_a_plan_without_actions_may_fail() -> None:
    assert shrink(plan_of(20), "rule", 5000.0, Runs(lambda plan: True)).plan.actions == ()


def test_another_rule_is_not_the_same_failure() -> None:
    found = shrink(plan_of(20), "rule", 5000.0, Runs(lambda plan: False))
    assert len(found.plan.actions) == 20
    assert found.result is None


def test_what_came_after_the_violation_goes_first() -> None:
    runs = Runs(lambda plan: "3" in kinds(plan))
    found = shrink(plan_of(60), "rule", 10.5, runs)
    assert kinds(runs.plans[0]) == {str(number) for number in range(11)}
    assert found.plan.scale.busy_seconds == 4.0
    assert found.plan.scale.quiet_seconds < Scale().quiet_seconds


def test_the_quiet_part_stays_for_what_is_judged_at_the_end() -> None:
    found = shrink(plan_of(9), "rule", 9000.0, Runs(lambda plan: "3" in kinds(plan)))
    assert found.plan.scale.quiet_seconds == Scale().quiet_seconds


def test_nodes_that_are_not_needed_go() -> None:
    assert shrink(plan_of(3), "rule", 5000.0, Runs(lambda plan: plan.scale.nodes >= 2)).plan.scale.nodes == 2


def test_the_first_of_several_that_fail_is_taken() -> None:
    """However many run at a time, the result is the same."""
    fails = Runs(lambda plan: {"3", "17"} <= kinds(plan))
    one = shrink(plan_of(24), "rule", 5000.0, fails)
    many = shrink(plan_of(24), "rule", 5000.0, fails, at_once=4)
    assert one.plan == many.plan


def test_the_number_of_runs_is_bounded() -> None:
    runs = Runs(lambda plan: {"3", "41"} <= kinds(plan))
    found = shrink(plan_of(60), "rule", 5000.0, runs, runs_max=10)
    assert found.runs <= 10
    assert {"3", "41"} <= kinds(found.plan)


def test_no_run_begins_when_time_is_over() -> None:
    assert shrink(plan_of(60), "rule", 5000.0, Runs(lambda plan: True), seconds_max=-1.0).runs == 0
