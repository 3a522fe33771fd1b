"""The core and the scheduler give the same answer about reservations."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spritz.model.cluster.topology import Switch, Topology
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.commands.job import Done
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.job.record import Sharing
from tests.unit.scheduling.site import SETTINGS, Site, node, spec

NODES = [node(f"n{number}", 4) for number in range(1, 4)]


def reserve(site: Site, **fields: Any) -> None:
    request = {"name": "r", "start_at": site.now, "duration_seconds": 3600.0, "users": ("bob",), "nodes": ("n1",)}
    assert site.send(CreateReservation(request=ReservationRequest(**{**request, **fields}))).rejection is None


def test_nodes_that_a_job_keeps_empty_must_not_be_reserved_for_others() -> None:
    """The reservation was made after the plan."""
    network = Topology(name="default", kind="tree", switches=(Switch(name="s", nodes="n[1-3]"),))
    site = Site(NODES, settings=replace(SETTINGS, topologies=(network,)))
    job = site.ask(spec(1, sharing=Sharing.TOPO))
    plan = site.plan()
    allocation = plan.starts[0].allocation
    assert allocation.kept
    reserve(site, nodes=allocation.kept[:1])
    reply = site.send(ApplyPlan(plan=plan)).reply
    assert isinstance(reply, Done)
    assert reply.messages == (f"job {job}: node {allocation.kept[0]} is reserved (r)",)
    assert site.cycle() == {}


def test_a_name_may_be_given_twice_and_empty_names_do_not_count() -> None:
    site = Site(NODES[:1])
    reserve(site)
    job = site.ask(spec(1, reservation=",r,r", user="bob", uid=1002))
    assert site.cycle()[job].reservation == "r"
