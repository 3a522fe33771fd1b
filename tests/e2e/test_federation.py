"""Federated jobs on real clusters over one slurmdbd: one of several siblings runs, and every cluster comes to know."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
from contextlib import suppress

import pytest

from tests.e2e.cluster import PATIENCE_SECONDS, Cluster, until
from tests.e2e.commands import run, start
from tests.e2e.test_accounting import Accounted, accounted

__all__ = ["accounted"]

pytestmark = pytest.mark.xdist_group("federation")

WIDE = ("-N2", "--exclusive")


class Federation:
    """Two clusters of a federation; commands are given on the first one."""

    def __init__(self, accounted: Accounted) -> None:
        self.accounted = accounted
        accounted.start()
        self.first, self.second = accounted.cluster, accounted.another()
        self.second.partition_lines += "\nPartitionName=large Nodes=ALL State=UP"
        for cluster in (self.first, self.second):
            cluster.extra += "\nPriorityType=priority/multifactor"
            cluster.write_conf()
            cluster.start()
        accounted.sacct("-j", "1")
        names = {self.first.name, self.second.name}
        until(lambda: {row[0] for row in self.rows("cluster", "cluster")} == names, "both have registered")
        self.said("sacctmgr", "-i", "add", "account", "phys")
        self.said("sacctmgr", "-i", "add", "user", getpass.getuser(), "account=phys", "defaultaccount=phys")
        self.said("sacctmgr", "-i", "add", "federation", "both", f"clusters={self.first.name},{self.second.name}")

    def rows(self, entity: str, fields: str) -> list[list[str]]:
        shown = self.said("sacctmgr", "-nP", "show", entity, f"format={fields}")
        return [line.split("|") for line in shown.splitlines()]

    def said(self, *words: str, at: Cluster | None = None) -> str:
        done = run(at or self.first, *words)
        assert done.returncode == 0, f"{words}: {done.stdout!r}{done.stderr!r}"
        return done.stdout.decode()

    def submit(self, *words: str, at: Cluster | None = None) -> int:
        return int(self.said("sbatch", "--parsable", "-o", "/dev/null", *words, at=at).split(";")[0])

    def fill_first(self, *words: str) -> int:
        """A job that runs on all of the first cluster: on which of two idle ones is otherwise a matter of time."""
        number = self.submit(*WIDE, "-M", self.first.name, *words)
        self.reach(number, "RUNNING", "")
        return number

    def state(self, number: int, at: Cluster) -> str:
        done = run(at, "scontrol", "-o", "show", "job", str(number), "--local")
        return "".join(word.partition("=")[2] for word in done.stdout.decode().split() if word.startswith("JobState="))

    def reach(self, number: int, first: str, second: str) -> None:
        def states() -> tuple[str, str]:
            return self.state(number, self.first), self.state(number, self.second)

        until(lambda: states() == (first, second), lambda: f"{number} is {first}, {second}: {states()}\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join((one.root / "slurmctld.log").read_text()[-3000:] for one in (self.first, self.second))


@pytest.fixture
def federation(accounted: Accounted) -> Federation:
    return Federation(accounted)


def test_a_job_runs_on_the_cluster_that_can_start_it_first(federation: Federation) -> None:
    here = federation.fill_first("--wrap", "sleep 1000")
    assert here >> 26 == 1
    there = federation.submit(*WIDE, "--wrap", "sleep 1000")
    federation.reach(there, "REVOKED", "RUNNING")
    waits = federation.submit(*WIDE, "--wrap", "true")
    after = federation.submit("-d", f"afterok:{waits}", "--wrap", "true")
    federation.reach(waits, "PENDING", "PENDING")
    _each_job_is_listed_once(federation, here, there, waits, after)
    _listings_show_the_federation_by_default(federation, here, there, waits, after)
    # A hold takes copies back, a release makes others; given where the job is not, they reach its origin.
    federation.said("scontrol", "hold", str(waits), at=federation.second)
    federation.reach(waits, "PENDING", "REVOKED")
    federation.said("scontrol", "release", str(waits), at=federation.second)
    federation.reach(waits, "PENDING", "PENDING")
    for name, job, status, words in (
        ("nosuch", str(waits), 192, "Invalid cluster name"),
        (federation.second.name, "7", 191, "Not a valid federated job"),
    ):
        refused = run(federation.first, "scancel", "--sibling", name, job)
        line = f"scancel: error: Kill job error on job id {job}: {words}\n"
        assert (refused.returncode, refused.stderr.decode()) == (status, line)
    # A copy can be taken off one cluster; a change of the request makes copies of what it says now.
    federation.said("scancel", "--sibling", federation.second.name, str(waits))
    federation.reach(waits, "PENDING", "CANCELLED")
    federation.said("scontrol", "update", f"jobid={waits}", "comment=again", "timelimit=5")
    federation.reach(waits, "PENDING", "PENDING")
    # Requeued, it is every cluster's again; cancelled where it does not run, it ends where it does.
    federation.said("scontrol", "requeuehold", str(there))
    federation.reach(there, "PENDING", "REVOKED")
    federation.reach(waits, "REVOKED", "COMPLETED")
    federation.reach(after, "REVOKED", "COMPLETED")
    federation.said("scontrol", "release", str(there))
    federation.reach(there, "REVOKED", "RUNNING")
    federation.said("scancel", str(there))
    federation.reach(there, "REVOKED", "CANCELLED")
    federation.said("scancel", str(here), at=federation.second)
    federation.reach(here, "CANCELLED", "")


def _each_job_is_listed_once(federation: Federation, here: int, there: int, waits: int, after: int) -> None:
    first, second = federation.first.name, federation.second.name
    shown = federation.said("squeue", "-h", "--federation", "-S", "i", "-O", "JobID:12,Cluster:32,State:12").split()
    assert sorted(zip(shown[::3], shown[1::3], shown[2::3], strict=True)) == [
        (str(here), first, "RUNNING"),
        (str(there), second, "RUNNING"),
        (str(waits), first, "PENDING"),
        (str(after), first, "PENDING"),
    ]
    shown = federation.said("squeue", "-h", "--sibling", "-O", "JobID:12").split()
    assert shown.count(str(waits)) == shown.count(str(there)) == 2
    rows = federation.accounted.sacct("--federation", "-X", "-S", "now-1hour", "-o", "jobid,cluster,state")
    assert sorted(row for row in rows if row[0] in (str(here), str(there))) == [
        [str(here), first, "RUNNING"],
        [str(there), second, "RUNNING"],
    ]
    record = federation.said("scontrol", "show", "job", str(waits), at=federation.second)
    assert f"FedOrigin={first} FedViableSiblings={first},{second} FedActiveSiblings={first},{second}" in record


def _listings_show_the_federation_by_default(federation: Federation, *numbers: int) -> None:
    first, second = federation.first, federation.second
    whole = first.conf.read_text()
    jobs = [str(number) for number in sorted(numbers)]
    assert sorted(federation.said("squeue", "-h", "-o", "%i").split()) == [job for job in jobs if job != jobs[1]]
    first.conf.write_text(f"{whole}\nFederationParameters=fed_display\n")
    try:
        assert sorted(federation.said("squeue", "-h", "-o", "%i").split()) == jobs
        assert sorted(federation.said("squeue", "--local", "-h", "-o", "%i").split()) == [jobs[0], *jobs[2:]]
        assert set(federation.said("sinfo", "-h", "-O", "Cluster").split()) == {first.name, second.name}
        rows = federation.accounted.sacct("-X", "-S", "now-1hour", "-o", "jobid,cluster")
        assert [jobs[1], second.name] in rows
        # What could start, once, or the copy of every cluster; what runs on another cluster is in neither.
        assert federation.said("sprio", "-h", "-o", "%i").split() == [jobs[2]]
        copies = [line.split() for line in federation.said("sprio", "-h", "--sibling", "-o", "%i %c").splitlines()]
        assert [name for job, name in copies if job == jobs[2]] == [first.name, second.name]
        assert jobs[1] not in {job for job, _ in copies}
        told = federation.said("sreport", "-nP", "cluster", "utilization", "start=now-1hour", "format=cluster")
        assert set(told.split()) <= {first.name, second.name}
    finally:
        first.conf.write_text(whole)


@pytest.mark.slow
def test_an_allocation_is_had_from_the_cluster_that_can_start_it_first(federation: Federation) -> None:
    first, second = federation.first, federation.second
    federation.fill_first("--wrap", "sleep 1000")
    assert federation.said("srun", *WIDE, "printenv", "SLURM_CLUSTER_NAME") == 2 * f"{second.name}\n"
    inside = (
        "echo $SLURM_WORKING_CLUSTER; srun -n1 -N1 printenv SLURM_JOB_ID; scontrol show job $SLURM_JOB_ID | grep Fed"
    )
    done = run(first, "salloc", *WIDE, "sh", "-c", inside)
    where, number, record = done.stdout.decode().splitlines()
    assert where.startswith(f"{second.name}:127.0.0.1:{second.port}:")
    assert record.strip().startswith(f"FedOrigin={first.name} ")
    assert f"salloc: Granted job allocation {number} on cluster {second.name}\n" in done.stderr.decode()
    federation.reach(int(number), "REVOKED", "COMPLETED")
    # What the client does while it waits, or leaves undone, ends the copy too.
    there = federation.submit(*WIDE, "--wrap", "sleep 100")
    federation.reach(there, "REVOKED", "RUNNING")
    busy = run(first, "srun", "--immediate=1", "-N1", "true")
    assert busy.stderr.decode().endswith("srun: error: Unable to allocate resources: Requested nodes are busy\n")
    for give_up in (_interrupt, _cancel_at_the_other):
        waiting = start(first, "salloc", *WIDE, "true")
        try:
            number = _pending(federation)
            federation.reach(int(number), "PENDING", "PENDING")
            give_up(federation, waiting, number)
            assert waiting.wait(PATIENCE_SECONDS) == 1
            federation.reach(int(number), "CANCELLED", "REVOKED")
        finally:
            end(waiting)
    # A client that dies while another cluster holds its allocation gives it back.
    federation.said("scancel", str(there))
    federation.reach(there, "REVOKED", "CANCELLED")
    holding = start(first, "salloc", *WIDE, "sleep", "100")
    try:
        until(lambda: b" on cluster " in (holding.stderr.readline() if holding.stderr else b""), "it is granted there")
        number = federation.said("squeue", "-h", "-t", "R", "-o", "%i", at=second).strip()
        end(holding)
        federation.reach(int(number), "REVOKED", "CANCELLED")
    finally:
        end(holding)


def _pending(federation: Federation) -> str:
    return until(lambda: federation.said("squeue", "-h", "-t", "PD", "-o", "%i").strip(), "it waits")


def _interrupt(federation: Federation, waiting: subprocess.Popen[bytes], number: str) -> None:
    waiting.send_signal(signal.SIGINT)


def _cancel_at_the_other(federation: Federation, waiting: subprocess.Popen[bytes], number: str) -> None:
    federation.said("scancel", number, at=federation.second)


def end(process: subprocess.Popen[bytes]) -> None:
    """All of its session, and close what it wrote to."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def test_a_job_that_its_cluster_cannot_hold_is_given_to_another(federation: Federation) -> None:
    second = federation.second
    said = federation.said("sbatch", "-p", "large", "-o", "/dev/null", "--wrap", "true")
    number = said.split()[3]
    assert said == f"Submitted batch job {number} on cluster {second.name}\n"
    assert int(number) >> 26 == 2
    assert federation.said("srun", "-p", "large", "printenv", "SLURM_CLUSTER_NAME") == f"{second.name}\n"
    assert "on cluster" in run(federation.first, "salloc", "-p", "large", "true").stderr.decode()
    federation.reach(int(number), "", "COMPLETED")
    refused = run(federation.first, "sbatch", "-p", "none", "--wrap", "true")
    assert refused.stderr.decode().endswith("Batch job submission failed: Invalid partition name specified\n")
    only = run(federation.first, "sbatch", "-M", federation.first.name, "-p", "large", "--wrap", "true")
    assert only.returncode == 1


@pytest.mark.slow
def test_an_allocation_outlives_its_origin_and_waits_for_it(federation: Federation) -> None:
    first, second = federation.first, federation.second
    over = first.work / "over"
    federation.fill_first("--wrap", "sleep 1000")
    until_told = f"echo began; until [ -e {over} ]; do sleep 0.1; done; echo $SLURM_CLUSTER_NAME"
    running = start(first, "srun", *WIDE, "sh", "-c", until_told)
    waiting = None
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == b"began\n"
        waiting = start(first, "salloc", *WIDE, "srun", "-n1", "-N1", "printenv", "SLURM_CLUSTER_NAME")
        number = _pending(federation)
        federation.reach(int(number), "PENDING", "PENDING")
        first.kill_controller()
        over.touch()
        assert running.communicate(timeout=PATIENCE_SECONDS)[0].endswith(2 * f"{second.name}\n".encode())
        assert running.returncode == 0
        first.start_controller()
        assert waiting.communicate(timeout=PATIENCE_SECONDS)[0] == f"{second.name}\n".encode()
        assert waiting.returncode == 0
        federation.reach(int(number), "REVOKED", "COMPLETED")
    finally:
        for process in filter(None, (running, waiting)):
            end(process)


@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached_loses_nothing(federation: Federation) -> None:
    first, second = federation.first, federation.second
    over = first.work / "over"
    until_told = ("--wrap", f"until [ -e {over} ]; do sleep 0.1; done")
    federation.fill_first(*until_told)
    there = federation.submit(*WIDE, *until_told)
    federation.reach(there, "REVOKED", "RUNNING")
    waits = federation.submit(*WIDE, "--wrap", "true")
    federation.reach(waits, "PENDING", "PENDING")
    # It is away when its job ends and when its copy is to go: the copy's job runs elsewhere, and the copy never does.
    second.kill_controller()
    over.touch()
    until(lambda: federation.state(waits, first) == "COMPLETED", "it runs at its origin")
    assert federation.state(there, first) == "REVOKED"
    second.start_controller()
    federation.reach(there, "REVOKED", "COMPLETED")
    federation.reach(waits, "COMPLETED", "REVOKED")
    rows = federation.accounted.sacct("-L", "-D", "-X", "-S", "now-1hour", "-j", str(waits), "-o", "cluster,state")
    assert sorted(rows) == sorted([[first.name, "COMPLETED"], [second.name, "REVOKED"]])


@pytest.mark.slow
def test_features_and_states_of_clusters_say_where_copies_are_made(federation: Federation) -> None:
    first, second = federation.first, federation.second
    federation.said("sacctmgr", "-i", "modify", "cluster", second.name, "set", "features=gpu")
    only = federation.submit("--cluster-constraint", "gpu", "--wrap", "true")
    federation.reach(only, "REVOKED", "COMPLETED")
    refused = run(first, "sbatch", "--cluster-constraint", "fpga", "--wrap", "true")
    assert refused.stderr == b"sbatch: error: Batch job submission failed: Invalid cluster feature specification\n"
    full = federation.fill_first("--wrap", "sleep 1000")
    federation.said("sacctmgr", "-i", "modify", "cluster", second.name, "set", "fedstate=DRAIN")
    waits = federation.submit(*WIDE, "--wrap", "true")
    until(lambda: federation.state(waits, first) == "PENDING", "it waits")
    federation.said("sacctmgr", "-i", "modify", "cluster", second.name, "set", "fedstate=ACTIVE")
    federation.reach(waits, "REVOKED", "COMPLETED")
    federation.said("sacctmgr", "-i", "modify", "cluster", first.name, "set", "fedstate=INACTIVE")
    inactive = run(first, "sbatch", "--wrap", "true")
    assert b"No eligible clusters for federated job" in inactive.stderr
    federation.said("sacctmgr", "-i", "modify", "cluster", first.name, "set", "fedstate=DRAIN+REMOVE")
    federation.said("scancel", str(full))
    until(
        lambda: [second.name] == [row[0] for row in federation.rows("federation", "cluster")],
        "the cluster leaves when its last job is over",
    )
    assert federation.submit("--wrap", "true") >> 26 == 0
