"""Only some numbers of nodes will do: sbatch --nodes=1,2,4."""

from __future__ import annotations

import pytest

from spritz.scheduling.feasible import check_request
from spritz.scheduling.placement.eligible import Eligibility
from spritz.scheduling.request import Request
from tests.unit.scheduling.site import Site, node, spec


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


def test_numbers_that_there_are_not_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number tried is a placement of its own; a request may list sixty thousand."""
    tried: list[int] = []

    def choices(self: Eligibility, request: Request) -> object:
        tried.append(request.nodes_min)
        return real(self, request)

    real = Eligibility.choices
    monkeypatch.setattr(Eligibility, "choices", choices)
    wanted = spec(nodes=(1, 60_000), node_counts=(1, 2, 2, *range(3, 60_000)), features="nowhere")
    assert check_request(wanted, site_of(3).projection.snapshot(0.0)) is not None
    assert sorted(set(tried)) == [1, 2, 3]
