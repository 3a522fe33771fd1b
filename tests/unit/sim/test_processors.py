"""Replay on a number of processors: what starts when, by hand."""

from __future__ import annotations

import pytest

from spritz.sim.measures import by, makespan, measure, utilization
from spritz.sim.trace.workload import TraceError, Workload
from spritz_testing.studies.processors.policies import run_policy


def jobs(*rows: tuple[float, float, float, int]) -> Workload:
    """Each row: submit, run, limit, processors."""
    count = len(rows)
    return Workload(
        job=list(range(1, count + 1)),
        submit=[row[0] for row in rows],
        run=[row[1] for row in rows],
        limit=[row[2] for row in rows],
        processors=[row[3] for row in rows],
        user=[str(index % 2) for index in range(count)],
        group=["g"] * count,
        name=["-1"] * count,
        queue=["0"] * count,
    )


def starts(workload: Workload, policy: str, processors: int = 10, runtimes: str = "requested") -> list[float]:
    return run_policy(workload, processors, policy, runtimes).start


def test_fcfs_holds_everybody_behind_a_job_that_does_not_fit() -> None:
    workload = jobs((0, 100, 100, 6), (1, 50, 50, 6), (2, 10, 10, 2))
    assert starts(workload, "fcfs") == [0, 100, 100]


def test_easy_lets_a_job_pass_that_ends_before_the_reserved_start() -> None:
    workload = jobs((0, 100, 100, 6), (1, 50, 50, 6), (2, 10, 98, 4))
    assert starts(workload, "easy") == [0, 100, 2]


def test_easy_stops_a_job_that_would_delay_the_first_by_one_second() -> None:
    workload = jobs((0, 100, 100, 6), (1, 50, 50, 8), (2, 99, 99, 4))
    assert starts(workload, "easy") == [0, 100, 150]


def test_easy_lets_a_long_job_use_processors_that_the_first_leaves() -> None:
    workload = jobs((0, 100, 100, 6), (1, 50, 50, 7), (2, 500, 500, 3), (3, 500, 500, 1))
    assert starts(workload, "easy") == [0, 100, 2, 150]


def test_processors_of_all_jobs_that_end_at_the_reserved_start_count_as_left() -> None:
    workload = jobs((0, 100, 100, 4), (0, 100, 100, 4), (1, 50, 50, 6), (2, 500, 500, 2))
    assert starts(workload, "easy") == [0, 0, 100, 2]


def test_a_job_that_ends_early_moves_the_reserved_start() -> None:
    workload = jobs((0, 20, 100, 6), (1, 50, 50, 8), (2, 99, 99, 4))
    assert starts(workload, "easy") == [0, 20, 70]


def test_true_run_times_open_holes_that_limits_close() -> None:
    workload = jobs((0, 100, 100, 6), (1, 50, 50, 8), (2, 10, 500, 4))
    assert starts(workload, "easy") == [0, 100, 150]
    assert starts(workload, "easy", runtimes="actual") == [0, 100, 2]


def test_the_shortest_candidate_goes_first() -> None:
    workload = jobs((0, 100, 100, 6), (1, 50, 50, 8), (2, 60, 60, 4), (2, 5, 5, 4))
    assert starts(workload, "easy") == [0, 100, 2, 62]
    assert starts(workload, "easy-sjbf") == [0, 100, 7, 2]


def test_sjf_and_its_relatives_order_the_queue() -> None:
    workload = jobs((0, 100, 100, 10), (1, 50, 50, 10), (2, 10, 10, 10), (3, 20, 20, 1))
    assert starts(workload, "sjf") == [0, 130, 100, 110]
    assert starts(workload, "ljf") == [0, 100, 170, 150]
    assert starts(workload, "smallest") == [0, 120, 170, 100]


def test_ends_come_before_submissions_of_the_same_instant() -> None:
    assert starts(jobs((0, 10, 10, 10), (10, 5, 5, 10)), "fcfs") == [0, 10]


def test_an_unknown_policy_is_refused_with_the_nearest() -> None:
    with pytest.raises(TraceError, match="did you mean easy"):
        starts(jobs((0, 1, 1, 1)), "eazy")


def test_measures_are_those_of_the_literature() -> None:
    workload = jobs((0, 4, 4, 10), (0, 100, 100, 10))
    start = starts(workload, "fcfs")
    figures = measure(workload, start, range(2), 10.0)
    # The first: (0 + 4) / 10 is less than 1; the second: (4 + 100) / 100.
    assert figures.mean_bounded_slowdown == (1.0 + 1.04) / 2
    assert figures.mean_wait_seconds == 2.0
    assert makespan(workload, start) == 104
    assert utilization(workload, start, 20) == 0.5


def test_breakdowns_cover_every_job_once() -> None:
    workload = jobs((0, 5, 5, 1), (0, 5, 5, 2), (0, 5, 5, 3), (0, 5, 5, 4), (0, 5, 5, 9))
    start = starts(workload, "fcfs", 32)
    assert {word: one.jobs for word, one in by(workload, start, "size", 10.0).items()} == {
        "1": 1,
        "2": 1,
        "3-4": 2,
        "9-16": 1,
    }
    assert {word: one.jobs for word, one in by(workload, start, "user", 10.0).items()} == {"0": 3, "1": 2}


def test_conservative_backfill_keeps_every_reservation() -> None:
    workload = jobs((0, 100, 100, 6), (1, 50, 50, 8), (2, 50, 50, 6), (3, 120, 120, 2))
    # EASY thinks of the second job alone; the third is delayed by the fourth.
    assert starts(workload, "easy") == [0, 100, 150, 3]
    assert starts(workload, "conservative") == [0, 100, 150, 3]
    tighter = jobs((0, 100, 100, 6), (1, 50, 50, 8), (2, 50, 50, 10), (3, 200, 200, 2))
    assert starts(tighter, "easy") == [0, 100, 203, 3]
    assert starts(tighter, "conservative") == [0, 100, 150, 200]


def test_conservative_moves_reservations_forward_when_a_job_ends_early() -> None:
    workload = jobs((0, 20, 100, 6), (1, 50, 50, 8), (2, 10, 10, 10))
    assert starts(workload, "conservative") == [0, 20, 70]


def test_predictions_fill_the_time_that_a_promise_leaves() -> None:
    # The third job is promised 100 by limits. When the first ends early, that leaves room for the fourth.
    workload = jobs((0, 10, 100, 6), (0, 20, 20, 4), (1, 50, 50, 10), (12, 30, 60, 6))
    replayed = run_policy(workload, 10, "easy", "predicted")
    assert replayed.start == [0, 0, 42, 12]
    assert replayed.counts["reserved_starts_broken"] == 0
    assert replayed.counts["reserved_starts"] == 1


def test_predictions_go_with_easy_alone() -> None:
    with pytest.raises(TraceError, match="go with the policy easy"):
        run_policy(jobs((0, 1, 1, 1)), 10, "fcfs", "predicted")
