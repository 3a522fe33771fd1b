"""When HealthCheckProgram runs. Source: slurm.conf(5) HealthCheckNodeState."""

from __future__ import annotations

import pytest

from spritz.node.health import pauses, wants_check


@pytest.mark.parametrize(
    ("states", "idle", "busy"),
    [
        ((), True, True),
        (("ANY",), True, True),
        (("CYCLE",), True, True),
        (("IDLE",), True, False),
        (("IDLE", "CYCLE"), True, False),
        (("ALLOC",), False, True),
    ],
)
def test_the_state_decides(states: tuple[str, ...], idle: bool, busy: bool) -> None:
    assert wants_check(states, busy=False) is idle
    assert wants_check(states, busy=True) is busy


def test_start_only_is_not_again() -> None:
    """The check that comes before registration."""
    assert not wants_check(("START_ONLY",), busy=False)


def test_checks_come_together_unless_they_are_to_go_round() -> None:
    assert pauses(("ANY",), ["n1", "n2"], ["n1", "n2", "n3"], 300.0) == [("n1", 0.0), ("n2", 0.0)]


def test_a_cycle_spreads_the_nodes_of_all_daemons_over_the_interval() -> None:
    every = ["n1", "n2", "n3", "n4"]
    alone = {name: pauses(("CYCLE",), [name], every, 200.0) for name in every}
    assert alone == {"n1": [("n1", 0.0)], "n2": [("n2", 50.0)], "n3": [("n3", 100.0)], "n4": [("n4", 150.0)]}
    assert pauses(("ANY", "cycle"), ["n4", "n1", "n3"], every, 200.0) == [("n1", 0.0), ("n3", 100.0), ("n4", 50.0)]
