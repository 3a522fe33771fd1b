"""slurmd's own life: options, detaching, signals, configuration, programs of the site, many nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from spritz.client.command.sync import connect_address
from spritz.model.job.record import Job
from spritz.model.node_daemon.launch import ReloadNode, StopDaemon
from spritz.model.node_daemon.reports import JobGone, NodeTrouble, TaskEnd
from spritz.model.queries.daemons import Ping, Pong
from spritz.node.cgroup import missing, version

from .node_harness import NodeCluster, wait_until


def made(tmp_path: Path, **fields: object) -> NodeCluster:
    """A cluster whose controller listens; slurmd is not started."""
    cluster = NodeCluster(tmp_path, **fields)  # type: ignore[arg-type]  # whatever the test gives
    cluster.controller.start()
    return cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[NodeCluster]:
    """As `made`, and ended afterwards."""
    one = made(tmp_path)
    yield one
    one.close()


def slurmd(*arguments: str, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = [sys.executable, "-m", "spritz.node.main", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
    )


def test_what_slurmd_does_not_have_is_refused_by_name() -> None:
    for wrong in (["-y"], ["--conf-server=x"], ["-n", "many"], ["-f"]):
        done = slurmd(*wrong)
        assert done.returncode == 1
        assert wrong[0].lstrip("-")[:4] in done.stderr
        assert "Traceback" not in done.stderr


def test_version_and_hardware_are_printed_as_slurm_does() -> None:
    assert slurmd("-V").stdout == "slurm 25.05.0\n"
    first, second = slurmd("-C").stdout.splitlines()
    words = dict(word.split("=") for word in first.split())
    assert list(words)[:7] == [
        "NodeName",
        "CPUs",
        "Boards",
        "SocketsPerBoard",
        "CoresPerSocket",
        "ThreadsPerCore",
        "RealMemory",
    ]
    assert int(words["CPUs"]) == os.cpu_count()
    assert second.startswith("UpTime=")


def test_a_node_that_is_not_configured_and_a_broken_file_are_named(cluster: NodeCluster) -> None:
    done = slurmd("-D", "-f", str(cluster.conf), "-N", "nosuch")
    assert (done.returncode, "has no node nosuch" in done.stderr) == (1, True)
    cluster.conf.write_text(cluster.conf.read_text() + "NoSuchKey=1\n")
    done = slurmd("-D", "-f", str(cluster.conf), "-N", "n1")
    assert (done.returncode, "NoSuchKey" in done.stderr) == (1, True)


@pytest.mark.skipif(not version(), reason="needs cgroups")
def test_cgroups_of_a_version_that_is_not_here_are_refused_and_disabled_ones_are_told(cluster: NodeCluster) -> None:
    cluster.conf.write_text(cluster.conf.read_text() + "TaskPlugin=task/cgroup\n")
    other = "cgroup/v1" if version() == "v2" else "cgroup/v2"
    (cluster.root / "cgroup.conf").write_text(f"CgroupPlugin={other}\nConstrainCores=yes\nConstrainRAMSpace=yes\n")
    if missing(other, ("memory", "cpuset")):
        done = slurmd("-D", "-f", str(cluster.conf), "-N", "n1")
        assert (done.returncode, f"CgroupPlugin={other}: " in done.stderr) == (1, True)
    (cluster.root / "cgroup.conf").write_text("CgroupPlugin=disabled\nConstrainCores=yes\nConstrainRAMSpace=yes\n")
    cluster.start()
    log = cluster.log()
    assert "cgroup.unavailable key=ConstrainRAMSpace" in log
    assert "cgroup.unavailable key=ConstrainCores" in log
    assert "daemon.confines root=" in log
    assert "cgroups=none memory=sampling cores=affinity" in log


def _cpus(status: str) -> set[int]:
    """Where a process may run, by the text of its /proc/PID/status."""
    words = next(line.split()[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list"))
    return {cpu for part in words.split(",") for cpu in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)}


def _with_first_cpu(job: Job) -> Job:
    """The job with CPU 0 alone."""
    assert job.allocation is not None
    nodes = tuple(msgspec.structs.replace(share, cpus="1") for share in job.allocation.nodes)
    return msgspec.structs.replace(job, allocation=msgspec.structs.replace(job.allocation, nodes=nodes))


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2 or len(os.sched_getaffinity(0)) != os.cpu_count(), reason="needs two CPUs"
)
def test_slurmd_keeps_to_the_systems_cores_and_jobs_to_the_others(tmp_path: Path) -> None:
    cluster = made(tmp_path, nodes=1)
    every = os.sched_getaffinity(0)
    plain = cluster.conf.read_text().replace("CPUs=64", f"Sockets=1 CoresPerSocket={len(every)} CPUs={len(every)}")
    cluster.conf.write_text(plain.replace("CPUs=", f"CPUSpecList={len(every) - 1} CPUs="))
    cluster.start()
    try:
        assert cluster.daemon is not None

        def own() -> set[int]:
            return _cpus(Path(f"/proc/{cluster.daemon.pid}/status").read_text())  # type: ignore[union-attr]  # it runs

        (special,) = own()
        job = _with_first_cpu(cluster.job())
        cluster.batch("#!/bin/sh\ncat /proc/$PPID/status /proc/self/status\n", job)
        assert cluster.finished(job).tasks == (TaskEnd(0, 0),)
        supervisor, _, task = cluster.output(job).partition("Name:\tcat")
        assert (_cpus(supervisor), _cpus(task)) == ({special}, every - {special})
        # Nothing is reserved any more: the file is read again.
        cluster.conf.write_text(plain)
        cluster.daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: own() == every, "slurmd runs everywhere")
        job = cluster.batch("#!/bin/sh\ncat /proc/self/status\n")
        assert cluster.finished(job).tasks == (TaskEnd(0, 0),)
        assert _cpus(cluster.output(job)) == every
    finally:
        cluster.close()


def test_it_returns_when_it_serves_and_names_the_process_that_holds_its_place(cluster: NodeCluster) -> None:
    done = slurmd("-f", str(cluster.conf), "-N", "n1")
    assert (done.returncode, done.stderr) == (0, "")
    pid = int((cluster.root / "slurmd.pid").read_text())
    try:
        assert [registration.name for registration in cluster.controller.registrations] == ["n1"]
        again = slurmd("-f", str(cluster.conf), "-N", "n1")
        assert again.returncode == 1
        assert "slurmd is running already" in again.stderr
        other = cluster.root / "other.conf"
        other.write_text(cluster.conf.read_text().replace("slurmd.pid", "other.pid"))
        (cluster.root / "other").mkdir()
        same_port = slurmd("-f", str(other), "-N", "n2")
        assert same_port.returncode == 1
        assert "Address already in use" in same_port.stderr
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "slurmd ends")
    assert not (cluster.root / "slurmd.pid").exists()


@pytest.mark.slow
def test_it_serves_without_a_controller_and_registers_later(cluster: NodeCluster) -> None:
    cluster.controller.stop()
    assert slurmd("-f", str(cluster.conf), "-N", cluster.hostlist).returncode == 0
    pid = int((cluster.root / "slurmd.pid").read_text())
    cluster.controller.start()
    wait_until(lambda: len(cluster.controller.registrations) == 2, "both nodes are registered")
    cluster.controller.tell(StopDaemon(term=1))
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "slurmd stops when it is told to")


def test_its_port_answers_a_ping_and_refuses_anything_else(cluster: NodeCluster) -> None:
    cluster.start()
    with connect_address(("127.0.0.1", cluster.node_port), timeout=100) as connection:
        answer = connection.call(Ping(), Pong)
        assert cluster.daemon is not None
        assert (answer.pid, answer.mode) == (cluster.daemon.pid, "slurmd")
        with pytest.raises(Exception, match="not a request that this daemon takes"):
            connection.call(StopDaemon(term=1), Pong)


def test_signals_read_the_files_again_and_reopen_the_log(cluster: NodeCluster) -> None:
    cluster.start()
    assert cluster.daemon is not None
    log = cluster.root / "slurmd.log"
    log.rename(cluster.root / "old.log")
    cluster.daemon.send_signal(signal.SIGUSR2)
    wait_until(lambda: log.exists() and "log.reopened" in log.read_text(), "the log is opened again")
    prolog = cluster.root / "prolog"
    prolog.write_text(f"#!/bin/sh\necho $SLURM_JOB_ID >> {cluster.work}/prologs\n")
    prolog.chmod(0o755)
    cluster.extra = f"Prolog={prolog}\nTaskPlugin=task/affinity\nJobContainerType=job_container/tmpfs"
    (cluster.root / "job_container.conf").write_text(f"AutoBasePath=true BasePath={cluster.root}/base Dirs=/var/tmp\n")
    cluster.write_conf()
    cluster.daemon.send_signal(signal.SIGHUP)
    wait_until(lambda: "config.read" in log.read_text(), "the files are read again")
    assert " cores=affinity " in log.read_text(), "what holds jobs now"
    assert " directories=nothing" in log.read_text()
    assert "config.later key=JobContainerType" in log.read_text()
    job = cluster.batch("#!/bin/sh\n")
    cluster.finished(job)
    assert (cluster.work / "prologs").read_text() == f"{job.id}\n"
    cluster.extra = "NoSuchKey=1"
    cluster.write_conf()
    cluster.controller.tell(ReloadNode(term=1))
    wait_until(lambda: "config.refused" in log.read_text(), "a broken file is refused")
    second = cluster.batch("#!/bin/sh\n")
    cluster.finished(second)
    assert (cluster.work / "prologs").read_text().split() == [str(job.id), str(second.id)]


def program(cluster: NodeCluster, name: str, text: str) -> Path:
    """A program of the site."""
    path = cluster.root / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_prolog_and_epilog_run_once_a_job_with_its_variables(cluster: NodeCluster) -> None:
    say = 'echo "$0 $SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID $SLURM_JOB_UID $SLURMD_NODENAME ${HOME-none}" >> said'
    for name in ("prolog.1", "prolog.2", "epilog.1"):
        program(cluster, name, f"cd {cluster.work}; {say}")
    cluster.extra = f"Prolog={cluster.root}/prolog.*\nEpilog={cluster.root}/epilog.*"
    cluster.write_conf()
    cluster.start()
    job = cluster.batch("#!/bin/sh\nwhile ! test -e go; do sleep 0.01; done\n")
    cluster.step(job, 0, ("true",))
    cluster.finished(job, 0)
    (cluster.work / "go").touch()
    assert not cluster.finished(job).job_gone
    cluster.controller.wait_for(JobGone, job_id=job.id)
    names = [line.split()[0].rpartition("/")[2] for line in (cluster.work / "said").read_text().splitlines()]
    assert names == ["prolog.2", "prolog.1", "epilog.1"]
    last = (cluster.work / "said").read_text().splitlines()[-1].split()[1:]
    assert last == ["epilog_slurmd", str(job.id), str(os.getuid()), "n1", "none"]


def test_a_failing_prolog_gives_the_job_back_and_drains(cluster: NodeCluster) -> None:
    prolog = program(cluster, "prolog", "exit 3")
    cluster.extra = f"Prolog={prolog}"
    cluster.write_conf()
    cluster.start()
    job = cluster.batch("#!/bin/sh\ntouch ran\n")
    result = cluster.finished(job)
    assert (result.launch_failed, result.error_kind) == (True, "prolog")
    assert "exit status 3" in result.error
    assert cluster.controller.wait_for(NodeTrouble, name="n1").reason == "Prolog error"
    cluster.controller.wait_for(JobGone, job_id=job.id)
    assert not (cluster.work / "ran").exists()


def test_a_prolog_that_hangs_is_ended_after_its_time(cluster: NodeCluster) -> None:
    prolog = program(cluster, "prolog", "sleep 1000")
    cluster.extra = f"Prolog={prolog}\nPrologEpilogTimeout=1"
    cluster.write_conf()
    cluster.start()
    assert "not done in 1 seconds" in cluster.finished(cluster.batch("#!/bin/sh\n")).error


def test_a_failing_epilog_drains_but_ends_the_job(cluster: NodeCluster) -> None:
    epilog = program(cluster, "epilog", "exit 1")
    cluster.extra = f"Epilog={epilog}"
    cluster.write_conf()
    cluster.start()
    job = cluster.batch("#!/bin/sh\n")
    assert cluster.finished(job).tasks == (TaskEnd(0, 0),)
    cluster.controller.wait_for(JobGone, job_id=job.id)
    assert cluster.controller.wait_for(NodeTrouble).reason == "Epilog error"


def test_the_health_check_runs_on_every_node(cluster: NodeCluster) -> None:
    check = program(cluster, "check", f"echo $SLURMD_NODENAME >> {cluster.work}/checked")
    cluster.extra = f"HealthCheckProgram={check}\nHealthCheckInterval=60"
    cluster.write_conf()
    cluster.start()
    checked = cluster.work / "checked"
    wait_until(
        lambda: checked.exists() and sorted(checked.read_text().split()) == ["n1", "n2"], "both nodes are checked"
    )


@pytest.mark.slow
def test_the_health_check_ends_before_the_node_registers(cluster: NodeCluster) -> None:
    """slurm.conf(5) HealthCheckProgram: else a faulty node would get jobs. It may fail, as long as it ends."""
    began, go = cluster.work / "began", cluster.work / "go"
    check = program(cluster, "check", f"touch {began}; until test -e {go}; do sleep 0.02; done; echo a fault; exit 3")
    cluster.extra = f"HealthCheckProgram={check}\nHealthCheckInterval=60\nHealthCheckNodeState=ALLOC"
    cluster.write_conf()
    cluster.start(wait=False)
    wait_until(lambda: "health.runs" in cluster.log(), "the daemon serves meanwhile")
    assert began.exists()
    assert not cluster.controller.registrations
    go.touch()
    wait_until(lambda: len(cluster.controller.registrations) == 2, "both nodes register")
    assert f"error: health.failed node=n1 problem='{check}: exit status 3' output='a fault'" in cluster.log()


def test_task_prolog_and_epilog_of_the_site_run_with_each_task(cluster: NodeCluster) -> None:
    prolog = program(cluster, "prolog", "echo export FROM=$SLURM_PROCID,$SLURM_SCRIPT_CONTEXT")
    epilog = program(cluster, "epilog", f"echo $SLURM_PROCID >> {cluster.work}/ended; env | grep CONTEXT >&2; echo no")
    cluster.extra = f"TaskProlog={prolog}\nTaskEpilog={epilog}"
    cluster.write_conf()
    cluster.start()
    job = cluster.job()
    cluster.step(
        job, 0, ("sh", "-c", "echo $FROM$SLURM_SCRIPT_CONTEXT"), tasks_per_node=2, stdout="out-%t", stderr="err"
    )
    cluster.finished(job, 0)
    assert [(cluster.work / f"out-{rank}").read_text() for rank in (0, 1)] == ["0,prolog_task\n", "1,prolog_task\n"]
    assert (cluster.work / "err").read_text() == "SLURM_SCRIPT_CONTEXT=epilog_task\n" * 2
    assert sorted((cluster.work / "ended").read_text().split()) == ["0", "1"]


@pytest.mark.slow
def test_hundreds_of_nodes_live_in_one_process(tmp_path: Path) -> None:
    cluster = made(tmp_path, nodes=300, prefix="node")
    try:
        cluster.start()
        assert len({registration.name for registration in cluster.controller.registrations}) == 300
        job = cluster.job(nodes=20)
        cluster.step(job, 0, ("sh", "-c", "echo $SLURMD_NODENAME"), stdout="out-%n")
        for name in cluster.names[:20]:
            cluster.finished(job, 0, node=name)
        assert {(cluster.work / f"out-{index}").read_text() for index in range(20)} == {
            f"{name}\n" for name in cluster.names[:20]
        }
    finally:
        cluster.close()
