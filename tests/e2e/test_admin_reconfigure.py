"""`scontrol reconfigure` and SIGHUP on a cluster with running and queued jobs: what changes, and that no job is lost.

Source: scontrol(1) reconfigure.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from spritz.client.errors import RemoteError
from spritz.model.commands.job import Done
from spritz.model.queries.daemons import Reconfigure
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, until


@pytest.fixture
def busy(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster with job 1 running and job 2 waiting for room."""
    cluster = make_cluster(cpus=2)
    cluster.use_ports()
    cluster.start_controller()
    for name in cluster.names:
        cluster.start_nodes(name)
    running = cluster.submit("while ! test -e go; do sleep 0.02; done", tasks=4, nodes_min=2, tasks_given=True)
    waiting = cluster.submit("echo $SLURM_JOB_NODELIST", tasks=4, nodes_min=2, tasks_given=True)
    assert (running, waiting) == (1, 2)
    cluster.wait_state(1, "RUNNING")
    cluster.supervisor(1)
    return cluster


def both_there(cluster: Cluster) -> None:
    assert [cluster.job(number).state for number in (1, 2)] == [JobState.RUNNING, JobState.PENDING]


def finish(cluster: Cluster) -> None:
    """The running job ends, the waiting one runs: neither was harmed."""
    (cluster.work / "go").touch()
    for number in (1, 2):
        job = cluster.wait_state(number, "COMPLETED")
        assert job.restart_count == 0


def partition(cluster: Cluster, name: str = "main") -> object:
    return next(one for one in cluster.call(ListPartitions(all=True), Partitions).partitions if one.name == name)


def test_a_node_is_added_and_used_at_once(busy: Cluster) -> None:
    busy.names.append("n3")
    busy.use_ports()
    busy.call(Reconfigure(), Done)
    both_there(busy)
    third = busy.submit("echo $SLURM_JOB_NODELIST", node_list=("n3",))
    busy.start_nodes("n3")
    busy.wait_state(third, "COMPLETED")
    assert busy.output(third) == "n3\n"
    both_there(busy)
    finish(busy)


def test_a_partitions_limits_and_a_nodes_features_change(busy: Cluster) -> None:
    busy.partition_lines = (
        "PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP\nPartitionName=night Nodes=n2 State=DOWN"
    )
    busy.node_lines = busy.node_lines.replace("NodeName=n2", "NodeName=n2 Features=fast,big")
    busy.write_conf()
    busy.call(Reconfigure(), Done)
    both_there(busy)
    main = partition(busy)
    assert main.max_time_minutes == 60  # type: ignore[attr-defined]
    assert set(busy.node("n2").node.config.features) == {"fast", "big"}
    assert busy.node("n2").partitions == ("main", "night")
    too_long = busy.submit("true", time_limit_minutes=100)
    until(lambda: busy.job(too_long).reason.value == "PartitionTimeLimit", "a job beyond MaxTime waits, and says why")
    wanted = busy.submit("echo $SLURM_JOB_NODELIST", features="fast")
    finish(busy)
    busy.wait_state(wanted, "COMPLETED")
    assert busy.output(wanted) == "n2\n"


def test_a_broken_file_changes_nothing_and_all_its_mistakes_are_told(busy: Cluster) -> None:
    good = busy.conf.read_text()
    busy.conf.write_text(good + "SlurmdTimeut=5\nPartitionName=p Nodes=nosuch\nNodeName=n1 CPUs=2\n")
    with pytest.raises(RemoteError) as caught:
        busy.call(Reconfigure(), Done)
    for word in ("SlurmdTimeut", "SlurmdTimeout", "nosuch", "n1"):
        assert word in caught.value.message + caught.value.hint
    both_there(busy)
    assert busy.controller is not None
    busy.controller.send_signal(signal.SIGHUP)
    for daemon in busy.daemons.values():
        daemon.send_signal(signal.SIGHUP)
    until(lambda: "config.refused" in busy.controller_log(), "slurmctld refuses it")
    for name in busy.names:
        until(lambda name=name: "config.refused" in busy.node_log(name), f"the slurmd of {name} refuses it")  # type: ignore[misc]
    busy.conf.write_text(good)
    busy.call(Reconfigure(), Done)
    both_there(busy)
    finish(busy)


def test_a_node_with_a_running_job_that_is_taken_out_of_the_file_does_not_take_the_others_along(busy: Cluster) -> None:
    other = busy.submit("while ! test -e go; do sleep 0.02; done", node_list=("n1",), hold=True)
    busy.node_lines = busy.node_lines.splitlines()[0]
    busy.write_conf()
    try:
        busy.call(Reconfigure(), Done)
    except RemoteError:
        both_there(busy)
        return
    until(lambda: [view.node.name for view in busy.nodes()] == ["n1"], "only n1 is left")
    until(lambda: busy.job(1).state is not JobState.RUNNING, "the job that used it has lost its node")
    assert busy.job(other).state is JobState.PENDING
    busy.wait_state(busy.submit("true"), "COMPLETED")


def test_what_ran_on_a_node_that_is_taken_out_ends_and_the_node_can_come_back(busy: Cluster) -> None:
    """No second copy runs along with the first: the daemon of n2, which is dismissed, kills every process there."""
    lone = busy.submit("trap '' TERM; echo $SLURM_RESTART_COUNT >> lives; while :; do sleep 1; done", node_list=("n2",))
    busy.cancel(2)
    (busy.work / "go").touch()
    busy.wait_state(lone, "RUNNING")
    until((busy.work / "lives").exists, "the script runs")
    whole = busy.node_lines
    busy.node_lines = whole.splitlines()[0]
    busy.write_conf()
    busy.call(Reconfigure(), Done)
    until(lambda: not busy.job_processes(lone), "nothing of the job is left on the removed node")
    assert busy.job(lone).state is JobState.PENDING  # it waits for its node
    busy.node_lines = whole
    busy.write_conf()
    busy.call(Reconfigure(), Done)
    lives = busy.work / "lives"
    until(
        lambda: lives.read_text() == "\n1\n",
        lambda: (
            f"it runs again, for the second time, where it asked to: {lives.read_text()!r} {busy.job(lone)}\n"
            f"{busy.controller_log()[-3000:]}\n{busy.node_log('n2')[-3000:]}"
        ),
    )
    busy.cancel(lone)


@pytest.mark.slow
def test_one_daemon_of_several_nodes_goes_on_with_those_that_are_left(make_cluster: Callable[..., Cluster]) -> None:
    lines = [f"NodeName=n{number} NodeAddr=127.0.0.1 CPUs=2 RealMemory=8000 State=UNKNOWN" for number in (1, 2)]
    cluster = make_cluster(node_lines="\n".join(lines)).start()
    kept = cluster.submit("while ! test -e go; do sleep 0.02; done", node_list=("n1",))
    lost = cluster.submit("sleep 1000", node_list=("n2",))
    for number in (kept, lost):
        cluster.wait_state(number, "RUNNING")
        cluster.supervisor(number)
    cluster.node_lines = lines[0]
    cluster.write_conf()
    cluster.call(Reconfigure(), Done)
    until(lambda: not cluster.job_processes(lost), "nothing is left of the job on the removed node")
    (cluster.work / "go").touch()
    assert cluster.wait_state(kept, "COMPLETED").restart_count == 0
    cluster.node_lines = "\n".join(lines)
    cluster.write_conf()
    cluster.call(Reconfigure(), Done)
    until(lambda: cluster.job(lost).state is JobState.RUNNING, "the node is back, and with it the job")
    cluster.cancel(lost)


def test_slurmd_follows_when_the_controller_rereads(busy: Cluster) -> None:
    busy.extra = f"TaskProlog={busy.root}/prolog"
    (busy.root / "prolog").write_text("#!/bin/sh\necho export FROM_PROLOG=yes\n")
    (busy.root / "prolog").chmod(0o755)
    busy.write_conf()
    busy.call(Reconfigure(), Done)
    for name in busy.names:
        until(lambda name=name: "config.read" in busy.node_log(name), f"the slurmd of {name} rereads")  # type: ignore[misc]
    (busy.work / "go").touch()
    number = busy.submit("echo $FROM_PROLOG")
    busy.wait_state(number, "COMPLETED")
    assert busy.output(number) == "yes\n"


def test_memory_limits_outlive_a_reread_between_two_jobs(make_cluster: Callable[..., Cluster]) -> None:
    """Supervisors wait for more work in cgroups of theirs: a reread must not tidy those away."""
    cluster = make_cluster(extra="SelectTypeParameters=CR_CPU_Memory").start()
    for _ in range(3):
        number = cluster.submit("echo fine", memory_mib_per_node=100)
        cluster.wait_state(number, "COMPLETED")
        cluster.call(Reconfigure(), Done)
        cluster.run("slurmd", "-D", "-N", cluster.hostlist)  # refused: it runs already


def test_a_changed_port_or_user_is_refused_until_a_restart(busy: Cluster) -> None:
    busy.conf.write_text(busy.conf.read_text().replace(f"SlurmctldPort={busy.port}", "SlurmctldPort=1"))
    with pytest.raises(RemoteError, match="SlurmctldPort cannot change while slurmctld runs"):
        busy.call(Reconfigure(), Done)
    both_there(busy)


def test_fewer_cpus_in_the_file_do_not_harm_what_runs(busy: Cluster) -> None:
    busy.node_lines = busy.node_lines.replace("CPUs=2", "CPUs=1")
    busy.write_conf()
    busy.call(Reconfigure(), Done)
    assert busy.job(1).state is JobState.RUNNING
    (busy.work / "go").touch()
    busy.wait_state(1, "COMPLETED")
    small = busy.submit("echo $SLURM_CPUS_ON_NODE")
    busy.wait_state(small, "COMPLETED")
    assert busy.output(small) == "1\n"
    # What waits for four CPUs can never run now: it stays, with a reason.
    assert busy.job(2).state is JobState.PENDING
