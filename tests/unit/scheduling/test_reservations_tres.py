"""Reservations of GPUs and licenses, and of nodes that are replaced: what the core gives them, and who starts where.

Source: scontrol(1) create reservation: TRES, TRESPerNode, Licenses, ANY_NODES, REPLACE, REPLACE_DOWN, USER_DELETE.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.cluster.settings import Caller
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.reservation import (
    CreateReservation,
    DeleteReservation,
    ReservationRequest,
    UpdateReservation,
)
from spritz.model.job.record import JobSpec
from spritz.model.node.reservation import Reservation
from tests.unit.scheduling.site import SETTINGS, Site, cpu_ids, devices, gpus, node, spec
from tests.unit.scheduling.test_reservations import do

ALICE = Caller(uid=1001, gid=1001, user="alice", group="alice", groups=(), group_names=("alice",))
BOB = Caller(uid=1002, gid=1002, user="bob", group="bob", groups=(), group_names=("bob",))


def site_of(count: int = 2, **fields: Any) -> Site:
    """Nodes of eight cores and four GPUs, of which two are local to each half of the cores."""
    halves = [gpus(2, "h100", 0, "0-3"), gpus(2, "h100", 2, "4-7")]
    settings = structs.replace(SETTINGS, licenses=(("matlab", 4), ("idl", 1)))
    return Site([node(f"n{number}", gres=halves, **fields) for number in range(1, count + 1)], settings=settings)


def reserve(site: Site, start: float = 0.0, seconds: float = 3600.0, **fields: Any) -> Reservation:
    """For Alice, `start` seconds from now."""
    known: dict[str, Any] = {"name": "r", "users": ("alice",)} | fields
    request = ReservationRequest(start_at=site.now + start, duration_seconds=seconds, **known)
    do(site, CreateReservation(request=request))
    return site.machine.state.reservations[request.name]


def refusal(site: Site, **fields: Any) -> str:
    known: dict[str, Any] = {"name": "x", "users": ("alice",), "start_at": site.now, "duration_seconds": 3600.0}
    request = ReservationRequest(**(known | fields))
    rejection = site.machine.handle(CreateReservation(request=request), site.now).rejection
    return rejection.code if rejection is not None else ""


def inside(count: int = 1, **fields: Any) -> JobSpec:
    return spec(1, 1, gpus_per_node=count, reservation="r", user="alice", **fields)


def outside(count: int = 1, **fields: Any) -> JobSpec:
    return spec(1, 1, gpus_per_node=count, user="bob", **fields)


def test_gpus_are_reserved_with_cores_next_to_them() -> None:
    site = site_of()
    found = reserve(site, gres=(("gpu", "h100", 6),))
    given = [(name, one.count, one.indexes) for name, gres in found.gres for one in gres]
    assert given == [("n1", 4, "f"), ("n2", 2, "3")]
    assert dict(found.cpus) == {"n1": "ff", "n2": "f"}
    assert refusal(site, gres=(("gpu", "", 3),)) == "ESLURM_NODES_BUSY"
    assert refusal(site, gres=(("gpu", "a100", 1),)) == "ESLURM_INVALID_GRES"


def test_a_number_of_gpus_of_each_node() -> None:
    site = site_of(3)
    site.submit(outside(3, time_limit_minutes=600))
    site.cycle()
    found = reserve(site, node_count=2, gres_per_node=(("gpu", "", 2),))
    assert found.nodes == ("n2", "n3")
    assert refusal(site, node_count=3, gres_per_node=(("gpu", "", 2),)) == "ESLURM_NODES_BUSY"
    assert refusal(site, gres_per_node=(("gpu", "", 2),)) == "ESLURM_INVALID_NODE_COUNT"


def test_others_get_other_gpus_and_cores_and_the_reservations_jobs_get_its_own() -> None:
    site = site_of(1)
    reserve(site, gres=(("gpu", "", 2),))
    mine, other = site.submit(inside(2)), site.submit(outside(2))
    late, more = site.submit(outside(1)), site.submit(inside(1))
    got = site.cycle()
    assert devices(got[mine]) == {"n1": [0, 1]}
    assert devices(got[other]) == {"n1": [2, 3]}
    assert set(cpu_ids(got[mine])) <= {0, 1, 2, 3}
    assert set(cpu_ids(got[other])) <= {4, 5, 6, 7}
    assert not got.keys() & {late, more}
    site.end(other)
    assert list(site.cycle()) == [late], "outside the reservation there is room; in it there is none"


def test_a_job_that_would_still_hold_a_gpu_when_it_is_reserved_waits() -> None:
    site = site_of(1)
    reserve(site, 600, gres=(("gpu", "", 3),))
    short, long = site.submit(outside(2, time_limit_minutes=10)), site.submit(outside(2, time_limit_minutes=11))
    assert list(site.cycle()) == [short]
    one = site.submit(outside(1, time_limit_minutes=11))
    assert devices(site.cycle()[one]) == {"n1": [3]}
    assert long not in site.cycle()


def test_licenses_are_kept_for_the_jobs_of_the_reservation() -> None:
    site = site_of()
    reserve(site, licenses=(("matlab", 3),), flags=("ANY_NODES",))
    one = site.submit(spec(1, licenses="matlab:2", user="bob"))
    two = site.submit(spec(1, licenses="matlab:1", user="bob"))
    mine = site.submit(spec(1, licenses="matlab:2", user="alice", reservation="r"))
    assert set(site.cycle()) == {two, mine}
    assert site.reason(one) == "Licenses"
    again = site.submit(spec(1, licenses="matlab:1", user="alice", reservation="r"))
    assert list(site.cycle()) == [again], "what its own jobs use is not kept from them a second time"
    late = site.submit(spec(1, licenses="matlab|idl", user="bob"))
    assert list(site.cycle()) == [late]
    assert site.jobs[late].licenses == (("idl", 1),)
    assert site.projection.records[late].licenses == {"idl": 1}


def test_a_job_that_would_still_use_licenses_when_they_are_reserved_waits() -> None:
    site = site_of()
    reserve(site, 600, licenses=(("matlab", 3),), flags=("ANY_NODES",))
    short = site.submit(spec(1, licenses="matlab:4", time_limit_minutes=10))
    long = site.submit(spec(1, licenses="matlab:2", time_limit_minutes=11))
    assert list(site.cycle()) == [short]
    site.end(short)
    assert list(site.cycle()) == []
    do(site, DeleteReservation(name="r"))
    assert list(site.cycle()) == [long]


def test_what_cannot_be_reserved_of_licenses() -> None:
    site = site_of()
    reserve(site, licenses=(("matlab", 3),), flags=("ANY_NODES",))
    assert refusal(site, licenses=(("matlab", 2),), flags=("ANY_NODES",)) == "ESLURM_INVALID_LICENSES"
    assert refusal(site, licenses=(("nosuch", 1),), flags=("ANY_NODES",)) == "ESLURM_INVALID_LICENSES"
    assert refusal(site, licenses=(("matlab", 1),)) == "ESLURM_INVALID_NODE_NAME", "as Slurm has it without ANY_NODES"
    site.submit(spec(1, licenses="matlab:1", time_limit_minutes=600))
    site.cycle()
    assert refusal(site, licenses=(("matlab", 1),), flags=("ANY_NODES",)) == "ESLURM_INVALID_LICENSES"
    assert refusal(site, licenses=(("matlab", 1),), flags=("ANY_NODES", "IGNORE_JOBS")) == ""


@pytest.mark.parametrize(
    ("flags", "replaced"),
    [((), True), (("STATIC",), False), (("STATIC", "REPLACE_DOWN"), True), (("REPLACE",), True), (("MAINT",), True)],
)
def test_a_node_that_goes_down_is_replaced_unless_the_reservation_is_static(
    flags: tuple[str, ...], replaced: bool
) -> None:
    site = site_of(3)
    reserve(site, 600, node_count=1, flags=flags)
    do(site, UpdateNode(names=("n1",), state="DRAIN", reason="x"))
    assert site.machine.state.reservations["r"].nodes == (("n2",) if replaced else ("n1",))
    outside_job = site.submit(spec(1, 1, node_list=("n2",), time_limit_minutes=60))
    assert (outside_job in site.cycle()) is not replaced


def test_nodes_in_use_are_replaced_by_idle_ones_with_replace() -> None:
    site = site_of(3)
    reserve(site, node_count=1, flags=("REPLACE",))
    first = site.submit(inside(time_limit_minutes=600))
    assert site.cycle()[first].names == ("n1",)
    assert site.machine.state.reservations["r"].nodes == ("n2",)
    second = site.submit(inside())
    assert site.cycle()[second].names == ("n2",)
    third = site.submit(inside())
    assert site.cycle()[third].names == ("n3",)
    assert site.machine.state.reservations["r"].nodes == ("n3",), "no other node is idle"


@pytest.mark.parametrize(
    ("flags", "all_may", "who", "code"),
    [
        ((), False, ALICE, "ESLURM_USER_ID_MISSING"),
        (("USER_DELETE",), False, BOB, "ESLURM_ACCESS_DENIED"),
        (("USER_DELETE",), False, ALICE, ""),
        ((), True, BOB, "ESLURM_ACCESS_DENIED"),
        ((), True, ALICE, ""),
    ],
)
def test_users_delete_reservations_that_let_them(flags: tuple[str, ...], all_may: bool, who: Caller, code: str) -> None:
    """`all_may`: SlurmctldParameters=user_resv_delete."""
    site = site_of()
    site.machine.state.settings = structs.replace(site.machine.state.settings, user_deletes_reservations=all_may)
    reserve(site, node_count=1, flags=flags)
    rejection = site.machine.handle(DeleteReservation(name="r"), site.now, who).rejection
    assert (rejection.code if rejection is not None else "") == code


def test_licenses_and_comment_are_changed_and_taken_away() -> None:
    site = site_of()
    reserve(site, node_count=1, licenses=(("matlab", 3),), comment="a")
    do(site, UpdateReservation(request=ReservationRequest(name="r", licenses=(), comment="b")))
    found = site.machine.state.reservations["r"]
    assert (found.licenses, found.comment, found.nodes) == ((), "b", ("n1",))


def test_reserved_gpus_are_not_moved_to_a_time_at_which_others_have_them() -> None:
    site = site_of(1)
    reserve(site, 7200, gres=(("gpu", "", 2),))
    reserve(site, 0, 3600, name="s", gres=(("gpu", "", 4),))

    def moved(start: float) -> str:
        request = ReservationRequest(name="r", start_at=site.now + start)
        rejection = site.machine.handle(UpdateReservation(request=request), site.now).rejection
        return rejection.code if rejection is not None else ""

    assert moved(1800) == "ESLURM_RESERVATION_OVERLAP"
    assert moved(3600) == ""
    do(site, DeleteReservation(name="s"))
    site.submit(outside(4, time_limit_minutes=30))
    site.cycle()
    assert [moved(900), moved(1800)] == ["ESLURM_NODES_BUSY", ""]


def test_licenses_alone_are_not_taken_away() -> None:
    site = site_of(1)
    reserve(site, licenses=(("matlab", 3),), flags=("ANY_NODES",))
    request = ReservationRequest(name="r", licenses=())
    rejection = site.machine.handle(UpdateReservation(request=request), site.now).rejection
    assert rejection is not None
    assert rejection.code == "ESLURM_INVALID_LICENSES"
