"""What fits on a node that holds jobs already: the same for the core, which asks `node_use`, and for the scheduler."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, spec

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.resources import GresAllocation, GresCapacity, GresRequest, NodeAllocation, NodeCapacity
from spritz.model.rules.node_shape import core_list_mask, core_masks, counted_layout, shares_by_device, socket_masks
from spritz.model.rules.node_use import NodeUse, share_misfit
from spritz.scheduling.placement.exact import is_free
from spritz.scheduling.view.hardware import Hardware

TAPES = (GresCapacity(name="tape", type="a", count=2), GresCapacity(name="tape", type="b", count=2))


def share(*gres: tuple[str, str, int], cpus: str = "1", memory: int = 0) -> NodeAllocation:
    held = tuple(GresAllocation(name=name, type=kind, count=count) for name, kind, count in gres)
    return NodeAllocation(node="n1", cpus=cpus, memory_mib=memory, gres=held)


@pytest.mark.parametrize(
    ("held", "wanted", "misfit"),
    [
        (share(cpus="1"), share(cpus="2"), ""),
        (share(cpus="3"), share(cpus="2"), "CPUs in use"),
        (share(cpus="1"), share(cpus="10"), "no such CPUs"),
        (share(cpus="1"), share(cpus="0"), "no such CPUs"),
        (share(memory=60), share(cpus="2", memory=41), "memory in use"),
        (share(memory=60), share(cpus="2", memory=40), ""),
        (share(("tape", "a", 2)), share(("tape", "b", 2), cpus="2"), ""),
        (share(("tape", "a", 1)), share(("tape", "a", 2), cpus="2"), "tape in use"),
        (share(("tape", "", 4)), share(("tape", "a", 1), cpus="2"), "tape in use"),
        (share(("tape", "a", 2)), share(("tape", "", 3), cpus="2"), "tape in use"),
        (share(("tape", "a", 2)), share(("tape", "b", 2), ("tape", "", 1), cpus="2"), "tape in use"),
        (share(), share(("tape", "c", 1), cpus="2"), "tape in use"),
    ],
)
def test_a_share_fits_or_not_with_what_the_node_holds(
    held: NodeAllocation, wanted: NodeAllocation, misfit: str
) -> None:
    use, capacity = NodeUse(), NodeCapacity(cpus=4, cores_per_socket=4, memory_mib=100, gres=TAPES)
    use.take(1, held)
    assert share_misfit(use, capacity, wanted) == misfit
    use.give_back(1)
    use.take(2, share(cpus="8"))
    assert share_misfit(use, capacity, share(cpus="8"), sharing=True) == ""


@pytest.mark.parametrize("order", [("", "a"), ("a", "")])
def test_no_more_of_a_counted_resource_is_given_than_there_is(order: tuple[str, str]) -> None:
    """With and without a type. Source: gres.conf(5) Type, Count."""
    site = Site([node("n1", 8, gres=TAPES)], settings=ClusterSettings(gres_types=("tape",)))
    wanted = {"": 3, "a": 2}
    for kind in order:
        site.submit(spec(1, gres_per_node=(GresRequest("tape", kind, wanted[kind]),), memory_mib_per_node=1))
    assert len(site.cycle()) == 1
    given = [gres for job in site.jobs.values() if job.allocation for gres in job.allocation.nodes[0].gres]
    assert sum(gres.count for gres in given) == wanted[order[0]]
    assert all(gres.type for gres in given), "each is of one of the types that there are"
    rest = site.submit(spec(1, gres_per_node=(GresRequest("tape", "b", 1),), memory_mib_per_node=1))
    assert rest in site.cycle()


def test_fewer_shares_than_gpus_lie_on_one_of_them() -> None:
    """Gres=gpu:4,shard:2 without a line in gres.conf."""
    shards = GresCapacity(name="shard", count=2, per_device=0)
    assert shares_by_device([shards]) == {0: 2}
    site = Site([node("n1", 8, gres=[gpus(4), shards])])
    job = site.submit(spec(1, gres_per_node=(GresRequest("shard", "", 2),)))
    assert job in site.cycle()


def test_each_gpu_has_as_many_shares_as_its_own_line_says() -> None:
    lines = (
        GresCapacity(name="shard", count=2, per_device=2),
        GresCapacity(name="shard", count=8, first_index=1, per_device=8),
    )
    capacity = NodeCapacity(cpus=4, cores_per_socket=4, gres=(gpus(2), *lines))
    wanted = [
        NodeAllocation(
            node="n1", cpus="1", gres=(GresAllocation(name="shard", count=8, indexes=format(1 << device, "x")),)
        )
        for device in (0, 1)
    ]
    assert [share_misfit(NodeUse(), capacity, one) for one in wanted] == ["shard in use", ""]


@pytest.mark.parametrize(
    ("capacity", "layout", "cores"),
    [
        (NodeCapacity(cpus=8, sockets=2, cores_per_socket=2, threads_per_core=2), (2, 2, 2), 4),
        (NodeCapacity(cpus=4, sockets=2, cores_per_socket=2, threads_per_core=2), (2, 2, 1), 4),
        (NodeCapacity(cpus=8, sockets=1, cores_per_socket=1, threads_per_core=2), (1, 8, 1), 8),
        (NodeCapacity(cpus=4, cores_per_socket=4, cpus_reserved="3"), (1, 4, 1), 2),
    ],
)
def test_cpus_are_threads_or_cores_as_they_are_counted(
    capacity: NodeCapacity, layout: tuple[int, int, int], cores: int
) -> None:
    assert counted_layout(capacity) == layout
    assert len(core_masks(capacity)) == cores
    hardware = Hardware(capacity)
    assert (hardware.sockets, hardware.cores_per_socket, hardware.threads) == layout
    assert sum(socket_masks(capacity)) == sum(core_masks(capacity)) == hardware.cpus
    assert core_list_mask("1", capacity) == ((1 << layout[2]) - 1) << layout[2]


def test_a_reservation_of_gpus_has_the_cores_near_them_where_cpus_are_cores() -> None:
    """Two threads a core, of which one counts: gres.conf Cores=2-3 are CPUs 2 and 3."""
    config = node("n1", 4, gres=[gpus(2, "near", 0, "0-1"), gpus(2, "far", 2, "2-3")])
    config = replace(config, capacity=replace(config.capacity, threads_per_core=2))
    site = Site([config], settings=SETTINGS)
    request = ReservationRequest(
        name="r", start_at=site.now, duration_seconds=60.0, users=("bob",), gres=(("gpu", "far", 1),)
    )
    assert site.send(CreateReservation(request=request)).rejection is None
    assert site.machine.state.reservations["r"].mask_on("n1") == 0b1100


def test_counted_resources_of_a_promise_are_not_taken_to_be_free() -> None:
    """They have no indexes by which that could be seen: placement has to look."""
    site = Site([node("n1", 8, gres=TAPES)], settings=replace(SETTINGS, gres_types=("tape",)))
    wanted = spec(1, gres_per_node=(GresRequest("tape", "a", 2),))
    first, second = site.submit(wanted), site.submit(wanted)
    (part,) = site.cycle()[first].nodes
    request = next(shape.request for _key, shape in site.projection.records[second].entries)
    row = site.projection.table.rows[0]
    assert not is_free(row, replace(part, cpus="80"), request)
