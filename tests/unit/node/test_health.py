"""When HealthCheckProgram runs. Source: slurm.conf(5) HealthCheckNodeState."""

from __future__ import annotations

import pytest

from spritz.model.job.record import Job
from spritz.model.resources import Allocation, NodeAllocation
from spritz.node.health import pauses, state_of, wants_check
from spritz_testing.builders import capacity, job_spec


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ((), {"IDLE", "MIXED", "ALLOC"}),
        (("ANY",), {"IDLE", "MIXED", "ALLOC"}),
        (("CYCLE",), {"IDLE", "MIXED", "ALLOC"}),
        (("IDLE",), {"IDLE"}),
        (("IDLE", "CYCLE"), {"IDLE"}),
        (("ALLOC",), {"ALLOC"}),
        (("idle", "mixed"), {"IDLE", "MIXED"}),
        (("NONDRAINED_IDLE",), {"IDLE"}),
    ],
)
def test_the_state_decides(states: tuple[str, ...], wanted: set[str]) -> None:
    assert {state for state in ("IDLE", "MIXED", "ALLOC") if wants_check(states, state)} == wanted


def test_a_node_is_allocated_when_no_cpu_is_left_for_jobs() -> None:
    """So that a check leaves jobs alone that have the whole node."""
    node = capacity(cpus=8, cpus_reserved="3")

    def job(name: str, cpus: str) -> Job:
        share = NodeAllocation(node=name, cpus=cpus)
        return Job(id=1, spec=job_spec(), allocation=Allocation(partition="debug", nodes=(share,)))

    assert state_of(node, "n1", ()) == "IDLE"
    assert state_of(node, "n1", (job("n1", "7c"),)) == "MIXED"
    assert state_of(node, "n1", (job("n1", "7c"), job("n1", "40"))) == "MIXED", "they share a CPU"
    assert state_of(node, "n1", (job("n1", "7c"), job("n1", "80"))) == "ALLOC"
    assert state_of(node, "n1", (job("n2", "fc"),)) == "MIXED"


def test_start_only_is_not_again() -> None:
    """The check that comes before registration."""
    assert not wants_check(("START_ONLY",), "IDLE")


def test_checks_come_together_unless_they_are_to_go_round() -> None:
    assert pauses(("ANY",), ["n1", "n2"], ["n1", "n2", "n3"], 300.0) == [("n1", 0.0), ("n2", 0.0)]


def test_a_cycle_spreads_the_nodes_of_all_daemons_over_the_interval() -> None:
    every = ["n1", "n2", "n3", "n4"]
    alone = {name: pauses(("CYCLE",), [name], every, 200.0) for name in every}
    assert alone == {"n1": [("n1", 0.0)], "n2": [("n2", 50.0)], "n3": [("n3", 100.0)], "n4": [("n4", 150.0)]}
    assert pauses(("ANY", "cycle"), ["n4", "n1", "n3"], every, 200.0) == [("n1", 0.0), ("n3", 100.0), ("n4", 50.0)]
