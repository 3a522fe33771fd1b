"""Counts of jobs that are kept from page to page are those of a count of all jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from spritz.controller.metrics.jobs import JobTotals, Tally, Totals
from spritz.model.job.record import Job
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation
from spritz.model.states import JobFlag, JobState
from spritz_testing.builders import World, node_share

_STATES = (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED, JobState.COMPLETED)


def _plain(totals: Totals) -> dict[str, object]:
    return {name: getattr(totals, name) for name in Totals.__slots__}


def _all(totals: JobTotals) -> object:
    groups = (totals.partitions, totals.users, totals.accounts)
    return _plain(totals.all), [{name: _plain(one) for name, one in group.items()} for group in groups]


def _totals(tally: Tally, jobs: dict[int, Job]) -> JobTotals:
    totals = JobTotals()
    for _ in (*tally.follow(jobs), *tally.add_up(totals)):
        pass
    return totals


def _record() -> Job:
    world = World(nodes=1)
    return world.machine.state.jobs[world.submit()]


_RECORD = _record()
_ALLOCATION = Allocation(partition="debug", nodes=(node_share("n1"), node_share("n2")))


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5),
            st.sampled_from([*_STATES, None]),
            st.sampled_from(["alice", "bob"]),
            st.sampled_from([0, JobFlag.COMPLETING.value]),
            st.sampled_from([Reason.NONE, Reason.PARTITION_NODE_LIMIT]),
            st.integers(0, 2),
        ),
        max_size=30,
    ),
    st.integers(1, 6),
)
def test_a_count_of_what_has_changed_is_the_count_of_all(
    changes: list[tuple[int, JobState | None, str, int, Reason, int]], often: int
) -> None:
    jobs: dict[int, Job] = {}
    kept = Tally()
    for number, (job_id, state, user, flags, reason, priority) in enumerate(changes):
        if state is None:
            jobs.pop(job_id, None)
        else:
            jobs[job_id] = structs.replace(
                _RECORD,
                id=job_id,
                state=state,
                flags=flags,
                reason=reason,
                priority=priority,
                spec=structs.replace(_RECORD.spec, user=user),
                allocation=None if state is JobState.PENDING else _ALLOCATION,
            )
        if number % often == 0:
            _totals(kept, jobs)
    totals = _totals(kept, jobs)
    assert _all(totals) == _all(_totals(Tally(), jobs))
    assert totals.all.jobs == len(jobs)
