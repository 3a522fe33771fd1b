"""squeue, sinfo, scancel and scontrol as processes against real daemons: what only a whole cluster can show."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from tests.e2e.cluster import Cluster, is_alive, until


def run(cluster: Cluster, command: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """One command, with nothing in its environment but the way to the cluster."""
    return subprocess.run(
        [sys.executable, "-c", f"from spritz.cli.{command} import entry; entry()", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        cwd=cluster.work,
        env={"SLURM_CONF": str(cluster.conf), **more},
    )


def out(cluster: Cluster, command: str, *words: str) -> str:
    """Standard output of a command that must succeed without a word of complaint."""
    done = run(cluster, command, *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


@pytest.mark.timeout(240)
def test_a_jobs_life_as_the_commands_tell_it(cluster: Cluster) -> None:
    job = cluster.submit("sleep 60", name="looked-at", nodes_min=2, nodes_max=2, nodes_given=True, time_limit_minutes=5)
    cluster.wait_state(job, "RUNNING")
    assert (
        out(cluster, "squeue", "-h", "-o", "%i %j %T %D %N %R %l") == f"{job} looked-at RUNNING 2 n[1-2] n[1-2] 5:00\n"
    )
    until(lambda: f"{job}.batch" in out(cluster, "squeue", "-h", "-s"), "the batch step is listed")
    assert out(cluster, "sinfo", "-h", "-o", "%P %D %t %C").startswith("main* 2 ")
    record = out(cluster, "scontrol", "-o", "show", "job", str(job))
    assert " JobState=RUNNING " in record
    assert " NodeList=n[1-2] BatchHost=n1 NumNodes=2 " in record
    user = pwd.getpwuid(os.getuid())
    owner = f"JobId={job}.batch:\nUser:\n{user.pw_name}:{user.pw_passwd}:{user.pw_uid}:{user.pw_gid}:{user.pw_gecos}:"
    until(lambda: owner in out(cluster, "scontrol", "getent", "n1"), "the script's user is told")
    assert out(cluster, "scontrol", "getent", "nowhere") == "No steps found on this node\n"
    daemon = dict(line.split("=", 1) for line in out(cluster, "scontrol", "show", "slurmd", "n1").splitlines())
    told = {key.strip(): value.strip() for key, value in daemon.items()}
    assert (told["Hostname"], told["Actual CPUs"]) == ("n1", str(os.cpu_count()))
    assert str(job) in told["Active Steps"].split(", ")
    assert is_alive(int(told["Slurmd PID"]))
    absent = run(cluster, "scontrol", "show", "slurmd", "nowhere")
    refusal = "scontrol: error: slurm_slurmd_info: Connection refused\nslurm_load_slurmd_status: Connection refused\n"
    assert (absent.returncode, absent.stdout, absent.stderr) == (1, "", refusal)
    assert run(cluster, "scontrol", "wait_job", str(job)).returncode == 0
    assert f"JobId={job}" in out(cluster, "scontrol", "show", "job", str(job), "-d")
    assert out(cluster, "scancel", str(job)) == ""
    cluster.wait_state(job, "CANCELLED")
    assert out(cluster, "squeue", "-h", "-j", str(job)) == ""
    assert out(cluster, "squeue", "-h", "-j", str(job), "-t", "all", "-o", "%t") == "CA\n"


@pytest.mark.timeout(240)
def test_hold_requeue_drain_and_update_take_effect(cluster: Cluster) -> None:
    held = cluster.submit("true", hold=True)
    assert out(cluster, "scontrol", "update", f"jobid={held}", "name=new", "timelimit=7") == ""
    assert out(cluster, "squeue", "-h", "-j", str(held), "-o", "%j %l %r") == "new 7:00 JobHeldUser\n"
    out(cluster, "scontrol", "release", str(held))
    cluster.wait_state(held, "COMPLETED")
    job = cluster.submit("sleep 60")
    cluster.wait_state(job, "RUNNING")
    out(cluster, "scontrol", "requeuehold", str(job))
    listed = ("squeue", "-h", "-j", str(job), "-t", "all", "-o", "%r|%N")
    until(
        lambda: out(cluster, *listed) == "job requeued in held state|\n",
        lambda: f"the job is held: {out(cluster, *listed)}",
    )
    shown = out(cluster, "scontrol", "show", "job", str(job))
    assert "Restarts=1" in shown
    said = Path(shown.partition("StdOut=")[2].split()[0])
    until(lambda: "DUE TO JOB REQUEUE ***" in said.read_text(), lambda: f"its output says why: {said.read_text()}")
    out(cluster, "scontrol", "update", "nodename=n1", "state=drain", "reason=two words")
    assert out(cluster, "sinfo", "-h", "-n", "n1", "-o", "%t %E") == "drain two words\n"
    out(cluster, "scontrol", "update", "nodename=n1", "state=resume")
    assert out(cluster, "sinfo", "-h", "-n", "n1", "-o", "%t %E") == "idle none\n"


@pytest.mark.timeout(240)
def test_scripts_come_back_byte_for_byte(cluster: Cluster) -> None:
    script = b"#!/bin/sh\n# caf\xc3\xa9 \xff\ntrue\n"
    job = cluster.submit(script, hold=True)
    command = "from spritz.cli.scontrol import entry; entry()"
    done = subprocess.run(
        [sys.executable, "-c", command, "write", "batch_script", str(job), "-"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=100, env={"SLURM_CONF": str(cluster.conf)},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, script, b"")


@pytest.mark.timeout(240)
def test_reconfigure_tells_every_mistake_and_changes_nothing(cluster: Cluster) -> None:
    before = out(cluster, "scontrol", "show", "config", "KillWait")
    text = cluster.conf.read_text()
    cluster.conf.write_text(text.replace("KillWait=1", "KilWait=2\nMaxArraySize=x"))
    done = run(cluster, "scontrol", "reconfigure")
    assert done.returncode == 1
    assert "KilWait" in done.stderr
    assert "MaxArraySize" in done.stderr
    assert "Traceback" not in done.stderr
    cluster.conf.write_text(text.replace("KillWait=1", "KillWait=2"))
    out(cluster, "scontrol", "reconfigure")
    assert before.split() == ["KillWait", "=", "1", "sec"]
    assert out(cluster, "scontrol", "show", "config", "KillWait").split() == ["KillWait", "=", "2", "sec"]


@pytest.mark.timeout(240)
def test_show_config_tells_what_only_the_daemon_knows(cluster: Cluster) -> None:
    job = cluster.submit("true", hold=True)
    pairs = [line.split("=", 1) for line in out(cluster, "scontrol", "show", "config").splitlines() if "=" in line]
    told = {key.strip(): value.strip() for key, value in pairs}
    assert told["NEXT_JOB_ID"] == str(job + 1)
    assert (told["SLURM_CONF"], told["SLURM_VERSION"], told["HASH_VAL"]) == (str(cluster.conf), "25.05.0", "Match")
    assert told["SlurmdUser"].endswith(")")
    cluster.conf.write_text(cluster.conf.read_text() + "# not what slurmctld has read\n")
    assert "= Different Ours=0x" in out(cluster, "scontrol", "show", "config", "HASH_VAL")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_shutdown_returns_when_the_controller_has_stopped(cluster: Cluster) -> None:
    assert cluster.controller is not None
    assert out(cluster, "scontrol", "ping").endswith(" is UP\n")
    assert out(cluster, "scontrol", "shutdown") == ""
    # Nothing but the process table is left to catch up.
    until(lambda: cluster.controller is not None and cluster.controller.poll() is not None, "slurmctld is gone", 5.0)
    until(lambda: cluster.node_daemon.poll() is not None, "slurmd is gone")
    down = run(cluster, "scontrol", "ping")
    with cluster.conf.open("a", encoding="utf-8") as conf:
        conf.write("MessageTimeout=1\n")
    assert (down.returncode, down.stdout) == (1, "Slurmctld(primary) at 127.0.0.1 is DOWN\n")
    for command, error in (
        ("squeue", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"),
        ("sinfo", "slurm_load_partitions: Unable to contact slurm controller (connect failure)"),
    ):
        done = run(cluster, command)
        assert (done.returncode, done.stdout, done.stderr.splitlines()[0]) == (1, "", error)


@pytest.mark.timeout(240)
def test_a_reader_that_goes_away_ends_the_command_quietly(cluster: Cluster) -> None:
    with cluster.connect() as connection:
        requests: list[Struct] = [cluster.request(name=f"job{number}", hold=True) for number in range(2000)]
        connection.send_many(requests)
        for _ in requests:
            assert connection.receive().error is None
    command = f"{sys.executable} -c 'from spritz.cli.squeue import entry; entry()'"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -2; echo $?"],
        capture_output=True, text=True, timeout=100, env={"SLURM_CONF": str(cluster.conf), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 3
    assert len(json.loads(out(cluster, "squeue", "--json"))["jobs"]) == 2000
    assert len(out(cluster, "squeue", "-h").splitlines()) == 2000


@pytest.mark.timeout(240)
def test_a_full_disk_behind_standard_output_is_an_error(cluster: Cluster) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from spritz.cli.squeue import entry; entry()"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=100, env={"SLURM_CONF": str(cluster.conf)},
        )  # fmt: skip
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert is_alive(os.getpid())
