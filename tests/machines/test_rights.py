"""Rights are the same on a login host as on the controller's machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.people import Person, made_people
from tests.e2e.users import others_can_run
from tests.machines.lan import Lan, eventually

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("machines")]

CONF = """\
ClusterName=rights
SlurmctldHost=alpha
SlurmctldPort=26887
SlurmdPort=26888
SlurmUser={slurm}
AuthType=auth/slurm
PrivateData=jobs,users,accounts,usage
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=alpha
AccountingStoragePort=26889
StateSaveLocation=/run/slurm/ctl
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurmd.log
ProctrackType=proctrack/linuxproc
NodeName=alpha CPUs=1
NodeName=beta CPUs=1
PartitionName=main Nodes=ALL Default=YES
"""

DATABASE = """\
DbdPort=26889
SlurmUser={slurm}
PrivateData=jobs,users,accounts,usage
StorageUrl=sqlite:////run/slurm/acct.db
LogFile=/run/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
"""


@pytest.fixture
def people() -> Iterator[dict[str, Person]]:
    if not others_can_run():
        pytest.skip("other users cannot run the installed commands")
    with made_people("alice", "bob", "slurm") as made:
        yield made


@pytest.fixture
def site(people: dict[str, Person]) -> Iterator[Lan]:
    """alpha with all daemons, as docs/how-to/several-users.md sets them up; beta a node, gamma a login host."""
    slurm = people["slurm"]
    with Lan() as lan:
        etc = lan.root / "etc"
        etc.mkdir()
        (etc / "slurm.conf").write_text(CONF.format(slurm=slurm.name))
        (etc / "slurmdbd.conf").write_text(DATABASE.format(slurm=slurm.name))
        (etc / "slurm.key").write_bytes(os.urandom(64))
        for secret in ("slurm.key", "slurmdbd.conf"):
            (etc / secret).chmod(0o600)
            os.chown(etc / secret, slurm.uid, slurm.gid)
        alpha, beta, gamma = lan.machine("alpha"), lan.machine("beta"), lan.machine("gamma")
        alpha.do("install", "-d", "-o", slurm.name, "/run/slurm")
        conf = str(etc / "slurm.conf")
        for daemon in ("slurmdbd", "slurmctld", "slurmd"):
            alpha.out(daemon, SLURM_CONF=conf)
        beta.out("slurmd", SLURM_CONF=conf)
        gamma.out("sackd", SLURM_CONF=conf)
        yield lan


def test_rights_hold_on_other_machines(site: Lan, people: dict[str, Person]) -> None:
    conf = str(site.root / "etc/slurm.conf")
    gamma = site.machines["gamma"]
    alice, bob = people["alice"].name, people["bob"].name

    def jobs(user: str) -> list[str]:
        return gamma.out("squeue", "-h", "-o", "%i", user=user, SLURM_CONF=conf).split()

    def book(*words: str, user: str = "root") -> bool:
        return gamma.run("sacctmgr", "-i", *words, user=user, SLURM_CONF=conf).returncode == 0

    eventually(lambda: book("add", "account", "physics"), "slurmdbd answers")
    assert book("add", "user", alice, "account=physics")
    for node in ("alpha", "beta"):  # on the controller's machine SlurmUser leads to the client, on others root
        assert gamma.out("srun", "-w", node, "hostname", user=alice, SLURM_CONF=conf) == f"{node}\n"
    job = gamma.out("sbatch", "--parsable", "-H", "--wrap", "true", user=alice, SLURM_CONF=conf).strip()
    assert jobs(alice) == [job]
    assert jobs(bob) == [], "PrivateData"
    assert gamma.run("scancel", job, user=bob, SLURM_CONF=conf).returncode != 0
    assert not book("add", "user", bob, "account=physics", user=bob)

    assert book("add", "account", "biology")
    assert book("add", "user", bob, "account=biology")
    assert book("add", "coordinator", "account=physics", f"names={bob}")
    assert book("add", "user", bob, "account=physics", user=bob), "a coordinator adds users to its account"
    assert not book("add", "account", "chemistry", user=bob)
    assert book("modify", "user", bob, "set", "adminlevel=Operator")
    eventually(lambda: jobs(bob) == [job], "an operator sees all")
    assert gamma.run("scancel", job, user=bob, SLURM_CONF=conf).returncode == 0
    eventually(lambda: jobs(alice) == [], "the job has been cancelled")
