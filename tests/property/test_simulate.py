"""Replays over random workloads: never over-allocated, no reserved start delayed, equal to a naive reference."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spritz.sim.trace.workload import Workload
from spritz_testing.studies.processors.conservative import replay_conservative
from spritz_testing.studies.processors.engine import ranks, replay
from spritz_testing.studies.processors.policies import POLICIES, run_policy
from spritz_testing.studies.processors.predicted import replay_predicted

PROCESSORS = 8

rows = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, 30), st.integers(0, 20), st.integers(1, PROCESSORS), st.integers(0, 2)
    ),
    min_size=1,
    max_size=25,
)


def workload_of(drawn: list[tuple[int, int, int, int, int]]) -> Workload:
    """Rows (submit, run, slack of the limit, processors, user)."""
    drawn = sorted(drawn, key=lambda row: row[0])
    count = len(drawn)
    return Workload(
        job=list(range(count)),
        submit=[float(row[0]) for row in drawn],
        run=[float(row[1]) for row in drawn],
        limit=[float(row[1] + row[2]) for row in drawn],
        processors=[row[3] for row in drawn],
        user=[str(row[4]) for row in drawn],
        group=["g"] * count,
        name=["n"] * count,
        queue=["0"] * count,
    )


def check_fits(workload: Workload, start: list[float]) -> None:
    """Every job runs once, not before its submission, and never more processors than there are."""
    assert all(begun >= submit for begun, submit in zip(start, workload.submit, strict=True))
    for now in start:
        used = sum(
            size
            for begun, run, size in zip(start, workload.run, workload.processors, strict=True)
            if begun <= now < begun + run
        )
        assert used <= PROCESSORS


def naive_easy(workload: Workload, candidates: list[int] | None) -> tuple[list[float], list[tuple[int, float]]]:
    """EASY, second by second and without any cleverness; also every reservation: (job, reserved start)."""
    count = len(workload)
    start = [-1.0] * count
    reservations = []
    now = 0.0
    while any(begun < 0 for begun in start):
        free = PROCESSORS - sum(
            workload.processors[job] for job in range(count) if start[job] >= 0 and now < start[job] + workload.run[job]
        )
        queue = [job for job in range(count) if start[job] < 0 and workload.submit[job] <= now]
        while queue and workload.processors[queue[0]] <= free:
            free -= workload.processors[queue[0]]
            start[queue.pop(0)] = now
        if queue:
            head = queue.pop(0)
            running = [job for job in range(count) if start[job] >= 0 and now < start[job] + workload.run[job]]
            times = sorted({start[job] + workload.limit[job] for job in running})
            for shadow in times:
                left = free + sum(
                    workload.processors[job] for job in running if start[job] + workload.limit[job] <= shadow
                )
                if left >= workload.processors[head]:
                    break
            extra = left - workload.processors[head]
            reservations.append((head, shadow))
            if candidates is not None:
                queue.sort(key=candidates.__getitem__)
            for job in queue:
                size = workload.processors[job]
                if size > free:
                    continue
                if now + workload.limit[job] > shadow:
                    if size > extra:
                        continue
                    extra -= size
                free -= size
                start[job] = now
        now += 1
    return start, reservations


@given(rows)
@settings(max_examples=100, deadline=None)
def test_no_policy_allocates_more_than_there_is(drawn: list[tuple[int, int, int, int, int]]) -> None:
    workload = workload_of(drawn)
    for policy in POLICIES:
        for runtimes in ("requested", "actual"):
            check_fits(workload, run_policy(workload, PROCESSORS, policy, runtimes).start)


@given(rows)
@settings(max_examples=100, deadline=None)
def test_easy_equals_a_naive_reference_and_never_delays_a_reserved_start(
    drawn: list[tuple[int, int, int, int, int]],
) -> None:
    workload = workload_of(drawn)
    order = range(len(workload))
    start, reservations = naive_easy(workload, None)
    assert replay(workload, PROCESSORS, workload.limit, order=order, candidates=order) == start
    assert all(start[job] <= reserved for job, reserved in reservations)


@given(rows)
@settings(max_examples=100, deadline=None)
def test_shortest_candidate_first_equals_a_naive_reference(drawn: list[tuple[int, int, int, int, int]]) -> None:
    workload = workload_of(drawn)
    shortest = ranks([(limit,) for limit in workload.limit])
    start, _ = naive_easy(workload, shortest)
    assert replay(workload, PROCESSORS, workload.limit, order=range(len(workload)), candidates=shortest) == start


@given(rows)
@settings(max_examples=100, deadline=None)
def test_conservative_starts_no_job_later_than_with_earlier_jobs_alone(
    drawn: list[tuple[int, int, int, int, int]],
) -> None:
    """With exact estimates a job's start does not depend on any job that was submitted after it."""
    workload = workload_of(drawn)
    start = replay_conservative(workload, PROCESSORS, workload.run)
    check_fits(workload, start)
    for count in range(1, len(workload)):
        assert replay_conservative(workload.take(range(count)), PROCESSORS, workload.run[:count]) == start[:count]


@given(rows, st.sampled_from(["slowdown", "fcfs"]))
@settings(max_examples=200, deadline=None)
def test_no_reserved_start_is_broken_however_wrong_predictions_are(
    drawn: list[tuple[int, int, int, int, int]], reserve: str
) -> None:
    workload = workload_of(drawn)
    start, reservations = replay_predicted(workload, PROCESSORS, guarantee=True, reserve=reserve)
    check_fits(workload, start)
    assert reservations.broken == 0


@given(rows, st.sampled_from(["slowdown", "fcfs"]))
@settings(max_examples=100, deadline=None)
def test_without_the_guarantee_everything_still_fits(drawn: list[tuple[int, int, int, int, int]], reserve: str) -> None:
    workload = workload_of(drawn)
    check_fits(workload, replay_predicted(workload, PROCESSORS, guarantee=False, reserve=reserve)[0])
