"""Steps in cgroups of version 2, where there are no others: limits of memory by the kernel, and OOM told per step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.model.node_daemon.reports import StepFinished
from spritz.node.cgroup import prepare_memory, prepare_tree, remove, version
from spritz.stepd.adopt import adopt, steps_of
from tests.e2e.node_harness import NodeCluster, running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(version() != "v2", reason="takes a kernel with version 2 alone")]

EATER = """import time
held = []
for _ in range(300):
    held.append(b"x" * (1 << 20))
time.sleep(100)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    directory = prepare_memory(f"spritz_test_{os.getpid()}")
    assert directory, "memory cgroups of version 2 can be made"
    remove(directory)
    assert prepare_tree("spritz_probe")
    remove("/sys/fs/cgroup/spritz_probe")
    made = NodeCluster(tmp_path, nodes=1, extra="TaskPlugin=task/cgroup")
    (made.root / "cgroup.conf").write_text("ConstrainRAMSpace=yes\nConstrainCores=yes\nConstrainDevices=yes\n")
    with running(made) as started:
        yield started


def test_the_step_that_exceeds_its_memory_is_killed_and_told_and_its_job_goes_on(cluster: NodeCluster) -> None:
    assert "held by sampling" not in cluster.log()
    assert "it takes TaskPlugin" not in cluster.log()
    job = cluster.job(memory_mib=100)
    cluster.step(job, 0, ("/bin/sh", "-c", "sleep 1000"))
    cluster.pids(job, "0")
    cluster.step(job, 1, ("python3", "-c", EATER), environment=(f"PATH={os.environ['PATH']}".encode(),))
    ended = cluster.finished(job, 1)
    assert ended.oom
    assert ended.tasks[0].status == 9
    survivor = cluster.supervisor_pid(job, "0")
    assert Path(f"/proc/{survivor}").exists(), "OOM is of one step"
    cluster.terminate(job, kill_wait_seconds=0)
    assert not cluster.finished(job, 0).oom


def test_steps_of_a_job_share_its_memory(cluster: NodeCluster) -> None:
    job = cluster.job(memory_mib=100)
    holds = "import time; held = b'x' * (80 << 20); open('{0}', 'w').close(); time.sleep(1000)"
    environment = (f"PATH={os.environ['PATH']}".encode(),)
    cluster.step(job, 0, ("python3", "-c", holds.format("first")), environment=environment)
    wait_until((cluster.work / "first").exists, "the first step has its memory")
    cluster.step(job, 1, ("python3", "-c", holds.format("second")), environment=environment)
    ended = cluster.controller.wait_for(StepFinished, job_id=job.id)
    assert ended.oom
    left = 1 - ended.step_id
    cluster.terminate(job, kill_wait_seconds=0)
    assert not cluster.finished(job, left).oom
    group = next(Path("/sys/fs/cgroup").glob(f"spritz_*/job_*_{job.id}.0"), None)
    wait_until(lambda: group is None or not group.exists(), "the job's group is removed")


def test_all_groups_of_a_step_are_one_and_an_adopted_process_is_below_it(cluster: NodeCluster) -> None:
    job = cluster.job(memory_mib=100)
    cluster.step(job, 0, ("/bin/sh", "-c", "sleep 1000"))
    supervisor, task = cluster.pids(job, "0")
    place = Path(f"/proc/{task}/cgroup").read_text().strip().removeprefix("0::")
    assert place.endswith(f"/slurmstepd_{supervisor}")
    assert int(Path(f"/sys/fs/cgroup{place}/memory.max").read_text()) >= 100 << 20
    stranger = os.fork()
    if not stranger:
        os.execv("/bin/sleep", ["sleep", "1000"])
    (step, known), *_ = steps_of(os.getuid(), str(cluster.spool()))
    assert known.pid == supervisor
    adopt(stranger, step, known)
    assert Path(f"/proc/{stranger}/cgroup").read_text().strip() == f"0::{place}/adopted"
    cluster.terminate(job, kill_wait_seconds=0)
    cluster.finished(job, 0)
    assert os.WTERMSIG(os.waitpid(stranger, 0)[1]) == 9
    wait_until(lambda: not Path(f"/sys/fs/cgroup{place}").exists(), "the groups are removed")
