"""slurmd as a process: jobs and steps run, and their ends are reported."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.client.errors import RemoteError
from spritz.model.node_daemon.launch import (
    AttachClient,
    LaunchBatch,
    NotifyTasks,
    PingNode,
    SignalTasks,
    SuspendTasks,
    TerminateStep,
)
from spritz.model.node_daemon.reports import JobGone, NodeSamples, StepFinished, StepStarted, TaskEnd
from spritz.stepd import protocol
from spritz.stepd.processes import children_of

from .node_harness import NodeCluster, running, wait_until, with_restart


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    """Two nodes in one slurmd, for all tests here that leave it as it is."""
    with running(NodeCluster(tmp_path_factory.mktemp("node"))) as made:
        yield made


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    """The same for one test."""
    with running(NodeCluster(tmp_path)) as made:
        yield made


class Listener:
    """What srun does: collects the frames of every node of a step."""

    def __init__(self, name: str) -> None:
        self.address = f"unix:@{name}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + name)
        self._listener.listen(8)
        self._listener.settimeout(100)
        self.connections: list[socket.socket] = []

    def accept(self) -> protocol.Hello:
        """The next node."""
        connection, _ = self._listener.accept()
        connection.settimeout(100)
        self.connections.append(connection)
        head = connection.recv(protocol.HEADER_BYTES, socket.MSG_WAITALL)
        size = int.from_bytes(head[5:9], "big")
        return protocol.decode_hello(connection.recv(size, socket.MSG_WAITALL))

    def frames(self, connection: socket.socket) -> list[tuple[int, int, bytes]]:
        """All frames up to the end of a connection."""
        decoder = protocol.Decoder()
        found: list[tuple[int, int, bytes]] = []
        while data := connection.recv(65536):
            found += decoder.feed(data)
        return found

    def close(self) -> None:
        """Go away."""
        for one in (*self.connections, self._listener):
            one.close()


@pytest.fixture
def listener(cluster: NodeCluster) -> Iterator[Listener]:
    """A client's listening socket."""
    made = Listener(f"spritz-node-test-{cluster.port}")
    yield made
    made.close()


def test_a_batch_job_runs_and_is_reported_gone_in_one_message(cluster: NodeCluster) -> None:
    job = cluster.batch("#!/bin/sh\necho $SLURM_JOB_ID on $SLURMD_NODENAME\nexit 4\n")
    result = cluster.finished(job)
    assert result.tasks == (TaskEnd(0, 4 << 8),)
    assert result.job_gone
    assert cluster.output(job) == f"{job.id} on n1\n"
    wait_until(lambda: not list(cluster.spool().glob("job*")), "the spool is empty once the end is acknowledged")
    assert cluster.controller.find(JobGone, job_id=job.id) is None


def test_the_same_launch_twice_runs_once(cluster: NodeCluster) -> None:
    job = cluster.job()
    message = cluster.batch_message("#!/bin/sh\necho once >> ran\nsleep 0.2\n", job)
    cluster.controller.tell(message)
    cluster.controller.tell(message)
    cluster.finished(job)
    cluster.controller.tell(message)
    assert (cluster.work / "ran").read_text() == "once\n"
    ends = [report for report in cluster.controller.reports if isinstance(report, StepFinished)]
    assert [end.job_id for end in ends].count(job.id) == 1


def test_a_requeued_job_runs_again_and_appends(cluster: NodeCluster) -> None:
    first = cluster.batch("#!/bin/sh\necho life ${SLURM_RESTART_COUNT-0}\n")
    cluster.finished(first)
    second = cluster.batch("#!/bin/sh\necho life ${SLURM_RESTART_COUNT-0}\n", with_restart(first, 1))
    cluster.finished(second, restart_count=1)
    assert cluster.output(first) == "life 0\nlife 1\n"


def test_a_step_on_two_nodes_speaks_to_its_client(cluster: NodeCluster, listener: Listener) -> None:
    job = cluster.job(nodes=2)
    cluster.step(
        job,
        0,
        ("sh", "-c", "echo rank $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME"),
        tasks_per_node=2,
        io_address=listener.address,
        io_key="key",
    )
    outputs: dict[int, bytes] = {}
    for _ in range(2):
        hello = listener.accept()
        assert hello.key == "key"
        found = listener.frames(listener.connections[-1])
        assert found[-1][0] == protocol.DONE
        for kind, task, payload in found:
            if kind == protocol.STDOUT:
                outputs[task] = outputs.get(task, b"") + payload
    assert outputs == {rank: f"rank {rank} of 4 on n{rank // 2 + 1}\n".encode() for rank in range(4)}
    for node in ("n1", "n2"):
        assert len(cluster.finished(job, 0, node=node).tasks) == 2
        assert not cluster.finished(job, 0, node=node).job_gone
    cluster.terminate(job, cause="COMPLETED")
    for node in ("n1", "n2"):
        cluster.controller.wait_for(JobGone, node=node, job_id=job.id)


def test_a_long_step_is_reported_as_started(cluster: NodeCluster) -> None:
    job = cluster.batch("#!/bin/sh\nsleep 1000\n")
    started = cluster.controller.wait_for(StepStarted, job_id=job.id)
    assert started.started_at > 1_700_000_000
    cluster.terminate(job, kill_now=True)
    assert cluster.finished(job).tasks[0].status == signal.SIGKILL


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("CANCELLED", ""),
        ("TIMEOUT", " DUE TO TIME LIMIT"),
        ("PREEMPTED", " DUE TO PREEMPTION"),
        ("REQUEUED", " DUE TO JOB REQUEUE"),
    ],
)
def test_a_terminated_job_reads_why_and_is_gone(cluster: NodeCluster, cause: str, words: str) -> None:
    job = cluster.batch("#!/bin/sh\ntrap 'echo had TERM; exit 0' TERM\necho ready\nwhile :; do sleep 0.01; done\n")
    wait_until(lambda: (cluster.work / f"slurm-{job.id}.out").exists() and cluster.output(job), "the script is ready")
    cluster.terminate(job, cause=cause, kill_wait_seconds=100)  # time for the trap
    cluster.controller.wait_for(JobGone, job_id=job.id)
    lines = cluster.output(job).splitlines()
    assert lines[1].startswith(f"slurmstepd: error: *** JOB {job.id} ON n1 CANCELLED AT 2023-11-1")
    assert lines[1].endswith(f"{words} ***")
    assert "had TERM" in lines


def test_steps_that_outlive_the_batch_script_are_ended(cluster: NodeCluster) -> None:
    job = cluster.batch("#!/bin/sh\nwhile ! test -e go; do sleep 0.01; done\n")
    cluster.step(job, 0, ("sleep", "1000"))
    cluster.controller.wait_for(StepStarted, job_id=job.id, step_id=0)
    (cluster.work / "go").touch()
    assert not cluster.finished(job).job_gone
    assert cluster.finished(job, 0).tasks[0].status == signal.SIGTERM
    cluster.controller.wait_for(JobGone, job_id=job.id)


def test_terminating_what_is_not_there_is_success(cluster: NodeCluster) -> None:
    job = cluster.job()
    cluster.terminate(job)
    cluster.controller.wait_for(JobGone, job_id=job.id)
    cluster.controller.tell(TerminateStep(term=1, node="n1", job_id=999, restart_count=0, step_id=3))
    assert cluster.controller.wait_for(StepFinished, job_id=999).launch_failed


def test_why_a_batch_job_could_not_begin_is_in_the_log(cluster: NodeCluster) -> None:
    job = cluster.batch("#!/bin/sh\n", stdout="/proc/nowhere/out")
    assert cluster.finished(job).error_kind == "io"
    why = "Could not open stdout file /proc/nowhere/out: No such file or directory"
    line = f"step.failed job_id={job.id} step=batch error='{why}'"
    wait_until(lambda: line in cluster.log(), "the log says why")


def test_signals_go_to_steps_to_the_shell_or_to_all(cluster: NodeCluster) -> None:
    trap = "trap 'echo $0 had USR1' USR1; touch ready-$0; while :; do sleep 0.01; done"
    job = cluster.batch(f"#!/bin/sh\nset batch\n{trap.replace('$0', 'batch')}\n")
    cluster.step(job, 0, ("sh", "-c", trap, "step"), stdout="step.out")
    for name in ("batch", "step"):
        wait_until((cluster.work / f"ready-{name}").exists, f"the {name} traps")

    def heard() -> tuple[int, int]:
        step = (cluster.work / "step.out").read_text()
        return cluster.output(job).count("had USR1"), step.count("had USR1")

    def send(**flags: bool) -> None:
        cluster.controller.tell(
            SignalTasks(term=1, node="n1", job_id=job.id, restart_count=0, signal=signal.SIGUSR1, **flags)
        )

    send()
    wait_until(lambda: heard() == (0, 1), "only the step had USR1")
    send(batch=True)
    wait_until(lambda: heard() == (1, 1), "only the shell had USR1")
    send(full=True)
    wait_until(lambda: heard() == (2, 2), "both had USR1")
    cluster.terminate(job, kill_now=True)


def test_a_suspended_job_stands_still(cluster: NodeCluster) -> None:
    job = cluster.batch("#!/bin/sh\nwhile :; do echo x; sleep 0.01; done\n")
    wait_until(lambda: (cluster.work / f"slurm-{job.id}.out").exists() and cluster.output(job), "the job writes")
    cluster.controller.tell(SuspendTasks(term=1, node="n1", job_id=job.id, restart_count=0))
    pids = cluster.pids(job)

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    def stands() -> bool:
        # D: a child of vfork(2) was stopped before it executed anything, and the shell waits for that.
        below = children_of(pids[1])
        return state(pids[1]) == "T" or (
            state(pids[1]) == "D" and bool(below) and all(state(one) == "T" for one in below)
        )

    wait_until(stands, "the shell is stopped")
    size = len(cluster.output(job))
    cluster.controller.tell(SuspendTasks(term=1, node="n1", job_id=job.id, restart_count=0, resume=True))
    wait_until(lambda: len(cluster.output(job)) > size, "the job writes again")
    cluster.terminate(job, kill_now=True)


def test_a_message_reaches_the_jobs_standard_error(cluster: NodeCluster) -> None:
    job = cluster.batch("#!/bin/sh\necho up; sleep 1000\n")
    wait_until(lambda: (cluster.work / f"slurm-{job.id}.out").exists() and cluster.output(job), "the job runs")
    cluster.controller.tell(NotifyTasks(term=1, node="n1", job_id=job.id, message="hello job"))
    wait_until(lambda: "slurmstepd: hello job\n" in cluster.output(job), "the message is there")
    cluster.terminate(job, kill_now=True)


def test_one_more_client_can_attach_to_a_step(cluster: NodeCluster, listener: Listener) -> None:
    job = cluster.job()
    cluster.step(job, 0, ("cat",), io_address=listener.address, io_key="first")
    assert not listener.accept().attached
    cluster.controller.wait_for(StepStarted, job_id=job.id)
    cluster.controller.tell(
        AttachClient(term=1, node="n1", job_id=job.id, step_id=0, io_address=listener.address, io_key="second")
    )
    hello = listener.accept()
    assert (hello.key, hello.attached) == ("second", True)
    listener.connections[1].sendall(protocol.frame(protocol.STDIN, protocol.ALL_TASKS, b"from the second\n"))
    listener.connections[1].sendall(protocol.frame(protocol.STDIN_EOF))
    for connection in listener.connections:
        assert (protocol.STDOUT, 0, b"from the second\n") in listener.frames(connection)
    with pytest.raises(RemoteError, match="not running"):
        cluster.controller.tell(
            AttachClient(term=1, node="n1", job_id=job.id, step_id=7, io_address="unix:@x", io_key="")
        )


def test_a_controller_that_was_replaced_is_refused(own_cluster: NodeCluster) -> None:
    own_cluster.controller.term = 7
    own_cluster.finished(own_cluster.batch("#!/bin/sh\n"))
    own_cluster.controller.term = 6
    with pytest.raises(RemoteError, match="term 6 was replaced by one of term 7"):
        own_cluster.batch("#!/bin/sh\necho never\n")


def test_an_order_that_contradicts_itself_fails_and_does_no_harm(cluster: NodeCluster) -> None:
    job = cluster.job()
    broken = LaunchBatch(
        term=1,
        node="n2",
        job=job,
        script=b"#!/bin/sh\n",
        environment=(),
        task_counts=(1,),
        cluster_name="test",
    )
    cluster.controller.tell(broken)
    assert cluster.controller.wait_for(StepFinished, job_id=job.id, node="n2").launch_failed
    assert cluster.finished(cluster.batch("#!/bin/sh\n")).tasks[0].status == 0


def test_memory_beyond_the_limit_ends_the_job_as_out_of_memory(cluster: NodeCluster) -> None:
    script = "#!/usr/bin/env python3\nkeep = b'x' * (300 << 20)\nimport time; time.sleep(60)\n"
    job = cluster.batch(script, memory_mib=60)
    assert cluster.finished(job).oom
    assert f"Detected 1 oom_kill event in StepId={job.id}.batch" in cluster.output(job)


def test_a_ping_tells_how_busy_the_nodes_are(cluster: NodeCluster) -> None:
    samples = cluster.controller.tell(PingNode(term=1), NodeSamples).samples
    assert [sample.name for sample in samples] == ["n1", "n2"]
    assert all(sample.free_memory_mib > 0 for sample in samples)


def test_a_burst_of_jobs_all_end(cluster: NodeCluster) -> None:
    jobs = [cluster.batch("#!/bin/sh\nexit 1\n", memory_mib=100) for _ in range(60)]
    for job in jobs:
        assert cluster.finished(job).tasks == (TaskEnd(0, 256),)
    wait_until(lambda: not list(cluster.spool().glob("job*")), "nothing is left in the spool")


def test_another_users_job_is_refused_before_any_of_its_files_is_touched(cluster: NodeCluster) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may run jobs of anybody")
    job = cluster.batch("#!/bin/sh\ntouch ran\n", uid=os.getuid() + 1)
    result = cluster.finished(job)
    assert result.launch_failed
    assert "cannot run jobs of" in result.error
    assert not (cluster.work / f"slurm-{job.id}.out").exists()


def test_one_node_of_a_step_says_that_it_was_cancelled(cluster: NodeCluster, listener: Listener) -> None:
    job = cluster.job(nodes=2)
    cluster.step(job, 0, ("sleep", "1000"), io_address=listener.address, io_key="key")
    by_node = {listener.accept().node: listener.connections[-1] for _ in range(2)}
    for node in by_node:
        cluster.controller.wait_for(StepStarted, job_id=job.id, node=node)
    cluster.terminate(job)
    said = {
        node: b"".join(payload for kind, _, payload in listener.frames(connection) if kind == protocol.MESSAGE).decode()
        for node, connection in by_node.items()
    }
    assert said["n1"].startswith(f"slurmstepd: error: *** STEP {job.id}.0 ON n1 CANCELLED AT ")
    assert said["n2"] == ""
