"""Make a plan that fails smaller: fewer actions, then a shorter day and fewer nodes, with the same rule violated.

Actions are removed by delta debugging: halves first, then smaller and smaller parts, until no single action can go.
Every attempt is a run of its own, and some run at a time; of those that fail, the first in order is taken, so the
result does not depend on which one ended first.

Source: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002: ddmin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import msgspec.structs
from msgspec import Struct

from spritz_testing.daemons.plan import Plan

if TYPE_CHECKING:
    from spritz_testing.daemons.runs.run import Result

#: Runs plans, which may happen at the same time, and returns their results in the order of the plans.
RunAll = Callable[[Sequence[Plan]], Sequence["Result"]]

#: Bounds of one search.
RUNS_MAX = 300
SECONDS_MAX = 600.0

#: Seconds that a run goes on after a violation in its busy part: the end is looked at, too.
QUIET_SECONDS_MIN = 900.0


class Shrunk(Struct, kw_only=True):
    """What a search found."""

    plan: Plan
    #: of that plan; None if no smaller plan failed, or none was tried
    result: Result | None
    runs: int


class Replay(Struct, kw_only=True):
    """A file that repeats a run: the plan, what it violates, and the digest of all that happens in it."""

    commit: str
    plan: Plan
    rule: str
    text: str
    digest: str
    story: list[str]


def shrink(
    plan: Plan,
    rule: str,
    at: float,
    run_all: RunAll,
    *,
    at_once: int = 1,
    runs_max: int = RUNS_MAX,
    seconds_max: float = SECONDS_MAX,
    told: Callable[[str], None] = lambda text: None,
) -> Shrunk:
    """The smallest plan found that violates this rule, as `plan` does `at` seconds after its beginning.

    `told` hears of each that is smaller.
    """
    search = _Search(plan, rule, run_all, at_once, runs_max, monotonic() + seconds_max, told)
    search.end_at(at)
    search.remove_actions()
    search.shorten()
    search.remove_nodes()
    search.remove_actions()
    return Shrunk(plan=search.plan, result=search.result, runs=search.runs)


class _Search:
    def __init__(
        self,
        plan: Plan,
        rule: str,
        run_all: RunAll,
        at_once: int,
        runs_max: int,
        ends_at: float,
        told: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.rule = rule
        self.result: Result | None = None
        self.runs = 0
        self._run_all = run_all
        self._at_once = at_once
        self._runs_max = runs_max
        self._ends_at = ends_at
        self._told = told

    def end_at(self, at: float) -> None:
        """Let the run end soon after the violation, if that was before its quiet part: further runs are shorter."""
        if at < self.plan.scale.busy_seconds:
            self._take(_ending(self.plan, at))

    def remove_actions(self) -> None:
        size = max(1, len(self.plan.actions) // 2)
        while self._remove_parts(size) or size > 1:
            if self._is_over():
                return
            size = max(1, size // 2)

    def _remove_parts(self, size: int) -> bool:
        """Try to do without each part of so many actions, the last first: what is late is often not needed."""
        last = len(self.plan.actions)
        removed = False
        while last > 0 and not self._is_over():
            bounds = [(max(0, end - size), end) for end in range(last, 0, -size)][: self._at_once]
            found = self._first_that_fails([_without(self.plan, *bound) for bound in bounds])
            removed = removed or found is not None
            last = bounds[-1 if found is None else found][0]
        return removed

    def shorten(self) -> None:
        """Let the busy part end with the last action."""
        self._take(_shorter(self.plan))

    def remove_nodes(self) -> None:
        while self._take(_smaller(self.plan)):
            pass

    def _take(self, candidates: Sequence[Plan]) -> bool:
        """Go on with the first of these that fails in the same way. False if none does."""
        for first in range(0, len(candidates), self._at_once):
            if self._is_over():
                break
            if self._first_that_fails(candidates[first : first + self._at_once]) is not None:
                return True
        return False

    def _first_that_fails(self, plans: Sequence[Plan]) -> int | None:
        """Run these, and go on with the first that fails in the same way; its place."""
        self.runs += len(plans)
        for place, (plan, result) in enumerate(zip(plans, self._run_all(plans), strict=True)):
            if any(rule == self.rule for rule, _, _ in result.violations):
                self.plan, self.result = plan, result
                self._tell()
                return place
        return None

    def _is_over(self) -> bool:
        return self.runs >= self._runs_max or monotonic() > self._ends_at

    def _tell(self) -> None:
        scale = self.plan.scale
        busy = f"{scale.busy_seconds:g} s and {scale.quiet_seconds:g} s"
        self._told(f"{len(self.plan.actions)} actions, {scale.nodes} nodes, {busy}, after {self.runs} runs")


def _without(plan: Plan, first: int, last: int) -> Plan:
    """The plan without the actions from `first` to `last`, exclusive."""
    return msgspec.structs.replace(plan, actions=plan.actions[:first] + plan.actions[last:])


def _ending(plan: Plan, at: float) -> list[Plan]:
    """What came after the violation is left out; without waiting for the cluster to be well, and with it."""
    actions = tuple(action for action in plan.actions if action.at <= at)
    busy_seconds = round(at + 1.0, 3)
    quiet = (QUIET_SECONDS_MIN, plan.scale.quiet_seconds)
    scales = [msgspec.structs.replace(plan.scale, busy_seconds=busy_seconds, quiet_seconds=one) for one in quiet]
    return [msgspec.structs.replace(plan, scale=scale, actions=actions) for scale in scales]


def _shorter(plan: Plan) -> list[Plan]:
    last = max((action.at + float(action.data.get("seconds", 0.0)) for action in plan.actions), default=0.0)
    busy_seconds = round(last + 1.0, 3)
    if busy_seconds >= plan.scale.busy_seconds:
        return []
    return [msgspec.structs.replace(plan, scale=msgspec.structs.replace(plan.scale, busy_seconds=busy_seconds))]


def _smaller(plan: Plan) -> list[Plan]:
    counts = sorted({1, plan.scale.nodes // 2, plan.scale.nodes - 1} - {0, plan.scale.nodes})
    return [msgspec.structs.replace(plan, scale=msgspec.structs.replace(plan.scale, nodes=count)) for count in counts]
