"""`spritz gpus`: which GPUs are free, by type and node, and when the next ones come free."""

from __future__ import annotations

import json

from spritz.cli.spritz import main
from spritz.model.commands.cluster import UpdateNode
from spritz.model.resources import Allocation, GresAllocation, GresCapacity
from spritz_testing.builders import World, capacity, node_share
from tests.unit.cli.site import Site

GRES = (
    GresCapacity(name="gpu", type="h100", count=2),
    GresCapacity(name="gpu", type="a100", count=2, first_index=2),
    GresCapacity(name="shard", count=8),
)


def with_gpus(site: Site) -> None:
    site.world = World(nodes=2, hardware=capacity(gres=GRES))


def run_job(site: Site, node: str, gpus: str, minutes: int | None) -> None:
    job = site.submit(time_limit_minutes=minutes)
    site.world.start(job, node_share(node, site.world.free_share(node, 1).cpus, gpus=gpus))


def test_free_gpus_by_type_and_node_and_the_next_to_come(site: Site) -> None:
    with_gpus(site)
    run_job(site, "n1", "7", 10)
    run_job(site, "n2", "1", 5)
    run_job(site, "n2", "8", None)
    site.world.ok(UpdateNode(names=("n2",), state="DRAIN", reason="disk"))
    found = json.loads(site.run(main, "gpus", "--json").out)
    h100, a100 = found["types"]
    ends_at = site.world.now + 600
    assert h100 == {
        "type": "h100", "total": 4, "free": 0, "in_use": 3, "unavailable": 1,
        "next_free": {"at": ends_at, "nodes": {"n1": 2}},
    }  # fmt: skip
    assert a100 == {
        "type": "a100", "total": 4, "free": 1, "in_use": 2, "unavailable": 1,
        "next_free": {"at": ends_at, "nodes": {"n1": 1}},
    }  # fmt: skip
    lines = site.run(main, "gpus").lines
    assert lines[0].split() == [
        "TYPE",
        "TOTAL",
        "FREE",
        "IN",
        "USE",
        "UNAVAILABLE",
        "NEXT",
        "FREE",
        "AT",
        "THE",
        "LATEST",
    ]
    assert lines[1].split()[:5] == ["h100", "4", "0", "3", "1"]
    assert lines[-1].split()[:4] == ["n1", "a100", "1", "2"]
    assert [line.split()[0] for line in site.run(main, "gpus", "--type", "h100").lines if line][1:] == ["h100", "No"]


def test_a_gpu_that_is_shared_is_not_free(site: Site) -> None:
    with_gpus(site)
    job = site.submit(time_limit_minutes=5)
    shares = GresAllocation(name="shard", count=1, indexes="1")
    share = node_share("n1")
    allocation = Allocation(partition="debug", nodes=(type(share)(node="n1", cpus="1", gres=(shares,)),))
    site.world.start(job, *allocation.nodes)
    assert json.loads(site.run(main, "gpus", "--json").out)["types"][0]["free"] == 3


def test_what_is_not_there_is_said_plainly(site: Site) -> None:
    assert site.run(main, "gpus").lines == ["No node of this cluster has GPUs."]
    with_gpus(site)
    wrong = site.run(main, "gpus", "--type", "v100")
    assert (wrong.status, wrong.err) == (1, "spritz: error: no GPU of type v100; there are: h100, a100\n")
