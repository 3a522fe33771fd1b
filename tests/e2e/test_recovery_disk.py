"""Disks that are full, directories that are gone, files that cannot be written: told, survived, and nothing lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spritz.client.errors import ClientError, RemoteError
from spritz.controller.writer.loop import RESERVED_IDS
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import Done, JobSubmitted
from spritz.model.states import JobState
from tests.e2e.cluster import Cluster, until


@contextlib.contextmanager
def small_disk(path: Path, kib: int) -> Iterator[None]:
    """A file system of that size at `path`; skips the test where none may be mounted."""
    path.mkdir(parents=True, exist_ok=True)
    if (
        os.getuid()
        or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=755", "spritz", path]).returncode
    ):
        pytest.skip("needs root and mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(path: Path) -> None:
    """Take what room there is."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_state_directory_stops_the_controller_with_a_word_and_loses_no_acknowledged_job(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    with small_disk(cluster.root / "state", 3000):
        cluster.start()
        running = cluster.submit("while ! test -e go; do sleep 0.02; done; exit 6")
        cluster.wait_state(running, "RUNNING")
        acknowledged = []
        refusal: ClientError | None = None
        with cluster.connect() as connection:
            for number in range(20_000):
                script = f"# {'x' * 2000} {number}\ntrue"
                try:
                    reply = connection.call(cluster.request(script, begin_at=2e9), JobSubmitted)
                except ClientError as error:
                    refusal = error
                    break
                acknowledged.append(reply.job_id)
        assert refusal is not None, "the disk never filled"
        if not isinstance(refusal, RemoteError):
            assert cluster.controller is not None
            assert cluster.controller.wait(100) == 1
            assert "No space left" in cluster.controller_log() or "disk is full" in cluster.controller_log()
            assert "Traceback" not in (cluster.root / "slurmctld.stderr").read_text()
        else:
            cluster.kill_controller()
        fill(cluster.root / "state" / "filler")
        refused = cluster.run("slurmctld", "-D")
        assert refused.returncode == 1
        assert f"MiB in {cluster.root}/state and start slurmctld again: no acknowledged job is lost" in refused.stderr
        # The running job ends while its end cannot be recorded.
        (cluster.work / "go").touch()
        subprocess.run(["mount", "-o", "remount,size=100m", cluster.root / "state"], check=True)
        cluster.start_controller()
        jobs = cluster.jobs()
        assert [one for one in acknowledged if one not in jobs] == []
        assert cluster.wait_state(running, "FAILED").exit_status == 6 << 8
        cluster.wait_state(cluster.submit("true"), "COMPLETED")
        cluster.kill_controller()


def test_a_full_spool_drains_the_node_and_the_job_runs_or_is_given_back(make_cluster: Callable[..., Cluster]) -> None:
    """It runs where the machine has another file system for its files."""
    cluster = make_cluster(nodes=1)
    with small_disk(cluster.root / "spool", 1000):
        cluster.start()
        filler = cluster.root / "spool" / "filler"
        fill(filler)
        number = cluster.submit("# " + "x" * 20_000 + "\ntouch ran")
        until(
            lambda: cluster.job(number).state is JobState.COMPLETED or cluster.job(number).restart_count,
            lambda: f"it runs or is given back: {cluster.job(number)}",
        )
        assert (cluster.work / "ran").exists() == (cluster.job(number).state is JobState.COMPLETED)
        until(
            lambda: [view.node.reason for view in cluster.nodes()] == ["SlurmdSpoolDir is full"], "the node is drained"
        )
        assert "No space left" in cluster.node_log()
        assert "Errno" not in cluster.node_log()
        filler.unlink()
        cluster.call(UpdateNode(names=("n1",), state="RESUME"), Done)
        cluster.wait_state(number, "COMPLETED")
        cluster.wait_state(cluster.submit("true"), "COMPLETED")
        cluster.kill_nodes()


def test_a_full_disk_for_the_output_is_the_jobs_own_affair(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(nodes=1)
    with small_disk(cluster.root / "small", 64):
        cluster.start()
        path = cluster.root / "small" / "out"
        number = cluster.submit("head -c 1000000 /dev/zero || exit 3", stdout=str(path), stderr="/dev/null")
        assert cluster.wait_state(number, "FAILED").exit_status == 3 << 8
        assert 0 < path.stat().st_size <= 65536
        cluster.wait_state(cluster.submit("true"), "COMPLETED")


def test_a_journal_without_its_end_is_refused_in_words_and_no_job_id_is_given_twice(cluster: Cluster) -> None:
    early = cluster.submit("true", hold=True)
    assert cluster.stop_controller() == 0  # what is there now is in the database; what follows is in its log alone
    cluster.start_controller()
    late = [cluster.submit("true", hold=True) for _ in range(3)]
    running = cluster.submit("sleep 1000")
    cluster.wait_state(running, "RUNNING")
    cluster.kill_controller()
    (cluster.root / "state" / "journal.db-wal").unlink()
    for _ in range(2):
        refused = cluster.run("slurmctld", "-D")
        assert refused.returncode == 1
        assert "journal.db-wal is missing: events" in refused.stderr
        assert "with -i, which goes on from event" in refused.stderr
    cluster.start_controller("-i")
    assert early in cluster.jobs()
    assert set(cluster.jobs()).isdisjoint([*late, running])
    until(lambda: not cluster.job_processes(running), "the job that the state does not know is ended")
    assert cluster.submit("true") > running
    assert [path.name for path in (cluster.root / "state" / "damaged.1").iterdir()]
    # The next starts are ordinary ones: ids go on where they were.
    cluster.kill_controller()
    cluster.start_controller()
    following = cluster.submit("true")
    assert following < running + 3 * RESERVED_IDS
    cluster.wait_state(following, "COMPLETED")


def remove(directory: Path) -> None:
    """Remove a directory that a daemon writes to meanwhile, at one blow."""
    directory.rename(directory.with_name("removed"))
    shutil.rmtree(directory.with_name("removed"), ignore_errors=True)


def test_a_spool_directory_that_was_deleted_is_made_again(cluster: Cluster) -> None:
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
    remove(cluster.root / "spool")
    for _ in range(2):
        number = cluster.submit("echo fine")
        job = cluster.wait_state(number, "COMPLETED", "FAILED")
        assert job.state is JobState.COMPLETED, job
        assert cluster.output(number) == "fine\n"


def test_a_spool_deleted_under_a_running_job_leaves_it_running_and_its_end_is_recorded(cluster: Cluster) -> None:
    number = cluster.submit("touch up\nwhile ! test -e go; do sleep 0.02; done; exit 7")
    cluster.wait_state(number, "RUNNING")
    cluster.supervisor(number)
    until((cluster.work / "up").exists, "the shell has opened its script")
    remove(cluster.root / "spool")
    (cluster.work / "go").touch()
    job = cluster.wait_state(number, "FAILED")
    assert job.exit_status == 7 << 8


@pytest.mark.parametrize("where", ["/proc/nosuch/out", "/dev/full/out", "{work}/file/out", "{work}"])
def test_an_output_that_cannot_be_opened_fails_the_job_as_slurm_does(cluster: Cluster, where: str) -> None:
    (cluster.work / "file").touch()
    number = cluster.submit("touch ran", stdout=where.format(work=cluster.work))
    job = cluster.wait_state(number, "FAILED")
    assert job.exit_status == 53
    assert not (cluster.work / "ran").exists()
    assert not any("DRAIN" in view.state_names for view in cluster.nodes())


def test_a_work_directory_that_is_gone_is_said_and_tmp_used(cluster: Cluster) -> None:
    number = cluster.submit("pwd", work_dir=str(cluster.work / "gone"), stdout=str(cluster.work / "out"))
    cluster.wait_state(number, "COMPLETED")
    text = (cluster.work / "out").read_text()
    assert text.endswith("going to /tmp instead\n/tmp\n")
    assert "couldn't chdir to" in text


def test_the_state_directory_deleted_under_the_controller_is_noticed_at_the_next_start_at_the_latest(
    cluster: Cluster,
) -> None:
    shutil.rmtree(cluster.root / "state")
    try:
        cluster.submit("true", begin_at=2e9)
    except ClientError:
        # It has stopped, which is right: what it cannot keep it must not acknowledge.
        assert cluster.controller is not None
        assert cluster.controller.wait(100) == 1
        assert "Traceback" not in (cluster.root / "slurmctld.stderr").read_text()
    else:
        cluster.kill_controller()
    cluster.start_controller()
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
