"""An explanation never contradicts the plan it explains, over random clusters and queues."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.test_scheduling import moves, play, requests, sites
from tests.unit.scheduling.site import Site, spec

from spritz.model.queries.explain import Explanation
from spritz.model.states import JobState
from spritz.scheduling.explain.alternatives import try_others
from spritz.scheduling.explain.context import PlanView
from spritz.scheduling.explain.explanation import explain
from spritz.scheduling.explain.nodes import able, least_portion
from spritz.scheduling.forecast import full_cycle

SPEED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def view_of(site: Site) -> PlanView:
    snapshot = site.projection.snapshot(site.now, site.history)
    return PlanView(snapshot, full_cycle.run(snapshot, held=True), site.jobs, site.projection.nodes)


def all_told(site: Site) -> tuple[PlanView, dict[int, Explanation]]:
    """Explanations of all that wait, by one plan."""
    view = view_of(site)
    waiting = [job for job in site.jobs.values() if job.state is JobState.PENDING]
    return view, {job.id: explain(view, job) for job in waiting}


@SPEED
@given(sites(), moves)
def test_whatever_is_said_to_start_now_is_what_the_next_cycle_starts(site: Site, script: list[tuple[str, Any]]) -> None:
    for move in script:
        play(site, move)
    view, told = all_told(site)
    starting = {start.job_id for start in view.plan.starts}
    assert {job_id for job_id, one in told.items() if one.verdict == "starts"} == starting
    site.cycle()
    for job_id, one in told.items():
        job = site.jobs[job_id]
        if one.verdict != "starts":
            assert job.state is JobState.PENDING
            assert job.reason.value == one.reason


@SPEED
@given(sites(), moves)
def test_counts_add_up_and_a_node_is_able_exactly_if_it_can_take_a_part(
    site: Site, script: list[tuple[str, Any]]
) -> None:
    for move in script:
        play(site, move)
    view, told = all_told(site)
    for job_id, one in told.items():
        requests_by_home = {
            shape.request.partition: shape.request for _, shape in view.snapshot.records[job_id].entries
        }
        for part in one.partitions:
            assert sum(test.count for test in part.tests) == part.total == len(site.configs)
            request = requests_by_home.get(part.partition)
            if request is None:
                continue
            serving = set(view.snapshot.eligibility.nodes(request).tolist())
            rows = [row for index, row in enumerate(view.table.rows) if index in serving]
            can = sum(able(row, request, least_portion(request)) for row in rows)
            told_able = sum(test.count for test in part.tests if test.test in ("able", "kept"))
            unnamed = sum(test.count for test in part.tests if test.test == "not_named")
            assert told_able <= can <= told_able + unnamed


@SPEED
@given(sites(), st.lists(requests(), min_size=5, max_size=10), requests(), st.data())
def test_a_job_with_no_job_ahead_starts_once_its_named_blockers_have_ended(
    site: Site, running: list[dict[str, Any]], wanted: dict[str, Any], data: st.DataObject
) -> None:
    """All that is in the cluster runs; one job waits."""
    for fields in running:
        site.submit(spec(**fields))
    site.cycle()
    for job in list(site.jobs.values()):
        if job.state is JobState.PENDING:
            site.projection.forget_job(job.id)
            del site.machine.state.jobs[job.id]
            site.machine.state.pending.pop(job.id, None)
    waiting = site.submit(spec(**wanted))
    _view, told = all_told(site)
    one = told[waiting]
    assert one.ahead.count == 0
    if one.verdict == "starts":
        assert one.blockers == ()
        return
    assert one.expected is not None
    if one.expected.sure == "unknown":
        assert one.blockers == ()
        return
    assert one.blockers
    assert max(item.ends_at for item in one.blockers) <= one.expected.start_at
    names = [int(item.job) for item in one.blockers]
    # None of them could have been left out.
    spared = data.draw(st.sampled_from(names))
    for job_id in names:
        if job_id != spared:
            site.end(job_id)
    assert waiting not in {start.job_id for start in site.plan().starts}
    site.end(spared)
    assert waiting in site.cycle()


@settings(SPEED, max_examples=15)
@given(sites(), st.lists(requests(), min_size=2, max_size=8))
def test_what_would_start_sooner_does_when_it_is_asked_for(site: Site, wanted: list[dict[str, Any]]) -> None:
    for fields in wanted:
        site.submit(spec(**fields))
    site.cycle()
    waiting = [job for job in site.jobs.values() if job.state is JobState.PENDING]
    if not waiting:
        return
    job = waiting[-1]
    one = explain(view_of(site), job)
    asked: list[Any] = []

    def acceptable(request: Any) -> bool:
        asked.append(request)
        return True

    found, tried = try_others(site.projection, job, one, site.now, acceptable)
    assert tried <= len(asked)
    base = one.expected.start_at if one.expected is not None and one.expected.start_at else float("inf")
    for item in found:
        assert site.now <= item.start_at < base
        assert item.now == (item.start_at == site.now)
    # Nothing of the trials stays.
    assert site.projection.records[job.id].spec == job.spec
