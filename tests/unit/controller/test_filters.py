"""Which jobs a JobFilter means: everything given must match, and the indexes give what a scan would."""

from __future__ import annotations

import pytest
from msgspec import structs

from spritz.controller.api.queue.filters import matching_jobs, target_jobs
from spritz.core.state import State
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import ArrayState, Job, JobSpec
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation, NodeAllocation
from spritz.model.states import JobFlag, JobState


def a_state() -> State:
    """Five plain jobs in different states and an array of which one task runs."""
    state = State(ClusterSettings())
    on_n1 = Allocation(partition="p", nodes=(NodeAllocation(node="n1", cpus="1"),))
    spec = JobSpec(name="train", uid=7, account="a", partitions=("p", "q"), licenses="matlab:2,foo")
    array = structs.replace(spec, name="sweep", uid=8)
    records = [
        Job(id=1, spec=spec, partition="p"),
        Job(id=2, spec=spec, partition="p", state=JobState.RUNNING, allocation=on_n1),
        Job(id=3, spec=structs.replace(spec, uid=8), partition="q", state=JobState.COMPLETED),
        Job(id=4, spec=spec, partition="p", state=JobState.CANCELLED, flags=int(JobFlag.COMPLETING), allocation=on_n1),
        Job(id=5, spec=spec, partition="p", state=JobState.SUSPENDED, allocation=on_n1),
        Job(id=10, spec=array, partition="p", array=ArrayState(pending="c"), array_job_id=10),
        Job(id=11, spec=array, partition="p", state=JobState.RUNNING, array_job_id=10, array_task_id=1),
    ]
    for record in records:
        state.put_job(record)
    return state


def ids(found: list[Job] | Rejection) -> list[int]:
    assert isinstance(found, list)
    return [job.id for job in found]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (JobFilter(), [1, 2, 3, 4, 5, 10, 11]),
        (JobFilter(users=(7,)), [1, 2, 4, 5]),
        (JobFilter(users=(8,), states=("PENDING", "RUNNING")), [10, 11]),
        (JobFilter(states=("PENDING",)), [1, 10]),
        (JobFilter(states=("RUNNING",)), [2, 11]),
        (JobFilter(states=("SUSPENDED",)), [5]),
        (JobFilter(states=("COMPLETING",)), [4]),
        (JobFilter(states=("pending", "running", "suspended", "completing")), [1, 2, 4, 5, 10, 11]),
        (JobFilter(states=("COMPLETED", "RUNNING")), [2, 3, 11]),
        (JobFilter(names=("sweep",), states=("RUNNING",)), [11]),
        (JobFilter(partitions=("q",)), [1, 3, 10]),
        (JobFilter(nodes=("n1",), states=("RUNNING",)), [2]),
        (JobFilter(accounts=("b",)), []),
        (JobFilter(licenses=("foo",), states=("SUSPENDED",)), [5]),
        (JobFilter(targets=(JobTarget(2), JobTarget(3), JobTarget(99))), [2, 3]),
        (JobFilter(targets=(JobTarget(10),)), [10, 11]),
        (JobFilter(targets=(JobTarget(10, tasks="2"),)), [11]),
        (JobFilter(targets=(JobTarget(10, tasks="4"),)), [10]),
        (JobFilter(targets=(JobTarget(2),), users=(8,)), []),
    ],
)
def test_everything_given_must_match(wanted: JobFilter, expected: list[int]) -> None:
    assert ids(matching_jobs(a_state(), wanted)) == expected


def test_one_target_that_names_nothing_is_slurms_error_and_two_are_an_empty_answer() -> None:
    state = a_state()
    assert matching_jobs(state, JobFilter(targets=(JobTarget(99),))) == Rejection(code="ESLURM_INVALID_JOB_ID")
    assert matching_jobs(state, JobFilter(targets=(JobTarget(99), JobTarget(98)))) == []
    assert matching_jobs(state, JobFilter(targets=(JobTarget(10, tasks="1"),))) == [], (
        "the array is there, its task 0 not"
    )


def test_a_listing_of_live_jobs_does_not_look_at_finished_ones() -> None:
    """Tens of thousands of them stay for MinJobAge; the indexes pass them by."""

    class Counting(dict[int, Job]):
        looked = 0

        def __getitem__(self, key: int) -> Job:
            self.looked += 1
            return super().__getitem__(key)

        def values(self) -> None:  # type: ignore[override]
            raise AssertionError("a scan of all jobs")

    state = a_state()
    for number in range(100, 1100):
        state.put_job(Job(id=number, spec=JobSpec(uid=7), state=JobState.COMPLETED))
    counting = Counting(state.jobs)
    state.jobs = counting
    wanted = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING")
    assert len(ids(matching_jobs(state, JobFilter(states=wanted)))) == 6
    assert counting.looked == 6


def test_an_arrays_own_number_means_its_record_and_all_its_tasks() -> None:
    assert [job.id for job in target_jobs(a_state(), JobTarget(10))] == [10, 11]
