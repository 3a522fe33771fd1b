"""Daemons started and stopped by hand, as administrators and site scripts do.

Source: slurmd(8), slurmctld(8), slurm.conf(5).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spritz import SLURM_VERSION
from spritz.model.commands.job import Done
from spritz.model.queries.daemons import Shutdown
from tests.e2e.cluster import Cluster, is_alive, until
from tests.e2e.commands import run as run_command

SLURMD = [sys.executable, "-m", "spritz.node.main"]


def pid_in(path: Path) -> int:
    return int(path.read_text())


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SLURMD, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, env=env
    )


def test_slurmd_tells_its_version_its_options_and_the_hardware_without_a_configuration() -> None:
    assert run("-V").stdout == f"slurm {SLURM_VERSION}\n"
    assert "Usage: slurmd [OPTIONS]" in run("-h").stdout
    found = run("-C")
    assert found.returncode == 0
    line, uptime = found.stdout.splitlines()
    pattern = (
        r"NodeName=\S+ CPUs=\d+ Boards=\d+ SocketsPerBoard=\d+ CoresPerSocket=\d+ ThreadsPerCore=\d+ RealMemory=\d+"
    )
    assert re.match(pattern, line), line
    assert re.fullmatch(r"UpTime=\d+-\d\d:\d\d:\d\d", uptime), uptime
    assert f"CPUs={os.cpu_count()} " in line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-Q"], "unrecognized option '-Q'"),
        (["--nosuch"], "unrecognized option '--nosuch'"),
        (["extra"], "unrecognized option 'extra'"),
        (["-N"], "option requires an argument -- 'N'"),
        (["-Dn", "many"], "-n option (nice value), many"),
    ],
)
def test_what_slurmd_does_not_know_is_refused_by_name(arguments: list[str], complaint: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_both_daemons_return_when_they_serve_and_leave_pid_files_logs_and_spools(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    cluster.use_ports()
    for daemon, arguments in (("slurmctld", ()), ("slurmd", ("-N", "n1")), ("slurmd", ("-N", "n2"))):
        done = cluster.run(daemon, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), daemon
    # They serve: no waiting is needed before the first question.
    assert {view.node.name for view in cluster.nodes() if "IDLE" in view.state_names} == {"n1", "n2"}
    pids = [pid_in(cluster.root / name) for name in ("slurmctld.pid", "slurmd-n1.pid", "slurmd-n2.pid")]
    assert len(set(pids)) == 3
    assert all(map(is_alive, pids))
    assert all(os.getsid(pid) not in (os.getsid(0), pid) for pid in pids), "in a session of their own, not leading it"
    assert all(os.readlink(f"/proc/{pid}/fd/0") == "/dev/null" for pid in pids)
    for node in cluster.names:
        number = cluster.submit("echo $SLURMD_NODENAME", node_list=(node,))
        cluster.wait_state(number, "COMPLETED")
        assert cluster.output(number) == f"{node}\n"
        assert "daemon.started" in cluster.node_log(node)
        assert (cluster.root / "spool" / node).is_dir()
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not any(map(is_alive, pids)), "SIGTERM ends them")
    assert not list(cluster.root.glob("*.pid"))
    assert "daemon.stopped" in cluster.controller_log()


def test_a_host_that_is_no_node_an_unknown_name_and_a_taken_port_are_told(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=1)
    done = cluster.run("slurmd")
    assert done.returncode == 1
    assert "slurmd: fatal: Unable to determine this slurmd's NodeName" in done.stderr
    done = cluster.run("slurmd", "-N", "nosuch")
    assert done.returncode == 1
    assert "no node nosuch" in done.stderr
    with socket.create_server(("127.0.0.1", cluster.node_port)):
        done = cluster.run("slurmd", "-N", "n1")
    assert done.returncode == 1
    assert f"Unable to bind listen port ({cluster.node_port}): Address already in use" in done.stderr
    assert not (cluster.root / "slurmd-n1.pid").exists()
    with socket.create_server(("", cluster.port)):
        done = cluster.run("slurmctld")
    assert done.returncode == 1
    assert f"SlurmctldPort {cluster.port}" in done.stderr
    assert not (cluster.root / "slurmctld.pid").exists()


def test_a_second_daemon_of_the_same_is_refused_and_the_first_goes_on(cluster: Cluster) -> None:
    for daemon, arguments in (("slurmctld", ()), ("slurmd", ("-N", cluster.hostlist))):
        for detached in ((), ("-D",)):
            done = cluster.run(daemon, *detached, *arguments)
            assert done.returncode == 1
            assert f"{daemon}: fatal: {daemon} is running already (pid " in done.stderr
    cluster.wait_state(cluster.submit("true"), "COMPLETED")


@pytest.mark.parametrize(
    ("setting", "daemons", "commands"),
    [
        ("SlurmctldHost=far(192.0.2.1)", ("slurmctld", "slurmd -N n1", "slurmd -Z"), ("squeue", "sbatch --wrap true")),
        ("SlurmctldAddr=192.0.2.1", ("slurmctld", "slurmd -N n1", "slurmd -Z"), ("squeue",)),
        (
            "AccountingStorageHost=192.0.2.1",
            ("slurmctld",),
            ("sacct", "sacctmgr -i add account a", "sacctmgr ping", "sreport cluster utilization"),
        ),
    ],
)
def test_a_daemon_on_another_machine_is_refused_by_the_name_of_its_key(
    make_cluster: Callable[..., Cluster], setting: str, daemons: tuple[str, ...], commands: tuple[str, ...]
) -> None:
    """The address is of RFC 5737: no machine has it. It cannot be authenticated, so nothing is asked of it."""
    cluster = make_cluster(nodes=1)
    key, _, host = setting.partition("=")
    text = cluster.conf.read_text()
    kept = [line for line in text.splitlines() if not line.startswith(f"{key}=")]
    kept.append("AccountingStorageType=accounting_storage/slurmdbd" if key.startswith("Acc") else "MaxNodeCount=4")
    cluster.conf.write_text("\n".join([*kept, setting]) + "\n")
    address = host.partition("(")[2].rstrip(")") or host
    expected = f"{key}={address}: {address} is another machine"
    for line in daemons:
        name, *arguments = line.split()
        done = cluster.run(name, *arguments)
        assert done.returncode == 1
        assert expected in done.stderr, line
        assert not (cluster.root / f"{name}.pid").exists()
    for line in commands:
        found = run_command(cluster, *line.split())
        assert found.returncode == 1
        assert expected in found.stderr.decode(), line


def test_a_configuration_that_cannot_be_read_is_told(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = make_cluster()
    cluster.conf.write_text("ClusterName=x\nSlurmctldPrt=17\nNodeName=a CPUs=many\n")
    for daemon in ("slurmctld", "slurmd"):
        done = cluster.run(daemon)
        assert done.returncode == 1
        assert "SlurmctldPrt" in done.stderr
        assert "SlurmctldPort" in done.stderr, "the nearest name"
        assert ":3" in done.stderr, "and the other mistake, with its line"
    cluster.conf.unlink()
    cluster.conf.mkdir()
    for daemon in ("slurmctld", "slurmd"):
        done = cluster.run(daemon)
        assert done.returncode == 1
        assert str(cluster.conf) in done.stderr
        assert "Traceback" not in done.stderr
    environment = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(tmp_path / "nowhere.conf"), "HOME": str(tmp_path)}
    environment |= {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    done = run("-D", env=environment)
    assert done.returncode == 1
    assert "nowhere.conf" in done.stderr


def test_the_configuration_is_found_through_the_environment(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    environment = os.environ | {"SLURM_CONF": str(cluster.conf)}
    for module, arguments in (("spritz.controller.main", ()), ("spritz.node.main", ("-N", "n[1-2]"))):
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments], env=environment, stdin=subprocess.DEVNULL, timeout=100
        )
        assert done.returncode == 0
    pids = [pid_in(cluster.root / "slurmctld.pid"), pid_in(cluster.root / "slurmd-n1.pid")]
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    until(lambda: not any(map(is_alive, pids)), "they end")


def test_slurmd_in_the_foreground_speaks_on_standard_error_and_more_with_v(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(nodes=1)
    cluster.start_controller()
    cluster.start_nodes("n1", "-vvv", "-L", str(cluster.root / "other.log"))
    for path in (cluster.root / "slurmd.stderr", cluster.root / "other.log"):
        until(lambda path=path: "daemon.started" in path.read_text(), f"{path} says so")  # type: ignore[misc]
    assert cluster.node_log() == ""


def test_sigusr2_lets_slurmd_open_its_log_again(cluster: Cluster) -> None:
    log = cluster.root / "slurmd-n1.log"
    log.rename(cluster.root / "rotated.log")
    cluster.node_daemon.send_signal(signal.SIGUSR2)
    until(log.exists, "the log is there again")
    until(lambda: "log.reopened" in log.read_text(), "and is written to")


def test_slurmd_ignores_what_would_end_other_programs(cluster: Cluster) -> None:
    for number in (signal.SIGUSR1, signal.SIGPIPE, signal.SIGQUIT, signal.SIGALRM):
        cluster.node_daemon.send_signal(number)
        assert cluster.controller is not None
        if number is not signal.SIGPIPE:
            cluster.controller.send_signal(number)
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
    assert cluster.node_daemon.poll() is None
    assert cluster.controller is not None
    assert cluster.controller.poll() is None


def test_shutdown_stops_the_node_daemons_too_and_jobs_go_on(cluster: Cluster) -> None:
    number = cluster.submit("while ! test -e go; do sleep 0.02; done; exit 5")
    cluster.wait_state(number, "RUNNING")
    cluster.supervisor(number)
    with cluster.connect() as connection:
        connection.call(Shutdown(), Done)
        assert connection._socket.recv(1) == b"", "the connection closes when it has stopped"
    assert cluster.controller is not None
    until(lambda: cluster.controller is not None and cluster.controller.poll() == 0, "slurmctld ends with status 0")
    daemon = cluster.daemons.pop(cluster.hostlist)
    until(lambda: daemon.poll() == 0, "slurmd ends with status 0")
    (cluster.work / "go").touch()
    cluster.start()
    assert cluster.wait_state(number, "FAILED").exit_status == 5 << 8


def test_shutdown_of_the_controller_alone_leaves_slurmd(cluster: Cluster) -> None:
    cluster.call(Shutdown(controller_only=True), Done)
    until(lambda: cluster.controller is not None and cluster.controller.poll() == 0, "slurmctld ends with status 0")
    assert cluster.node_daemon.poll() is None
    cluster.start_controller()
    until(lambda: all("IDLE" in view.state_names for view in cluster.nodes()), "the nodes are back by themselves")


def test_c_makes_slurmd_forget_and_the_controller_hears_that_the_steps_are_gone(cluster: Cluster) -> None:
    number = cluster.submit("sleep 1000", requeue=False)
    cluster.wait_state(number, "RUNNING")
    cluster.kill_nodes()  # perhaps before it has reported the start
    cluster.start_nodes("", "-c")
    job = cluster.wait_state(number, "NODE_FAIL", "FAILED")
    assert job.ended_at
    until(lambda: not cluster.job_processes(number), "its processes are gone")
    # Nothing is remembered of the launch: it must not be taken for one that has yet to arrive.
    assert job.restart_count == 0
    second = cluster.submit("true")
    assert cluster.wait_state(second, "COMPLETED").restart_count == 0
