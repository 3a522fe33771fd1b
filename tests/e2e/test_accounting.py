"""slurmdbd with a real cluster: what sacct sees, and that nothing is lost while it is away."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from spritz.model.job.record import ContainerOptions
from tests.databases import put_tables
from tests.e2e.cluster import PATIENCE_SECONDS, Cluster, until, user_name
from tests.e2e.commands import run
from tests.ports import free_port

pytestmark = pytest.mark.xdist_group("accounting")


class Accounted:
    """A cluster with a slurmdbd of its own, on SQLite."""

    def __init__(self, make_cluster: Callable[..., Cluster]) -> None:
        self.port = free_port()
        self._make = make_cluster
        self.cluster = make_cluster(
            extra=f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.port}\nAccountingStoreFlags=job_comment,job_script,job_env\n"
        )
        self.conf = self.cluster.conf.with_name("slurmdbd.conf")
        root = self.cluster.root
        self.database = root / "acct.db"
        put_tables(self.database)
        self.conf.write_text(
            f"DbdPort={self.port}\nSlurmUser={user_name()}\nPidFile={root}/slurmdbd.pid\nLogFile={root}/slurmdbd.log\n"
            f"DebugLevel=debug\nStorageType=accounting_storage/sqlite\nStorageLoc={self.database}\n"
        )
        self.conf.chmod(0o600)
        self.daemon: subprocess.Popen[bytes] | None = None

    def another(self) -> Cluster:
        """A second cluster of the same slurmdbd."""
        return self._make(
            extra=f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.port}\nAccountingStorageEnforce=associations\n"
        )

    def lines_of(self, name: str, *arguments: str, cluster: Cluster | None = None) -> list[str]:
        """Lines of a command that succeeds, asked as from a cluster's machine."""
        done = subprocess.run(
            [sys.executable, "-c", f"from spritz.cli.{name} import entry; entry()", *arguments],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str((cluster or self.cluster).conf)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, f"{name} {arguments}: {done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout.splitlines()

    def start(self) -> None:
        """slurmdbd; sacct waits until it serves."""
        with open(self.cluster.root / "slurmdbd.stderr", "ab") as stderr:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "spritz.accounting.main", "-D", "-f", str(self.conf)],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )

    def kill(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.daemon is not None
        self.daemon.terminate()
        return self.daemon.wait(PATIENCE_SECONDS)

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from spritz.cli.sacct import entry; entry()", *arguments],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(self.cluster.conf), **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def sacct(self, *arguments: str, **environ: str) -> list[list[str]]:
        """Fields of `sacct -nP`, once it can be asked."""

        def asked() -> subprocess.CompletedProcess[str] | None:
            done = self.run("-nP", *arguments, **environ)
            return done if done.returncode == 0 else None

        done = until(asked, lambda: f"sacct answers: {self.run('-nP', *arguments).stderr}\n{self.log()}")
        assert done is not None
        return [line.split("|") for line in done.stdout.splitlines()]

    def log(self) -> str:
        path = self.cluster.root / "slurmdbd.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""


@pytest.fixture
def accounted(make_cluster: Callable[..., Cluster]) -> Iterator[Accounted]:
    made = Accounted(make_cluster)
    yield made
    if made.daemon is not None and made.daemon.poll() is None:
        made.kill()


def test_a_job_is_seen_as_soon_as_it_is_submitted_and_as_it_ended(accounted: Accounted) -> None:
    accounted.start()
    cluster = accounted.cluster.start()
    accounted.sacct("-j", "1")
    number = cluster.submit("exit 3", name="odd", comment="why not", container=ContainerOptions(bundle="/bundle"))
    rows = accounted.sacct("-j", str(number), "-X", "-o", "jobid,jobname,user,partition,comment")
    assert rows == [[str(number), "odd", user_name(), "main", "why not"]]
    cluster.wait_state(number, "FAILED")
    # Before the controller has found slurmdbd, what sacct shows is the controller's, and that keeps no ended steps.
    until(lambda: len(accounted.sacct("-j", str(number))) == 2, "the batch step is recorded")
    rows = accounted.sacct("-j", str(number), "-o", "jobid,state,exitcode,ncpus,nnodes,ntasks,reqtres")
    assert rows == [
        [str(number), "FAILED", "3:0", "1", "1", "", "billing=1,cpu=1,mem=8000M,node=1"],
        [f"{number}.batch", "FAILED", "3:0", "1", "1", "1", ""],
    ]
    assert accounted.sacct("-j", str(number), "-o", "container") == [["/bundle"], ["/bundle"]]
    (row,) = accounted.sacct("-j", str(number), "-X", "-o", "submit,start,end,elapsedraw")
    assert row[0] <= row[1] <= row[2]
    script = accounted.run("-j", str(number), "-B").stdout
    assert script.splitlines()[0] == f"Batch Script for {number}"
    assert "exit 3" in script
    assert "PATH=/usr/bin:/bin" in accounted.run("-j", str(number), "--env-vars").stdout


def test_usage_can_be_asked_for(accounted: Accounted) -> None:
    """What it comes to is tested with records of the past; here that the daemon answers each kind of question."""
    accounted.start()
    cluster = accounted.cluster.start()
    job = cluster.submit("true")
    cluster.wait_state(job, "COMPLETED")
    until(lambda: accounted.sacct("-X", "-j", str(job), "-o", "state") == [["COMPLETED"]], "slurmdbd has the job")
    for report in ("cluster util", "cluster account", "user top", "job sizesbyaccount", "reservation util"):
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from spritz.cli.sreport import entry; entry()",
                *report.split(),
                "start=now-2hours",
            ],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(accounted.cluster.conf)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert " reported in " in done.stdout
    for command in ("eff", "history"):
        done = subprocess.run(
            [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()", command, str(job)],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(accounted.cluster.conf)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Job {job} ")


@pytest.mark.slow
def test_arrays_cancellations_and_requeues_are_told_apart(accounted: Accounted) -> None:
    accounted.start()
    cluster = accounted.cluster.start()
    array = cluster.submit("exit $SLURM_ARRAY_TASK_ID", array="0-2", name="sweep")
    waiting = cluster.submit("true", hold=True)
    running = cluster.submit("sleep 600", requeue=True)
    cluster.wait_state(running, "RUNNING")
    cluster.cancel(waiting)

    def tasks() -> dict[str, str]:
        return {row[0]: row[1] for row in accounted.sacct("-j", str(array), "-X", "-o", "jobid,exitcode,state")}

    until(lambda: len(tasks()) == 3, lambda: f"three tasks: {tasks()}")
    until(lambda: "FAILED" in str(accounted.sacct("-j", f"{array}_2", "-X", "-o", "state")), "the last task failed")
    assert set(tasks()) == {f"{array}_{task}" for task in range(3)}
    assert accounted.sacct("-j", f"{array}_2", "-X", "-o", "jobid,exitcode") == [[f"{array}_2", "2:0"]]
    (row,) = accounted.sacct("-j", str(waiting), "-o", "state,start,nodelist,elapsed")
    assert row == [f"CANCELLED by {os.getuid()}", "None", "None assigned", "00:00:00"]

    from spritz.model.commands.job import Done, RequeueJob
    from spritz.model.job.job_filter import JobTarget

    cluster.call(RequeueJob(target=JobTarget(running)), Done)
    until(
        lambda: (
            [row[0] for row in accounted.sacct("-D", "-j", str(running), "-X", "-o", "state")]
            in (["REQUEUED", "PENDING"], ["REQUEUED", "RUNNING"])
        ),
        lambda: f"two lives: {accounted.sacct('-D', '-j', str(running), '-X')}",
    )
    assert len(accounted.sacct("-j", str(running), "-X", "-o", "jobid,state")) == 1
    cluster.cancel(running)


def test_while_slurmdbd_is_away_the_cluster_runs_on_and_nothing_is_missing_afterwards(accounted: Accounted) -> None:
    """slurmdbd is killed, jobs run, the controller is killed too; both come back."""
    accounted.start()
    cluster = accounted.cluster.start()
    first = cluster.submit("true")
    cluster.wait_state(first, "COMPLETED")
    assert len(accounted.sacct("-j", str(first), "-X")) == 1
    accounted.kill()
    numbers = [cluster.submit("true") for _ in range(20)]
    cluster.wait_all_ended(numbers)
    refused = accounted.run("-j", "1")
    assert refused.returncode == 1
    assert "Problem talking to the database: Connection refused" in refused.stderr
    cluster.kill_controller()
    cluster.start_controller()
    accounted.start()

    def ended() -> bool:
        rows = accounted.sacct("-X", "-a", "-o", "jobid,state")
        return sorted(rows) == sorted([str(number), "COMPLETED"] for number in [first, *numbers])

    until(ended, lambda: f"all jobs are there once: {accounted.sacct('-X', '-a', '-o', 'jobid,state')}")


@pytest.mark.slow
def test_killed_again_and_again_while_jobs_run_it_has_every_job_once(accounted: Accounted) -> None:
    accounted.start()
    cluster = accounted.cluster.start()
    numbers: list[int] = []
    for _ in range(10):
        numbers += [cluster.submit("true") for _ in range(15)]
        time.sleep(0.05 * (len(numbers) % 4))  # where in its work it dies is to differ
        accounted.kill()
        accounted.start()
    cluster.wait_all_ended(numbers)

    def ended() -> bool:
        rows = accounted.sacct("-X", "-a", "-o", "jobid,state")
        return sorted(rows) == sorted([str(number), "COMPLETED"] for number in numbers)

    until(ended, "every job is there once")


def test_a_database_put_back_from_a_backup_catches_up(accounted: Accounted) -> None:
    accounted.start()
    cluster = accounted.cluster.start()
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
    accounted.sacct("-a")
    assert accounted.stop() == 0
    backup = accounted.database.read_bytes()
    accounted.start()
    numbers = [cluster.submit("true") for _ in range(5)]
    cluster.wait_all_ended(numbers)
    assert len(accounted.sacct("-a", "-X")) == 6
    assert accounted.stop() == 0
    for path in accounted.database.parent.glob("acct.db*"):
        path.unlink()
    accounted.database.write_bytes(backup)
    accounted.start()
    until(lambda: len(accounted.sacct("-a", "-X")) == 6, lambda: f"six jobs: {accounted.sacct('-a', '-X')}")
    assert {row[5] for row in accounted.sacct("-a", "-X")} == {"COMPLETED"}


def test_a_controller_put_back_from_a_backup_has_the_records_of_its_jobs_stored(accounted: Accounted) -> None:
    """Its new events have numbers that slurmdbd has stored others for: it must not take them for repetitions."""
    accounted.start()
    cluster = accounted.cluster.start()
    cluster.wait_state(cluster.submit("true"), "COMPLETED")
    assert cluster.stop_controller() == 0
    copy = cluster.root / "copy"
    shutil.copytree(cluster.root / "state", copy)
    cluster.start_controller()
    lost = [cluster.submit("true") for _ in range(3)]
    cluster.wait_all_ended(lost)
    until(lambda: len(accounted.sacct("-a", "-X")) == 4, "all are stored")
    assert cluster.stop_controller() == 0
    assert accounted.stop() == 0
    shutil.rmtree(cluster.root / "state")
    shutil.copytree(copy, cluster.root / "state")
    cluster.start_controller()
    until(lambda: cluster.submit("true") > lost[-1], "the nodes have told which ids they have seen")
    new = [cluster.submit("true") for _ in range(20)]
    cluster.wait_all_ended(new)
    accounted.start()

    def stored() -> bool:
        rows = accounted.sacct("-X", "-a", "-o", "jobid,state")
        return all([str(number), "COMPLETED"] in rows for number in [*lost, *new])

    until(stored, lambda: f"all are stored: {accounted.sacct('-X', '-a', '-o', 'jobid,state')}")
    until(lambda: "its journal was set back from event" in accounted.log(), "slurmdbd's line")
    until(lambda: "slurmdbd has stored later events" in cluster.controller_log(), "slurmctld's line")


def test_without_nodes_slurmdbd_tells_which_job_ids_a_restored_controller_must_not_give(accounted: Accounted) -> None:
    accounted.start()
    cluster = accounted.cluster.start()
    assert cluster.stop_controller() == 0
    copy = cluster.root / "copy"
    shutil.copytree(cluster.root / "state", copy)
    cluster.start_controller()
    lost = [cluster.submit("true") for _ in range(3)]
    cluster.wait_all_ended(lost)
    until(lambda: len(accounted.sacct("-a", "-X")) == 3, "all are stored")
    assert cluster.stop_controller() == 0
    cluster.kill_nodes()
    shutil.rmtree(cluster.root / "state")
    shutil.copytree(copy, cluster.root / "state")
    cluster.start_controller()
    until(lambda: "slurmdbd has stored later events" in cluster.controller_log(), "slurmdbd tells")
    assert cluster.submit("true", hold=True) == lost[-1] + 1


def test_slurmdbd_says_what_is_wrong_and_starts_and_stops_like_a_daemon(accounted: Accounted, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "spritz.accounting.main", *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "SLURM_CONF": str(accounted.cluster.conf)},
        )

    assert run("-V").stdout.startswith("slurm ")
    assert "unrecognized option '-x'" in run("-x").stderr
    good = accounted.conf.read_text()
    accounted.conf.write_text(good + "StorageTipe=x\nDbdPort=99999\nPurgeJobAfter=soon\n")
    refused = run("-D")
    assert refused.returncode == 1
    assert 'Unknown key "StorageTipe"' in refused.stderr
    assert f"{accounted.conf}:" in refused.stderr
    assert "did you mean StorageType?" in refused.stderr
    assert "DbdPort=99999" in refused.stderr
    assert '"12months"' in refused.stderr
    accounted.conf.write_text(good)
    accounted.conf.chmod(0o644)
    assert "should be 600 is 644" in run("-D").stderr
    accounted.conf.chmod(0o600)
    started = run()
    assert (started.returncode, started.stderr) == (0, "")
    pid_file = accounted.cluster.root / "slurmdbd.pid"
    pid = int(pid_file.read_text())
    assert "running already" in run("-D").stderr
    os.kill(pid, signal.SIGTERM)
    until(lambda: not pid_file.exists(), "the pid file is gone")


def test_clearing_the_state_says_that_waiting_records_are_lost(accounted: Accounted) -> None:
    cluster = accounted.cluster
    controller = cluster.root / "slurmctld.log"
    cluster.start_controller()
    assert cluster.stop_controller() == 0
    assert "accounting.not_sent" not in controller.read_text()
    cluster.start_controller("-c")
    until(lambda: "accounting.not_sent" in controller.read_text(), "slurmctld says what slurmdbd does not get")


def test_a_new_password_for_the_database_needs_a_restart_of_slurmdbd(accounted: Accounted) -> None:
    accounted.start()
    assert accounted.sacct() == []
    before = accounted.conf.read_text()
    changed = before.replace("DebugLevel=debug", "DebugLevel=verbose\nStoragePass=secret\nPrivateData=jobs")
    accounted.conf.write_text(changed)
    done = run(accounted.cluster, "sacctmgr", "reconfigure")
    assert done.returncode == 1, done
    assert "StoragePass cannot change while slurmdbd runs; the old configuration stays" in done.stderr.decode()
    assert "secret" not in done.stderr.decode() + accounted.log()
    assert "PrivateData            = none" in accounted.lines_of("sacctmgr", "show", "config")
    accounted.conf.write_text(changed.replace("StoragePass=secret\n", ""))
    accounted.lines_of("sacctmgr", "reconfigure")
    assert "PrivateData            = jobs" in accounted.lines_of("sacctmgr", "show", "config")


def test_the_completion_log_has_a_line_for_every_end(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(extra="JobCompType=jobcomp/filetxt")
    path = cluster.root / "comp.log"
    cluster.extra += f"\nJobCompLoc={path}"
    cluster.write_conf()
    cluster.start()
    number = cluster.submit("exit 3", name="odd")
    cluster.wait_state(number, "FAILED")
    until(lambda: path.exists() and path.read_text().endswith("\n"), "there is a line")
    (said,) = path.read_text().splitlines()
    assert f"JobId={number} UserId={user_name()}(" in said
    assert " Name=odd JobState=FAILED Partition=main TimeLimit=10 " in said
    assert said.endswith(" ExitCode=3:0 ")
    shown = run(cluster, "sacct", "--completion", "-n", "-P", "-o", "jobid,jobname,state,exitcode,user").stdout
    assert shown.decode() == f"{number}|odd|FAILED|3:0|{user_name()}\n"


@pytest.mark.slow
def test_two_clusters_share_a_database_and_each_has_its_own(accounted: Accounted) -> None:
    """Accounts and users are of both; associations, jobs and usage of each."""
    accounted.start()
    first, second = accounted.cluster, accounted.another()
    first.start()
    second.start()
    accounted.sacct("-j", "1")
    names = sorted((first.name, second.name))
    until(lambda: sorted(row[0] for row in listed(accounted, "cluster", "cluster")) == names, "both have registered")
    accounted.lines_of("sacctmgr", "-i", "add", "account", "phys")
    accounted.lines_of("sacctmgr", "-i", "add", "account", "chem", f"cluster={second.name}")
    me = user_name()
    # One cluster lacks an account: that is told, and the status is 1 as in 22.05; the rest is added.
    added = run(first, "sacctmgr", "-i", "add", "user", me, "account=phys,chem", "defaultaccount=phys")
    assert (
        added.returncode,
        f"This account 'chem' doesn't exist on cluster {first.name}" in added.stderr.decode(),
    ) == (
        1,
        True,
    )
    rows = listed(accounted, "assoc", "cluster,account", f"user={me}", "account=phys,chem")
    assert sorted(rows) == sorted([[first.name, "phys"], [second.name, "phys"], [second.name, "chem"]])
    # Job numbers are each cluster's own.
    there = second.submit("true", account="chem")
    here = first.submit("true", account="phys")
    first.wait_state(here, "COMPLETED")
    second.wait_state(there, "COMPLETED")

    def ended(*options: str) -> list[list[str]]:
        return sorted(accounted.sacct("-X", "-S", "now-1hour", *options, "-o", "cluster,jobid,account,state"))

    mine = [first.name, str(here), "phys", "COMPLETED"]
    theirs = [second.name, str(there), "chem", "COMPLETED"]
    until(lambda: ended("-L") == sorted([mine, theirs]), lambda: f"both jobs are told: {ended('-L')}")
    assert ended() == [mine]
    assert ended("-M", second.name) == [theirs]
    assert ended("-M", ",".join(names)) == sorted([mine, theirs])
    utilization = accounted.lines_of(
        "sreport", "-nP", "-a", "cluster", "utilization", "start=now-1hour", "end=now+1hour"
    )
    assert {line.split("|")[0] for line in utilization} <= set(names)
    _commands_speak_to_either(first, second)
    _a_federation_is_listed_together(first, second)
    # What is taken from one stays with the other.
    accounted.lines_of("sacctmgr", "-i", "delete", "account", "phys", f"cluster={second.name}")
    assert listed(accounted, "assoc", "cluster,account", "account=phys", f"user={me}") == [[first.name, "phys"]]
    refused = run(second, "sbatch", "-M", second.name, "-A", "phys", "--wrap", "true")
    assert "Invalid account or account/partition combination specified" in refused.stderr.decode()


def _commands_speak_to_either(first: Cluster, second: Cluster) -> None:
    """-M and SLURM_CLUSTERS, asked on the first cluster's machine."""

    def said(*words: str, clusters: str = "") -> str:
        done = run(first, *words, **({"SLURM_CLUSTERS": clusters} if clusters else {}))  # type: ignore[arg-type]  # env
        assert done.returncode == 0, f"{words}: {done.stdout!r}{done.stderr!r}"
        return done.stdout.decode()

    both = f"{first.name},{second.name}"
    wide = ("-N2", "--exclusive", "-o", "/dev/null", "-A", "phys")
    told = said("sbatch", "-M", both, *wide, "--wrap", "sleep 100")
    assert told == f"Submitted batch job 2 on cluster {first.name}\n"
    first.wait_state(2, "RUNNING")
    # The first cluster is full: the second one starts it sooner.
    assert said("sbatch", "--parsable", "-M", both, *wide, "--wrap", "sleep 100") == f"2;{second.name}\n"
    second.wait_state(2, "RUNNING")
    heading = "JOBID STATE"
    listing = f"CLUSTER: {first.name}\n{heading}\n2 RUNNING\n\nCLUSTER: {second.name}\n{heading}\n2 RUNNING\n"
    assert said("squeue", "-M", both, "-o", "%i %T") == listing
    assert said("squeue", "-h", "-o", "%i %T", clusters=second.name) == "2 RUNNING\n"
    assert said("sinfo", "-h", "-M", "all", "-o", "%D %T") == "2 allocated\n2 allocated\n"
    # Without headings, what is read by scripts: no empty lines, and each job has its cluster's name before it.
    assert said("squeue", "-h", "-M", both, "-o", "%i %T") == "2 RUNNING\n2 RUNNING\n"
    jobs = json.loads(said("squeue", "-M", both, "--json"))["jobs"]
    assert [(job["job_id"], job["cluster"]) for job in jobs] == [(2, first.name), (2, second.name)]
    jobs = json.loads(said("squeue", "-M", both, "--json=v0.0.45"))["jobs"]
    assert [(job["job_id"], job["cluster"]) for job in jobs] == [(2, first.name), (2, second.name)]
    groups = json.loads(said("sinfo", "-M", both, "--json"))["sinfo"]
    assert {(group["cluster"], group["nodes"]["total"]) for group in groups} == {(first.name, 2), (second.name, 2)}
    rows = said("squeue", "-h", "-M", both).splitlines()
    assert [row[:29] for row in rows] == [f"{name:<11.11}{2:>18}" for name in (first.name, second.name)]
    assert f"ClusterName             = {second.name}" in said("scontrol", "-M", second.name, "show", "config")
    refused = run(first, "scontrol", "-M", both, "show", "job", "2")
    assert refused.stderr == b"scontrol: fatal: Only one cluster can be used at a time with scontrol\n"
    unknown = run(first, "squeue", "-h", "-M", f"{second.name},nowhere")
    assert (unknown.returncode, unknown.stderr) == (0, b"squeue: error: No cluster 'nowhere' known by database.\n")
    said("scancel", "-M", both, "2")
    for cluster in (first, second):
        cluster.wait_state(2, "CANCELLED")
    inside = "srun printenv SLURM_CLUSTER_NAME; squeue -h -o %T"
    assert said("salloc", "-Q", "-A", "phys", "-M", second.name, "sh", "-c", inside) == f"{second.name}\nRUNNING\n"
    assert said("srun", "-A", "phys", "-M", both, "printenv", "SLURM_CLUSTER_NAME") == f"{first.name}\n"


def _a_federation_is_listed_together(first: Cluster, second: Cluster) -> None:
    """sacctmgr makes a federation of both; --federation lists both as one."""

    def said(*words: str) -> str:
        done = run(first, *words)
        assert done.returncode == 0, f"{words}: {done.stdout!r}{done.stderr!r}"
        return done.stdout.decode()

    assert said("sinfo", "--federation", "-o", "%D %V") == said("sinfo", "-o", "%D %V")
    assert said("scontrol", "show", "federation") == ""
    said("sacctmgr", "-i", "add", "federation", "both", f"clusters={first.name},{second.name}")
    shown = said("scontrol", "show", "federation").splitlines()
    assert shown[0] == "Federation: both"
    assert re.fullmatch(rf"Self:       {first.name}:\S+:\d+ ID:1 FedState:ACTIVE Features:", shown[1])
    assert re.fullmatch(
        rf"Sibling:    {second.name}:\S+:\d+ ID:2 FedState:ACTIVE Features: \S+:No/No Synced:No", shown[2]
    )
    here, there = first.submit("sleep 100", account="phys"), second.submit("sleep 100", account="phys")
    first.wait_state(here, "RUNNING")
    second.wait_state(there, "RUNNING")
    jobs = said("squeue", "-h", "--federation", "-S", "i", "-O", "JobID:12,Cluster:32,State:8").split()
    assert sorted(zip(jobs[::3], jobs[1::3], jobs[2::3], strict=True)) == sorted(
        [(str(here), first.name, "RUNNING"), (str(there), second.name, "RUNNING")]
    )
    assert said("squeue", "-h", "--federation", "--local", "-o", "%i").split() == [str(here)]
    lines = said("sinfo", "--federation").splitlines()
    assert lines[0] == "PARTITION CLUSTER  AVAIL  TIMELIMIT  NODES  STATE NODELIST"
    assert {line.split()[1] for line in lines[1:]} == {first.name[:8], second.name[:8]}
    said("scancel", str(here))
    said("scancel", "-M", second.name, str(there))


@pytest.mark.slow
def test_commands_survive_a_slurmdbd_that_is_killed_while_they_wait_for_it(accounted: Accounted) -> None:
    accounted.start()
    assert accounted.daemon is not None
    accounted.lines_of("sacctmgr", "-n", "show", "qos")
    accounted.daemon.send_signal(signal.SIGSTOP)
    commands = (
        ("sacct", "-nX"),
        ("sreport", "-nP", "cluster", "utilization"),
        ("sacctmgr", "-nP", "show", "qos", "format=name"),
        ("sacctmgr", "-nP", "show", "event"),
        ("sacctmgr", "-i", "add", "qos", "late"),
    )
    waiting = [
        subprocess.Popen(
            [sys.executable, "-c", f"from spritz.cli.{name} import entry; entry()", *arguments],
            env={"PATH": os.environ["PATH"], "SLURM_CONF": str(accounted.cluster.conf)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, *arguments in commands
    ]
    try:
        for process in waiting:
            until(partial(_has_socket, process.pid), f"{process.args!r} has connected")
        accounted.kill()
        accounted.start()
        for process in waiting:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, f"{process.args!r}: {said}"
        assert "late" in accounted.lines_of("sacctmgr", "-nP", "show", "qos", "format=name")
    finally:
        for process in waiting:
            process.kill()
            process.communicate()


def _has_socket(pid: int) -> bool:
    return bool(psutil.Process(pid).net_connections(kind="unix"))


def listed(accounted: Accounted, entity: str, fields: str, *conditions: str) -> list[list[str]]:
    """Rows of `sacctmgr show`."""
    lines = accounted.lines_of("sacctmgr", "-nP", "show", entity, f"format={fields}", *conditions)
    return [line.split("|") for line in lines]


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give it up")
def test_started_as_root_its_database_belongs_to_slurmuser() -> None:
    """The file and its directory are made before or after root is given up; SlurmUser must be able to use both."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        database, conf, said = root / "lib/acct.db", root / "slurmdbd.conf", root / "said"
        conf.write_text(
            f"DbdPort={free_port()}\nSlurmUser=nobody\nPidFile={root}/run/slurmdbd.pid\n"
            f"LogFile={root}/log/slurmdbd.log\nStorageType=accounting_storage/sqlite\nStorageLoc={database}\n"
        )
        conf.chmod(0o600)
        shutil.chown(conf, "nobody")
        with said.open("wb") as stderr:
            daemon = subprocess.Popen(
                [sys.executable, "-m", "spritz.accounting.main", "-D", "-f", str(conf)], stderr=stderr
            )
        try:
            until(lambda: database.exists() and database.stat().st_size, lambda: f"tables are made: {said.read_text()}")
            assert {path.stat().st_uid for path in (database, database.parent)} == {pwd.getpwnam("nobody").pw_uid}
            assert stat.S_IMODE(database.stat().st_mode) == 0o600
        finally:
            daemon.terminate()
            daemon.wait(PATIENCE_SECONDS)
