"""PrologFlags with real daemons: prologs at the allocation, and the container of a job. Source: slurm.conf(5)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from spritz.model.ids import STEP_EXTERN
from spritz.model.job.record import Hold
from spritz.model.states import JobFlag, NodeFlag
from tests.e2e.cluster import Cluster, is_alive, until
from tests.e2e.test_site_programs import configured, lines, srun

Make = Callable[..., Cluster]

#: notes that it has begun, and ends when the test says so for its node
GATED = (
    "echo $SLURM_JOB_ID >> $W/began-$SLURMD_NODENAME\n"
    "while ! test -e $W/go-$SLURMD_NODENAME; do sleep 0.02; done\n"
    "echo $SLURM_JOB_ID >> $W/done-$SLURMD_NODENAME"
)


def flagged(make_cluster: Make, flags: str, prolog: str = GATED, **programs: str) -> Cluster:
    cluster = make_cluster()
    cluster.extra = f"PrologFlags={flags}"
    return configured(cluster, Prolog=prolog, **programs)


def begun(cluster: Cluster, *nodes: str) -> None:
    """The Prolog has begun on these nodes."""
    for node in nodes:
        until(lambda node=node: lines(cluster.work / f"began-{node}"), f"the Prolog runs on {node}")  # type: ignore[misc]


def release(cluster: Cluster, *nodes: str) -> None:
    """Let the Prolog end there."""
    for node in nodes:
        (cluster.work / f"go-{node}").touch()


def test_prologs_run_on_every_node_at_the_allocation_and_the_script_waits_for_the_first(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "Alloc")
    number = cluster.submit("echo ran > ran", nodes_min=2, tasks=2)
    begun(cluster, "n1", "n2")
    assert srun(cluster, "-h", "-o", "%t %r %N", command="squeue").stdout == "CF Prolog n[1-2]\n"
    assert not (cluster.work / "ran").exists()
    release(cluster, "n1")
    until(lambda: lines(cluster.work / "ran"), "the script runs, though the Prolog of the other node does")
    assert not lines(cluster.work / "done-n2")
    release(cluster, "n2")
    job = cluster.wait_state(number, "COMPLETED")
    assert (job.restart_count, job.flags & JobFlag.CONFIGURING) == (0, 0)
    for node in ("n1", "n2"):
        assert lines(cluster.work / f"done-{node}") == [str(number)], "once on each node"


def test_with_deferbatch_the_script_waits_for_every_node(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "DeferBatch")
    number = cluster.submit("cat done-n1 done-n2 > ran", nodes_min=2, tasks=2)
    begun(cluster, "n1", "n2")
    release(cluster, "n1")
    until(lambda: lines(cluster.work / "done-n1"), "one Prolog has ended")
    until(lambda: cluster.job(number).prolog_nodes == ("n2",), "the controller knows")
    assert cluster.job(number).flags & JobFlag.CONFIGURING
    release(cluster, "n2")
    cluster.wait_state(number, "COMPLETED")
    assert lines(cluster.work / "ran") == [str(number)] * 2


@pytest.mark.slow
@pytest.mark.parametrize("who", ["controller", "nodes", "both"])
def test_daemons_killed_while_prologs_run_go_on_where_they_were(make_cluster: Make, who: str) -> None:
    cluster = flagged(make_cluster, "DeferBatch")
    number = cluster.submit("echo ran >> ran", nodes_min=2, tasks=2)
    begun(cluster, "n1", "n2")
    release(cluster, "n1")
    until(lambda: cluster.job(number).prolog_nodes == ("n2",), "the first node is ready")
    if who != "nodes":
        cluster.kill_controller()
    if who != "controller":
        cluster.kill_nodes()
    if who != "nodes":
        cluster.start_controller()
    if who != "controller":
        cluster.start_nodes()
        until(lambda: len(lines(cluster.work / "began-n2")) == 2, "a Prolog that was cut short runs again")
    job = cluster.job(number)
    assert (job.flags & JobFlag.CONFIGURING, job.prolog_nodes) == (JobFlag.CONFIGURING, ("n2",))
    release(cluster, "n2")
    assert cluster.wait_state(number, "COMPLETED").restart_count == 0
    assert lines(cluster.work / "ran") == ["ran"]
    assert len(lines(cluster.work / "began-n1")) == 1, "what has ended does not run again"


@pytest.mark.slow
def test_a_node_daemon_that_comes_back_does_not_run_the_prolog_again_for_a_step(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "DeferBatch", "echo $SLURM_JOB_ID >> $W/n-$SLURMD_NODENAME")
    number = cluster.submit("touch began; exec sleep 1000", nodes_min=2, tasks=2, tasks_given=True)
    until(lambda: (cluster.work / "began").exists(), "the script runs")
    cluster.kill_nodes()
    cluster.start_nodes()
    done = srun(cluster, f"--jobid={number}", "--overlap", "-N2", "-n2", "echo", "hello")
    assert done.stdout == "hello\nhello\n", done
    for node in ("n1", "n2"):
        assert lines(cluster.work / f"n-{node}") == [str(number)]


def test_a_failing_prolog_drains_its_node_and_the_job_queues_again_held(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "Alloc", "test $SLURMD_NODENAME != n2 && sleep 1000")
    number = cluster.submit("echo ran > ran", nodes_min=2, tasks=2)
    until(lambda: cluster.job(number).restart_count == 1, "the job queues again")
    job, view = cluster.job(number), cluster.node("n2")
    assert (bool(view.node.flags & NodeFlag.DRAIN), view.node.reason) == (True, "Prolog error")
    assert (job.hold, job.reason_detail) == (Hold.ADMIN, "launch failed requeued held")
    assert not (cluster.work / "ran").exists()
    srun(cluster, "update", "nodename=n2", "state=resume", command="scontrol")
    failed = srun(cluster, "-w", "n2", "true", command="salloc")
    assert failed.returncode == 1
    cause = f"salloc: error: n2: Job prolog failed: {cluster.root}/Prolog: exit status 1"
    assert cause in failed.stderr.splitlines()  # after "Pending job allocation", where it is not started at once


def test_salloc_waits_for_the_prologs_unless_it_is_told_not_to(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "Alloc", "echo x >> $W/n")
    done = srun(cluster, "-N2", "sh", "-c", "cat n; srun -N2 -n2 echo hello", command="salloc")
    assert done.stdout.split() == ["x", "x", "hello", "hello"], done


def test_with_nohold_salloc_does_not_wait_but_its_steps_do(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "Alloc,NoHold")
    script = "touch granted; srun cat done-n1"
    number = 1
    found: list[subprocess.CompletedProcess[str]] = []
    thread = Thread(target=lambda: found.append(srun(cluster, "sh", "-c", script, command="salloc")))
    thread.start()
    try:
        until(lambda: (cluster.work / "granted").exists(), "salloc has begun its command")
        begun(cluster, "n1")
        assert not cluster.job(number).flags & JobFlag.CONFIGURING
        assert not lines(cluster.work / "done-n1")
    finally:
        release(cluster, "n1")
        thread.join()
    assert found[0].stdout == f"{number}\n", found


def test_a_contained_job_has_a_step_that_outlives_the_daemon_and_ends_with_the_job(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "Contain", "true", TaskProlog="echo print prolog")
    number = cluster.submit("touch began; exec sleep 1000", nodes_min=2, tasks=2)
    until(lambda: (cluster.work / "began").exists(), "the script runs")
    shown = until(
        lambda: [
            line
            for line in srun(cluster, "-s", "-h", "-o", "%i %j %N", command="squeue").stdout.splitlines()
            if "extern" in line
        ],
        "the container is listed",
    )
    assert shown == [f"{number}.extern extern n[1-2]"]
    until(
        lambda: (
            not [step for step in cluster.steps() if step.step.step_id == STEP_EXTERN and step.step.unstarted_nodes]
        ),
        "the container lives on both nodes",
    )
    before = {pid for pid in cluster.job_processes(number) if is_alive(pid)}
    assert len(before) == 3, "two containers and the script"
    cluster.kill_nodes()
    cluster.start_nodes()
    assert {pid for pid in before if is_alive(pid)} == before
    cluster.cancel(number)
    cluster.wait_state(number, "CANCELLED")
    until(lambda: not any(is_alive(pid) for pid in before), "nothing is left of it")
    until(lambda: not cluster.steps(), "no step is left")


def test_the_container_of_a_job_whose_process_is_killed_is_no_failure(make_cluster: Make) -> None:
    cluster = flagged(make_cluster, "Contain", "true")
    # A script that stays one process: those that come and go cannot be looked at.
    os.mkfifo(cluster.work / "go")
    number = cluster.submit("touch began; read word < go")
    until(lambda: (cluster.work / "began").exists(), "the script runs")
    until(
        lambda: not [step for step in cluster.steps() if step.step.unstarted_nodes],
        "the container lives",
    )
    for pid in cluster.job_processes(number):
        if b"100000000" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    until(lambda: not [step for step in cluster.steps() if step.step.step_id == STEP_EXTERN], "it has ended")
    (cluster.work / "go").write_text("now\n")
    assert cluster.wait_state(number, "COMPLETED").exit_status == 0


@pytest.mark.slow
def test_serial_prologs_of_a_node_run_one_after_the_other(make_cluster: Make) -> None:
    prolog = "echo begin >> $W/n; sleep 0.1; echo end >> $W/n"
    cluster = flagged(make_cluster, "Alloc,Serial", prolog)
    numbers = [cluster.submit("true", node_list=("n1",)) for _ in range(4)]
    cluster.wait_all_ended(numbers)
    assert lines(cluster.work / "n") == ["begin", "end"] * 4
