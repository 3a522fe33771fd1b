"""Nodes that come and go while jobs run and wait: what is promised stays, and what it costs is what is new."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.model.events.cluster import ClusterConfigured, NodesCreated, NodesDeleted, NodeUpdated
from spritz.model.node.record import NodeConfig
from spritz.model.states import NodeFlag, NodeState
from tests.unit.scheduling.site import Site, gpus, node, partition, spec


def site_of(count: int = 3) -> Site:
    """A partition of all nodes, with a job on every one of them but the last."""
    nodes = [node(f"n{i}", 4) for i in range(1, count + 1)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    for i in range(1, count):
        site.submit(spec(4, 1, node_list=(f"n{i}",), time_limit_minutes=60), priority=9)
    site.cycle()
    return site


def bring(site: Site, name: str, *, cpus: int = 4, **fields: object) -> NodeConfig:
    """A dynamic node comes up."""
    config = replace(node(name, cpus, **fields), dynamic=True)  # type: ignore[arg-type]  # by name
    site.apply(NodesCreated(at=site.now, nodes=(config,)))
    site.set_node(name)
    return config


def promised(site: Site) -> list[tuple[float, tuple[str, ...]]]:
    """Starts that are promised, and where."""
    site.projection.snapshot(site.now)
    return [
        (promise.start_at - 1000.0, promise.allocation.names)
        for promises in site.projection.ledger.by_request.values()
        for promise in promises
    ]


def test_a_waiting_job_starts_on_a_node_that_comes() -> None:
    site = site_of()
    job = site.submit(spec(8, 2))
    assert job not in site.cycle()
    bring(site, "d1")
    assert site.cycle()[job].names == ("n3", "d1")


def test_a_promise_survives_nodes_that_come_and_others_that_go() -> None:
    site = site_of()
    bring(site, "d1")
    bring(site, "d2")
    site.submit(spec(4, 1, node_list=("d1",), time_limit_minutes=30), priority=9)
    site.cycle()
    head = site.submit(spec(16, 4, node_list=("n1", "n2", "n3", "d1")), priority=5)
    site.cycle()
    before = promised(site)
    assert before == [(3600.0, ("n1", "n2", "n3", "d1"))]
    bring(site, "d3")
    assert promised(site) == before
    site.apply(NodesDeleted(at=site.now, names=("d2",)))
    assert promised(site) == before
    # A long job behind it may have the new node, and not what is promised.
    behind = site.submit(spec(4, 1, time_limit_minutes=600), priority=1)
    assert site.cycle()[behind].names == ("d3",)
    assert site.jobs[head].state.value == "PENDING"


def test_a_promise_on_a_node_that_goes_or_changes_is_void() -> None:
    for event in ("delete", "change"):
        site = site_of()
        config = bring(site, "d1")
        site.submit(spec(16, 4), priority=5)
        site.cycle()
        assert promised(site)
        if event == "delete":
            site.apply(NodesDeleted(at=site.now, names=("d1",)))
        else:
            old = site.machine.state.nodes["d1"]
            smaller = replace(config, capacity=replace(config.capacity, cpus=2, cores_per_socket=2))
            site.apply(NodeUpdated(at=site.now, node=replace(old, config=smaller)))
        assert not promised(site)


def test_a_node_more_costs_no_new_look_at_the_others() -> None:
    site = site_of(60)
    site.submit(spec(8, 2), priority=5)
    site.cycle()
    profile = site.projection.profile
    profile.settle()
    worked_out = profile.worked_out
    rows = list(site.projection.table.rows)
    bring(site, "d1")
    site.projection.snapshot(site.now)
    profile.settle()
    assert site.projection.profile is profile
    assert all(new is old for new, old in zip(site.projection.table.rows, rows, strict=False))
    assert profile.worked_out - worked_out <= 4


def test_a_new_kind_of_gres_is_there_for_the_next_cycle() -> None:
    site = site_of()
    job = site.submit(spec(1, gpus_per_node=1))
    assert job not in site.cycle()
    bring(site, "d1", gres=[gpus(2)])
    assert site.cycle()[job].names == ("d1",)


def test_promises_of_a_plan_that_was_made_before_a_node_went_are_not_kept_on_it() -> None:
    """The full cycle runs in a process of its own, and the nodes may be others when its plan comes."""
    configs = [node("n1", 2), node("n2", 2), node("n3", 2)]
    site = Site(configs)
    first = site.submit(spec(6, 3))
    site.cycle()
    second = site.submit(spec(4, 2))
    plan = site.plan()
    assert plan.future_starts, "the second is promised two nodes"
    site.end(first)
    gone = plan.future_starts[0].allocation.names[0]
    left = tuple(config for config in configs if config.name != gone)
    home = partition("debug", left, default=True)
    site.apply(ClusterConfigured(at=site.now, settings=site.settings, nodes=left, partitions=(home,)))
    site.projection.snapshot(site.now)  # a quick pass has looked meanwhile
    site.projection.adopt(plan)
    kept = [one.allocation.names for ones in site.projection.ledger.by_request.values() for one in ones]
    assert not [names for names in kept if gone in names]
    assert site.cycle()[second].names == tuple(config.name for config in left)


def test_the_table_without_jobs_follows_nodes_down_and_up() -> None:
    """The table is not rebuilt, which takes long with many nodes."""
    site = site_of()
    empty = site.projection.snapshot(site.now).empty_table()
    site.set_node("n2", NodeState.DOWN)
    site.set_node("n3", NodeState.IDLE, NodeFlag.POWERED_DOWN)
    site.set_node("n1", NodeState.IDLE, NodeFlag.DRAIN)
    site.set_node("n1")
    snapshot = site.projection.snapshot(site.now)
    rebuilt = snapshot.table.emptied()
    assert snapshot.empty_table() is empty
    assert [row.key() for row in empty.rows] == [row.key() for row in rebuilt.rows]
    assert (empty.up.tolist(), empty.weight.tolist()) == (rebuilt.up.tolist(), rebuilt.weight.tolist())
    assert empty.up.tolist() == [True, False, False]


def test_nodes_of_another_system_are_for_external_jobs_alone() -> None:
    nodes = [node("n1", 4)]
    site = Site(nodes, [partition("debug", nodes, nodes_text="ALL", default=True)])
    site.apply(NodesCreated(at=site.now, nodes=(replace(node("k1", 4), dynamic=True, initial_state="EXTERNAL"),)))
    ours, theirs = site.submit(spec(4)), site.submit(replace(spec(4), batch=False, external=True))
    waits = site.submit(spec(4))
    started = site.cycle()
    assert {job_id: share.names for job_id, share in started.items()} == {ours: ("n1",), theirs: ("k1",)}
    site.end(theirs)
    assert site.cycle() == {}
    both = site.submit(replace(spec(8, 2), batch=False, external=True), priority=9)
    site.end(ours)
    assert {job_id: share.names for job_id, share in site.cycle().items()} == {both: ("n1", "k1")}
    site.end(both)
    assert {job_id: share.names for job_id, share in site.cycle().items()} == {waits: ("n1",)}


def test_a_job_that_lost_its_planned_start_is_not_told_a_time_and_takes_its_place_back() -> None:
    site = site_of()
    wide = site.submit(spec(12, 3, time_limit_minutes=30), priority=5)
    site.cycle()
    assert site.jobs[wide].expected_start_at == site.now + 3600.0
    site.set_node("n3", NodeState.DOWN)
    narrow = site.submit(spec(4, 1, time_limit_minutes=600), priority=1)
    site.cycle()
    assert site.jobs[wide].expected_start_at == 0.0
    site.now += 60.0
    site.set_node("n3")
    # The job behind it would fit n3 now; it would be in the way for ten hours.
    assert narrow not in site.cycle()
    assert site.jobs[wide].expected_start_at == 1000.0 + 3600.0
