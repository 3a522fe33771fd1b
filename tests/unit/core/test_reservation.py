"""Reservations in the core: what is made, refused, used, and what becomes of it in time. Source: scontrol(1)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, CreatePartition, UpdatePartition
from spritz.model.commands.job import CancelJobs
from spritz.model.commands.reservation import (
    CreateReservation,
    DeleteReservation,
    ReservationRequest,
    UpdateReservation,
)
from spritz.model.job.job_filter import JobFilter
from spritz.model.job.record import Hold
from spritz.model.node.partition import Partition
from spritz.model.node.reservation import DAY, Reservation
from spritz.model.plan import Plan, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from spritz_testing.builders import ALICE, World

MakeWorld = Callable[..., World]


def asked(world: World, start: float = 0.0, seconds: float = 3600.0, **fields: Any) -> ReservationRequest:
    """Alice's, `start` seconds from now."""
    fields.setdefault("name", "r")
    if not fields.keys() & {"accounts", "groups"}:
        fields.setdefault("users", ("alice",))
    if not fields.keys() & {"node_count", "core_counts", "cpu_count"}:
        fields.setdefault("nodes", ("n1",))
    return ReservationRequest(start_at=world.now + start, duration_seconds=seconds, **fields)


def make(world: World, start: float = 0.0, seconds: float = 3600.0, **fields: Any) -> Reservation:
    request = asked(world, start, seconds, **fields)
    world.ok(CreateReservation(request=request))
    return world.state.reservations[request.name]


def refusal(world: World, start: float = 0.0, seconds: float = 3600.0, **fields: Any) -> str:
    return world.refused(CreateReservation(request=asked(world, start, seconds, **fields)))


def start(world: World, job_id: int, node: str = "n1", reservation: str = "", cpus: int = 1) -> str:
    """Why the core will not start the job there; "" if it did."""
    allocation = Allocation(partition="debug", nodes=(world.free_share(node, cpus),), reservation=reservation)
    outcome = world.do(ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job_id, allocation=allocation),))))
    return "".join(getattr(outcome.reply, "messages", ()))


def test_nodes_are_counted_or_named(world: World) -> None:
    named = make(world, nodes=("n2", "n1"))
    assert (named.nodes, named.core_count, named.flags) == (("n1", "n2"), 16, ("SPEC_NODES",))
    counted = make(world, name="s", node_count=2)
    assert (counted.nodes, counted.partition, counted.flags) == (("n3", "n4"), "debug", ())
    assert refusal(world, name="t", node_count=1) == "ESLURM_NODES_BUSY"
    assert refusal(world, name="t", node_count=1, features="nosuch") == "ESLURM_INVALID_FEATURE"


def test_all_nodes_of_a_partition_are_those_that_it_has_at_the_time(world: World) -> None:
    """scontrol(1) PART_NODES; Nodes=ALL with a partition sets it, as slurmctld 22.05 does."""
    world.ok(CreatePartition(partition=Partition(name="long", nodes=("n3", "n4"))))
    whole = make(world, nodes=("ALL",), partition="long")
    assert (whole.nodes, whole.flags) == (("n3", "n4"), ("SPEC_NODES", "PART_NODES"))
    world.ok(UpdatePartition(name="long", changes={"nodes": ["n2", "n3", "n4"]}))
    whole = world.state.reservations["r"]
    assert (whole.nodes, whole.core_count) == (("n2", "n3", "n4"), 24)


def test_no_nodes_are_none_to_make_it_of_and_any_in_an_update(world: World) -> None:
    """scontrol(1) Nodes: an empty list of an update keeps as many nodes, which need not be the named ones any more."""
    assert refusal(world, nodes=(), node_count=2) == "ESLURM_INVALID_NODE_NAME"
    make(world, nodes=("n1", "n2"))
    world.ok(UpdateReservation(request=ReservationRequest(name="r", nodes=())))
    after = world.state.reservations["r"]
    assert (len(after.nodes), after.flags) == (2, ())


def test_cores_are_taken_from_nodes_that_have_them_free(world: World) -> None:
    one = make(world, core_counts=(10,))
    assert one.cpus == (("n1", "ff"), ("n2", "3"))
    other = make(world, name="s", core_counts=(6, 2), node_count=2)
    assert other.cpus == (("n1", "3"), ("n2", "fc")) or other.cpus == (("n2", "fc"), ("n3", "3"))


@pytest.mark.parametrize(
    ("code", "start_in", "seconds", "fields"),
    [
        ("ESLURM_RESERVATION_EMPTY", 0, 60, {"users": ()}),
        ("ESLURM_INVALID_TIME_VALUE", -7200, 3600, {}),
        ("ESLURM_INVALID_TIME_VALUE", 0, 0, {}),
        ("ESLURM_INVALID_TIME_VALUE", 0, 2 * DAY, {"flags": ("DAILY",)}),
        ("ESLURM_INVALID_NODE_NAME", 0, 60, {"nodes": ("n9",)}),
        ("ESLURM_INVALID_PARTITION_NAME", 0, 60, {"node_count": 1, "partition": "nosuch"}),
        ("ESLURM_INVALID_PARTITION_NAME", 0, 60, {"flags": ("PART_NODES",)}),
        ("ESLURM_NODES_BUSY", 0, 60, {"node_count": 5}),
        ("ESLURM_INVALID_NODE_NAME", 0, 60, {"nodes": ("n1",), "flags": ("REPLACE",)}),
        ("ESLURM_INVALID_CPU_COUNT", 0, 60, {"core_counts": (2,), "flags": ("REPLACE_DOWN",)}),
        ("ESLURM_INVALID_LICENSES", 0, 60, {"node_count": 1, "licenses": (("nosuch", 1),)}),
        ("ESLURM_INVALID_GRES", 0, 60, {"gres": (("fpga", "", 1),)}),
        ("ESLURM_INVALID_GRES", 0, 60, {"gres": (("gpu", "", 1),), "gres_per_node": (("gpu", "", 1),)}),
        ("ESLURM_INVALID_NODE_COUNT", 0, 60, {"gres": (("gpu", "", 1),), "node_count": 1}),
        ("ESLURM_INVALID_GRES", 0, 60, {"gres": (("gpu", "", 1), ("gpu", "", 2))}),
        ("ESLURM_INVALID_GRES_TYPE", 0, 60, {"gres": (("gpu", "", 1), ("gpu", "h100", 2))}),
        ("ESLURM_INVALID_CORE_CNT", 0, 60, {"gres": (("gpu", "", 1),), "core_counts": (1,)}),
        ("ESLURM_RESERVATION_USER_GROUP", 0, 60, {"users": ("alice",), "groups": ("g",), "gids": (7,)}),
    ],
)
def test_what_cannot_be_is_refused(
    world: World, code: str, start_in: float, seconds: float, fields: dict[str, Any]
) -> None:
    assert refusal(world, start_in, seconds, **fields) == code
    assert not world.state.reservations


def test_only_administrators_make_and_delete_them(world: World) -> None:
    make(world)
    assert world.refused(CreateReservation(request=asked(world, name="s")), ALICE) == "ESLURM_USER_ID_MISSING"
    assert world.refused(DeleteReservation(name="r"), ALICE) == "ESLURM_USER_ID_MISSING"


def test_two_may_overlap_only_with_a_flag_or_at_other_times(world: World) -> None:
    make(world)
    assert refusal(world, name="r") == "ESLURM_RESERVATION_OVERLAP"
    assert refusal(world, 3600, name="r") == "ESLURM_RESERVATION_NAME_DUP"
    assert refusal(world, 1800, name="s") == "ESLURM_RESERVATION_OVERLAP"
    make(world, 3600, name="after")
    make(world, name="over", flags=("OVERLAP",))
    make(world, name="maint", flags=("MAINT",))
    assert refusal(world, -30, name="daily", flags=("DAILY",)) == "ESLURM_RESERVATION_OVERLAP"


def test_running_jobs_are_in_the_way_unless_they_are_ignored(world: World) -> None:
    world.start(world.submit(time_limit_minutes=60), "n1")
    assert refusal(world, 1800) == "ESLURM_NODES_BUSY"
    make(world, 3600)
    make(world, 1800, seconds=60, name="s", flags=("IGNORE_JOBS",))


def test_jobs_of_others_stay_off_its_nodes_for_its_time(world: World) -> None:
    make(world, 600)
    long = world.submit(time_limit_minutes=11)
    assert "reserved (r)" in start(world, long)
    short = world.submit(time_limit_minutes=10)
    assert start(world, short) == ""
    assert start(world, long, "n2") == ""


def test_its_own_jobs_run_in_it_and_nowhere_else(world: World) -> None:
    make(world, 600)
    job = world.submit(reservation="r")
    assert "does not hold now" in start(world, job, reservation="r")
    world.advance(600)
    assert "not asked for" in start(world, world.submit(), reservation="r")
    assert "does not have it" in start(world, job, "n2", reservation="r")
    assert start(world, job, reservation="r") == ""


def test_reserved_cores_leave_the_others_alone(world: World) -> None:
    make(world, core_counts=(4,))
    outside, inside = world.submit(), world.submit(reservation="r")
    assert "reserved" in start(world, outside)  # its CPU is the first
    assert "does not have it" in start(world, inside, reservation="r", cpus=5)
    assert start(world, inside, reservation="r", cpus=4) == ""
    assert start(world, outside) == ""


def test_which_users_may_use_it(world: World) -> None:
    make(world, users=("bob",))
    make(world, name="not", nodes=("n2",), users=("alice",), users_denied=True)
    make(world, name="account", nodes=("n3",), users=None, accounts=("physics",))
    assert world.submit_refused(reservation="r") == "ESLURM_RESERVATION_ACCESS"
    assert world.submit_refused(reservation="not") == "ESLURM_RESERVATION_ACCESS"
    assert world.submit_refused(reservation="account") == "ESLURM_RESERVATION_ACCESS"
    assert world.submit_refused(reservation="nosuch") == "ESLURM_RESERVATION_INVALID"
    assert world.submit_refused(reservation="account,nosuch", account="physics") == "ESLURM_RESERVATION_INVALID"
    world.submit(reservation="account", account="physics")


def test_a_job_is_ended_with_its_reservation(world: World) -> None:
    make(world, seconds=600)
    job = world.submit(reservation="r", time_limit_minutes=60)
    assert start(world, job, reservation="r") == ""
    waiting = world.submit(reservation="r")
    world.advance(599)
    assert world.job(job).state is JobState.RUNNING
    world.advance(1)
    assert world.job(job).state is JobState.TIMEOUT
    assert "r" not in world.state.reservations
    held = world.job(waiting)
    assert (held.hold, held.reason) == (Hold.ADMIN, Reason.RESERVATION_DELETED)


def test_resv_over_run_gives_jobs_more_time(make_world: MakeWorld) -> None:
    world = make_world(settings=ClusterSettings(reservation_over_run_minutes=5))
    make(world, seconds=600, flags=("NO_HOLD_JOBS_AFTER_END",))
    job = world.submit(reservation="r", time_limit_minutes=60)
    waiting = world.submit(reservation="r")
    assert start(world, job, reservation="r") == ""
    world.advance(899)
    assert world.job(job).state is JobState.RUNNING
    assert world.job(waiting).hold is Hold.NONE
    world.advance(1)
    assert world.job(job).state is JobState.TIMEOUT


def test_a_longer_reservation_ends_its_jobs_later(world: World) -> None:
    make(world, seconds=600)
    job = world.submit(reservation="r", time_limit_minutes=60)
    assert start(world, job, reservation="r") == ""
    world.ok(UpdateReservation(request=ReservationRequest(name="r", duration_seconds=1200.0)))
    world.advance(1199)
    assert world.job(job).state is JobState.RUNNING
    world.advance(1)
    assert world.job(job).state is JobState.TIMEOUT


def test_a_recurring_reservation_recurs_also_after_the_controller_was_away(world: World) -> None:
    first = make(world, 60, seconds=600, flags=("DAILY",)).start_at
    world.advance(700)
    assert world.state.reservations["r"].start_at == first + DAY
    world.now = first + 3 * DAY + 100
    world.tick()
    again = world.state.reservations["r"]
    assert (again.start_at, again.began) == (first + 3 * DAY, True)
    world.ok(UpdateReservation(request=ReservationRequest(name="r", skip=True)))
    assert world.state.reservations["r"].start_at == first + 4 * DAY


@pytest.mark.parametrize("flag", ["MAINT", "OVERLAP"])
def test_nodes_that_are_only_counted_are_not_those_in_maintenance(world: World, flag: str) -> None:
    """As slurmctld chooses them; by name they may be had."""
    make(world, name="m", flags=(flag,), nodes=("n1", "n2"))
    assert make(world, name="counted", node_count=1).nodes == ("n3",)
    assert refusal(world, name="more", node_count=2) == "ESLURM_NODES_BUSY"
    assert make(world, name="named", nodes=("n1",)).nodes == ("n1",)


def test_weekdays_and_weekends() -> None:
    """The epoch began on a Thursday."""
    week = Reservation(name="w", id=1, start_at=0.0, end_at=60.0, flags=("WEEKDAY",))
    assert [int(start // DAY) for start, _ in week.spans(4)] == [0, 1, 4, 5]
    weekend = Reservation(name="w", id=1, start_at=0.0, end_at=60.0, flags=("WEEKEND",))
    assert [int(start // DAY) for start, _ in weekend.spans(4)] == [0, 2, 3, 9]
    far_east = Reservation(
        name="w", id=1, start_at=DAY - 3600, end_at=DAY, flags=("WEEKDAY",), utc_offset_seconds=2 * 3600
    )
    assert [int(start // DAY) for start, _ in far_east.spans(2)] == [0, 3]


#: an hour ahead of UTC; on the tenth day, at 1:00 UTC, clocks are set forward by an hour, and back on the twentieth
SPRING, AUTUMN = 10 * DAY + 3600, 20 * DAY + 3600
SUMMER_TIME: dict[str, Any] = {
    "utc_offset_seconds": 3600,
    "utc_offset_changes": ((int(SPRING), 7200), (int(AUTUMN), 3600)),
}


@pytest.mark.parametrize(
    ("flag", "day", "hour", "hours"),
    [
        ("DAILY", 8, 9, {8: 9, 9: 9, 10: 8, 11: 8}),
        ("DAILY", 18, 8, {18: 8, 19: 8, 20: 9, 21: 9}),
        ("WEEKLY", 8, 9, {8: 9, 15: 8, 22: 9, 29: 9}),
        # midnight from Sunday (day 10) to Monday, and from Saturday to Sunday
        ("WEEKDAY", 7, 23, {7: 23, 10: 22, 11: 22, 12: 22}),
        ("WEEKEND", 8, 23, {8: 23, 9: 23, 15: 22, 16: 22}),
        ("HOURLY", 10, 0, {10: 3}),
        # 2:30 is left out on the tenth day: as mktime has it, 3:30
        ("DAILY", 9, 1.5, {9: 1.5, 10: 1.5, 11: 1.5}),
        # 2:30 comes twice on the twentieth: the first
        ("DAILY", 19, 0.5, {19: 0.5, 20: 0.5, 21: 1.5}),
    ],
)
def test_days_are_those_of_local_time(flag: str, day: int, hour: float, hours: dict[int, float]) -> None:
    """slurmctld adds days to the local date. The epoch began on a Thursday."""
    begin = day * DAY + hour * 3600
    one = Reservation(name="r", id=1, start_at=begin, end_at=begin + 600, flags=(flag,), **SUMMER_TIME)
    spans = one.spans(4 if flag == "HOURLY" else len(hours))
    assert {start // DAY: start % DAY / 3600 for start, _ in spans} == hours
    assert {end - start for start, end in spans} == {600}


def test_a_whole_day_is_over_when_the_next_begins() -> None:
    begin = 9 * DAY - 3600
    one = Reservation(name="r", id=1, start_at=begin, end_at=begin + DAY, flags=("DAILY",), **SUMMER_TIME)
    spans = one.spans(4)
    assert [(end - start) / 3600 for start, end in spans[:3]] == [24, 23, 24]
    assert all(end <= following for (_, end), (following, _) in pairwise(spans))


def test_an_unused_reservation_is_purged(world: World) -> None:
    make(world, flags=("PURGE_COMP",), purge_seconds=120)
    world.advance(100)
    job = world.submit(reservation="r")
    assert start(world, job, reservation="r") == ""
    world.started(job)
    world.advance(300)
    assert "r" in world.state.reservations
    world.finished(job)
    world.advance(119)
    assert "r" in world.state.reservations
    world.advance(1)
    assert "r" not in world.state.reservations


def test_one_in_use_cannot_be_deleted(world: World) -> None:
    make(world)
    job = world.submit(reservation="r")
    assert world.refused(DeleteReservation(name="r")) == "ESLURM_RESERVATION_BUSY"
    world.cancel(job)
    world.ok(DeleteReservation(name="r"))
    assert world.refused(DeleteReservation(name="r")) == "ESLURM_RESERVATION_INVALID"


def test_updates_are_all_or_nothing(world: World) -> None:
    before = make(world)
    for wrong, code in (
        ({"start_at": world.now + 60}, "ESLURM_RSV_ALREADY_STARTED"),
        ({"end_at": world.now - 60}, "ESLURM_INVALID_TIME_VALUE"),
        ({"users_removed": ("alice", "carol")}, "ESLURM_RESERVATION_EMPTY"),
        ({"nodes": ("n9",)}, "ESLURM_INVALID_NODE_NAME"),
        ({"skip": True}, "ESLURM_RESERVATION_NO_SKIP"),
    ):
        fields: dict[str, Any] = {"name": "r", "users_added": ("carol",), **wrong}
        assert world.refused(UpdateReservation(request=ReservationRequest(**fields))) == code
        assert world.state.reservations["r"] == before
    world.ok(UpdateReservation(request=ReservationRequest(name="r", node_count=3, users_added=("bob",))))
    after = world.state.reservations["r"]
    assert (len(after.nodes), after.users) == (3, ("alice", "bob"))
    world.ok(UpdateReservation(request=ReservationRequest(name="r", flags_added=("MAINT",))))
    assert world.state.reservations["r"].maintenance


def test_a_floating_reservation_keeps_its_distance(world: World) -> None:
    make(world, 600, flags=("TIME_FLOAT",), float_seconds=600.0)
    world.advance(10_000)
    assert "reserved" in start(world, world.submit(time_limit_minutes=11))
    assert start(world, world.submit(time_limit_minutes=10)) == ""


def test_a_magnetic_reservation_draws_jobs_that_name_none(world: World) -> None:
    make(world, flags=("MAGNETIC",))
    assert start(world, world.submit(), reservation="r") == ""
    assert start(world, world.submit(), "n2") == ""


def test_jobs_are_cancelled_by_their_reservation(world: World) -> None:
    make(world, flags=("MAGNETIC",))
    make(world, name="s", nodes=("n2",))
    drawn, named, other = world.submit(), world.submit(reservation="r,s"), world.submit(reservation="s")
    assert start(world, drawn, reservation="r") == ""
    world.ok(CancelJobs(filter=JobFilter(reservation="r")), ALICE)
    assert [world.job(job).state.ended for job in (drawn, named, other)] == [True, True, False]


def test_force_start_takes_a_beginning_in_the_past_of_one_that_comes_again(world: World) -> None:
    world.now += 10 * DAY
    made = make(world, start=-1.5 * DAY, seconds=DAY / 4, flags=("DAILY", "FORCE_START"))
    assert (made.start_at, made.began) == (world.now + DAY / 2, False)
    running = make(world, start=-100.0, name="s", nodes=("n2",), flags=("DAILY", "FORCE_START"))
    assert (running.start_at, running.began) == (world.now - 100, True)
    assert refusal(world, start=-DAY, name="t", flags=("DAILY",)) == "ESLURM_INVALID_TIME_VALUE"
    assert refusal(world, start=-100.0, name="t", flags=("FORCE_START",)) == "ESLURM_INVALID_TIME_VALUE"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"core_counts": ()}, "ESLURM_INVALID_CORE_CNT"),
        ({"core_counts": (1,), "node_count": 2**32 - 1}, "ESLURM_NODES_BUSY"),
        ({"utc_offset_seconds": 2**37}, "ESLURM_INVALID_TIME_VALUE"),
        ({"utc_offset_changes": ((10, 0), (5, 0))}, "ESLURM_INVALID_TIME_VALUE"),
    ],
)
def test_numbers_that_no_command_sends_are_refused(world: World, fields: dict[str, Any], code: str) -> None:
    assert refusal(world, **fields) == code
