"""Policies by name: the order of the queue, and the rule for overtaking.

    ORDER         jobs start in this order; the first that does not fit blocks all others
    ORDER-easy    the first that does not fit has a reservation; later jobs may overtake if they do not delay it
    easy          fcfs-easy; `easy-sjbf` tries the shortest candidate first
    conservative  every job has a reservation (`conservative`)

Only `easy` supports predicted run times (`predicted`).

Orders: fcfs (submission), sjf and ljf (shortest, longest estimate), saf (smallest estimate x processors), smallest and
largest (processors), f1 (a learned function).

Source: slurm.conf(5) SchedulerType; Carastan-Santos and de Camargo, SC'17 (saf, f1); Tsafrir et al., TPDS 18(6), 2007
(shortest job backfilled first).
"""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.notation.names import nearest
from spritz.sim.trace.workload import TraceError
from spritz_testing.studies.processors.conservative import replay_conservative
from spritz_testing.studies.processors.engine import ranks, replay
from spritz_testing.studies.processors.predicted import replay_predicted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.sim.trace.workload import Workload

#: An order: (submission, estimate, processors) -> key, smallest first
ORDERS: dict[str, Callable[[float, float, int], float]] = {
    "fcfs": lambda submit, estimate, size: submit,
    "sjf": lambda submit, estimate, size: estimate,
    "ljf": lambda submit, estimate, size: -estimate,
    "saf": lambda submit, estimate, size: estimate * size,
    "smallest": lambda submit, estimate, size: size,
    "largest": lambda submit, estimate, size: -size,
    "f1": lambda submit, estimate, size: log10(max(estimate, 0.1)) * size + 870 * log10(max(submit, 0.1)),
}

POLICIES: tuple[str, ...] = (
    *ORDERS,
    "easy",
    "easy-sjbf",
    "conservative",
    *(f"{order}-easy" for order in ORDERS if order != "fcfs"),
)

RUNTIMES = ("requested", "actual", "predicted")

#: Policies of a study with its own rules (`rlscheduler`).
STUDIES: tuple[str, ...] = tuple(
    f"rlscheduler-{order}{suffix}" for order in ("fcfs", "sjf", "f1") for suffix in ("", "-backfill")
)


class Replayed(Struct, frozen=True, kw_only=True):
    """Start time of each job of the workload, and the policy's counts."""

    start: list[float]
    events: int
    counts: dict[str, int | float]


def check_policy(policy: str) -> None:
    """Raises TraceError, with the nearest known name, for an unknown policy."""
    names = POLICIES + STUDIES
    if policy not in names:
        near = nearest(policy, names)
        raise TraceError(
            f"no such policy: {policy}" + (f" (did you mean {near}?)" if near else ""), f"known: {', '.join(names)}"
        )


def run_policy(
    workload: Workload,
    processors: int,
    policy: str,
    runtimes: str = "requested",
    *,
    guarantee: bool = True,
    reserve: str = "slowdown",
    tick: Callable[[int], None] | None = None,
) -> Replayed:
    """Replay under the policy of this name.

    `runtimes`: the run times that jobs are planned with, `requested`, `actual` or `predicted`. `guarantee` and
    `reserve` apply to predictions. Raises TraceError for unknown values.
    """
    check_policy(policy)
    events = 2 * len(workload)
    if runtimes == "predicted":
        if policy != "easy":
            raise TraceError(f"predicted run times go with the policy easy, not with {policy}")
        start, reservations = replay_predicted(workload, processors, guarantee=guarantee, reserve=reserve, tick=tick)
        counts: dict[str, int | float] = {
            "reserved_starts": reservations.made,
            "reserved_starts_broken": reservations.broken,
            "reserved_starts_latest_seconds": reservations.latest_seconds,
        }
        return Replayed(start=start, events=events, counts=counts)
    estimates = workload.run if runtimes == "actual" else workload.limit
    if policy == "conservative":
        return Replayed(start=replay_conservative(workload, processors, estimates, tick=tick), events=events, counts={})
    order_name = "fcfs" if policy in ("easy", "easy-sjbf") else policy.removesuffix("-easy")
    order = _ranked(workload, estimates, order_name)
    candidates: Sequence[int] | None = None
    if policy == "easy-sjbf":
        candidates = _ranked(workload, estimates, "sjf")
    elif policy.endswith("easy"):
        candidates = order
    start = replay(workload, processors, estimates, order=order, candidates=candidates, tick=tick)
    return Replayed(start=start, events=events, counts={})


def _ranked(workload: Workload, estimates: Sequence[float], order: str) -> Sequence[int]:
    if order == "fcfs":
        return range(len(workload))
    key = ORDERS[order]
    columns = zip(workload.submit, estimates, workload.processors, strict=True)
    return ranks([(key(submit, estimate, size),) for submit, estimate, size in columns])
