"""What a cycle does about reservations: who starts where, when, and what the others are told."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spritz.model.commands.cluster import Tick
from spritz.model.commands.reservation import CreateReservation, DeleteReservation, ReservationRequest
from spritz.model.events.cluster import PartitionUpdated
from spritz.scheduling.plan.feasible import check_request
from spritz.scheduling.view.projection import Projection
from tests.unit.scheduling.site import Site, cpu_ids, node, partition, spec

ALICE: dict[str, Any] = {"user": "alice"}


def site_of(count: int = 2) -> Site:
    return Site([node(f"n{number}") for number in range(1, count + 1)])


def reserve(site: Site, start: float = 0.0, seconds: float = 3600.0, **fields: Any) -> None:
    """For Alice, `start` seconds from now."""
    fields.setdefault("name", "r")
    fields.setdefault("users", ("alice",))
    if not fields.keys() & {"core_counts", "node_count"}:
        fields.setdefault("nodes", ("n1",))
    request = ReservationRequest(start_at=site.now + start, duration_seconds=seconds, **fields)
    do(site, CreateReservation(request=request))


def do(site: Site, command: Any) -> None:
    outcome = site.machine.handle(command, site.now)
    assert outcome.rejection is None, outcome.rejection
    site.projection.follow(outcome.changes)


def wait(site: Site, seconds: float) -> None:
    site.now += seconds
    do(site, Tick())


def test_others_take_what_is_not_reserved_and_wait_for_the_rest() -> None:
    site = site_of()
    reserve(site, seconds=3600)
    first, second = site.submit(spec(8)), site.submit(spec(8))
    assert {job: got.names for job, got in site.cycle().items()} == {first: ("n2",)}
    assert site.reason(second) == "ReqNodeNotAvail, May be reserved for other job"
    named = site.submit(spec(1, 1, node_list=("n1",)))
    assert site.cycle() == {}
    assert site.reason(named) == "ReqNodeNotAvail, May be reserved for other job"
    wait(site, 3600)
    assert named in site.cycle()


def test_a_job_that_would_cross_maintenance_waits_until_it_is_over() -> None:
    site = site_of()
    reserve(site, 600, nodes=("n1", "n2"), flags=("MAINT",))
    short, long = site.submit(spec(1)), site.submit(spec(1, time_limit_minutes=11))
    assert list(site.cycle()) == [short]
    assert site.reason(long) == "ReqNodeNotAvail, Reserved for maintenance"
    wait(site, 600 + 3599)
    assert site.cycle() == {}
    wait(site, 1)
    assert list(site.cycle()) == [long]


def test_a_job_of_the_reservation_starts_when_it_begins_and_in_it() -> None:
    site = site_of()
    reserve(site, 600)
    job = site.submit(spec(1, reservation="r", **ALICE))
    assert site.cycle() == {}
    assert site.reason(job) == "Reservation"
    other = site.submit(spec(1))
    assert list(site.cycle()) == [other]
    wait(site, 600)
    started = site.cycle()
    assert (started[job].names, started[job].reservation) == (("n1",), "r")


def test_a_job_of_the_reservation_that_must_wait_for_another_one_of_it() -> None:
    site = site_of()
    reserve(site)
    first = site.submit(spec(8, reservation="r", **ALICE))
    second = site.submit(spec(8, reservation="r", **ALICE))
    outside = site.submit(spec(8))
    started = site.cycle()
    assert {job: got.names for job, got in started.items()} == {first: ("n1",), outside: ("n2",)}
    assert site.reason(second) == "Resources"
    assert site.jobs[second].expected_nodes == ("n1",)
    assert site.jobs[second].expected_start_at == site.now + 600
    site.end(first)
    assert list(site.cycle()) == [second]


def test_cores_are_kept_and_its_jobs_keep_to_them() -> None:
    site = site_of(1)
    reserve(site, core_counts=(4,))
    inside = site.submit(spec(4, reservation="r", **ALICE))
    outside = site.submit(spec(4))
    too_large = site.submit(spec(5))
    started = site.cycle()
    assert cpu_ids(started[inside]) == [0, 1, 2, 3]
    assert cpu_ids(started[outside]) == [4, 5, 6, 7]
    site.end(inside)
    site.end(outside)
    assert site.cycle() == {}
    wait(site, 3600)
    assert list(site.cycle()) == [too_large]


def test_one_of_a_list_of_reservations() -> None:
    site = site_of(3)
    reserve(site, 600)
    reserve(site, name="s", nodes=("n2",))
    job = site.submit(spec(1, reservation="r,s", **ALICE))
    assert site.cycle()[job].reservation == "s"


def test_a_magnetic_reservation_comes_first_and_leaves_the_remaining_nodes_to_others() -> None:
    site = site_of(2)
    reserve(site, nodes=("n2",), flags=("MAGNETIC",))
    hers, too_large = site.submit(spec(8, **ALICE)), site.submit(spec(8, **ALICE))
    his = site.submit(spec(8, user="bob"))
    started = site.cycle()
    assert (started[hers].names, started[hers].reservation) == (("n2",), "r")
    assert (started[too_large].names, started[too_large].reservation) == (("n1",), "")
    assert site.reason(his) == "Resources"


def test_flexible_jobs_take_the_reserved_nodes_first() -> None:
    """Nodes that no other job may use come first, in any order of the nodes, as in Slurm."""
    site = site_of(4)
    reserve(site, nodes=("n3",), flags=("FLEX",))
    inside = site.submit(spec(5, 1, reservation="r", **ALICE))
    assert site.cycle()[inside].names == ("n3",)
    partly = site.submit(spec(8, 1, reservation="r", **ALICE))
    across = site.submit(spec(11, reservation="r", **ALICE))
    started = site.cycle()
    assert "n3" not in started[partly].names
    assert "n3" in started[across].names


def test_flexible_jobs_begin_before_the_reservation_and_run_outside_it() -> None:
    site = site_of(2)
    reserve(site, 600, flags=("FLEX",))
    job = site.submit(spec(2, 2, reservation="r", time_limit_minutes=100, **ALICE))
    assert site.cycle()[job].names == ("n1", "n2")


def test_a_floating_reservation_lets_only_short_jobs_start() -> None:
    site = site_of(1)
    reserve(site, 600, flags=("TIME_FLOAT",), float_seconds=600.0)
    short, long = site.submit(spec(1)), site.submit(spec(1, time_limit_minutes=11))
    assert check_request(site.jobs[long].spec, site.projection.snapshot(site.now)) is None
    assert list(site.cycle()) == [short]
    assert site.reason(long) == "ReqNodeNotAvail, May be reserved for other job"
    do(site, DeleteReservation(name="r"))
    assert list(site.cycle()) == [long]


def test_time_min_bends_a_job_to_end_before_the_reservation() -> None:
    site = site_of(1)
    reserve(site, 1800)
    job = site.submit(spec(1, time_limit_minutes=60, time_min_minutes=10))
    assert list(site.cycle()) == [job]
    assert site.jobs[job].time_limit_minutes == 30


def test_a_promised_start_gives_way_to_a_new_reservation() -> None:
    site = site_of(1)
    running = site.submit(spec(8))
    site.cycle()
    waiting = site.submit(spec(8))
    site.cycle()
    assert site.jobs[waiting].expected_start_at == site.now + 600
    reserve(site, 900)
    site.cycle()
    assert site.jobs[waiting].expected_start_at == site.now + 4500
    site.end(running)
    assert list(site.cycle()) == [waiting], "it fits before the reservation now"


def test_the_projection_from_records_is_that_from_events() -> None:
    site = site_of(2)
    reserve(site)
    reserve(site, 600, name="s", nodes=("n2",), flags=("DAILY",), seconds=60)
    state = site.machine.state
    fresh = Projection()
    fresh.reset(
        state.jobs.values(),
        state.nodes.values(),
        state.partitions.values(),
        state.settings,
        state.reservations.values(),
    )
    assert [_what(fresh, index) for index in range(2)] == [_what(site.projection, index) for index in range(2)]


def _what(projection: Projection, index: int) -> list[tuple[object, ...]]:
    return [(hold.start_at, holder.key()) for hold, holder in projection.profile.holds[index]]


def test_a_partition_that_changes_keeps_reservations() -> None:
    site = site_of(2)
    reserve(site, nodes=("n1", "n2"))
    site.apply(PartitionUpdated(at=site.now, partition=replace(partition("debug", site.configs), default=True)))
    site.submit(spec(1))
    assert site.cycle() == {}
