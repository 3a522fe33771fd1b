"""slurm.conf(5) PropagatePrioProcess."""

from __future__ import annotations

import pytest

from spritz.node.launch.niceness import increment, submitted


@pytest.mark.parametrize(
    ("environment", "niceness"),
    [
        ((), 0),
        ((b"A=1", b"SLURM_PRIO_PROCESS=7"), 7),
        ((b"SLURM_PRIO_PROCESS=7", b"SLURM_PRIO_PROCESS=-3"), -3),
        ((b"SLURM_PRIO_PROCESS=99",), 19),
        ((b"SLURM_PRIO_PROCESS=-99",), -20),
        ((b"SLURM_PRIO_PROCESS=",), 0),
        ((b"SLURM_PRIO_PROCESS=\xff",), 0),
    ],
)
def test_the_command_says_it_in_its_environment(environment: tuple[bytes, ...], niceness: int) -> None:
    assert submitted(environment) == niceness


@pytest.mark.parametrize(
    ("propagate", "asked", "own", "privileged", "added"),
    [
        (0, 10, 0, True, 0),
        (1, 10, 0, False, 10),
        (1, 10, 4, False, 6),
        (1, 0, 4, False, 0),  # above the daemon only for root
        (1, -5, 0, True, -5),
        (2, 10, 4, False, 6),
        (2, 0, 4, True, 1),
        (2, 4, 4, False, 1),
    ],
)
def test_tasks_are_as_nice_as_the_command_or_nicer_than_the_daemon(
    propagate: int, asked: int, own: int, privileged: bool, added: int
) -> None:
    assert increment(propagate, asked, own, privileged=privileged) == added
