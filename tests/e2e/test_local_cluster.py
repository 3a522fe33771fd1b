"""`spritz up` and its kin with real daemons, in every state that people get a cluster into."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from spritz.cli.local.daemons import living
from spritz.cli.local.paths import ClusterPaths
from spritz.client.command.sync import connect_controller
from spritz.client.locate import locate_controller
from spritz.model.commands.job import JobSubmitted, SubmitJob
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Job, JobSpec
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from tests.e2e.cluster import is_alive, until

SPRITZ = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()"]


class Local:
    """`spritz` with --dir, and what it started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.conf = directory / "etc/slurm.conf"

    def __call__(self, command: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        given: dict[str, object] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 100}
        return subprocess.run(  # type: ignore[call-overload, no-any-return]  # options by name
            [*SPRITZ, command, "--dir", str(self.directory), *arguments], **(given | options)
        )

    def up(self, *arguments: str) -> str:
        """Start it; what it said. Fails with what it complained of."""
        done = self("up", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        # `up` does not wait for slurmdbd.
        until(lambda: "slurmdbd" in self.pids(), "slurmdbd has a pid file")
        return str(done.stdout)

    def pids(self) -> dict[str, int]:
        """What the pid files say."""
        texts = {path.stem: path.read_text() for path in sorted((self.directory / "run").glob("*.pid"))}
        return {name: int(text) for name, text in texts.items() if text.strip().isdigit()}

    def submit(self, script: str) -> int:
        spec = JobSpec(name="job", batch=True, work_dir=str(self.directory), time_limit_minutes=1)
        request = SubmitJob(spec=spec, script=f"#!/bin/sh\n{script}\n".encode(), environment=(b"PATH=/usr/bin:/bin",))
        with connect_controller(locate_controller(str(self.conf))) as controller:
            return controller.call(request, JobSubmitted).job_id

    def job(self, number: int) -> Job:
        request = ListJobs(filter=JobFilter(targets=(JobTarget(number),)))
        with connect_controller(locate_controller(str(self.conf))) as controller:
            return next(iter(controller.stream(request, Jobs))).jobs[0]

    def finish(self, number: int) -> Job:
        """The job once it is completed."""
        until(lambda: self.job(number).state == "COMPLETED", lambda: f"job {number} completes: {self.job(number)}")
        return self.job(number)

    def works(self) -> None:
        """A job runs."""
        self.finish(self.submit("true"))

    def doctor(self) -> dict[str, list[str]]:
        """Findings by grade, advice behind a dash."""
        done = self("doctor", "--json")
        report = json.loads(done.stdout)
        found: dict[str, list[str]] = {"ok": [], "note": [], "wrong": []}
        for finding in report["findings"]:
            found[finding["grade"]].append(f"{finding['text']} - {finding['advice']}")
        assert done.returncode == (1 if found["wrong"] else 0)
        return found


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    """A cluster that is not there yet; it is stopped with the test."""
    made = Local(tmp_path / "c")
    yield made
    end(made)


def end(local: Local) -> None:
    if not (local.directory / "run").is_dir():
        return
    done = local("down", "--timeout", "10")
    for pid in [] if done.returncode == 0 else local.pids().values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_up_status_job_down_and_up_again(local: Local) -> None:
    said = local.up("--nodes", "3", "--cpus", "2", "--memory", "500M", "--gpus", "2", "--gpu-type", "h100")
    assert re.match(r"Up in \d+\.\d s: 3 nodes, 6 CPUs, 6 GPUs in ", said)
    status = local("status")
    assert (status.returncode, status.stderr) == (0, "")
    assert "3 of 3 usable" in status.stdout
    assert "0 of 6 allocated" in status.stdout
    local.works()
    before = local.pids()
    assert set(before) == {"slurmctld", "slurmd", "slurmdbd"}
    other = Local(local.directory / "other")
    said = other("down", env=os.environ | {"SLURM_CONF": str(local.conf)}).stdout
    assert said.splitlines()[0] == f"Not running: {other.directory}"
    assert f"`spritz down --dir {local.directory}` stops that cluster" in said
    assert local("down").stdout == f"Down: {local.directory}\n"
    assert not any(map(is_alive, before.values()))
    assert local.pids() == {}
    assert local("down").stdout == f"Not running: {local.directory}\n"
    assert local("status").returncode == 1
    local.up()
    assert "3 of 3 usable" in local("status").stdout
    assert local.job(1).state == "COMPLETED", "the record outlives the daemons"


def test_the_first_job_has_an_account_already(local: Local) -> None:
    """What a controller knows of users comes from slurmdbd, which starts with it."""
    local.up("--nodes", "1", "--cpus", "2", "--memory", "500M")
    assert local.job(local.submit("true")).spec.account


@pytest.mark.slow
def test_up_twice_starts_nothing_and_another_shape_is_refused_while_it_runs(local: Local) -> None:
    local.up("--nodes", "2")
    before = local.pids()
    assert local.up() == f"Already up: {local.directory}\n"
    refused = local("up", "--nodes", "3")
    assert refused.returncode == 1
    assert f"the cluster in {local.directory} is running" in refused.stderr
    assert "spritz down" in refused.stderr
    assert local.pids() == before
    local("down")
    local.up("--nodes", "3")
    assert "3 of 3 usable" in local("status").stdout


@pytest.mark.slow
def test_up_brings_nodes_into_service_that_were_added_to_the_file_and_jobs_go_on(local: Local) -> None:
    local.up("--nodes", "2")
    number = local.submit("while ! test -e go; do sleep 0.02; done")
    until(lambda: local.job(number).state == "RUNNING", "it runs")
    local.conf.write_text(local.conf.read_text().replace("NodeName=node[1-2]", "NodeName=node[1-4]"))
    assert "4 nodes" in local.up()
    assert "4 of 4 usable" in local("status").stdout
    assert local.job(number).state == "RUNNING"
    (local.directory / "go").touch()
    local.finish(number)
    good = local.conf.read_text()
    local.conf.write_text(good + "NodeNam=x\n")
    assert local("up").returncode == 1
    local.conf.write_text(good)
    local.works()


@pytest.mark.slow
def test_another_shape_keeps_the_edited_file(local: Local) -> None:
    local.up("--nodes", "2")
    local("down")
    local.conf.write_text(local.conf.read_text() + "KillWait=7\n")
    local.up("--nodes", "3")
    assert "KillWait=7" in local.conf.with_name("slurm.conf.old").read_text()


def test_without_options_the_cluster_is_one_node_with_the_hardware_found(local: Local) -> None:
    said = local.up()
    assert "1 node, " in said
    assert f"0 of {os.cpu_count()} allocated" in local("status").stdout
    local.works()


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["slurmctld", "slurmd"])
def test_up_starts_only_what_is_missing(local: Local, killed: str) -> None:
    local.up("--nodes", "2")
    before = local.pids()
    os.kill(before[killed], signal.SIGKILL)
    until(lambda: not is_alive(before[killed]), "it is dead")
    wrong = local.doctor()["wrong"]
    assert f"{killed} is not running - start it with `spritz up`" in wrong[0]
    local.up()
    after = local.pids()
    assert {name for name in before if before[name] != after[name]} == {killed}
    assert local.doctor()["wrong"] == []
    local.works()


@pytest.mark.slow
def test_wrong_pid_files_kill_no_process(local: Local) -> None:
    local.up("--nodes", "1")
    local("down")
    contents = ["", "garbage\n", "-1\n", "0\n", "9" * 20 + "\n", "1\n", f"{os.getpid()}\n"]
    files = [local.directory / "run" / name for name in ("slurmctld.pid", "slurmd.pid")]
    for content in contents:
        for file in files:
            file.write_text(content)
        assert local("down").stdout == f"Not running: {local.directory}\n"
    local.up()
    local.works()
    # Not even over a pid file that is damaged while they run is another cluster started, or this one killed.
    before = local.pids()
    files[1].write_text("garbage\n")
    assert local.up() == f"Already up: {local.directory}\n"
    assert all(map(is_alive, before.values()))
    local.works()
    # And it is stopped all the same.
    for file in files:
        file.write_text(f"{os.getpid()}\n")
    assert local("down").stdout == f"Down: {local.directory}\n"
    assert not any(map(is_alive, before.values()))
    local.up()
    before = local.pids()
    for file in files:
        file.unlink()
    assert local("down").stdout == f"Down: {local.directory}\n"
    assert not any(map(is_alive, before.values()))


@pytest.mark.slow
def test_odd_directories_will_do(tmp_path: Path) -> None:
    quoted = Local(tmp_path / 'with "marks"')
    refused = quoted("up")
    assert refused.returncode == 1
    assert "quotation mark" in refused.stderr
    assert not quoted.directory.exists()
    names = ["with space and ünicode 'quotes'", "x" * 150, "dollar$HOME;#%n back\\slash"]
    for name in names:
        local = Local(tmp_path / name)
        try:
            done = local("up", "--nodes", "1")
            if done.returncode and "%" in name:
                # slurm.conf would read it as a pattern: refused before anything is made, and said.
                assert "%" in done.stderr
                assert not local.directory.exists()
                continue
            assert done.returncode == 0, done.stdout + done.stderr
            local.works()
            shell = subprocess.run(
                [
                    "sh",
                    "-c",
                    'eval "$("$@")"; printf %s "$SLURM_CONF"',
                    "sh",
                    *SPRITZ,
                    "env",
                    "--dir",
                    str(local.directory),
                ],
                capture_output=True,
                text=True,
                timeout=100,
            )
            assert shell.stdout == str(local.conf)
        finally:
            end(local)


@pytest.mark.slow
def test_clusters_side_by_side_do_not_know_each_other(tmp_path: Path) -> None:
    first, second = Local(tmp_path / "a"), Local(tmp_path / "b")
    try:
        first.up("--nodes", "1", "--cpus", "1")
        second.up()
        number = first.submit("while ! test -e go; do sleep 0.02; done")
        until(lambda: first.job(number).state == "RUNNING", "it runs")
        second.works()
        second("down")
        assert first.job(number).state == "RUNNING"
        (first.directory / "go").touch()
        first.finish(number)
    finally:
        end(first)
        end(second)


@pytest.mark.slow
def test_down_ends_running_jobs_and_keeps_queued_ones(local: Local) -> None:
    local.up("--nodes", "1", "--cpus", "1")
    running = local.submit("echo $$ > pid; exec sleep 1000")
    queued = local.submit("true")
    until(lambda: (local.directory / "pid").exists() and (local.directory / "pid").read_text(), "it runs")
    pid = int((local.directory / "pid").read_text())
    done = local("down")
    assert done.returncode == 0, done.stderr
    assert "Ending 1 running job" in done.stdout
    assert not is_alive(pid)
    local.up()
    assert local.job(running).state == "CANCELLED"
    local.finish(queued)


def test_down_with_keep_jobs_lets_them_run_and_up_finds_them(local: Local) -> None:
    local.up("--nodes", "1")
    going_on = local.submit("echo ran >> runs; while ! test -e go; do sleep 0.02; done")
    ended = local.submit("while ! test -e early; do sleep 0.02; done; touch ended")
    until(lambda: (local.directory / "runs").exists(), "it runs")
    until(lambda: local.job(ended).state == "RUNNING", "the other runs too")
    assert local("down", "--keep-jobs").returncode == 0
    (local.directory / "early").touch()
    until(lambda: (local.directory / "ended").exists(), "one ends meanwhile")
    local.up()
    local.finish(ended)
    assert local.job(going_on).state == "RUNNING"
    (local.directory / "go").touch()
    local.finish(going_on)
    assert (local.directory / "runs").read_text() == "ran\n"


def _is_there_or_ended(path: Path, process: subprocess.Popen[str]) -> bool:
    return path.exists() or process.poll() is not None


@pytest.mark.slow
def test_ctrl_c_during_up_leaves_a_cluster_that_up_or_down_deals_with(local: Local) -> None:
    local.up("--nodes", "1")
    local("down")
    # The point is to interrupt it at different places: at once, and as each daemon shows itself.
    for sign in ("", "run/slurmdbd.pid", "run/slurmctld.pid", "run/slurmd.pid"):
        process = subprocess.Popen(
            [*SPRITZ, "up", "--dir", str(local.directory)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        awaited = local.directory / sign
        until(partial(_is_there_or_ended, awaited, process), f"{awaited} is there, or `up` is done")
        with suppress(ProcessLookupError):  # it may be done already
            os.killpg(process.pid, signal.SIGINT)
        _, complaint = process.communicate(timeout=100)
        # Before our code runs it is Python that is interrupted, and Python that says so: earliest of all with status 1.
        by_python = process.returncode == -signal.SIGINT or "Failed to import the site module" in complaint
        assert process.returncode in (0, 130) or by_python, complaint
        assert "Traceback" not in complaint or by_python
        # Who is told that it did not start has nothing left behind, not even daemons that had yet to write a pid file.
        left = {name: pid for name, pid in living(ClusterPaths(str(local.directory))).items() if pid is not None}
        assert not process.returncode or not left, complaint
        local.up()
        local.works()
        assert local("down").returncode == 0


@pytest.mark.slow
def test_a_controller_that_stands_still_is_told_and_does_not_hold_down_for_ever(local: Local) -> None:
    local.up("--nodes", "1")
    with local.conf.open("a") as file:
        file.write("MessageTimeout=2\n")
    pid = local.pids()["slurmctld"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert any("does not answer" in text for text in local.doctor()["wrong"])
        status = local("status")
        assert status.returncode == 1
        assert "Traceback" not in status.stderr
    finally:
        os.kill(pid, signal.SIGCONT)
    local.works()


@pytest.mark.slow
def test_doctor_names_every_mistake_in_the_configuration_and_up_does_too(local: Local) -> None:
    assert any("no cluster in" in text and "spritz up" in text for text in local.doctor()["note"])
    local.up("--nodes", "1")
    local("down")
    good = local.conf.read_text()
    local.conf.write_text(good + "SlurmdTimeut=7\nPartitionName=x Nodes=nosuch\n")
    wrong = "\n".join(local.doctor()["wrong"])
    assert "SlurmdTimeut" in wrong
    assert "nosuch" in wrong
    assert f"spritz config check {local.conf}" in wrong
    refused = local("up")
    assert refused.returncode == 1
    assert "SlurmdTimeut" in refused.stderr
    assert "nosuch" in refused.stderr
    check = subprocess.run([*SPRITZ, "config", "check", str(local.conf)], capture_output=True, text=True, timeout=100)
    assert check.returncode == 1
    assert "SlurmdTimeout" in check.stdout
    local.conf.write_text(good)
    local.up()


def test_doctor_sees_a_drained_node_and_a_dead_slurmd(local: Local) -> None:
    from spritz.model.commands.cluster import UpdateNode
    from spritz.model.commands.job import Done

    local.up("--nodes", "2")
    with connect_controller(locate_controller(str(local.conf))) as controller:
        controller.call(UpdateNode(names=("node1",), state="DRAIN", reason="new disk"), Done)
    found = local.doctor()
    assert any("node1" in text and "new disk" in text and "State=RESUME" in text for text in found["note"])
    assert any("not enforced by the kernel" in text and "jobs share /tmp" in text for text in found["note"])
    assert "1 of 2 usable" in local("status").stdout
    (log,) = local.directory.rglob("slurmd.log")
    with log.open("a") as file:
        file.write("[2026-01-01T00:00:00.000] step.uncontained label=7.0 directory=/gone error='No such file'\n")
    assert any("without the cgroup" in text and "/gone" in text for text in local.doctor()["wrong"])


def test_what_up_is_given_is_checked(local: Local) -> None:
    for arguments, complaint in (
        (["--nodes", "0"], "--nodes: must be between"),
        (["--nodes", "-3"], "--nodes"),
        (["--cpus", "0"], "--cpus: must be between"),
        (["--memory", "lots"], "--memory"),
        (["--gpus", "-1"], "--gpus"),
        (["--gpu-type", "h100"], "--gpu-type needs --gpus"),
        (["--gpus", "1", "--gpu-type", "a b"], "--gpu-type: not a name"),
        (["--nodes", "many"], "--nodes"),
        (["--nosuch"], "--nosuch"),
    ):
        done = local("up", *arguments)
        assert done.returncode != 0
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
    assert not local.directory.exists()


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = Local(tmp_path / "file")("up")
    assert done.returncode == 1
    assert str(tmp_path / "file") in done.stderr
    done = Local(Path("/proc/nosuch"))("up")
    assert done.returncode == 1
    assert "/proc/nosuch" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_taken_port_is_told_and_nothing_is_left_running(local: Local) -> None:
    import socket

    local.up("--nodes", "1")
    local("down")
    ports = dict(re.findall(r"^(SlurmctldPort|SlurmdPort)=(\d+)$", local.conf.read_text(), re.MULTILINE))
    for key, host in (("SlurmctldPort", ""), ("SlurmdPort", "127.0.0.1")):
        with socket.create_server((host, int(ports[key]))):
            done = local("up")
        assert done.returncode == 1
        assert ports[key] in done.stderr
        assert local.pids() == {}, "the other daemons that had been started are stopped"
    local.up()
