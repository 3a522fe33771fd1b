"""Jobs that keep others off: by user, by label, and by leaf switch or block. Source: sbatch(1) --exclusive."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.cluster.settings import McsPolicy
from spritz.model.cluster.topology import Block, Switch, Topology
from spritz.model.job.record import Sharing
from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec

TREE = Topology(
    name="default",
    kind="tree",
    switches=(
        Switch(name="a", level=0, nodes="n[1-2]"),
        Switch(name="b", level=0, nodes="n[3-4]"),
        Switch(name="top", level=1, nodes="n[1-4]", switches="a,b"),
    ),
)
BLOCKS = Topology(
    name="default", kind="block", blocks=(Block(name="a", nodes="n[1-2]"), Block(name="b", nodes="n[3-4]"))
)


def site(count: int = 4, topology: Topology | None = None, **fields: Any) -> Site:
    """n1 … of 8 CPUs."""
    topologies = (topology,) if topology is not None else ()
    settings = replace(SETTINGS, topologies=topologies, mcs=fields.pop("mcs", McsPolicy()))
    nodes = [node(f"n{number}") for number in range(1, count + 1)]
    return Site(nodes, [partition("debug", nodes, default=True, **fields)], settings)


def on(here: Site, **fields: Any) -> tuple[str, ...]:
    """The nodes on which such a job starts now; none if it waits."""
    job = here.submit(spec(**fields))
    found = here.cycle().get(job)
    return found.names if found is not None else ()


def test_jobs_of_others_avoid_nodes_that_a_user_holds_exclusively() -> None:
    here = site(2)
    assert on(here, tasks=1, uid=1, sharing=Sharing.USER) == ("n1",)
    assert on(here, tasks=1, uid=2) == ("n2",)
    assert on(here, tasks=8, uid=2) == ()


def test_labels_keep_jobs_apart() -> None:
    here = site(3, mcs=McsPolicy(plugin="label", select="select"))
    assert on(here, tasks=1, mcs_label="red") == ("n1",)
    assert on(here, tasks=1, mcs_label="blue") == ("n2",)
    assert on(here, tasks=1, mcs_label="red") == ("n1",)
    assert on(here, tasks=1) == ("n3",)
    assert on(here, tasks=1, mcs_label="green") == ()


def test_by_default_only_jobs_that_ask_for_it_exclude_other_jobs() -> None:
    here = site(2, mcs=McsPolicy(plugin="label"))
    assert on(here, tasks=1, mcs_label="red") == on(here, tasks=1, mcs_label="blue") == ("n1",)
    assert on(here, tasks=1, mcs_label="red", sharing=Sharing.MCS) == ("n2",)
    assert on(here, tasks=1, mcs_label="red") == ("n1",)


@pytest.mark.parametrize("topology", [TREE, BLOCKS])
def test_a_job_has_its_leaf_for_itself(topology: Topology) -> None:
    here = site(topology=topology)
    first = here.submit(spec(1, sharing=Sharing.TOPO))
    allocation = here.cycle()[first]
    assert (allocation.names, allocation.kept) == (("n1",), ("n2",))
    assert on(here, tasks=1) == ("n3",)
    second = here.submit(spec(1, sharing=Sharing.TOPO))
    assert here.cycle() == {}
    here.end(first, completing=("n1",))
    assert on(here, tasks=1, node_list=("n2",)) == ()
    here.gone(first, "n1")
    assert list(here.cycle()) == [second]
    here.end(second)
    assert [allocation.names for allocation in here.cycle().values()] == [("n2",)]


def test_it_waits_until_the_leaf_is_empty_and_that_start_is_planned() -> None:
    here = site(topology=TREE)
    for name in ("n1", "n3"):
        assert on(here, tasks=1, node_list=(name,), time_limit_minutes=5 if name == "n3" else 60) == (name,)
    waits = here.submit(spec(1, sharing=Sharing.TOPO), priority=9)
    assert here.cycle() == {}
    assert here.jobs[waits].expected_start_at == here.now + 300
    assert here.jobs[waits].expected_nodes in (("n3",), ("n4",))
    # The whole leaf is kept for it: who would stay beyond its start goes elsewhere.
    assert on(here, tasks=1, nodes=1, time_limit_minutes=30) == ("n1",)
    assert on(here, tasks=7, nodes=1, time_limit_minutes=4) != ("n1",)


def test_a_partition_gives_every_job_its_leaf() -> None:
    here = site(topology=TREE, exclusive_topo=True)
    assert on(here, tasks=8, nodes=1) == ("n1",)
    assert on(here, tasks=8, nodes=1) == ("n3",)
    assert on(here, tasks=8, nodes=1) == ()


def test_without_a_network_a_node_is_its_own_leaf() -> None:
    here = site(2)
    assert on(here, tasks=1, sharing=Sharing.TOPO) == ("n1",)
    assert on(here, tasks=1) == ("n2",)


def test_the_updated_table_equals_a_new_one() -> None:
    here = site(topology=TREE)
    here.submit(spec(1, sharing=Sharing.TOPO))
    here.submit(spec(1, sharing=Sharing.USER, uid=3))
    here.cycle()
    before = [row.key() for row in here.projection.table.rows]
    assert here.projection.table.exclusive
    here.projection.rebuild()
    assert [row.key() for row in here.projection.table.rows] == before
    assert here.projection.table.exclusive
