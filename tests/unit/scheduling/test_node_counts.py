"""Only some numbers of nodes will do: sbatch --nodes=1,2,4."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.model.cluster.topology import Block, Topology
from spritz.scheduling.plan.feasible import check_request
from spritz.scheduling.view.eligibility import Eligibility
from spritz.scheduling.view.request import Request
from tests.unit.scheduling.site import SETTINGS, Site, node, spec


def site_of(nodes: int) -> Site:
    return Site([node(f"n{number}", 2) for number in range(nodes)])


@pytest.mark.parametrize(("free", "got"), [(5, 4), (4, 4), (3, 2), (2, 2), (1, 1)])
def test_the_largest_number_that_is_free_is_taken(free: int, got: int) -> None:
    site = site_of(5)
    if free < 5:
        site.submit(spec(2 * (5 - free), 5 - free))
        site.cycle()
    job_id = site.submit(spec(nodes=(1, 4), node_counts=(1, 2, 4)))
    assert len(site.cycle()[job_id].nodes) == got


def test_the_smallest_where_that_is_asked_for() -> None:
    site = site_of(5)
    job_id = site.submit(spec(nodes=(2, 4), node_counts=(2, 4), use_min_nodes=True))
    assert len(site.cycle()[job_id].nodes) == 2


def test_a_number_between_will_not_do() -> None:
    site = site_of(4)
    first = site.submit(spec(2, 1))
    site.cycle()
    job_id = site.submit(spec(nodes=(4, 6), node_counts=(4, 6)))
    assert job_id not in site.cycle()
    site.end(first)
    assert len(site.cycle()[job_id].nodes) == 4


def test_numbers_that_are_all_too_large_are_refused() -> None:
    snapshot = site_of(3).projection.snapshot(0.0)
    assert check_request(spec(nodes=(3, 5), node_counts=(3, 5)), snapshot) is None
    refused = check_request(spec(nodes=(4, 5), node_counts=(4, 5)), snapshot)
    assert refused == ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of nodes of the placements that are tried."""
    found: list[int] = []
    real = Eligibility.choices

    def choices(self: Eligibility, request: Request) -> object:
        found.append(request.nodes_min)
        return real(self, request)

    monkeypatch.setattr(Eligibility, "choices", choices)
    return found


def test_few_numbers_are_tried_however_many_are_listed(tried: list[int]) -> None:
    """Each is a placement of its own, and a request may list sixty thousand."""
    snapshot = site_of(40).projection.snapshot(0.0)
    many = spec(nodes=(1, 60_000), node_counts=(1, 2, 2, *range(3, 60_000)), features="nowhere")
    assert check_request(many, snapshot) is not None
    assert len(tried) == 2  # the second one for the search, which takes all numbers together
    assert check_request(replace(many, features=""), snapshot) is None
    assert len(tried) < 12


@pytest.mark.parametrize("smallest", [False, True])
def test_the_numbers_that_are_tried_lie_next_to_what_there_is_room_for(tried: list[int], smallest: bool) -> None:
    """Tasks want 21 nodes at least; 31 of 60 are free."""
    site = site_of(60)
    site.submit(spec(58, 29))
    site.cycle()
    tried.clear()
    job_id = site.submit(spec(42, nodes=(1, 60), node_counts=tuple(range(1, 61)), use_min_nodes=smallest))
    assert len(site.cycle()[job_id].nodes) == (21 if smallest else 31)
    assert len(tried) < 30


def test_in_blocks_another_number_may_do_where_the_largest_does_not() -> None:
    """Two blocks of four nodes, two of the first busy: segments of three are found in the second alone."""
    blocks = Topology(kind="block", name="t", blocks=(Block(name="a", nodes="n[0-3]"), Block(name="b", nodes="n[4-7]")))
    site = Site([node(f"n{number}", 2) for number in range(8)], settings=replace(SETTINGS, topologies=(blocks,)))
    site.submit(spec(4, 2, node_list=("n0", "n1")), priority=9)
    site.cycle()
    job_id = site.submit(spec(nodes=(3, 6), node_counts=(3, 6), segment=3))
    assert site.cycle()[job_id].names == ("n4", "n5", "n6")
