"""SchedulerParameters=bf_predict: who is backfilled first, what is learnt, and what a promise is then."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.core.machine import Machine
from spritz.model.predict import likeness_of
from spritz.testing.builders import World
from tests.unit.scheduling.site import SETTINGS, Site, node, spec

PREDICT = replace(SETTINGS, scheduler_parameters=(("bf_predict", ""),))


def site_of(nodes: int = 2) -> Site:
    """Nodes of one CPU each, with predictions."""
    return Site([node(f"n{i}", 1) for i in range(1, nodes + 1)], settings=PREDICT)


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
    (promise,) = (promise for promises in site.projection.ledger.promises.values() for promise in promises)
    assert promise.start_at == begun + 3600
    assert site.jobs[head].state.value == "PENDING"


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
