"""The RLScheduler study's windows."""

from __future__ import annotations

import pytest

from spritz.sim.trace.workload import TraceError, Workload
from spritz_testing.studies.processors.rlscheduler import (
    WINDOW_JOBS,
    mean_bounded_slowdown,
    replay_window,
    window_starts,
)


def fcfs(submit: float, _estimate: float, _size: int) -> float:
    return submit


def window_of(rows: list[tuple[float, float, int]]) -> Workload:
    """Rows (submit, run, processors), and one-second jobs long after them to fill a window."""
    rows = rows + [(1e6 + 10.0 * index, 1.0, 1) for index in range(WINDOW_JOBS - len(rows))]
    return Workload(
        job=list(range(len(rows))),
        submit=[row[0] for row in rows],
        run=[row[1] for row in rows],
        limit=[row[1] for row in rows],
        processors=[row[2] for row in rows],
    )


def starts(rows: list[tuple[float, float, int]], *, backfill: bool) -> list[float]:
    return replay_window(window_of(rows), 10, 0, fcfs, backfill=backfill).start[: len(rows)]


def test_windows_are_those_that_the_study_drew() -> None:
    assert window_starts(10_000, 1) == [1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085]


def test_a_short_trace_is_refused() -> None:
    with pytest.raises(TraceError, match="too few"):
        window_starts(2_000, 1)


def test_without_backfill_the_first_holds_up_the_rest() -> None:
    assert starts([(0, 100, 6), (1, 50, 6), (2, 10, 2)], backfill=False) == [0, 100, 100]


def test_a_candidate_must_end_before_the_reserved_start_not_at_it() -> None:
    assert starts([(0, 100, 6), (1, 50, 6), (2, 97, 2)], backfill=True) == [0, 100, 2]
    assert starts([(0, 100, 6), (1, 50, 6), (2, 98, 2)], backfill=True) == [0, 100, 100]


def test_processors_that_the_first_leaves_do_not_count() -> None:
    assert starts([(0, 100, 6), (1, 50, 6), (2, 500, 1)], backfill=True) == [0, 100, 100]


def test_slowdown_is_a_mean_over_all_windows() -> None:
    workload = window_of([(0, 100, 10), (0, 100, 10)])
    window = replay_window(workload, 10, 0, fcfs, backfill=False)
    assert mean_bounded_slowdown(workload, [window], 10.0) == pytest.approx((1 + 2 + (WINDOW_JOBS - 2)) / WINDOW_JOBS)
