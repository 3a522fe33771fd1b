"""Make a plan that fails smaller: fewer actions, then a shorter day and fewer nodes, with the same rule violated.

Actions are removed by delta debugging: halves first, then smaller and smaller parts, until no single action can go.
Every attempt is a run of its own, and some run at a time; of those that fail, the first in order is taken, so the
result does not depend on which one ended first.

Source: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002: ddmin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import msgspec.structs
from msgspec import Struct

from spritz.sim.daemons.plan import Plan

if TYPE_CHECKING:
    from spritz.sim.daemons.run import Result

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
        parts = 2
        while self.plan.actions:
            parts = min(parts, len(self.plan.actions))
            if self._take(_without(self.plan, parts)):
                parts = max(parts - 1, 2)
            elif parts == len(self.plan.actions):
                return
            else:
                parts *= 2

    def shorten(self) -> None:
        """Let the busy part end with the last action."""
        self._take(_shorter(self.plan))

    def remove_nodes(self) -> None:
        while self._take(_smaller(self.plan)):
            pass

    def _take(self, candidates: Iterator[Plan]) -> bool:
        """Go on with the first of these that fails in the same way. False if none does."""
        while group := self._group(candidates):
            self.runs += len(group)
            for plan, result in zip(group, self._run_all(group), strict=True):
                if any(rule == self.rule for rule, _, _ in result.violations):
                    self.plan, self.result = plan, result
                    self._tell()
                    return True
        return False

    def _group(self, candidates: Iterator[Plan]) -> list[Plan]:
        if self.runs >= self._runs_max or monotonic() > self._ends_at:
            return []
        return [plan for plan, _ in zip(candidates, range(self._at_once), strict=False)]

    def _tell(self) -> None:
        scale = self.plan.scale
        busy = f"{scale.busy_seconds:g} s and {scale.quiet_seconds:g} s"
        self._told(f"{len(self.plan.actions)} actions, {scale.nodes} nodes, {busy}, after {self.runs} runs")


def _without(plan: Plan, parts: int) -> Iterator[Plan]:
    """The plan without one of so many parts of its actions; the last part first: what is late is often not needed."""
    actions = plan.actions
    bounds = [len(actions) * number // parts for number in range(parts + 1)]
    for first, last in reversed(list(itertools.pairwise(bounds))):
        yield msgspec.structs.replace(plan, actions=actions[:first] + actions[last:])


def _ending(plan: Plan, at: float) -> Iterator[Plan]:
    """What came after the violation is left out; without waiting for the cluster to be well, and with it."""
    actions = tuple(action for action in plan.actions if action.at <= at)
    for quiet_seconds in (QUIET_SECONDS_MIN, plan.scale.quiet_seconds):
        scale = msgspec.structs.replace(plan.scale, busy_seconds=round(at + 1.0, 3), quiet_seconds=quiet_seconds)
        yield msgspec.structs.replace(plan, scale=scale, actions=actions)


def _shorter(plan: Plan) -> Iterator[Plan]:
    last = max((action.at + float(action.data.get("seconds", 0.0)) for action in plan.actions), default=0.0)
    busy_seconds = round(last + 1.0, 3)
    if busy_seconds < plan.scale.busy_seconds:
        yield msgspec.structs.replace(plan, scale=msgspec.structs.replace(plan.scale, busy_seconds=busy_seconds))


def _smaller(plan: Plan) -> Iterator[Plan]:
    for nodes in sorted({1, plan.scale.nodes // 2, plan.scale.nodes - 1}):
        if 0 < nodes < plan.scale.nodes:
            yield msgspec.structs.replace(plan, scale=msgspec.structs.replace(plan.scale, nodes=nodes))
