"""Which CPUs slurmd takes, and which tasks have. Source: slurm.conf(5) CoreSpecCount, TaskPluginParam."""

from __future__ import annotations

import pytest

from spritz.node.hardware.daemon_cores import Cores, divided
from spritz.node.launch.affinity import Topology

#: two sockets of two cores, whose CPUs are numbered by turns
MACHINE = Topology(sockets=2, cores_per_socket=2, threads_per_core=1, order=(0, 2, 1, 3))


@pytest.mark.parametrize(
    ("reserved", "configured", "off_spec", "cores"),
    [
        ("0", 4, False, Cores()),
        ("8", 4, False, Cores((3,), (0, 1, 2))),
        ("8", 4, True, Cores((0, 1, 2), (0, 1, 2))),
        ("2", 4, False, Cores((2,), (0, 1, 3))),
        # Configured by less than there is: what is left over is not the system's by name.
        ("2", 2, False, Cores((2,), (0, 1, 3))),
        # A virtual node has more than its machine.
        ("8", 8, False, Cores()),
        ("f", 4, False, Cores()),
    ],
)
def test_reserved_cores_are_for_daemons_and_the_others_for_jobs(
    reserved: str, configured: int, off_spec: bool, cores: Cores
) -> None:
    assert divided(reserved, configured, MACHINE, off_spec=off_spec) == cores
    assert divided(reserved, configured, None, off_spec=off_spec) == Cores()
