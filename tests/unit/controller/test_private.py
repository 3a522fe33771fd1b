"""What PrivateData keeps from whom. Source: slurm.conf(5) PrivateData."""

from __future__ import annotations

from msgspec import to_builtins

from spritz.controller.api.jobs import visible_jobs
from spritz.controller.api.private import hides_jobs, usable
from spritz.model.cluster import ClusterSettings
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.scheduling import cycle
from spritz.scheduling.explain.story import explain
from spritz.scheduling.explain.view import PRIVATE, View
from spritz.testing.builders import ALICE, BOB, ROOT, World
from tests.unit.scheduling.site import Site, node, spec


def test_jobs_of_others_are_hidden_from_all_but_administrators() -> None:
    world = World(settings=ClusterSettings(private_data=("jobs",)))
    jobs = [world.job(world.submit(ALICE)), world.job(world.submit(BOB))]
    assert visible_jobs(world.state, jobs, ALICE) == jobs[:1]
    assert [hides_jobs(world.state, caller) for caller in (ALICE, ROOT)] == [True, False]
    open_world = World(settings=ClusterSettings())
    assert visible_jobs(open_world.state, jobs, ALICE) == jobs


def test_reservations_that_one_may_not_use_are_hidden() -> None:
    world = World(settings=ClusterSettings(private_data=("reservations",)))
    for name in ("alice", "bob"):
        request = ReservationRequest(
            name=name, users=(name,), node_count=1, start_at=world.now + 60, duration_seconds=60.0
        )
        world.ok(CreateReservation(request=request))
    every = list(world.state.reservations.values())
    assert [one.name for one in usable(world.state, every, ALICE)] == ["alice"]
    assert usable(world.state, every, ROOT) == every


def test_an_explanation_names_nobody_elses_jobs() -> None:
    site = Site([node("n1", 4)])
    running = site.submit(spec(4, user="bobby", name="secret"))
    site.cycle()
    site.submit(spec(4, user="bobby"), priority=9)
    mine = site.submit(spec(4, user="alice"))
    snapshot = site.projection.snapshot(site.now)
    plan = cycle.run(snapshot)
    state = site.machine.state
    told = explain(View(snapshot, plan, state.jobs, state.nodes, "alice"), site.jobs[mine])
    assert [one.job for one in told.blockers] == [PRIVATE]
    assert [(one.job, one.user) for one in told.ahead.first] == [(PRIVATE, PRIVATE)]
    assert "bobby" not in str(to_builtins(told))
    every = explain(View(snapshot, plan, state.jobs, state.nodes), site.jobs[mine])
    assert [one.job for one in every.blockers] == [str(running)]
