"""A node on which one job after the other fails at once is drained (SlurmctldParameters=drain_failing_nodes)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.cluster import UpdateNode
from spritz.model.states import NodeFlag
from spritz_testing.builders import ALICE, BOB, World

SETTINGS = ClusterSettings(drain_failing_nodes=4)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world(settings=SETTINGS)


def ended(world: World, node: str, caller: Caller, *, seconds: float = 1.0, status: int = 1 << 8) -> None:
    """A job of this user runs on the node, and its script ends."""
    job_id = world.submit(caller=caller)
    world.start(job_id, node)
    world.now += seconds
    world.finished(job_id, status, node=node)


def drained(world: World) -> dict[str, str]:
    """Reasons of drained nodes."""
    return {name: node.reason for name, node in world.state.nodes.items() if node.flags & NodeFlag.DRAIN}


def test_a_node_that_fails_jobs_of_two_users_is_drained(world: World) -> None:
    for user in (ALICE, BOB, ALICE):
        ended(world, "n1", user)
    assert not drained(world)
    ended(world, "n1", BOB)
    assert drained(world) == {"n1": "jobs fail at once: 4 in a row within 10 seconds"}


def test_it_counts_again_when_it_is_resumed(world: World) -> None:
    for user in (ALICE, BOB, ALICE, BOB):
        ended(world, "n1", user)
    world.ok(UpdateNode(names=("n1",), state="RESUME"))
    for user in (ALICE, BOB, ALICE):
        ended(world, "n1", user)
    assert not drained(world)
    ended(world, "n1", BOB)
    assert drained(world)


def test_a_broken_job_of_one_user_drains_no_node(world: World) -> None:
    for _ in range(20):
        ended(world, "n1", ALICE)
    assert not drained(world)


def test_broken_jobs_of_two_users_that_meet_on_a_node_drain_no_other_one(world: World) -> None:
    for node in ("n1", "n2", "n3"):
        for user in (ALICE, BOB) * 5:
            if node not in drained(world):
                ended(world, node, user)
    assert list(drained(world)) == ["n1"]


def test_users_whose_jobs_fail_on_other_nodes_too_are_no_evidence(world: World) -> None:
    for user in (ALICE, BOB):
        ended(world, "n2", user)
    for user in (ALICE, BOB) * 5:
        ended(world, "n1", user)
    assert not drained(world)


def test_they_are_when_a_job_of_theirs_has_ended_well(world: World) -> None:
    for user in (ALICE, BOB):
        ended(world, "n2", user)
        ended(world, "n2", user, status=0)
    for user in (ALICE, BOB, ALICE, BOB):
        ended(world, "n1", user)
    assert list(drained(world)) == ["n1"]


@pytest.mark.parametrize(("seconds", "status"), [(1.0, 0), (60.0, 1 << 8)])
def test_a_job_that_ends_otherwise_begins_the_count_anew(world: World, seconds: float, status: int) -> None:
    for user in (ALICE, BOB, ALICE):
        ended(world, "n1", user)
    ended(world, "n1", BOB, seconds=seconds, status=status)
    ended(world, "n1", BOB)
    assert not drained(world)


def test_a_long_job_that_was_cancelled_begins_the_count_anew_and_a_short_one_does_not(world: World) -> None:
    """In a row means in a row: what ran for long has shown that the node works, however it ended."""
    for seconds, wanted in ((3600.0, []), (1.0, ["n1"])):
        ended(world, "n1", ALICE, status=0)
        for user in (ALICE, BOB, ALICE):
            ended(world, "n1", user)
        job_id = world.submit(caller=BOB)
        world.start(job_id, "n1")
        world.now += seconds
        world.cancel(job_id, caller=BOB)
        world.finished(job_id, 15, node="n1")
        ended(world, "n1", BOB)
        assert list(drained(world)) == wanted


def test_a_resume_begins_the_count_anew(world: World) -> None:
    for user in (ALICE, BOB, ALICE):
        ended(world, "n1", user)
    world.ok(UpdateNode(names=("n1",), state="DRAIN", reason="a look"))
    world.ok(UpdateNode(names=("n1",), state="RESUME"))
    ended(world, "n1", BOB)
    assert not drained(world)


def test_a_clock_that_was_set_back_makes_no_long_job_a_short_one(world: World) -> None:
    world.now += 10_000.0
    for user in (ALICE, BOB, ALICE, BOB):
        ended(world, "n1", user, seconds=-600.0)
    assert not drained(world)


def test_without_the_option_nothing_is_counted(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ClusterSettings())
    for user in (ALICE, BOB) * 20:
        ended(world, "n1", user)
    assert not drained(world)
    assert not world.state.memory.failures.by_node
