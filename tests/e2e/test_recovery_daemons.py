"""Daemons, supervisors and whole clusters are killed while real jobs run: each runs once, and its end is recorded."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from spritz.client.errors import ClientError
from spritz.model.commands.job import JobSubmitted
from spritz.model.job.record import Job
from spritz.model.reasons import Reason
from spritz.model.states import JobState, NodeState
from spritz.model.stored import FORMAT
from spritz.stepd import record
from spritz.stepd.spec import RECORD
from tests.e2e.cluster import Cluster, is_alive, processes_with, until

#: Appends one line a run; runs until `go` is there.
WAITING = "echo ran >> runs-$SLURM_JOB_ID\nwhile ! test -e go; do sleep 0.02; done\necho end\nexit 3"


KILLS = 4


def runs(cluster: Cluster, number: int) -> int:
    """How many times a job's script began."""
    path = cluster.work / f"runs-{number}"
    return path.read_text().count("\n") if path.exists() else 0


def begun(cluster: Cluster, number: int) -> None:
    until(lambda: runs(cluster, number), f"job {number} has begun")


def test_running_jobs_go_on_without_the_controller_and_their_ends_are_recorded(cluster: Cluster) -> None:
    running, queued = cluster.submit(WAITING), cluster.submit("echo ran >> runs-$SLURM_JOB_ID", begin_at=2e9)
    begun(cluster, running)
    cluster.kill_controller()
    (cluster.work / "go").touch()
    until(lambda: "end" in cluster.output(running), "the script ends while no daemon listens")
    cluster.start_controller()
    job = cluster.wait_state(running, "FAILED")
    assert (job.exit_status, job.restart_count, runs(cluster, running)) == (3 << 8, 0, 1)
    assert cluster.job(queued).state is JobState.PENDING


@pytest.mark.slow
def test_sigkills_of_the_controller_under_load_lose_no_job_and_run_none_twice(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(cpus=16).start()
    chance = random.Random(7)
    acknowledged = []
    for _ in range(KILLS):
        deadline = time.monotonic() + chance.uniform(0.3, 1.2)
        with cluster.connect() as connection:
            for _ in range(100):
                if time.monotonic() > deadline:
                    break
                request = cluster.request("echo $SLURM_JOB_ID >> ran; sleep 0.2; exit 2", stdout="/dev/null")
                acknowledged.append(connection.call(request, JobSubmitted).job_id)
        cluster.kill_controller()
        cluster.start_controller()
    jobs = cluster.wait_all_ended(acknowledged, seconds=150)
    assert len(set(acknowledged)) == len(acknowledged)
    ends = Counter((jobs[one].state, jobs[one].exit_status, jobs[one].restart_count) for one in acknowledged)
    assert ends == {(JobState.FAILED, 2 << 8, 0): len(acknowledged)}
    ran = Counter((cluster.work / "ran").read_text().split())
    assert {one: count for one, count in ran.items() if count != 1} == {}
    # One that was never acknowledged may be there as well: its submitter was cut off before the answer.
    assert set(map(str, acknowledged)) <= set(ran)
    assert cluster.job_processes() == []


def test_a_killed_slurmd_finds_its_jobs_again_and_the_ends_it_missed(cluster: Cluster) -> None:
    going_on = cluster.submit(WAITING.replace("go;", "later;"))
    ended = cluster.submit(WAITING)
    for number in (going_on, ended):
        begun(cluster, number)
    cluster.kill_nodes()
    (cluster.work / "go").touch()
    until(lambda: "end" in cluster.output(ended), "one ends while slurmd is dead")
    assert cluster.job(ended).state is JobState.RUNNING
    cluster.start_nodes()
    assert cluster.wait_state(ended, "FAILED").exit_status == 3 << 8
    assert cluster.job(going_on).state is JobState.RUNNING
    (cluster.work / "later").touch()
    assert cluster.wait_state(going_on, "FAILED").exit_status == 3 << 8
    assert (runs(cluster, going_on), runs(cluster, ended)) == (1, 1)
    until(lambda: not list(cluster.root.glob("spool/*/job*")), "the spools are empty")


@pytest.mark.slow
def test_a_slurmd_before_the_release_that_started_a_step_refuses_to_start_and_leaves_the_step_alone(
    cluster: Cluster,
) -> None:
    number = cluster.submit(WAITING)
    begun(cluster, number)
    cluster.kill_nodes()
    [path] = cluster.root.glob(f"spool/*/job*{number}.0.batch/{RECORD}")
    written = path.read_bytes()
    start = written.index(bytes((0x93, FORMAT)))
    path.write_bytes(written[: start + 1] + bytes((FORMAT + 1,)) + written[start + 2 :])
    done = cluster.run("slurmd", "-D", "-N", cluster.hostlist)
    assert done.returncode == 1
    assert f"format {FORMAT + 1} of a later release" in done.stderr
    assert cluster.job_processes(number)
    path.write_bytes(written)
    cluster.start_nodes()
    (cluster.work / "go").touch()
    assert cluster.wait_state(number, "FAILED").exit_status == 3 << 8
    assert runs(cluster, number) == 1


def test_both_daemons_killed_at_once_lose_nothing(cluster: Cluster) -> None:
    going_on, ended = cluster.submit(WAITING.replace("go;", "later;")), cluster.submit(WAITING)
    waiting = cluster.submit("echo ran >> runs-$SLURM_JOB_ID", cpus_per_task=8, nodes_min=2)
    for number in (going_on, ended):
        begun(cluster, number)
    cluster.kill_controller()
    cluster.kill_nodes()
    (cluster.work / "go").touch()
    until(lambda: "end" in cluster.output(ended), "one ends while both are dead")
    cluster.start()
    assert cluster.wait_state(ended, "FAILED").exit_status == 3 << 8
    (cluster.work / "later").touch()
    assert cluster.wait_state(going_on, "FAILED").exit_status == 3 << 8
    cluster.wait_state(waiting, "COMPLETED")
    assert [runs(cluster, number) for number in (going_on, ended, waiting)] == [1, 1, 1]


def test_a_killed_supervisor_is_noticed_and_leaves_no_process(cluster: Cluster) -> None:
    number = cluster.submit(
        "setsid sleep 1001 &\n(trap '' TERM; sleep 1002) &\nnohup sh -c 'sleep 1003; true' &\necho r > up; sleep 1004"
    )
    until((cluster.work / "up").exists, "the script has begun")
    until(lambda: len(cluster.job_processes(number)) >= 5, "its processes run")
    os.kill(cluster.supervisor(number), signal.SIGKILL)
    job = until(lambda: (job := cluster.job(number)).state.ended and job, "the end is noticed")
    assert isinstance(job, Job)
    assert job.state is JobState.FAILED
    until(lambda: not cluster.job_processes(number), lambda: f"{cluster.job_processes(number)} are gone")


def test_a_killed_supervisors_daemons_with_a_session_and_environment_of_their_own_are_found(cluster: Cluster) -> None:
    number = cluster.submit(
        "setsid env -i MARK=$$ setsid sleep 1001 < /dev/null > /dev/null 2>&1 &\necho $$ > up; sleep 1004"
    )
    until(lambda: (cluster.work / "up").exists() and (cluster.work / "up").read_text(), "the script has begun")
    mark = f"MARK={(cluster.work / 'up').read_text().strip()}"
    until(lambda: processes_with(mark), "its daemon runs")
    os.kill(cluster.supervisor(number), signal.SIGKILL)
    cluster.wait_state(number, "FAILED")
    until(lambda: not processes_with(mark), "its daemon is gone", 5)


def test_jobs_start_again_after_the_parent_of_supervisors_was_killed(cluster: Cluster) -> None:
    running = cluster.submit(WAITING)
    begun(cluster, running)
    slurmd = cluster.node_daemon.pid
    children = Path(f"/proc/{slurmd}/task/{slurmd}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    until(lambda: not any(is_alive(int(child)) for child in children), "it is dead")
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
    assert cluster.job(running).state is JobState.RUNNING
    (cluster.work / "go").touch()
    assert cluster.wait_state(running, "FAILED").exit_status == 3 << 8
    assert runs(cluster, running) == 1


@pytest.mark.slow
def test_a_stopped_slurmd_is_down_after_slurmdtimeout_its_jobs_run_elsewhere_and_it_comes_back(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(nodes=2, extra="SlurmdTimeout=3")
    cluster.use_ports()
    cluster.start_controller()
    for name in cluster.names:
        cluster.start_nodes(name)
    number = cluster.submit(
        "echo $SLURMD_NODENAME ${SLURM_RESTART_COUNT-0} >> where\nwhile ! test -e go; do sleep 0.02; done"
    )
    where = cluster.work / "where"
    until(lambda: where.exists() and where.read_text().endswith("\n"), "the job has begun")
    first = where.read_text().split()[0]
    cluster.daemons[first].send_signal(signal.SIGSTOP)
    until(lambda: "DOWN" in cluster.node(first).state_names, f"{first} is DOWN")
    until(lambda: (cluster.work / "where").read_text().count("\n") == 2, "the job runs a second time")
    lines = [line.split() for line in (cluster.work / "where").read_text().splitlines()]
    assert lines[1][0] != first
    assert lines[1][1] == "1"
    cluster.daemons[first].send_signal(signal.SIGCONT)
    until(lambda: "DOWN" not in cluster.node(first).state_names, f"{first} comes back")
    # The first life's processes are gone from the node that came back; the second life goes on.
    there = f"SLURMD_NODENAME={first}"
    until(lambda: not set(cluster.job_processes(number)) & set(processes_with(there)), "the earlier life is ended")
    assert cluster.job(number).state is JobState.RUNNING
    (cluster.work / "go").touch()
    job = cluster.wait_state(number, "COMPLETED")
    assert job.restart_count == 1
    assert cluster.job_processes() == []


def test_a_cancel_while_slurmd_is_away_is_carried_out_when_it_is_back(cluster: Cluster) -> None:
    number = cluster.submit(WAITING)
    begun(cluster, number)
    cluster.kill_nodes()
    cluster.cancel(number)
    assert cluster.job_processes(number)
    cluster.start_nodes()
    job = cluster.wait_state(number, "CANCELLED")
    assert job.cancelled_by_uid == os.getuid()
    until(lambda: not cluster.job_processes(number), "its processes are gone")


@pytest.mark.slow
def test_a_submitter_that_waits_through_a_restart_is_told_the_connection_ended(cluster: Cluster) -> None:
    with cluster.connect() as connection:
        connection.call(cluster.request("true"), JobSubmitted)
        cluster.kill_controller()
        with pytest.raises(ClientError, match="Unable to contact slurm controller"):
            connection.call(cluster.request("true"), JobSubmitted)
    cluster.start_controller()
    cluster.wait_state(cluster.submit("true"), "COMPLETED")


def test_a_node_that_boots_and_is_back_before_anybody_missed_it_has_lost_its_jobs(cluster: Cluster) -> None:
    """ReturnToService=2. `slurmd -b` is a slurmd on a machine that has just booted."""
    mine = cluster.submit(WAITING, requeue=False)
    again = cluster.submit(WAITING, requeue=True)
    for number in (mine, again):
        begun(cluster, number)
    cluster.kill_nodes()
    for path in cluster.root.glob(f"spool/*/job*/{RECORD}"):
        written = record.read(str(path))
        for pid in written.pids if written is not None else ():  # the supervisor first
            os.kill(pid, signal.SIGKILL)
    until(lambda: not cluster.job_processes(), "nothing of the jobs is left")
    cluster.start_nodes("", "-b")
    job = cluster.wait_state(mine, "NODE_FAIL")
    assert (job.reason, runs(cluster, mine)) == (Reason.NODE_DOWN, 1)
    until(lambda: cluster.job(again).restart_count == 1, "the other one is queued again")
    assert {view.node.state for view in cluster.nodes()} == {NodeState.IDLE}
    assert len({view.node.boot_id for view in cluster.nodes()}) == 1
    cluster.cancel(again)
    cluster.wait_state(again, "CANCELLED")
