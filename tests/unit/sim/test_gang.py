"""Gang jobs: placement, FIFO, backfill, and the preemptive test policies."""

from __future__ import annotations

import pytest

from spritz.sim.trace.workload import TraceError
from spritz_testing.studies.gang.nodes import GangNodes
from spritz_testing.studies.gang.preemptive import replay_preemptive
from spritz_testing.studies.gang.queued import replay_queued
from spritz_testing.studies.gang.trace import GangJobs, parse_gang

HEADER = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time"


def gang(*rows: tuple[float, float, int]) -> GangJobs:
    """Each row: submit, run, GPUs; without restart costs."""
    count = len(rows)
    return GangJobs(
        job=[str(index) for index in range(count)],
        submit=[row[0] for row in rows],
        gpus=[row[2] for row in rows],
        iterations=[row[1] for row in rows],
        unit=[1.0] * count,
        restart=[0.0] * count,
        model=[""] * count,
    )


def test_the_muri_form_has_milliseconds_and_a_factor() -> None:
    jobs = parse_gang([HEADER, "a,8,2000,1000,bert,500"], 64)
    assert (jobs.job, jobs.gpus, jobs.submit, jobs.restart) == (["a"], [8], [2.0], [10.0])
    assert jobs.iterations[0] * jobs.unit[0] == pytest.approx(507.5)


def test_the_itp_form_has_seconds() -> None:
    jobs = parse_gang(["job_id,submission_time,duration,num_gpu", "x,5,60,2"], 64)
    assert (jobs.submit, jobs.iterations, jobs.unit, jobs.gpus) == ([5.0], [60.0], [1.0], [2])


def test_the_philly_form_has_dates() -> None:
    jobs = parse_gang(["timestamp,duration,num_gpus", "2017-09-04 10:30:41,60.0,8", "2017-09-04 10:30:01,5,1"], 64)
    assert (jobs.submit[1] - jobs.submit[0], jobs.gpus, jobs.iterations) == (40, [1, 8], [5, 60])


def test_bad_rows_are_skipped_and_counted() -> None:
    rows = ["a,1,0,5,bert,10", "b,x,0,5,bert,10", "c,1,-1,5,bert,10", "d,99,0,5,bert,10", "e,1", "f,0,0,5,bert,10"]
    jobs = parse_gang([HEADER, *rows], 64)
    assert jobs.job == ["a"]
    assert sum(one.count for one in jobs.skipped.values()) == 5


def test_another_form_is_refused_with_the_columns_it_lacks() -> None:
    with pytest.raises(TraceError, match="iteration_time"):
        parse_gang(["a,b,c", "1,2,3"], 64)


def test_a_small_gang_stays_on_one_node() -> None:
    nodes = GangNodes(2, 8)
    nodes.free = [3, 3]
    assert not nodes.fits(4)
    assert nodes.place(4, tightest=True) is None
    assert nodes.place(3, tightest=True) == [(0, 3)]


def test_a_large_gang_takes_whole_nodes_and_one_for_the_rest() -> None:
    nodes = GangNodes(3, 8)
    nodes.free = [8, 5, 8]
    assert nodes.fits(20)
    assert nodes.place(20, tightest=True) == [(0, 8), (2, 8), (1, 4)]
    assert nodes.free == [0, 1, 0]


def test_the_tightest_node_is_taken_or_the_first() -> None:
    nodes = GangNodes(2, 8)
    nodes.free = [8, 2]
    assert nodes.copy().place(2, tightest=True) == [(1, 2)]
    assert nodes.copy().place(2, tightest=False) == [(0, 2)]


def test_fifo_waits_for_the_first_and_backfill_passes_it() -> None:
    jobs = gang((0, 100, 6), (1, 50, 8), (2, 90, 2), (3, 99, 1))
    fifo = replay_queued(jobs, 1, 8, backfill=False)
    easy = replay_queued(jobs, 1, 8, backfill=True)
    assert fifo.start == [0, 100, 150, 150]
    assert easy.start == [0, 100, 2, 150]


def test_backfill_may_outlast_the_reserved_start_where_the_first_still_fits() -> None:
    jobs = gang((0, 100, 8), (0, 50, 5), (1, 50, 6), (2, 500, 2), (3, 500, 1))
    # The third job fits on the second node from 50 on, with two more GPUs in use but not with three.
    assert replay_queued(jobs, 2, 8, backfill=True).start == [0, 0, 50, 2, 100]


def test_the_shortest_remaining_job_preempts() -> None:
    jobs = gang((0, 100, 8), (10, 5, 8))
    replayed = replay_preemptive(jobs, 1, 8, by_gpus=False)
    assert replayed.end == [105, 15]
    assert replayed.preemptions == 1


def test_gpu_time_and_time_order_differently() -> None:
    jobs = gang((0, 10, 8), (0, 20, 1))
    assert replay_preemptive(jobs, 1, 8, by_gpus=False).start == [0, 10]
    assert replay_preemptive(jobs, 1, 8, by_gpus=True).start == [20, 0]


def test_every_event_costs_running_jobs_their_restart() -> None:
    jobs = gang((0, 100, 4), (50, 10, 4))
    jobs.restart[0] = 7.0
    # The submission at 50 and the end at 60 cost the first job 7 s each.
    assert replay_preemptive(jobs, 1, 8, by_gpus=False).end == [114, 60]
