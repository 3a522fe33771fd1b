"""Commands that wait while daemons die and come back, and daemons whose clients die: no command hangs, nothing
is left behind.

Source: srun(1), salloc(1), sbatch(1) --wait.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, until


class Clients:
    """Starts commands against a cluster; those that still run are ended with the test."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.started: list[subprocess.Popen[str]] = []

    def __call__(self, command: str, *arguments: str) -> subprocess.Popen[str]:
        """A command in the work directory."""
        code = f"from spritz.cli.{command} import entry; entry()"
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=os.environ | {"SLURM_CONF": str(self.cluster.conf)},
            cwd=self.cluster.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """One that misses clients soon."""
    return make_cluster(extra="InactiveLimit=6").start()


@pytest.fixture
def clients(cluster: Cluster) -> Iterator[Clients]:
    made = Clients(cluster)
    yield made
    # Their children as well: a killed salloc leaves its command running, as Slurm's does.
    for pid in cluster.job_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in made.started:
        process.communicate()


def touched(cluster: Cluster, name: str) -> None:
    until((cluster.work / name).exists, f"{name} is there")


def end(process: subprocess.Popen[str], seconds: float = 100.0) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


TASK = "echo begun; touch up; while ! test -e go; do sleep 0.02; done; echo over; exit 3"


@pytest.mark.parametrize("victim", ["controller", "slurmd", "both"])
def test_srun_outlives_the_daemons(cluster: Cluster, clients: Clients, victim: str) -> None:
    srun = clients("srun", "sh", "-c", TASK)
    touched(cluster, "up")
    if victim in ("controller", "both"):
        cluster.kill_controller()
    if victim in ("slurmd", "both"):
        cluster.kill_nodes()
    if victim in ("controller", "both"):
        cluster.start_controller()
    if victim in ("slurmd", "both"):
        cluster.start_nodes()
    (cluster.work / "go").touch()
    status, out, err = end(srun)
    assert (status, out) == (3, "begun\nover\n"), err
    job = cluster.wait_state(1, "FAILED")
    assert job.restart_count == 0
    assert cluster.job_processes() == []


def test_a_step_that_ends_while_the_controller_is_away_is_no_loss(cluster: Cluster, clients: Clients) -> None:
    srun = clients("srun", "sh", "-c", TASK)
    touched(cluster, "up")
    cluster.kill_controller()
    (cluster.work / "go").touch()
    assert srun.stdout is not None
    lines = [srun.stdout.readline(), srun.stdout.readline()]
    assert lines == ["begun\n", "over\n"], "output needs no controller"
    cluster.start_controller()
    status, _, err = end(srun)
    assert status == 3, err
    cluster.wait_state(1, "FAILED")


def test_a_killed_srun_takes_its_step_and_its_allocation_with_it(cluster: Cluster, clients: Clients) -> None:
    srun = clients("srun", "-N2", "sh", "-c", "touch up; trap '' TERM; sleep 1000 & wait; sleep 1000")
    touched(cluster, "up")
    srun.kill()
    until(lambda: cluster.job(1).state.ended, "the job is over")
    until(lambda: cluster.job_processes() == [], "nothing of it is left")
    cluster.wait_state(cluster.submit("true", nodes_min=2, cpus_per_task=8), "COMPLETED")


def test_a_killed_salloc_gives_its_allocation_back(cluster: Cluster, clients: Clients) -> None:
    salloc = clients("salloc", "-N2", "sh", "-c", "touch up; sleep 1000")
    touched(cluster, "up")
    assert cluster.job(1).state is JobState.RUNNING
    salloc.kill()
    until(lambda: cluster.job(1).state.ended, "the allocation is given back")
    cluster.wait_state(cluster.submit("true", nodes_min=2, cpus_per_task=8), "COMPLETED")


def test_salloc_outlives_the_controller(cluster: Cluster, clients: Clients) -> None:
    salloc = clients("salloc", "sh", "-c", TASK)
    touched(cluster, "up")
    cluster.kill_controller()
    cluster.start_controller()
    assert cluster.job(1).state is JobState.RUNNING
    (cluster.work / "go").touch()
    status, out, err = end(salloc)
    assert (status, out) == (3, "begun\nover\n"), err
    until(lambda: cluster.job(1).state.ended, "the allocation is given back")


def test_a_queued_srun_waits_through_a_restart_or_says_why_not(cluster: Cluster, clients: Clients) -> None:
    blocker = cluster.submit("while ! test -e go; do sleep 0.02; done", nodes_min=2, cpus_per_task=8)
    cluster.wait_state(blocker, "RUNNING")
    srun = clients("srun", "sh", "-c", "echo ran")
    until(lambda: 2 in cluster.jobs(), "srun's job is queued")
    cluster.kill_controller()
    cluster.start_controller()
    (cluster.work / "go").touch()
    status, out, err = end(srun)
    if status == 0:
        assert out == "ran\n"
    else:
        assert "srun: error: " in err
    until(lambda: cluster.job(2).state.ended, "no job stays behind for a client that has gone", 50)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_a_client_that_dies_while_the_controller_is_away_holds_nothing_for_ever(
    cluster: Cluster, clients: Clients, command: str
) -> None:
    """The new controller does not know it, and nothing will ever close its connection."""
    client = clients(command, "sh", "-c", "touch up; sleep 1000")
    touched(cluster, "up")
    cluster.kill_controller()
    client.kill()
    cluster.start_controller()
    until(lambda: cluster.job(1).state.ended, "its job is over", 60)
    if command == "srun":
        until(lambda: cluster.job_processes() == [], "nothing of it is left")


def test_sbatch_wait_waits_through_a_restart_of_the_controller(cluster: Cluster, clients: Clients) -> None:
    sbatch = clients("sbatch", "--wait", "--wrap", TASK)
    touched(cluster, "up")
    cluster.kill_controller()
    cluster.start_controller()
    (cluster.work / "go").touch()
    status, out, err = end(sbatch)
    assert (status, out) == (3, "Submitted batch job 1\n"), err


def test_commands_of_a_job_wait_for_a_controller_that_restarts(cluster: Cluster) -> None:
    """Slurm's clients try for MessageTimeout; a script must not fail because its controller was away for a second."""
    commands = {
        "srun": "srun echo stepped",
        "sbatch": "sbatch -o /dev/null --wrap true",
        "squeue": "squeue -h -o %i -j $SLURM_JOB_ID",
    }
    define = "\n".join(
        f"{name}() {{ {sys.executable} -c 'from spritz.cli.{name} import entry; entry()' \"$@\"; }}"
        for name in commands
    )
    path = os.environ.get("PYTHONPATH", "")
    lines = "\n".join(f"touch {name}.waits; {line} || exit 9" for name, line in commands.items())
    number = cluster.submit(
        f"export PYTHONPATH={path}\n{define}\ntouch up; while ! test -e go; do sleep 0.02; done\n{lines}\nexit 5"
    )
    touched(cluster, "up")
    cluster.kill_controller()
    (cluster.work / "go").touch()
    touched(cluster, "srun.waits")
    cluster.start_controller()
    job = cluster.wait_state(number, "FAILED")
    assert job.exit_status == 5 << 8, cluster.output(number)
    assert cluster.output(number) == f"stepped\nSubmitted batch job {number + 1}\n{number}\n"


def test_commands_without_a_controller_say_so_in_slurms_words(cluster: Cluster, clients: Clients) -> None:
    cluster.kill_controller()
    with cluster.conf.open("a", encoding="utf-8") as conf:
        conf.write("MessageTimeout=1\n")  # for so long they look for it
    commands = ("squeue", "sinfo", "sbatch --wrap true", "scancel 1", "scontrol show jobs")
    for command, process in [(command, clients(*command.split())) for command in commands]:
        status, out, err = end(process)
        assert (status, out) == (1, ""), command
        assert "Unable to contact slurm controller (connect failure)" in err, command
        assert "Traceback" not in err, command


def test_a_reader_that_goes_away_is_no_error(cluster: Cluster) -> None:
    for _ in range(50):
        cluster.submit("true", begin_at=2e9)
    code = "from spritz.cli.squeue import entry; entry()"
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -n 1', "sh", sys.executable, "-c", code],
        env=os.environ | {"SLURM_CONF": str(cluster.conf)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_two_interrupts_end_srun_and_its_step(cluster: Cluster, clients: Clients) -> None:
    srun = clients("srun", "sh", "-c", "trap '' INT; touch up; sleep 1000 & wait; sleep 1000")
    touched(cluster, "up")
    for _ in range(20):
        srun.send_signal(signal.SIGINT)
        try:
            srun.wait(0.3)
        except subprocess.TimeoutExpired:
            continue
        break
    status, _, err = end(srun)
    assert status != 0
    assert "Traceback" not in err
    until(lambda: cluster.job(1).state.ended, "the job is over")
    until(lambda: cluster.job_processes() == [], "nothing of it is left")
