"""SchedulerParameters=bf_predict: who is backfilled first, what is learnt, and what a promise is then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.machine import Machine
from spritz.model.rules.predict import likeness_of
from spritz_testing.builders import World
from tests.unit.scheduling.site import SETTINGS, Site, node, spec

if TYPE_CHECKING:
    from spritz.model.cluster.settings import ClusterSettings

PREDICT = replace(SETTINGS, scheduler_parameters=(("bf_predict", ""),))
SLOWDOWN = replace(SETTINGS, scheduler_parameters=(("bf_predict", "slowdown"),))


def site_of(nodes: int = 2, settings: ClusterSettings = PREDICT) -> Site:
    """Nodes of one CPU each, with predictions."""
    return Site([node(f"n{i}", 1) for i in range(1, nodes + 1)], settings=settings)


def promised_to(site: Site) -> list[int]:
    """Jobs that have been told a start."""
    return [item.holder for promises in site.projection.ledger.by_request.values() for item in promises]


def run(site: Site, seconds: float, **asked: object) -> None:
    """Such a job runs for so long, alone."""
    job = site.submit(spec(1, **asked))  # type: ignore[arg-type]  # by name
    assert job in site.cycle()
    site.now += seconds
    site.end(job)


def test_behind_the_first_blocked_job_the_shortest_prediction_goes_first() -> None:
    site = site_of()
    run(site, 500, uid=1, time_limit_minutes=20)
    run(site, 30, uid=2, time_limit_minutes=20)
    site.submit(spec(1, time_limit_minutes=60, node_list=("n1",)), priority=100)
    site.cycle()
    head = site.submit(spec(2, 2, time_limit_minutes=60), priority=90)
    slow = site.submit(spec(1, uid=1, time_limit_minutes=20), priority=50)
    quick = site.submit(spec(1, uid=2, time_limit_minutes=20), priority=10)
    assert list(site.cycle()) == [quick]
    site.now += 30
    site.end(quick)
    assert list(site.cycle()) == [slow]
    assert site.jobs[head].state.value == "PENDING"


def test_a_job_must_fit_by_its_limit_however_short_it_is_thought_to_be() -> None:
    site = site_of()
    run(site, 5, uid=1, time_limit_minutes=120)
    site.submit(spec(1, time_limit_minutes=60, node_list=("n1",)), priority=100)
    site.cycle()
    site.submit(spec(2, 2, time_limit_minutes=60), priority=90)
    long = site.submit(spec(1, uid=1, time_limit_minutes=120), priority=50)
    assert not site.cycle()
    assert site.jobs[long].state.value == "PENDING"


def test_what_is_gained_goes_to_those_behind_and_the_promise_is_kept() -> None:
    site = site_of(3)
    first = site.submit(spec(1, time_limit_minutes=30, node_list=("n1",)), priority=100)
    site.submit(spec(1, time_limit_minutes=60, node_list=("n2",)), priority=100)
    site.cycle()
    head = site.submit(spec(3, 3, time_limit_minutes=60), priority=90)
    begun = site.now
    site.cycle()
    site.now += 60
    site.end(first)
    # By its limit the second runs until an hour has passed: so may others.
    filler = site.submit(spec(1, time_limit_minutes=55), priority=1)
    assert list(site.cycle()) == [filler]
    (promise,) = (promise for promises in site.projection.ledger.by_request.values() for promise in promises)
    assert promise.start_at == begun + 3600
    assert site.jobs[head].state.value == "PENDING"


def crowded(settings: ClusterSettings) -> tuple[Site, int, int]:
    """Two CPUs of which one is busy for an hour; two jobs want both: one that was first and is long, one that is short
    and has the lower priority.
    """
    site = site_of(2, settings)
    run(site, 3000, uid=1, time_limit_minutes=60)
    run(site, 20, uid=2, time_limit_minutes=60)
    site.submit(spec(1, time_limit_minutes=60, node_list=("n1",)), priority=100)
    site.cycle()
    long = site.submit(spec(2, 2, uid=1, time_limit_minutes=60), priority=50)
    short = site.submit(spec(2, 2, uid=2, time_limit_minutes=60, begin_at=0.0), priority=10)
    site.now += 600
    return site, long, short


def test_with_slowdown_the_job_that_suffers_most_is_promised_the_next_start() -> None:
    site, long, _short = crowded(PREDICT)
    site.cycle()
    assert promised_to(site) == [long]
    site, _long, short = crowded(SLOWDOWN)
    site.cycle()
    assert promised_to(site) == [short]


def test_a_promise_stays_with_the_job_that_was_told_of_it() -> None:
    """Of equal requests too, though another one comes to suffer more."""
    site, long, short = crowded(SLOWDOWN)
    site.cycle()
    begun = site.jobs[short].expected_start_at
    run_times = site.machine.state.run_times
    run_times.learn(likeness_of(site.jobs[long].spec), 1)
    run_times.learn(likeness_of(site.jobs[long].spec), 1)
    site.now += 1200
    for budget in (None, 100, None):
        site.cycle(budget)
        assert promised_to(site) == [short]
        assert site.jobs[short].expected_start_at == begun


def test_a_promise_outlives_the_start_of_the_last_of_its_kind() -> None:
    """The one that suffers most starts; another of the same request, which came before it, is promised the next."""
    site = site_of(2, SLOWDOWN)
    run(site, 3000, uid=1, time_limit_minutes=60)
    run(site, 20, uid=2, time_limit_minutes=60)
    blocker = site.submit(spec(2, 2, time_limit_minutes=60), priority=100)
    site.cycle()
    older = site.submit(spec(2, 2, uid=1, time_limit_minutes=60), priority=50)
    needier = site.submit(spec(2, 2, uid=2, time_limit_minutes=60), priority=10)
    site.now += 3000
    site.end(blocker)
    assert list(site.cycle()) == [needier]
    assert promised_to(site) == [older]


def test_run_times_are_remembered_in_images_and_learnt_only_on_demand() -> None:
    world = World(settings=PREDICT)
    plain = World()
    for here in (world, plain):
        job_id = here.submit(uid=1001, name="train", time_limit_minutes=60)
        here.start(job_id, "n1")
        here.started(job_id)
        here.now += 77
        here.finished(job_id)
        here.check()
    likeness = likeness_of(world.job(job_id).spec)
    assert world.state.run_times.predict(likeness) == 77
    assert Machine.from_image(world.machine.image()).state.run_times.predict(likeness) == 77
    assert plain.state.run_times.predict(likeness) == 3600
