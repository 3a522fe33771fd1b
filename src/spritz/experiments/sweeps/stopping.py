"""Early stopping of trials: ASHA and the median rule, on reported metrics.

The rules are those of Optuna's SuccessiveHalvingPruner and MedianPruner (tests compare them). This implementation works
on plain values, so that the process in parallel to a trial only needs Python, and so that no trial must write into
another's records: the rungs that a trial has reached follow from its own reports.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Step -> value of the metric.
Reports = Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Early stopping: `method` "" (none), asha or median."""

    method: str = ""
    #: asha: the first rung, in steps
    min_steps: int = 1
    #: asha: fraction 1/reduction continues at each rung, and the next rung is this many times further
    reduction: int = 4
    #: median: complete trials before any is stopped
    startup_trials: int = 5
    #: median: steps before any is stopped
    warmup_steps: int = 0


@dataclass(frozen=True)
class Peer:
    """Another trial: what it reported, and whether it ran to its end."""

    reports: Reports
    complete: bool


def stop(policy: Policy, of_trial: Reports, peers: Iterable[Peer], *, maximize: bool, judged: int = -1) -> str:
    """Why the trial should stop now; "" if it should continue.

    Reports up to step `judged` were judged before: once a trial has passed a rung, later trials do not change that.
    """
    if not of_trial or max(of_trial) <= judged:
        return ""
    sign = -1.0 if maximize else 1.0
    signed = {step: sign * value for step, value in of_trial.items()}
    others = [({step: sign * value for step, value in peer.reports.items()}, peer.complete) for peer in peers]
    if policy.method == "asha":
        return _asha(policy, signed, [reports for reports, _ in others], judged)
    if policy.method == "median":
        return _median(policy, signed, [reports for reports, complete in others if complete])
    return ""


def _asha(policy: Policy, of_trial: Reports, peers: list[Reports], judged: int) -> str:
    """The trial continues if it is among the best 1/reduction of the trials that reached its rung before it."""
    last, at = max(of_trial), policy.min_steps
    while at <= last:
        if at <= judged:
            at *= policy.reduction
            continue
        value = _at_rung(of_trial, at)
        if math.isnan(value):
            return f"the metric is not a number at step {at}"
        others = [_at_rung(peer, at) for peer in peers if max(peer, default=-1) >= at]
        rivals = sorted([value, *(other for other in others if not math.isnan(other))])
        limit = rivals[max(0, len(rivals) // policy.reduction - 1)]
        if value > limit:
            return f"not in the best 1/{policy.reduction} of {len(rivals)} trials at step {at}"
        at *= policy.reduction
    return ""


def _at_rung(reports: Reports, at: int) -> float:
    """The trial's value at the rung: its first report from there on."""
    return reports[min(step for step in reports if step >= at)]


def _median(policy: Policy, of_trial: Reports, complete: list[Reports]) -> str:
    """The trial continues while its best value so far is not worse than the median of complete trials at this step."""
    step = max(of_trial)
    if len(complete) < policy.startup_trials or step < policy.warmup_steps:
        return ""
    values = [value for reports in complete if (value := reports.get(step, math.nan)) == value]
    if not values:
        return ""
    numbers = [value for value in of_trial.values() if value == value]
    if not numbers:
        return "the metric is not a number"
    median = statistics.median(values)
    if min(numbers) > median:
        return f"worse than the median of {len(values)} complete trials at step {step}"
    return ""
