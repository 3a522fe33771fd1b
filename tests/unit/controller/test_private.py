"""What PrivateData keeps from whom. Source: slurm.conf(5) PrivateData."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from spritz.controller.api.limit_usage import shown, standings
from spritz.controller.api.private import hides_jobs, need_open, own_associations, usable
from spritz.controller.api.queue.jobs import shown_jobs, visible_jobs
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.limits.records import Association, Policy, SetPolicy
from spritz.model.limits.standing import ListStandings
from spritz.scheduling.explain.context import PRIVATE, PlanView
from spritz.scheduling.explain.explanation import explain
from spritz.scheduling.plan import cycle
from spritz_testing.builders import ALICE, BOB, ROOT, World
from tests.unit.scheduling.site import Site, node, spec


def test_jobs_of_others_are_hidden_from_all_but_administrators() -> None:
    world = World(settings=ClusterSettings(private_data=("jobs",)))
    jobs = [world.job(world.submit(ALICE)), world.job(world.submit(BOB))]
    assert visible_jobs(world.state, jobs, ALICE) == jobs[:1]
    assert [hides_jobs(world.state, caller) for caller in (ALICE, ROOT)] == [True, False]
    mine, others = (JobFilter(targets=(JobTarget(job.id),)) for job in jobs)
    assert shown_jobs(world.state, mine, jobs[:1], ALICE) == jobs[:1]
    with pytest.raises(SpritzError, match="Invalid job id specified"):
        shown_jobs(world.state, others, jobs[1:], ALICE)
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


def test_an_explanation_names_only_the_callers_own_jobs() -> None:
    site = Site([node("n1", 4)])
    running = site.submit(spec(4, user="bobby", name="secret"))
    site.cycle()
    site.submit(spec(4, user="bobby"), priority=9)
    mine = site.submit(spec(4, user="alice"))
    snapshot = site.projection.snapshot(site.now)
    result = cycle.run(snapshot)
    state = site.machine.state
    told = explain(PlanView(snapshot, result, state.jobs, state.nodes, "alice"), site.jobs[mine])
    assert [blocker.job for blocker in told.blockers] == [PRIVATE]
    assert [(one.job, one.user) for one in told.ahead.first] == [(PRIVATE, PRIVATE)]
    assert "bobby" not in str(to_builtins(told))
    every = explain(PlanView(snapshot, result, state.jobs, state.nodes), site.jobs[mine])
    assert [blocker.job for blocker in every.blockers] == [str(running)]


@pytest.mark.parametrize("what", ["nodes", "partitions"])
def test_nodes_and_partitions_are_administrators_own_if_so_configured(what: str) -> None:
    state = World(settings=ClusterSettings(private_data=(what,))).state
    need_open(state, ROOT, what)
    need_open(World().state, ALICE, what)
    with pytest.raises(SpritzError, match="Access/permission denied"):
        need_open(state, ALICE, what)


def test_usage_of_others_is_private_if_so_configured() -> None:
    one, other, whole = (
        Association(id=i, cluster="c", account="chem", user=user) for i, user in ((1, "alice"), (2, "bob"), (3, ""))
    )

    def seen(caller: Caller, *words: str) -> list[int]:
        state = World(settings=ClusterSettings(private_data=words)).state
        return [item.id for item in (one, other, whole) if own_associations(state, caller, "usage")(item)]

    assert seen(ALICE) == seen(ROOT, "usage") == seen(ALICE, "jobs") == [1, 2, 3]
    assert seen(ALICE, "usage") == [1]


def test_standings_of_others_are_private_if_so_configured() -> None:
    policy = Policy(
        version=1,
        associations=(
            Association(id=1, cluster="c", account="root"),
            Association(id=2, cluster="c", account="chem", parent="root"),
            Association(id=3, cluster="c", account="chem", user="alice"),
            Association(id=4, cluster="c", account="chem", user="bob"),
        ),
    )
    for words, users, associations in (
        ((), ["alice", "bob"], 4),
        (("usage",), ["alice", "bob"], 1),
        (("users",), ["alice"], 1),
    ):
        world = World(settings=ClusterSettings(private_data=words))
        world.ok(SetPolicy(policy=policy))
        every = standings(world.state, {}, ListStandings(kinds=("users", "assoc", "qos")), world.now, ())
        mine = shown(world.state, ALICE, every)
        assert [user.name for user in mine.users] == users
        assert len(mine.associations) == associations
        assert shown(world.state, ROOT, every) == every
