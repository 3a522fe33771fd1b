"""The number of nodes that may be powered up. Source: slurm.conf(5) SlurmctldParameters=max_powered_nodes."""

from __future__ import annotations

from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.states import NodeFlag, NodeState
from tests.unit.scheduling.site import Site, node, partition, spec

NAMES = ("n1", "n2", "n3", "n4")


def site_of(most: int | None, asleep: tuple[str, ...] = NAMES) -> Site:
    """Four nodes of two CPUs, some of them powered down."""
    nodes = [node(name, 2) for name in NAMES]
    power = PowerPolicy(resumes=True, suspends=True, powered_max=most)
    site = Site(nodes, [partition("debug", nodes, default=True)], settings=ClusterSettings(power=power))
    for name in asleep:
        site.set_node(name, NodeState.IDLE, NodeFlag.POWERED_DOWN)
    return site


def test_jobs_call_up_no_more_nodes_than_may_be_powered() -> None:
    site = site_of(2)
    first, second, third = (site.submit(spec(2)) for _ in range(3))
    assert site.cycle().keys() == {first, second}
    assert site.reason(third) == "MaxPoweredUpNodes"


def test_without_a_limit_all_start() -> None:
    site = site_of(None)
    jobs = {site.submit(spec(2)) for _ in range(4)}
    assert site.cycle().keys() == jobs


def test_nodes_that_are_up_are_had_and_waited_for() -> None:
    """With as many up as may be, those that sleep are as good as down: starts are promised on the others."""
    site = site_of(2, asleep=("n3", "n4"))
    first = site.submit(spec(4, 2, time_limit_minutes=10))
    assert site.cycle().keys() == {first}
    second = site.submit(spec(4, 2, time_limit_minutes=10))
    short = site.submit(spec(2, time_limit_minutes=5))
    assert not site.cycle()
    assert site.reason(second) == "MaxPoweredUpNodes"
    promises = [one for ones in site.projection.ledger.by_request.values() for one in ones]
    assert (site.now + 600, ("n1", "n2")) in [(promise.start_at, promise.allocation.names) for promise in promises]
    large = site.submit(spec(6, 3))
    site.cycle()
    assert site.reason(large) == "MaxPoweredUpNodes"
    site.set_node("n4", NodeState.DOWN, NodeFlag.POWERED_DOWN)
    site.end(first)
    assert site.cycle().keys() == {second}
    assert site.reason(short) == "MaxPoweredUpNodes"


def test_a_job_that_needs_more_than_are_left_waits_and_others_start() -> None:
    site = site_of(3)
    large, small = site.submit(spec(8, 4)), site.submit(spec(2))
    assert site.cycle().keys() == {small}
    assert site.reason(large) == "MaxPoweredUpNodes"


def test_a_node_that_goes_down_lets_another_be_called_up() -> None:
    site = site_of(2, asleep=("n2", "n3"))
    site.set_node("n1", NodeState.DOWN)
    job, other = site.submit(spec(2)), site.submit(spec(2))
    assert site.cycle().keys() == {job}
    assert site.reason(other) == "MaxPoweredUpNodes"
    site.set_node("n1", NodeState.DOWN, NodeFlag.POWERED_DOWN)
    assert site.cycle().keys() == {other}
