"""GPUs of several types for the whole job: sbatch --gpus=a100:3,h100:2."""

from __future__ import annotations

from collections import Counter

import pytest

from spritz.model.resources import Allocation, GresRequest
from spritz.model.states import JobState
from spritz.scheduling.placement import mixed
from spritz.scheduling.plan.feasible import check_request
from tests.unit.scheduling.site import Site, gpus, node, spec

BOTH = [gpus(2, "a"), gpus(2, "h", first=2)]


def wanted(a: int, h: int) -> tuple[GresRequest, ...]:
    """--gpus=a:A,h:H"""
    return (GresRequest("gpu", "a", a), GresRequest("gpu", "h", h))


def given(allocation: Allocation) -> dict[str, dict[str, int]]:
    """node -> type -> devices."""
    return {part.node: {gres.type: gres.count for gres in part.gres} for part in allocation.nodes}


def test_one_node_with_both_types_is_enough() -> None:
    site = Site([node("n1", 4, gres=BOTH), node("n2", 4, gres=BOTH)])
    job_id = site.submit(spec(2, gpus=wanted(2, 1)))
    assert given(site.cycle()[job_id]) == {"n1": {"a": 2, "h": 1}}


def test_what_one_node_lacks_comes_from_another() -> None:
    site = Site([node("n1", 4, gres=[gpus(4, "a")]), node("n2", 4, gres=[gpus(4, "a")]), node("n3", 4, gres=BOTH)])
    job_id = site.submit(spec(2, (1, 2), gpus=wanted(3, 2)))
    found = given(site.cycle()[job_id])
    assert len(found) == 2
    assert sum(map(Counter, found.values()), Counter()) == {"a": 3, "h": 2}


def test_every_node_of_the_job_has_a_device() -> None:
    site = Site([node(name, 4, gres=BOTH) for name in ("n1", "n2")])
    job_id = site.submit(spec(2, 2, gpus=wanted(1, 1)))
    found = given(site.cycle()[job_id])
    assert sorted(sum(kinds.values()) for kinds in found.values()) == [1, 1]
    assert sum(map(Counter, found.values()), Counter()) == {"a": 1, "h": 1}


def test_devices_of_one_type_do_not_stand_in_for_another() -> None:
    """Four GPUs are free, but only one is an `h`: the job waits for the other."""
    site = Site([node("n1", 8, gres=[gpus(3, "a"), gpus(2, "h", first=3)])])
    first = site.submit(spec(1, gpus="h:1"))
    assert first in site.cycle()
    second = site.submit(spec(1, gpus=wanted(2, 2)))
    assert second not in site.cycle()
    site.end(first)
    assert given(site.cycle()[second]) == {"n1": {"a": 2, "h": 2}}


def test_types_that_no_set_of_nodes_has_are_refused() -> None:
    snapshot = Site([node("n1", 8, gres=BOTH)]).projection.snapshot(0.0)
    assert check_request(spec(gpus=wanted(2, 2)), snapshot) is None
    assert check_request(spec(gpus=wanted(1, 3)), snapshot) == ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "")
    assert check_request(spec(nodes=1, gpus=wanted(3, 1)), snapshot) is not None


def test_cpus_come_with_the_gpus_of_each_node() -> None:
    site = Site([node(name, 8, gres=BOTH) for name in ("n1", "n2")])
    job_id = site.submit(spec(nodes=2, gpus=wanted(2, 2), cpus_per_gpu=2))
    allocation = site.cycle()[job_id]
    assert sum(part.cpu_count for part in allocation.nodes) == 8
    for part in allocation.nodes:
        assert part.cpu_count >= 2 * sum(gres.count for gres in part.gres)


def test_no_node_is_taken_for_its_feature_beyond_the_most_nodes() -> None:
    """A job that gives no number of nodes gets a node, and a task, for each feature."""
    nodes = [node("n1", 4, features=("x",), gres=[gpus(2, "a")]), node("n2", 4, features=("y",), gres=[gpus(1, "b")])]
    site = Site(nodes)
    both = (GresRequest("gpu", "a", 2), GresRequest("gpu", "b", 1))
    alone = site.submit(spec(nodes=1, gpus=both, features="[x*1&y*1]"))
    one = site.submit(spec(1, gpus=both, features="[x*1&y*1]"))
    assert site.cycle()[one].tasks == (1, 1)
    assert site.jobs[alone].state is JobState.PENDING
    site.end(one)
    two = site.submit(spec(2, gpus=both, features="[x*1&y*1]"))
    assert list(site.cycle()) == [two]


def test_nodes_that_are_alike_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or each node that is taken costs a look at all others: seconds of slurmctld on some thousand nodes."""
    looks: list[mixed.Counts] = []
    real = mixed._useful

    def useful(left: mixed.Counts, counts: mixed.Counts) -> int:
        looks.append(counts)
        return real(left, counts)

    monkeypatch.setattr(mixed, "_useful", useful)
    site = Site([node(f"n{number}", gres=[gpus(2, "a"), gpus(2, "b", 2)]) for number in range(40)])
    both = (GresRequest("gpu", "a", 4), GresRequest("gpu", "b", 80))
    assert check_request(spec(gpus=both), site.projection.snapshot(0.0)) is None
    assert len(looks) <= 40
