"""Upgrades with the real older thing: an earlier tree of this repository and the present one.

slurmdbd is upgraded first, then slurmctld, under running jobs and with the older slurmd and commands still there; then
slurmd. Going back is refused where it would harm. SPRITZ_OLDER names other commits to upgrade from; the first of the
default ones is the last that shipped format 1, the second an unreleased one of format 2.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.accounting import schema
from tests.ports import free_port

from .cluster import Cluster, until, user_name

ROOT = Path(__file__).resolve().parents[2]
COMMITS = os.environ.get("SPRITZ_OLDER", "09fcd11f 835b47c4").split()
WAIT = "#!/bin/sh\nuntil [ -e {work}/{name} ]; do sleep 0.05; done; echo {name} >>{work}/done\n"

pytestmark = pytest.mark.slow


class MixedCluster(Cluster):
    """Daemons and commands of either tree: `older_daemons` names those that are the older ones."""

    def __init__(self, tree: Path) -> None:
        super().__init__(nodes=1)
        self.tree = tree
        self.older_daemons = {"slurmctld", "slurmd"}

    def set_up_accounting(self) -> None:
        """A slurmdbd on SQLite, which `slurmdbd` starts."""
        port = free_port()
        self.older_daemons.add("slurmdbd")
        self.extra = (
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={port}\n"
        )
        self.write_conf()
        self.database = self.root / "acct.db"
        conf = self.conf.with_name("slurmdbd.conf")
        conf.write_text(
            f"DbdPort={port}\nSlurmUser={user_name()}\nPidFile={self.root}/slurmdbd.pid\n"
            f"LogFile={self.root}/slurmdbd.log\nStorageType=accounting_storage/sqlite\nStorageLoc={self.database}\n"
        )
        conf.chmod(0o600)

    def start_database(self) -> subprocess.Popen[bytes]:
        """slurmdbd of either release, in the foreground."""
        command = [
            sys.executable,
            "-m",
            "spritz.accounting.main",
            "-f",
            str(self.conf.with_name("slurmdbd.conf")),
            "-D",
        ]
        if "slurmdbd" in self.older_daemons:
            command = ["env", f"PYTHONPATH={self.tree}/src", *command]
        with open(self.root / "slurmdbd.stderr", "ab") as stderr:
            daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        self.daemons["slurmdbd"] = daemon
        return daemon

    def stop_database(self) -> int:
        """SIGTERM; its exit status."""
        daemon = self.daemons.pop("slurmdbd")
        daemon.terminate()
        return daemon.wait(100)

    def accounted(self, *, older: bool) -> dict[str, str]:
        """Job number -> state, as sacct of either release says; nothing while it does not answer."""
        done = self.ask("sacct", "-nPX", "-o", "jobid,state", older=older)
        return dict(line.split("|") for line in done.stdout.splitlines()) if done.returncode == 0 else {}

    def command(self, daemon: str, *arguments: str) -> list[str]:
        given = super().command(daemon, *arguments)
        return ["env", f"PYTHONPATH={self.tree}/src", *given] if daemon in self.older_daemons else given

    def ask(self, name: str, *arguments: str, older: bool) -> subprocess.CompletedProcess[str]:
        """A command of either release."""
        environment = os.environ | {"SLURM_CONF": str(self.conf)}
        if older:
            environment["PYTHONPATH"] = f"{self.tree}/src"
        code = f"from spritz.cli.{name} import entry; entry()"
        return subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def script(self, name: str, *, older: bool) -> str:
        """Submit a job that waits for a file; its number."""
        path = self.work / f"{name}.sh"
        path.write_text(WAIT.format(work=self.work, name=name))
        path.chmod(0o755)
        done = self.ask("sbatch", "--parsable", str(path), older=older)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def state(self, number: str, *, older: bool = False) -> str:
        """As squeue of either release says."""
        return self.ask("squeue", "-h", "-t", "all", "-o", "%T", "-j", number, older=older).stdout.strip()

    def becomes(self, number: str, state: str) -> None:
        """Wait for the job's state."""
        until(lambda: self.state(number) == state, f"job {number} is {state}")


@pytest.fixture(params=COMMITS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    done = subprocess.run(["git", "archive", request.param, "src"], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip(f"the history here has no commit {request.param}")
    subprocess.run(["tar", "-x", "-C", str(tmp_path)], input=done.stdout, check=True)
    found = MixedCluster(tmp_path)
    try:
        yield found
    finally:
        for path in ("one", "two", "three", "four"):
            (found.work / path).touch()
        found.close()


def test_a_cluster_is_upgraded_daemon_by_daemon_under_running_jobs(cluster: MixedCluster) -> None:
    cluster.start()
    one = cluster.script("one", older=True)
    until(lambda: cluster.state(one, older=True) == "RUNNING", "the job of the older release runs")
    # The controller first; its state is brought up to date as it is read.
    assert cluster.stop_controller() == 0
    cluster.older_daemons.discard("slurmctld")
    cluster.start_controller()
    assert cluster.state(one) == cluster.state(one, older=True) == "RUNNING"
    two, three = cluster.script("two", older=True), cluster.script("three", older=False)
    for number in (two, three):
        cluster.becomes(number, "RUNNING")
    for older in (True, False):
        ran = cluster.ask("srun", "-n1", "echo", "hello", older=older)
        assert (ran.returncode, ran.stdout) == (0, "hello\n"), (older, ran)
        assert cluster.ask("sinfo", older=older).returncode == 0
        assert cluster.ask("scontrol", "show", "job", one, older=older).returncode == 0
    assert cluster.ask("scancel", two, older=True).returncode == 0
    cluster.becomes(two, "CANCELLED")
    # Then slurmd: it adopts what the older one started.
    assert cluster.stop_nodes() == 0
    cluster.older_daemons.clear()
    cluster.start_nodes()
    assert cluster.state(one) == cluster.state(three) == "RUNNING"
    for name in ("one", "three"):
        (cluster.work / name).touch()
    for number in (one, three):
        cluster.becomes(number, "COMPLETED")
    four = cluster.script("four", older=False)
    cluster.becomes(four, "RUNNING")


# Of the same format, an older tree is told apart by fields that it does not know: tests/golden.
@pytest.mark.parametrize("cluster", COMMITS[:1], indirect=True)
def test_a_controller_of_an_older_release_leaves_newer_state_alone(cluster: MixedCluster) -> None:
    cluster.older_daemons.clear()
    cluster.start()
    one = cluster.script("one", older=False)
    cluster.becomes(one, "RUNNING")
    assert cluster.stop_controller() == 0
    before = {
        path.name: path.read_bytes() for path in (cluster.root / "state").iterdir() if path.name.startswith("image")
    }
    cluster.older_daemons.add("slurmctld")
    done = cluster.run("slurmctld", "-D")
    assert done.returncode == 1, done
    assert "release" in done.stderr or "format" in done.stderr, done
    after = {
        path.name: path.read_bytes() for path in (cluster.root / "state").iterdir() if path.name.startswith("image")
    }
    assert after == before
    cluster.older_daemons.clear()
    cluster.start_controller()
    assert cluster.state(one) == "RUNNING"


def revision(database: Path) -> str:
    """Of the database's tables."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        (found,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(found)


def test_slurmdbd_is_upgraded_first_and_not_taken_back(cluster: MixedCluster) -> None:
    cluster.set_up_accounting()
    cluster.start_database()
    cluster.start()
    one = cluster.script("one", older=True)
    (cluster.work / "one").touch()
    until(lambda: cluster.accounted(older=True) == {one: "COMPLETED"}, "the older release has the job's record")
    two = cluster.script("two", older=True)
    until(lambda: cluster.accounted(older=True).get(two) == "RUNNING", "and that of one that runs")
    before = revision(cluster.database)
    assert cluster.stop_database() == 0
    # The newer slurmdbd brings the tables up to date, and serves the older controller and commands.
    cluster.older_daemons.discard("slurmdbd")
    cluster.start_database()
    both = {one: "COMPLETED", two: "RUNNING"}
    until(lambda: cluster.accounted(older=True) == both, "both records are there for the older sacct")
    assert cluster.accounted(older=False) == both
    assert revision(cluster.database) == schema.REVISION != before
    (cluster.work / "two").touch()
    until(lambda: cluster.accounted(older=True).get(two) == "COMPLETED", "the older controller's events are stored")
    # Then the rest.
    assert (cluster.stop_controller(), cluster.stop_nodes()) == (0, 0)
    cluster.older_daemons.clear()
    cluster.start()
    three = cluster.script("three", older=False)
    (cluster.work / "three").touch()
    ended = dict.fromkeys((one, two, three), "COMPLETED")
    until(lambda: cluster.accounted(older=False) == ended, "the newer controller's events are stored")
    # The older slurmdbd leaves newer tables alone.
    assert cluster.stop_database() == 0
    cluster.older_daemons.add("slurmdbd")
    refused = cluster.start_database()
    assert refused.wait(100) == 1
    assert f"the database is of a later release (revision {schema.REVISION})" in "".join(
        path.read_text() for path in cluster.root.glob("slurmdbd.*") if path.suffix in (".log", ".stderr")
    )
    cluster.older_daemons.clear()
    cluster.start_database()
    until(lambda: cluster.accounted(older=False) == ended, "nothing has changed")
