"""Records that a person changes: runaway jobs, comments and codes of ended jobs. Source: sacctmgr(1)."""

from __future__ import annotations

import pytest

from spritz.accounting.amend import end_runaway, modify_jobs
from spritz.accounting.select_events import read_events
from spritz.accounting.store import Store
from spritz.model.accounting.accounting_admin import ModifyJobs, SelectEvents
from spritz.model.accounting.records import JobPick
from spritz.model.errors import SpritzError
from spritz.model.events.job import JobEnded, JobStarted
from spritz_testing.history import History, in_groups
from tests.conformance.test_accounting import JOURNAL, asked, register, tables

pytestmark = pytest.mark.xdist_group("databases")


@pytest.fixture
def filled(store: Store) -> Store:
    """In the midst of its jobs: History tells of a job from its submission to its end, so some ends are left out."""
    register(store)
    events = [event for event in History(41).events(150) if not isinstance(event, JobEnded) or event.job_id % 5]
    started = [event for event in events if not isinstance(event, JobStarted) or event.job_id % 10]
    store.ingest("c1", JOURNAL, in_groups(iter(started), 41))
    return store


def test_runaway_jobs_end_when_they_began_and_their_steps_with_them(filled: Store) -> None:
    lives = asked(filled, duplicates=True, not_eligible=True)
    alive = [live.job for live in lives if live.job.ended_at == 0.0]
    assert {job.state for job in alive} >= {"PENDING", "RUNNING"}
    numbers = tuple(job.number for job in alive)
    ended = end_runaway(filled.engine, "c1", numbers)
    assert ended == sorted(job.job_id for job in alive)
    after = {one.job.number: one for one in asked(filled, duplicates=True, not_eligible=True)}
    for job in alive:
        now = after[job.number].job
        assert now.state == "COMPLETED"
        assert now.ended_at == (job.started_at or job.eligible_at or job.submitted_at)
        assert all(step.ended_at > 0.0 for step in after[job.number].steps)
    untouched = [live.job for live in lives if live.job.ended_at > 0.0]
    assert [after[job.number].job for job in untouched] == untouched
    assert end_runaway(filled.engine, "c1", numbers) == []


def test_what_was_kept_of_an_ended_job_is_changed_by_its_owner_or_an_operator(filled: Store) -> None:
    ended = [one.job for one in asked(filled) if one.job.ended_at > 0.0 and not one.job.array_job_id]
    job = ended[0]
    pick = (JobPick(job.job_id),)
    modify_jobs(
        filled.engine,
        ModifyJobs(cluster="c1", picks=pick, comment="it's \N{SNOWMAN}", derived_exit_status=5 << 8),
        job.uid,
        operator=False,
    )
    (found,) = asked(filled, picks=pick)
    assert (found.job.comment, found.job.derived_exit_status) == ("it's \N{SNOWMAN}", 5 << 8)
    before = tables(filled)
    for request, uid in (
        (ModifyJobs(cluster="c1", picks=pick, comment="mine"), job.uid + 1),
        (ModifyJobs(cluster="c1", picks=pick, admin_comment="mine"), job.uid),
        (ModifyJobs(cluster="c1", picks=pick, wckey="other"), job.uid),
    ):
        with pytest.raises(SpritzError, match="permission denied"):
            modify_jobs(filled.engine, request, uid, operator=False)
    running = next(one.job for one in asked(filled) if one.job.state == "RUNNING")
    with pytest.raises(SpritzError, match="scontrol"):
        modify_jobs(
            filled.engine, ModifyJobs(cluster="c1", picks=(JobPick(running.job_id),), comment="x"), 0, operator=True
        )
    assert tables(filled) == before
    assert modify_jobs(
        filled.engine, ModifyJobs(cluster="c1", picks=pick, admin_comment="ours", wckey="k"), 0, operator=True
    ) == [str(job.job_id)]
    (found,) = asked(filled, picks=pick)
    assert (found.job.admin_comment, found.job.wckey) == ("ours", "k")
    nobody = ModifyJobs(cluster="c1", picks=(JobPick(999_999),), comment="x")
    assert modify_jobs(filled.engine, nobody, 0, operator=True) == []


def test_events_are_found_by_node_time_state_and_reason(filled: Store) -> None:
    def events(**conditions: object) -> list[tuple[str, float, float]]:
        query = SelectEvents(**conditions)  # type: ignore[arg-type]  # what each test gives is of the right type
        return [(e.node, e.started_at, e.ended_at) for piece in read_events(filled.engine, query) for e in piece.events]

    every = events(starts_at=0.0)
    assert len(every) > 3
    assert [one[1] for one in every] == sorted(one[1] for one in every)
    assert events() == [one for one in every if one[2] == 0.0]
    node = next(name for name, _, _ in every if name)
    assert events(starts_at=0.0, nodes=(node,)) == [one for one in every if one[0] == node]
    assert events(starts_at=0.0, kind="cluster") == [one for one in every if not one[0]]
    middle = every[len(every) // 2][1]
    assert events(starts_at=middle) == [one for one in every if one[2] == 0.0 or one[2] >= middle]
    assert events(starts_at=0.0, ends_at=middle) == [one for one in every if one[1] < middle]
    assert events(clusters=("c2",)) == []
    assert events(starts_at=0.0, reasons=("no such % reason",)) == []


def test_events_are_found_by_the_cpus_that_were_affected(filled: Store) -> None:
    """Of a node what it had at the time; of the cluster all of it."""

    def events(**conditions: int) -> list[tuple[str, str]]:
        query = SelectEvents(starts_at=0.0, **conditions)  # type: ignore[arg-type]  # numbers of CPUs alone
        return [(e.node, e.tres.partition(",")[0]) for piece in read_events(filled.engine, query) for e in piece.events]

    every = events()
    nodes = [one for one in every if one[0]]
    assert nodes
    assert {tres for _, tres in nodes} == {"cpu=64"}
    assert {int(tres.removeprefix("cpu=")) for node, tres in every if not node}.isdisjoint({64})
    assert events(cpus_min=64, cpus_max=64) == nodes
    assert events(cpus_min=65) == [one for one in every if not one[0]]
    assert events(cpus_max=63) == []
