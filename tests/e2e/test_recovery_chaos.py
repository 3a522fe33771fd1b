"""Everything is killed at random while a stream of real jobs runs: none is lost, none runs twice in one life.

A requeued job (its node was lost, or its supervisor killed) may run again, in another life; each life runs once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from spritz.client.errors import ClientError
from spritz.model.commands.job import JobSubmitted
from tests.e2e.cluster import Cluster, command_name, is_alive

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = """echo $SLURM_JOB_ID.${SLURM_RESTART_COUNT-0} >> ran
setsid sleep 0.3 &
sleep 0.2; echo $SLURM_JOB_ID.${SLURM_RESTART_COUNT-0} >> ended
exit 4"""


class Chaos:
    """Kills, and starts again what is to be started."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.supervisors_killed = 0

    def strike(self) -> None:
        """One misfortune."""
        self.chance.choice([self.controller, self.slurmd, self.both, self.zygote, self.supervisor, self.shutdown])()

    def controller(self) -> None:
        self.cluster.kill_controller()
        time.sleep(self.chance.uniform(0, 0.3))
        self.cluster.start_controller()

    def slurmd(self) -> None:
        self.cluster.kill_nodes()
        time.sleep(self.chance.uniform(0, 0.3))
        self.cluster.start_nodes()

    def both(self) -> None:
        self.cluster.kill_controller()
        self.cluster.kill_nodes()
        self.cluster.start()

    def shutdown(self) -> None:
        assert self.cluster.stop_controller() == 0
        assert self.cluster.stop_nodes() == 0
        self.cluster.start()

    def zygote(self) -> None:
        slurmd = self.cluster.node_daemon.pid
        for child in Path(f"/proc/{slurmd}/task/{slurmd}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)

    def supervisor(self) -> None:
        """A living one, if there is one now."""
        found = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_ours(pid)]
        if found:
            self.supervisors_killed += 1
            os.kill(self.chance.choice(sorted(found)), signal.SIGKILL)

    def _is_ours(self, pid: int) -> bool:
        """A supervisor of this cluster: its working directory is in the spool."""
        try:
            inside = os.readlink(f"/proc/{pid}/cwd").startswith(str(self.cluster.root))
        except OSError:
            return False
        return inside and command_name(pid) == "slurmstepd"


#: SPRITZ_CHAOS_SEEDS=10-40 tries others.
FIRST, _, LAST = os.environ.get("SPRITZ_CHAOS_SEEDS", "1-3").partition("-")


@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST or FIRST) + 1))
def test_misfortunes_of_every_kind_lose_no_job_and_double_none(make_cluster: Callable[..., Cluster], seed: int) -> None:
    cluster = make_cluster(cpus=8).start()
    chaos = Chaos(cluster, seed)
    acknowledged: list[int] = []
    for _ in range(15):
        deadline = time.monotonic() + chaos.chance.uniform(0.1, 1.0)
        with cluster.connect() as connection:
            while time.monotonic() < deadline:
                try:
                    request = cluster.request(SCRIPT, stdout="/dev/null", requeue=True)
                    acknowledged.append(connection.call(request, JobSubmitted).job_id)
                except ClientError as error:
                    raise AssertionError(f"the controller lives, and does not answer: {error}") from error
                time.sleep(0.01)
        chaos.strike()
    jobs = cluster.wait_all_ended(acknowledged, seconds=300)
    ran = Counter((cluster.work / "ran").read_text().split())
    assert {life: count for life, count in ran.items() if count > 1} == {}, "a life ran twice"
    ends = Counter((jobs[one].state.value, jobs[one].exit_status) for one in acknowledged)
    odd = {end: count for end, count in ends.items() if end != ("FAILED", 4 << 8)}
    assert sum(odd.values()) <= chaos.supervisors_killed, f"{odd} besides killed supervisors {chaos.supervisors_killed}"
    whole = set((cluster.work / "ended").read_text().split())
    missing = [
        one
        for one in acknowledged
        if (jobs[one].exit_status == 4 << 8) and f"{one}.{jobs[one].restart_count}" not in whole
    ]
    assert missing == [], "recorded as ended by itself, and never came to its end"
    assert not cluster.job_processes()
    assert is_alive(cluster.node_daemon.pid)


def test_misfortunes_leave_steps_on_two_nodes_whole(make_cluster: Callable[..., Cluster]) -> None:
    """Batch scripts with three steps each on both nodes, whose srun loses daemons at every moment of its life."""
    cluster = make_cluster(cpus=8).start()
    chaos = Chaos(cluster, 3)
    srun = f"{sys.executable} -c 'from spritz.cli.srun import entry; entry()' -N2 -n2"
    task = "echo $SLURM_JOB_ID.$SLURM_RESTART_COUNT.$SLURM_STEP_ID.$SLURM_PROCID >> ran; sleep 0.1; echo out"
    script = (
        f"export PYTHONPATH={os.environ.get('PYTHONPATH', '')}\n" + f"{srun} sh -c '{task}' || exit 9\n" * 3 + "exit 4"
    )
    acknowledged: list[int] = []
    for _ in range(12):
        deadline = time.monotonic() + chaos.chance.uniform(0.5, 2.5)
        with cluster.connect() as connection:
            while time.monotonic() < deadline:
                request = cluster.request(script, nodes_min=2, tasks=2, stdout="out-%j")
                acknowledged.append(connection.call(request, JobSubmitted).job_id)
                time.sleep(0.4)
        chaos.chance.choice([chaos.controller, chaos.slurmd, chaos.both, chaos.zygote, chaos.shutdown])()
    jobs = cluster.wait_all_ended(acknowledged, seconds=300)
    output = {one: (cluster.work / f"out-{one}").read_text() for one in acknowledged}
    assert {one: output[one] for one in acknowledged if jobs[one].exit_status != 4 << 8} == {}
    # While slurmd is away a step may have to wait for the end of the one before, and srun says that too.
    lines = {one: [line for line in output[one].splitlines() if not line.startswith("srun: ")] for one in output}
    odd = {one: output[one] for one in acknowledged if lines[one] != ["out"] * 6}
    assert odd == {}
    ran = Counter((cluster.work / "ran").read_text().split())
    assert set(ran.values()) == {1}
    assert len(ran) == 6 * len(acknowledged)
    assert not cluster.job_processes()
