"""Flags of a QOS in a cycle: limits of the partition that do not hold, and jobs that are promised nothing."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.events.cluster import PolicyChanged
from spritz.model.limits.records import Policy, Qos
from tests.unit.scheduling.site import Site, node, partition, spec


def site(flags: str, **limits: Any) -> Site:
    """Two nodes of four CPUs, and a QOS `free` with these flags; nothing is enforced."""
    nodes = [node("n1", 4), node("n2", 4)]
    made = Site(nodes, [partition("debug", nodes, default=True, **limits)])
    policy = Policy(version=1, qos=(Qos(name="normal"), Qos(name="free", flags=flags)))
    made.apply(PolicyChanged(at=made.now, policy=policy))
    return made


@pytest.mark.parametrize(
    ("flag", "limits", "asked"),
    [
        ("PartitionTimeLimit", {"max_time_minutes": 10}, {"nodes": 1, "time_limit_minutes": 11}),
        ("PartitionMaxNodes", {"max_nodes": 1}, {"nodes": 2}),
        ("PartitionMinNodes", {"min_nodes": 2}, {"nodes": 1}),
    ],
)
def test_a_job_of_such_a_qos_starts_where_others_wait(flag: str, limits: dict[str, int], asked: dict[str, Any]) -> None:
    made = site(flag, **limits)
    bound, free = made.submit(spec(qos="normal", **asked)), made.submit(spec(qos="free", **asked))
    assert made.cycle().keys() == {free}
    assert made.reason(bound).startswith("Partition")


def test_minimum_nodes_are_not_given_to_a_job_that_asks_for_none() -> None:
    made = site("PartitionMinNodes", min_nodes=2)
    job = made.submit(spec(1, qos="free"))
    assert [part.node for part in made.cycle()[job].nodes] == ["n1"]


def test_the_flag_keeps_a_time_that_may_be_shortened_beyond_the_partitions() -> None:
    made = site("PartitionTimeLimit", max_time_minutes=10)
    made.submit(spec(nodes=1, qos="free", time_limit_minutes=30, time_min_minutes=20))
    (start,) = made.plan().starts
    assert start.time_limit_minutes is None, "as asked"


@pytest.mark.parametrize(("flags", "passes"), [("", False), ("NoReserve", True)])
@pytest.mark.parametrize("budget", [None, 1000])
def test_nothing_is_kept_for_a_job_of_a_qos_with_no_reserve(flags: str, passes: bool, budget: int | None) -> None:
    """The first job waits for both nodes; the one behind it would delay it."""
    made = site(flags)
    made.submit(spec(4, nodes=1))
    made.cycle()
    made.submit(spec(8, nodes=2, qos="free"), priority=5)
    behind = made.submit(spec(4, nodes=1, time_limit_minutes=60))
    assert (behind in made.cycle(budget)) is passes


@pytest.mark.parametrize("budget", [None, 1000])
def test_the_next_job_is_first_in_its_stead(budget: int | None) -> None:
    made = site("NoReserve")
    made.submit(spec(4, nodes=1))
    made.cycle()
    made.submit(spec(8, nodes=2, qos="free"), priority=5)
    made.submit(spec(8, nodes=2, qos="normal"), priority=4)
    made.submit(spec(4, nodes=1, time_limit_minutes=60))
    assert made.cycle(budget) == {}, "the third would delay the second"


@pytest.mark.parametrize(("flags", "passes"), [("", False), ("NoReserve", True)])
def test_nothing_is_kept_for_components_either(flags: str, passes: bool) -> None:
    made = site(flags)
    made.submit(spec(4, nodes=1))
    made.cycle()
    made.submit_het(*[spec(4, nodes=1, qos="free")] * 2, priorities=(5, 5))
    behind = made.submit(spec(4, nodes=1, time_limit_minutes=60))
    assert (behind in made.cycle()) is passes


@pytest.mark.parametrize("budget", [None, 1000])
def test_the_next_job_is_first_in_the_stead_of_components(budget: int | None) -> None:
    made = site("NoReserve")
    made.submit(spec(4, nodes=1))
    made.cycle()
    made.submit_het(*[spec(4, nodes=1, qos="free")] * 2, priorities=(5, 5))
    made.submit(spec(8, nodes=2, qos="normal"), priority=4)
    made.submit(spec(4, nodes=1, time_limit_minutes=60))
    assert made.cycle(budget) == {}
