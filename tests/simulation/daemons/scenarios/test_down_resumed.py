"""A node is set DOWN and resumed while processes of its jobs die slowly.

slurmctld does not wait for a node that is DOWN, so after RESUME the next jobs get the CPUs of those that still die.
They must not begin before these are gone: a CPU has one owner.
"""

from __future__ import annotations

from spritz_testing.daemons.plan import Scale
from tests.simulation.daemons.scenarios.play import ask, began, ended, fault, ids, play, submission


def test_a_resumed_node_begins_nothing_before_its_former_jobs_are_gone() -> None:
    result = play(
        Scale(nodes=1, busy_seconds=300.0, quiet_seconds=1800.0, preemption=""),
        submission(5, "dies", exclusive=True, seconds=200.0, requeue=False, ignores_term=True),
        submission(6, "next", "bob", exclusive=True, seconds=10.0),
        fault(19, "undying processes", "host of slurmd:1", 60.0),
        ask(20, "set_node", nodes=["n1"], state="DOWN"),
        ask(22, "set_node", nodes=["n1"], state="RESUME"),
    )
    numbers = ids(result)
    (end,) = ended(result, job_id=numbers["dies"])
    (begin,) = began(result, job_id=numbers["next"])
    assert end.at <= begin.at < end.at + 30.0
