"""`slurmctld` as administrators start and stop it: options, signals, state directory, damage, a full disk.

Source: slurmctld(8).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import msgpack

from spritz.client.errors import ClientError, ConnectionLost, RemoteError
from spritz.controller.journal.contract import Group
from spritz.controller.main import main
from spritz.model.commands.cluster import UpdatePartition
from spritz.model.commands.job import Done, JobSubmitted
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.model.queries.daemons import (
    Ping,
    Pong,
    Reconfigure,
    SetDampening,
    SetDebug,
    SetDebugFlag,
    SetPowerException,
    SetSchedulingLog,
    Shutdown,
)
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.model.queries.partitions import ListPartitions, Partitions
from spritz.model.stored import FORMAT
from tests.e2e.controller_process import COMMAND, ControllerProcess, a_job, until
from tests.e2e.fake_node import FakeNode
from tests.e2e.listing import jobs_by_name
from tests.e2e.users import NOBODY, as_user, others_can_run


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[ControllerProcess]:
    process = ControllerProcess(tmp_path)
    yield process
    process.kill()


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that other users may enter, which pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def submit(controller: ControllerProcess, name: str) -> int:
    with controller.connect() as connection:
        return connection.call(a_job(name), JobSubmitted).job_id


def test_version_and_help_need_no_configuration(controller: ControllerProcess) -> None:
    assert controller.run("-V").stdout == "slurm 25.05.0\n"
    assert "-f file" in controller.run("-h").stdout


@pytest.mark.parametrize("arguments", [["-Z"], ["--system"], ["-D", "extra"], ["-f"], ["-n", "many"]])
def test_options_that_we_do_not_have_are_refused_by_name(controller: ControllerProcess, arguments: list[str]) -> None:
    done = controller.run(*arguments)
    assert done.returncode == 1
    assert arguments[-1].lstrip("-") in done.stderr
    assert "Traceback" not in done.stderr


def test_systemd_learns_when_it_serves(controller: ControllerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type=notify in the unit; slurmctld(8) --systemd: in the foreground without -D."""
    assert "Missing NOTIFY_SOCKET" in controller.run("--systemd", "-f", str(controller.conf)).stderr
    address = controller.directory / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", str(address))
    monkeypatch.setenv("WATCHDOG_USEC", "300000000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(address))
        systemd.settimeout(100)
        process = subprocess.Popen([*COMMAND, "--systemd", "-f", str(controller.conf)], stderr=subprocess.PIPE)
        try:
            assert systemd.recv(1000).decode() == f"READY=1\nMAINPID={process.pid}"
            assert systemd.recv(1000) == b"WATCHDOG=1"
            with controller.connect() as connection:
                assert connection.call(Ping(), Pong).pid == process.pid
        finally:
            process.terminate()
            process.communicate(timeout=100)
    assert process.returncode == 0


def test_L_n_s_and_v_have_their_effect(controller: ControllerProcess) -> None:
    log = controller.directory / "elsewhere" / "other.log"
    controller.start("-L", str(log), "-n5", "-s", "-vv")
    assert controller.process is not None
    pid = controller.process.pid
    assert "daemon.started" in log.read_text()
    assert controller.log == ""
    assert os.getpriority(os.PRIO_PROCESS, pid) == 5
    assert os.readlink(f"/proc/{pid}/cwd") == str(log.parent)
    with controller.connect() as connection:
        connection.call(SetDebug(level="error"), Done)
        with pytest.raises(RemoteError, match="loud"):
            connection.call(SetDebug(level="loud"), Done)


def test_dampening_is_scontrols_and_the_state_of_partitions_kept_until_the_file_says_otherwise(
    controller: ControllerProcess,
) -> None:
    """scontrol(1) fsdampeningfactor; slurm.conf(5) ReconfigFlags."""
    controller.write_conf("FairShareDampeningFactor=3\nReconfigFlags=KeepPartState")
    controller.start()

    def in_force() -> tuple[str, str]:
        factor = dict(connection.call(ShowConfig(), ConfigText).pairs)["FairShareDampeningFactor"]
        return factor, connection.call(ListPartitions(), Partitions).partitions[0].state.value

    with controller.connect() as connection:
        connection.call(SetDampening(factor=7), Done)
        connection.call(UpdatePartition(name="debug", changes={"state": "DRAIN"}), Done)
        assert in_force() == ("7", "DRAIN")
        connection.call(SetPowerException(key="SuspendExcParts", sign="+", text="debug"), Done)
        assert dict(connection.call(ShowConfig(), ConfigText).pairs)["SuspendExcParts"] == "debug"
        with pytest.raises(RemoteError, match="Invalid node name specified"):
            connection.call(SetPowerException(key="SuspendExcNodes", sign="", text="nosuch"), Done)
        with pytest.raises(RemoteError, match="invalid dampening factor: 0"):
            connection.call(SetDampening(factor=0), Done)
        connection.call(Reconfigure(), Done)
        assert in_force() == ("3", "DRAIN")
        controller.write_conf("")
        connection.call(Reconfigure(), Done)
        assert in_force() == ("1", "UP")


def test_debug_flags_come_from_the_file_and_from_scontrol(controller: ControllerProcess) -> None:
    """slurm.conf(5) DebugFlags, scontrol(1) setdebugflags; reading the file again puts its own back."""
    file = controller.directory / "sched.log"
    controller.write_conf(f"DebugFlags=AuditRPCs\nSlurmSchedLogFile={file}")
    controller.start()

    def in_force() -> str:
        return dict(connection.call(ShowConfig(), ConfigText).pairs)["DebugFlags"]

    with controller.connect() as connection:
        assert in_force() == "AuditRPCs"
        until(lambda: "debug.request kind=ShowConfig" in controller.log, "the request's line")
        connection.call(SetDebugFlag(flag="Steps", on=True), Done)
        connection.call(SetDebugFlag(flag="AuditRPCs", on=False), Done)
        assert in_force() == "Steps"
        connection.call(SetSchedulingLog(level=1), Done)
        assert dict(connection.call(ShowConfig(), ConfigText).pairs)["SlurmSchedLogLevel"] == "1"
        connection.call(a_job(), JobSubmitted)
        until(lambda: "State=PENDING Reason=" in file.read_text(), "a line of the job")
        controller.write_conf("")
        connection.call(Reconfigure(), Done)
        assert in_force() == "(null)"


def test_a_broken_file_is_told_in_full_and_nothing_starts(controller: ControllerProcess) -> None:
    controller.write_conf("SlurmctldDebug=loud\nNoSuchKey=1\nPartitionName=p Nodes=nowhere")
    done = controller.run("-D", "-f", str(controller.conf))
    assert done.returncode == 1
    for word in ("SlurmctldDebug", "NoSuchKey", "nowhere"):
        assert word in done.stderr, done.stderr
    assert not controller.state.exists()


def test_without_D_it_returns_when_it_serves_and_sigterm_ends_it(controller: ControllerProcess) -> None:
    done = controller.run("-f", str(controller.conf))
    assert (done.returncode, done.stderr) == (0, "")
    with controller.connect() as connection:
        pong = connection.call(Ping(), Pong)
    pid_file = controller.directory / "slurmctld.pid"
    assert int(pid_file.read_text()) == pong.pid
    os.kill(pong.pid, signal.SIGTERM)
    until(lambda: not pid_file.exists(), "the removal of the pid file")
    until(lambda: not Path(f"/proc/{pong.pid}").exists(), "the end of the process")
    assert "daemon.stopped" in controller.log


def test_a_detached_start_that_fails_says_why_and_returns_1(controller: ControllerProcess) -> None:
    controller.start()
    second = controller.run("-f", str(controller.conf))
    assert second.returncode == 1
    assert "running" in second.stderr
    assert "Traceback" not in second.stderr


def test_two_controllers_cannot_share_a_state_directory(controller: ControllerProcess, tmp_path: Path) -> None:
    controller.start()
    (tmp_path / "other").mkdir()
    other = ControllerProcess(tmp_path / "other")
    text = other.conf.read_text().replace(str(other.state), str(controller.state))
    other.conf.write_text(text.replace(f"ClusterName={other.name}", f"ClusterName={controller.name}"))
    done = other.run("-D", "-f", str(other.conf))
    assert done.returncode == 1
    assert "uses the state directory" in done.stderr


def test_the_state_of_another_cluster_is_refused_in_slurms_words(controller: ControllerProcess) -> None:
    controller.start()
    controller.stop()
    controller.conf.write_text(controller.conf.read_text().replace(f"ClusterName={controller.name}", "ClusterName=x"))
    done = controller.run("-D", "-f", str(controller.conf))
    assert done.returncode == 1
    assert "CLUSTER NAME MISMATCH" in done.stderr


def test_shutdown_answers_then_the_connection_closes_when_it_has_stopped(controller: ControllerProcess) -> None:
    controller.start()
    job_id = submit(controller, "kept")
    with controller.connect() as connection:
        connection.call(Shutdown(), Done)
        with pytest.raises(ConnectionLost):
            connection.receive(timeout=100)
        # Stopped means that the next one can start at once.
        process, controller.process = controller.process, None
        controller.start()
    assert process is not None
    assert process.wait(100) == 0
    assert jobs_by_name(controller)["kept"][0] == job_id


def test_sighup_reads_the_file_again_and_a_broken_one_changes_nothing(controller: ControllerProcess) -> None:
    controller.start()
    job_id = submit(controller, "kept")
    controller.write_conf("PartitionName=more Nodes=n1 State=UP")
    assert controller.process is not None
    controller.process.send_signal(signal.SIGHUP)
    until(lambda: "more" in partitions(controller), "the new partition")
    controller.write_conf("PartitionName=less Nodes=n99")
    controller.process.send_signal(signal.SIGHUP)
    until(lambda: "config.refused" in controller.log, "the refusal")
    assert "n99" in controller.log
    assert partitions(controller) == ["debug", "more"]
    assert jobs_by_name(controller)["kept"][0] == job_id


def test_reconfigure_returns_every_error_and_keeps_the_old_configuration(controller: ControllerProcess) -> None:
    controller.start()
    controller.write_conf("KillWait=soon\nPartitionName=less Nodes=n99")
    with controller.connect() as connection:
        with pytest.raises(RemoteError) as refused:
            connection.call(Reconfigure(), Done)
        assert "KillWait" in refused.value.message
        assert "n99" in refused.value.message
        pairs = dict(connection.call(ShowConfig(), ConfigText).pairs)
        assert pairs["KillWait"].startswith("30")
        controller.write_conf("KillWait=7")
        connection.call(Reconfigure(), Done)
        shown = connection.call(ShowConfig(), ConfigText)
        assert dict(shown.pairs)["KillWait"].startswith("7")
        assert shown.settings.kill_wait_seconds == 7
        controller.conf.write_text(controller.conf.read_text().replace(str(controller.state), "/nowhere"))
        with pytest.raises(RemoteError, match="StateSaveLocation"):
            connection.call(Reconfigure(), Done)


def partitions(controller: ControllerProcess) -> list[str]:
    with controller.connect() as connection:
        return [partition.name for partition in connection.call(ListPartitions(all=True), Partitions).partitions]


def test_sigusr2_opens_the_log_file_again(controller: ControllerProcess) -> None:
    controller.start()
    log = controller.directory / "slurmctld.log"
    log.rename(controller.directory / "slurmctld.log.1")
    assert controller.process is not None
    controller.process.send_signal(signal.SIGUSR2)
    until(lambda: log.exists() and "log.reopened" in log.read_text(), "a line in the new log file")


def test_clear_forgets_the_jobs_but_not_the_term(controller: ControllerProcess) -> None:
    controller.start()
    submit(controller, "forgotten")
    controller.stop()
    controller.start("-c")
    assert jobs_by_name(controller) == {}
    assert "term=2" in controller.log
    assert list(controller.state.glob("cleared.1/journal.db")), "what was cleared is kept aside"


@pytest.mark.slow
def test_changes_of_partitions_outlive_a_restart_with_R_only(controller: ControllerProcess) -> None:
    controller.start()

    def state() -> str:
        with controller.connect() as connection:
            return connection.call(ListPartitions(), Partitions).partitions[0].state.value

    with controller.connect() as connection:
        connection.call(UpdatePartition(name="debug", changes={"state": "DOWN"}), Done)
    controller.stop()
    controller.start("-R")
    assert state() == "DOWN"
    controller.stop()
    controller.start()
    assert state() == "UP"


def damage(controller: ControllerProcess) -> None:
    """One byte of the last group of events with a submission is another, as after a fault of the disk."""
    with contextlib.closing(sqlite3.connect(controller.state / "journal.db")) as database, database:
        holding = "instr(payload, CAST('JobQueued' AS BLOB))"
        submissions = f"SELECT last, payload FROM groups WHERE {holding} ORDER BY last DESC"
        last, payload = database.execute(submissions).fetchone()
        database.execute("UPDATE groups SET payload = ? WHERE last = ?", (payload.replace(b"Que", b"Xue", 1), last))
    database.close()


def test_a_damaged_journal_is_refused_and_i_saves_what_can_be_read(controller: ControllerProcess) -> None:
    controller.start()
    submit(controller, "first")
    controller.stop()
    controller.start()
    for number in range(5):
        submit(controller, f"later-{number}")
    controller.kill()
    damage(controller)
    done = controller.run("-D", "-f", str(controller.conf))
    assert done.returncode == 1
    assert "damaged" in done.stderr
    controller.start("-i")
    assert "first" in jobs_by_name(controller)
    assert list(controller.state.glob("damaged.1/journal.db"))
    assert "state.unreadable" in controller.log
    job_id = submit(controller, "after")
    controller.kill()
    controller.start()
    assert jobs_by_name(controller)["after"][0] == job_id


def store_last_group(controller: ControllerProcess, payload: bytes) -> bytes:
    """Replace the last group's payload, with the checksum that belongs to it; the payload of before."""
    with contextlib.closing(sqlite3.connect(controller.state / "journal.db")) as database, database:
        first, last, at, before = database.execute(
            "SELECT first, last, at, payload FROM groups ORDER BY last DESC LIMIT 1"
        ).fetchone()
        checksum = Group(first=first, last=last, at=at, payload=payload).checksum
        database.execute("UPDATE groups SET payload = ?, checksum = ? WHERE last = ?", (payload, checksum, last))
    database.close()
    return bytes(before)


def test_a_journal_of_a_later_release_is_refused_with_i_too_and_left_for_that_release(
    controller: ControllerProcess,
) -> None:
    controller.start()
    submit(controller, "kept")
    controller.kill()
    newer = msgpack.encode((FORMAT + 1, 0, [{"kind": "JobBeamedUp"}]))
    before = store_last_group(controller, newer)
    for arguments in ([], ["-i"]):
        done = controller.run("-D", "-f", str(controller.conf), *arguments)
        assert done.returncode == 1
        assert f"format {FORMAT + 1} of a later release; this one reads up to format {FORMAT}" in done.stderr
        assert "start the release that wrote it" in done.stderr
    assert store_last_group(controller, before) == newer, "nothing was changed or set aside"
    controller.start()
    assert "kept" in jobs_by_name(controller)


def test_a_full_disk_stops_it_with_a_clear_last_line_and_no_acknowledged_job_is_lost(
    controller: ControllerProcess,
) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))

    controller.start(limit=limit)
    acknowledged = []
    with controller.connect() as connection:
        try:
            for number in range(5000):
                acknowledged.append(connection.call(a_job(f"job-{number}"), JobSubmitted).job_id)
        except ClientError:
            pass
    assert 0 < len(acknowledged) < 5000
    assert controller.process is not None
    assert controller.process.wait(100) == 1
    reason = (controller.directory / "stderr").read_text().splitlines()[-2]  # a hint follows
    assert "fatal" in reason
    assert "journal.db" in reason
    controller.start()
    found = {number for number, _ in jobs_by_name(controller).values()}
    assert set(acknowledged) <= found
    assert len(found) <= len(acknowledged) + 1


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to have a user to be")
def test_another_user_than_slurmuser_is_refused_in_slurms_words(public_directory: Path) -> None:
    if not others_can_run():
        pytest.skip("another user cannot import what slurmctld needs")
    controller = ControllerProcess(public_directory)
    output = as_user(NOBODY, lambda: main(["-D", "-f", str(controller.conf)]))
    assert "Can not set uid to root(0): Operation not permitted" in output


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give it up")
def test_started_as_root_it_runs_as_slurmuser_and_owns_its_state(public_directory: Path) -> None:
    controller = ControllerProcess(public_directory)
    controller.conf.write_text(controller.conf.read_text().replace("SlurmUser=root", "SlurmUser=nobody"))
    controller.start()
    try:
        assert controller.process is not None
        assert os.stat(f"/proc/{controller.process.pid}").st_uid == NOBODY
        assert controller.state.stat().st_uid == NOBODY
        job_id = submit(controller, "by root")
        assert jobs_by_name(controller) == {"by root": (job_id, "PENDING")}
        assert controller.stop() == 0
    finally:
        controller.kill()


def test_mail_is_sent_for_what_was_asked_and_an_array_is_told_of_once(controller: ControllerProcess) -> None:
    program = controller.directory / "mail"
    program.write_text(f'#!/bin/sh\necho "$2|$3|$SLURM_JOB_MAIL_TYPE" >> {controller.directory}/mails\n')
    program.chmod(0o755)
    controller.write_conf(f"MailProg={program}\nMailDomain=example.org")
    controller.start()

    def mails() -> list[str]:
        path = controller.directory / "mails"
        return path.read_text().splitlines() if path.exists() else []

    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n1"]):
            with controller.connect() as connection:
                connection.call(a_job("silent"), JobSubmitted)
                connection.call(a_job("told", mail_types=("BEGIN", "END")), JobSubmitted)
                connection.call(a_job("array", mail_types=("END",), mail_user="a@b.c", array="0-2"), JobSubmitted)
            await asyncio.to_thread(until, lambda: len(mails()) >= 3, "three mails")

    asyncio.run(main())
    found = sorted(mails())
    me = pwd.getpwuid(os.getuid()).pw_name
    assert len(found) == 3
    assert found[0] == "Slurm Array Summary Job_id=3_* (3) Name=array Ended, COMPLETED, ExitCode [0-0]|a@b.c|Ended"
    began, ended = (re.sub(r"time 00:\d\d:\d\d", "time TIME", line) for line in found[1:])
    assert began == f"Slurm Job_id=2 Name=told Began, Queued time TIME|{me}@example.org|Began"
    assert ended == f"Slurm Job_id=2 Name=told Ended, Run time TIME, COMPLETED, ExitCode 0|{me}@example.org|Ended"


@pytest.mark.slow
def test_silent_nodes_get_nothing_new_and_lost_ones_lose_their_jobs(controller: ControllerProcess) -> None:
    controller.write_conf("SlurmdTimeout=8")
    controller.start()

    def node_states() -> tuple[str, ...]:
        with controller.connect() as connection:
            return connection.call(ListNodes(names=("n1",)), Nodes).nodes[0].state_names

    async def main() -> None:
        async with FakeNode(controller.socket_name, ["n1"], hold=True) as node:
            until_running = asyncio.get_running_loop().time() + 10
            first = await asyncio.to_thread(submit, controller, "first")
            while not node.running:
                assert asyncio.get_running_loop().time() < until_running, "the launch did not happen"
                await node.link.channel()
                await asyncio.sleep(0.01)
            assert (first, 0) in node.running

    asyncio.run(main())
    submit(controller, "second")
    until(lambda: "second" in jobs_by_name(controller), "the submission")
    until(lambda: "node.silent" in controller.log, "the notice of silence")
    third = submit(controller, "third")
    assert jobs_by_name(controller)["first"][1] == "RUNNING"
    until(lambda: node_states()[0] == "DOWN", "SlurmdTimeout", 20)
    assert jobs_by_name(controller)["first"][1] in ("PENDING", "NODE_FAIL")
    assert jobs_by_name(controller)["third"] == (third, "PENDING")
