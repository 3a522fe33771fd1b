"""Could a job ever run?"""

from __future__ import annotations

from spritz.model.states import NodeFlag, NodeState
from spritz.scheduling.feasible import check_request
from tests.unit.scheduling.site import Site, gpus, node, partition, spec


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
        (spec(gres_flags=("no-such-flag",)), "--gres-flags=no-such-flag"),
    ):
        refusal = check_request(request, snapshot)
        assert refusal is not None
        assert refusal[0] == "ESLURM_NOT_SUPPORTED"
        assert word in refusal[1]
