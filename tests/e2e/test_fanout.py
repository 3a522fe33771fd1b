"""A step over virtual nodes of several daemons starts, is signalled and ends as a tree: each daemon is told once."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import BIN, Cluster, until
from tests.e2e.commands import environment

DAEMONS = ("n[1-4]", "n[5-8]", "n[9-12]")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Twelve nodes in three daemons, which pass on to one each."""
    made = Cluster(nodes=12, cpus=1, extra="TreeWidth=1")
    made.node_lines = "\n".join(
        f"NodeName={names} NodeAddr=127.0.0.1 Port={made.node_port + at} CPUs=1 RealMemory=800"
        for at, names in enumerate(DAEMONS)
    )
    made.write_conf()
    try:
        made.start_controller()
        for names in DAEMONS:
            made.start_nodes(names, wait=False)
        until(lambda: len([view for view in made.nodes() if view.node.registered_at]) == 12, "all nodes register")
        yield made
    finally:
        made.close()


def taken(cluster: Cluster, kind: str) -> list[list[tuple[int, int]]]:
    """Of each daemon: own nodes, and those below, of the orders of a kind that it got."""
    logs = [(cluster.root / f"slurmd-{name}.log").read_text() for name in ("n1", "n5", "n9")]
    pattern = re.compile(rf"order\.taken kind={kind} nodes=(\d+) below=(\d+)")
    return [[(int(here), int(below)) for here, below in pattern.findall(log)] for log in logs]


def test_launch_signal_and_end_reach_twelve_nodes_by_one_message_of_the_controllers(cluster: Cluster) -> None:
    script = "trap 'echo usr; exit 0' USR1; echo up; read nothing"
    with subprocess.Popen(
        [BIN / "srun", "-N12", "sh", "-c", script],
        env=environment(cluster),
        cwd=cluster.work,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as srun:
        assert srun.stdout is not None
        assert [srun.stdout.readline() for _ in range(12)] == ["up\n"] * 12
        chain = [[(4, 8)], [(4, 4)], [(4, 0)]]
        assert taken(cluster, "LaunchStep") == chain
        subprocess.run([BIN / "scancel", "--signal=USR1", "--me"], env=environment(cluster), check=True)
        assert srun.stdout.read() == "usr\n" * 12, "each task has it once"
        assert srun.wait(60) == 0
        assert taken(cluster, "SignalTasks") == chain
    until(lambda: taken(cluster, "TerminateJob") == chain, "the job ends on all nodes by one message")
