"""Could a job ever run, and when would it?"""

from __future__ import annotations

from spritz.model.job import Sharing
from spritz.model.states import NodeFlag, NodeState
from spritz.scheduling.feasible import check_request, will_run
from tests.unit.scheduling.site import Site, cpus, gpus, node, partition, spec


def two_nodes() -> Site:
    nodes = [node(name, 4, gres=[gpus(2)]) for name in ("n1", "n2")]
    return Site(nodes, [partition("p", nodes, default=True), partition("q", nodes[:1])])


def test_what_fits_an_empty_cluster_is_accepted_even_if_it_is_busy_or_down() -> None:
    site = two_nodes()
    site.submit(spec(8))
    site.cycle()
    site.set_node("n1", NodeState.DOWN, NodeFlag.NOT_RESPONDING)
    assert check_request(spec(8), site.projection.snapshot(site.now)) is None


def test_what_no_set_of_nodes_could_carry_is_refused() -> None:
    snapshot = two_nodes().projection.snapshot(0.0)
    for impossible in (spec(9), spec(nodes=3), spec(gpus=5), spec(1, nodes=1, gpus=3), spec(features="x")):
        assert check_request(impossible, snapshot) == ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "")


def test_one_partition_that_fits_is_enough() -> None:
    snapshot = two_nodes().projection.snapshot(0.0)
    assert check_request(spec(8, partitions=("q", "p")), snapshot) is None
    assert check_request(spec(8, partitions=("q",)), snapshot) is not None


def test_options_that_are_not_built_are_refused_by_name() -> None:
    snapshot = two_nodes().projection.snapshot(0.0)
    for request, word in (
        (spec(core_spec=1), "--core-spec"),
        (spec(gres_flags=("one-task-per-sharing",)), "--gres-flags=one-task-per-sharing"),
    ):
        refusal = check_request(request, snapshot)
        assert refusal is not None
        assert refusal[0] == "ESLURM_NOT_SUPPORTED"
        assert word in refusal[1]


def test_a_free_cluster_starts_the_job_now() -> None:
    site = two_nodes()
    expected = will_run(spec(6), site.projection.snapshot(site.now))
    assert expected is not None
    assert expected.start_at == site.now
    assert cpus(expected.allocation) == {"n1": 4, "n2": 2}


def test_a_busy_one_when_enough_jobs_have_reached_their_limits() -> None:
    site = two_nodes()
    site.submit(spec(1, nodes=1, sharing=Sharing.EXCLUSIVE, time_limit_minutes=5))
    site.submit(spec(1, nodes=1, sharing=Sharing.EXCLUSIVE, time_limit_minutes=20))
    site.cycle()
    snapshot = site.projection.snapshot(site.now)
    one, both = will_run(spec(4, nodes=1), snapshot), will_run(spec(8), snapshot)
    assert one is not None
    assert both is not None
    assert (one.start_at, one.allocation.names) == (site.now + 300, ("n1",))
    assert (both.start_at, both.allocation.names) == (site.now + 1200, ("n1", "n2"))
    assert will_run(spec(9), snapshot) is None
