"""A node that can make no processes for a while, or cannot end them: it says so, and what it does has bounds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import Done
from spritz.model.job.record import Job
from spritz.model.node_daemon.reports import JobGone, NodeTrouble, StepFinished, TaskEnd
from spritz.model.states import NodeFlag

from .cluster import Cluster, is_alive
from .launched import build_preload
from .node_harness import NodeCluster, wait_until

ZYGOTE, SUPERVISOR = "slurmd-zygote", "slurmstepd"
MakeCluster = Callable[..., NodeCluster]

#: slurmd that does not wait as long as it should for supervisors
HASTY = (
    "-c",
    "from spritz.node import agent, main\nagent.ENDING_SECONDS = agent.ANSWER_SECONDS_MIN = 0.5\nmain.entry()",
)


@pytest.fixture(scope="session")
def no_fork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that refuses fork(2)."""
    return build_preload("no_fork", tmp_path_factory)


@pytest.fixture
def start(tmp_path: Path, no_fork: Path) -> Iterator[MakeCluster]:
    """Starts two nodes with further lines of slurm.conf, on a machine of which `refuse` can take processes away."""
    made: list[NodeCluster] = []

    def make(extra: str, program: tuple[str, ...] = ()) -> NodeCluster:
        cluster = NodeCluster(tmp_path, extra=extra)
        made.append(cluster)
        cluster.program = program or cluster.program
        cluster.environ = {
            "LD_PRELOAD": str(no_fork),
            "NO_FORK": str(refusal(cluster)),
            "NO_KILL": str(cluster.root / "no_kill"),
        }
        cluster.controller.start()
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        refusal(cluster).unlink(missing_ok=True)
        (cluster.root / "no_kill").unlink(missing_ok=True)
        cluster.close()


def refusal(cluster: NodeCluster) -> Path:
    """The file that names processes which cannot fork."""
    return cluster.root / "no_fork"


def refuse(cluster: NodeCluster, process: str) -> None:
    """Let that process fork no more."""
    refusal(cluster).write_text(process)


@pytest.mark.parametrize(
    ("process", "said", "extra"), [(ZYGOTE, "step.put_off", ""), (SUPERVISOR, "task.put_off", "TaskProlog=/bin/true")]
)
def test_a_job_runs_when_there_are_processes_again(start: MakeCluster, process: str, said: str, extra: str) -> None:
    cluster = start(extra)
    refuse(cluster, process)
    job = cluster.batch("#!/bin/sh\necho ran\nexit 3\n")
    wait_until(lambda: said in cluster.log(), f"the log says {said}")
    assert "Resource temporarily unavailable" in cluster.log()
    refusal(cluster).unlink()
    assert cluster.finished(job).tasks == (TaskEnd(0, 3 << 8),)
    assert cluster.output(job) == "ran\n"
    assert cluster.controller.find(NodeTrouble) is None


def test_after_the_timeout_the_launch_has_failed_and_the_node_asks_to_be_drained(start: MakeCluster) -> None:
    cluster = start("BatchStartTimeout=1")
    refuse(cluster, ZYGOTE)
    job = cluster.batch("#!/bin/sh\necho ran\n")
    result = cluster.finished(job)
    assert (result.launch_failed, result.error_kind) == (True, "supervisor"), "the controller requeues it"
    assert result.error == "slurmstepd did not start: Resource temporarily unavailable"
    trouble = cluster.controller.wait_for(NodeTrouble)
    assert trouble.drain
    assert trouble.reason == "batch job complete failure: Resource temporarily unavailable"
    assert not list(cluster.work.glob("slurm-*.out"))


def test_a_job_that_is_cancelled_while_it_waits_never_runs(start: MakeCluster) -> None:
    cluster = start("BatchStartTimeout=100")
    refuse(cluster, ZYGOTE)
    job = cluster.batch("#!/bin/sh\necho ran\n")
    wait_until(lambda: "step.put_off" in cluster.log(), "the launch is put off")
    cluster.terminate(job)
    cluster.controller.wait_for(JobGone, job_id=job.id)
    refusal(cluster).unlink()
    other = cluster.batch("#!/bin/sh\nexit 4\n")
    assert cluster.finished(other).tasks == (TaskEnd(0, 4 << 8),)
    assert not (cluster.work / f"slurm-{job.id}.out").exists()


def stopped_supervisor(cluster: NodeCluster) -> Job:
    """A job whose supervisor does nothing any more."""
    job = cluster.batch("#!/bin/sh\ntrap '' TERM\ntouch begun\nwhile :; do sleep 0.05; done\n")
    wait_until((cluster.work / "begun").exists, "the job runs")
    os.kill(cluster.supervisor_pid(job), signal.SIGSTOP)
    return job


def test_a_step_is_ended_by_slurmd_where_its_supervisor_does_not(start: MakeCluster) -> None:
    cluster = start("UnkillableStepTimeout=1", HASTY)
    job = stopped_supervisor(cluster)
    pids = cluster.pids(job)
    cluster.terminate(job)
    result = cluster.finished(job)
    assert (result.tasks, result.error_kind) == ((TaskEnd(0, 9),), "supervisor")
    cluster.controller.wait_for(JobGone, job_id=job.id)
    assert not any(map(is_alive, pids))
    assert "supervisor.silent" in cluster.log()
    assert cluster.controller.find(NodeTrouble) is None
    assert cluster.finished(cluster.batch("#!/bin/sh\nexit 4\n")).tasks == (TaskEnd(0, 4 << 8),)


def test_a_step_that_was_ended_before_a_stopped_zygote_had_it_never_runs(start: MakeCluster) -> None:
    cluster = start("UnkillableStepTimeout=1", HASTY)
    assert cluster.daemon is not None
    zygote = int(Path(f"/proc/{cluster.daemon.pid}/task/{cluster.daemon.pid}/children").read_text().split()[0])
    os.kill(zygote, signal.SIGSTOP)
    try:
        job = cluster.batch("#!/bin/sh\ntouch ran\n")
        cluster.terminate(job)
        result = cluster.finished(job)
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert (result.launch_failed, result.error) == (True, "slurmstepd did not start")
    assert cluster.finished(cluster.batch("#!/bin/sh\nexit 4\n")).tasks == (TaskEnd(0, 4 << 8),)
    assert not (cluster.work / "ran").exists()
    wait_until(lambda: not list(cluster.spool().glob("job*")), "the spool is cleared")


def test_what_slurmd_cannot_kill_either_drains_the_node_before_the_job_has_gone(start: MakeCluster) -> None:
    cluster = start("UnkillableStepTimeout=1\nUnkillableStepProgram=/bin/true", HASTY)
    job = stopped_supervisor(cluster)
    pids = cluster.pids(job)
    (cluster.root / "no_kill").touch()
    cluster.terminate(job)
    assert cluster.finished(job).error_kind == "unkillable"
    kinds = [type(report) for report in cluster.controller.reports]
    assert kinds.index(NodeTrouble) < kinds.index(StepFinished)
    trouble = cluster.controller.wait_for(NodeTrouble)
    assert (trouble.drain, trouble.reason) == (True, f"Kill task failed, job {job.id}")
    assert all(map(is_alive, pids))
    assert "it has not answered" in cluster.log()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def disk_that_freezes(path: Path) -> Iterator[None]:
    """A file system at `path` for fsfreeze(8); skips the test where none may be mounted."""
    image = path.with_suffix(".image")
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    made = shutil.which("fsfreeze") and shutil.which("mkfs.ext4") and os.geteuid() == 0
    commands: list[list[str | Path]] = [["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, path]]
    if not made or any(subprocess.run(command, capture_output=True).returncode for command in commands):
        pytest.skip("needs root, mkfs.ext4, fsfreeze and a loop device")
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", path], capture_output=True)
        subprocess.run(["umount", "-l", path], check=True)


@pytest.mark.slow
def test_a_supervisor_that_hangs_in_the_kernel_drains_the_node_and_ends_the_job(start: MakeCluster) -> None:
    """Nothing ends a process that writes to a frozen file system, or to a file server that is gone."""
    cluster = start("UnkillableStepTimeout=1", HASTY)
    with disk_that_freezes(cluster.root / "disk"):
        job = cluster.batch("#!/bin/sh\ntouch begun\nexec sleep 1000\n", stdout=f"{cluster.root}/disk/out")
        wait_until((cluster.work / "begun").exists, "the job runs")
        supervisor, task = cluster.pids(job)
        subprocess.run(["fsfreeze", "-f", cluster.root / "disk"], check=True)
        cluster.terminate(job)
        assert cluster.finished(job).error_kind == "unkillable"
        trouble = cluster.controller.wait_for(NodeTrouble)
        assert trouble.reason == f"Kill task failed, job {job.id}"
        assert (is_alive(supervisor), is_alive(task)) == (True, False)
        cluster.controller.wait_for(JobGone, job_id=job.id)
        assert cluster.finished(cluster.batch("#!/bin/sh\nexit 4\n")).tasks == (TaskEnd(0, 4 << 8),)
        subprocess.run(["fsfreeze", "-u", cluster.root / "disk"], check=True)
        wait_until(lambda: not is_alive(supervisor), "it dies as soon as it can")


@pytest.mark.slow
def test_processes_that_cannot_be_killed_drain_the_node_and_end_the_job(
    make_cluster: Callable[..., Cluster], no_fork: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurm.conf(5) UnkillableStepTimeout, UnkillableStepProgram, with a controller, through to `sinfo -R`."""
    cluster = make_cluster(nodes=1, extra="UnkillableStepTimeout=1")
    # By a cgroup even these could be killed.
    (cluster.root / "etc" / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    told, stuck = cluster.root / "told", cluster.root / "stuck"
    program = cluster.root / "unkillable"
    program.write_text(f'#!/bin/sh\necho "$SLURM_JOB_ID $SLURM_STEP_ID $SLURMD_NODENAME" >{told}\n')
    program.chmod(0o755)
    cluster.extra += f"\nUnkillableStepProgram={program}"
    cluster.write_conf()
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(no_fork))
        patch.setenv("NO_KILL", str(stuck))
        cluster.start()
    number = cluster.submit("trap '' TERM\necho ran >begun\nwhile :; do sleep 0.1; done")
    wait_until((cluster.work / "begun").exists, "the job runs")
    stuck.touch()
    cluster.cancel(number)
    assert cluster.wait_state(number, "CANCELLED").exit_status == 9
    wait_until(lambda: cluster.node("n1").node.reason, "the node is drained")
    node = cluster.node("n1").node
    assert (node.reason, bool(node.flags & NodeFlag.DRAIN)) == (f"Kill task failed, job {number}", True)
    assert f"node.trouble node=n1 reason='{node.reason}' drained=True" in cluster.controller_log()
    assert f"step.unkillable label={number}.batch node=n1 processes=" in cluster.node_log()
    wait_until(lambda: told.exists() and told.read_text(), "the site's program has run")
    assert told.read_text() == f"{number} batch n1\n"
    # They can be killed again: nothing is left, and the node serves when it is resumed.
    assert cluster.job_processes(number)
    stuck.unlink()
    for pid in cluster.job_processes(number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.call(UpdateNode(names=("n1",), state="RESUME"), Done)
    cluster.wait_state(cluster.submit("exit 0"), "COMPLETED")
