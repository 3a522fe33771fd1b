"""Two slurmdbds on machines of their own over one PostgreSQL or MariaDB; others find the one that serves."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.conformance.databases import reason
from tests.machines.database_server import address_of, server_on
from tests.machines.lan import Lan, eventually

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.xdist_group("machines"),
]

CONF = """\
ClusterName=books
SlurmctldHost=ctl
SlurmctldPort=26847
SlurmdPort=26848
SlurmUser=root
AuthType=auth/slurm
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=acct1
AccountingStorageBackupHost=acct2
AccountingStoragePort=26849
StateSaveLocation=/run/ctl
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/ctld.log
SlurmdLogFile=/run/slurmd.log
ProctrackType=proctrack/linuxproc
NodeName=ctl CPUs=1
PartitionName=main Nodes=ALL Default=YES
"""

DATABASE = """\
DbdHost=acct1
DbdBackupHost=acct2
DbdPort=26849
SlurmUser=root
StorageUrl={url}
LogFile=/run/dbd.log
PidFile=/run/dbd.pid
"""


@pytest.fixture(params=["postgresql", "mariadb"])
def site(request: pytest.FixtureRequest) -> Iterator[Lan]:
    if why := reason(request.param):
        pytest.skip(why)
    with Lan() as lan:
        machines = {name: lan.machine(name) for name in ("db", "acct1", "acct2", "ctl", "login")}
        etc = lan.root / "etc"
        etc.mkdir()
        (etc / "slurm.conf").write_text(CONF)
        with server_on(machines["db"], request.param) as database:
            (etc / "slurmdbd.conf").write_text(DATABASE.format(url=address_of(database, machines["db"])))
            (etc / "slurm.key").write_bytes(os.urandom(64))
            for secret in ("slurm.key", "slurmdbd.conf"):
                (etc / secret).chmod(0o600)
            for host, daemon in (
                ("acct1", "slurmdbd"),
                ("acct2", "slurmdbd"),
                ("ctl", "slurmctld"),
                ("ctl", "slurmd"),
                ("login", "sackd"),
                ("acct2", "sackd"),
            ):
                machines[host].out(daemon, SLURM_CONF=str(etc / "slurm.conf"))
            yield lan


def test_accounting_goes_on_where_a_machine_is_gone(site: Lan) -> None:
    conf = str(site.root / "etc/slurm.conf")
    machines = site.machines

    def log(host: str) -> str:
        return (machines[host].own / "run/dbd.log").read_text()

    def recorded(host: str, job: str) -> bool:
        done = machines[host].run("sacct", "-n", "-X", "-o", "jobid,state", SLURM_CONF=conf)
        return [job, "COMPLETED"] in [line.split() for line in done.stdout.splitlines()]

    def run_job() -> str:
        words = ("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true")
        return machines["login"].out(*words, SLURM_CONF=conf).strip()

    first = run_job()
    eventually(lambda: recorded("login", first), "the job is recorded")
    assert recorded("ctl", first), "on the controller's machine too"
    assert "another slurmdbd serves" in log("acct2")
    assert recorded("acct2", first), "and on the standby's"

    machines["acct1"].crash()
    second = run_job()
    eventually(lambda: recorded("login", second), "the other one has taken over")
    assert recorded("ctl", first)
    assert "standby.taking_over" in log("acct2")
    assert machines["login"].run("sacctmgr", "-i", "add", "account", "late", SLURM_CONF=conf).returncode == 0
    ping = machines["login"].out("sacctmgr", "ping", SLURM_CONF=conf)
    assert ping == "slurmdbd(primary) at acct1 is DOWN\nslurmdbd(backup) at acct2 is UP\n"

    machines["acct1"].out("slurmdbd", SLURM_CONF=conf)
    assert log("acct1").count("another slurmdbd serves") == 1, "who comes back stands by"
    site.cut(machines["acct2"])
    third = run_job()
    eventually(lambda: recorded("login", third), "cut off, it serves no more")
    eventually(lambda: "duty.lost" in log("acct2"), "and says so")
    site.mend(machines["acct2"])
    eventually(lambda: log("acct2").count("another slurmdbd serves") == 2, "it stands by")
    assert "late" in machines["login"].out("sacctmgr", "-n", "show", "account", SLURM_CONF=conf)

    # The server that hangs keeps its connections open, and is left all the same.
    hung = int((machines["acct1"].own / "run/dbd.pid").read_text())
    os.kill(hung, signal.SIGSTOP)
    fourth = run_job()
    eventually(lambda: recorded("login", fourth), "login hosts and the controller have moved to the other")
    assert recorded("ctl", fourth)
    for host in ("acct1", "acct2"):
        machines[host].crash()
    refused = machines["login"].run("sacct", SLURM_CONF=conf)
    assert "Problem talking to the database: Connection refused" in refused.stderr
