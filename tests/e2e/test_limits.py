"""Accounts and limits set with sacctmgr, and what the controller does about them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.cluster import Cluster, until, user_name
from tests.e2e.commands import environment
from tests.e2e.test_accounting import Accounted

pytestmark = pytest.mark.xdist_group("accounting")


class Limited(Accounted):
    """As Accounted, with AccountingStorageEnforce."""

    def __init__(self, make_cluster: Callable[..., Cluster]) -> None:
        super().__init__(make_cluster)
        with self.cluster.conf.open("a") as conf:
            conf.write("AccountingStorageEnforce=associations,limits,qos\n")

    def command(self, name: str, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", f"from spritz.cli.{name} import entry; entry()", *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=100,
            cwd=self.cluster.work,
            env=environment(self.cluster),
        )

    def manage(self, *arguments: str) -> str:
        done = self.command("sacctmgr", "-i", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command("sbatch", "--parsable", *arguments, "--wrap", "sleep 600")

    def reason(self, number: str) -> str:
        return self.command("squeue", "-h", "-j", number, "-o", "%t %r").stdout.strip()


@pytest.fixture
def limited(make_cluster: Callable[..., Cluster]) -> Iterator[Limited]:
    made = Limited(make_cluster)
    made.start()
    made.cluster.start()
    until(
        lambda: made.command("sacctmgr", "-nP", "show", "assoc", "format=account").stdout.startswith("root"),
        lambda: f"the cluster has a root\n{made.log()}",
    )
    yield made
    if made.daemon is not None and made.daemon.poll() is None:
        made.kill()


def test_limits_set_by_sacctmgr_hold_jobs_and_let_them_go(limited: Limited) -> None:
    user = user_name()
    if user != "root":
        refused = limited.submit()
        assert refused.returncode == 1
        assert "Invalid account or account/partition combination specified" in refused.stderr
    limited.manage("add", "account", "chem")
    limited.manage("add", "user", user, "account=chem", "defaultaccount=chem")
    limited.manage("modify", "user", user, "set", "defaultaccount=chem")
    limited.manage("modify", "user", user, "where", "account=chem", "set", "maxjobs=1")
    first = limited.submit()
    assert first.returncode == 0, first.stderr
    until(lambda: limited.reason(first.stdout.strip()).startswith("R "), "the first runs")
    second = limited.submit().stdout.strip()
    until(lambda: limited.reason(second) == "PD AssocMaxJobsLimit", lambda: limited.reason(second))
    limited.manage("modify", "user", user, "where", "account=chem", "set", "maxjobs=2")
    until(lambda: limited.reason(second).startswith("R "), "the second runs once the limit is raised")

    limited.manage("add", "qos", "few", "maxsubmitjobsperuser=1", "flags=denyonlimit", "maxtrespj=cpu=1")
    assert "Invalid qos specification" in limited.submit("-q", "few").stderr
    limited.manage("modify", "user", user, "set", "qos+=few")
    denied = limited.submit("-q", "few", "-n", "2")
    assert "QOSMaxCpuPerJobLimit" in denied.stderr
    assert "Job violates accounting/QOS policy" in denied.stderr
    assert limited.submit("-q", "few").returncode == 0
    assert "QOSMaxSubmitJobPerUserLimit" in limited.submit("-q", "few").stderr

    # What was said before slurmdbd went is what holds while it is away, and after the controller's restart.
    limited.kill()
    limited.cluster.kill_controller()
    limited.cluster.start_controller()
    assert "QOSMaxSubmitJobPerUserLimit" in limited.submit("-q", "few").stderr


def test_sacctmgr_asks_and_lists_what_it_was_told(limited: Limited) -> None:
    asked = limited.command("sacctmgr", "add", "account", "phys", given="n\n")
    assert "Would you like to commit changes? (You have 30 seconds to decide)\n(N/y): " in asked.stdout
    assert "Changes Discarded" in asked.stdout
    assert "phys" not in limited.manage("-nP", "show", "account", "format=account")
    limited.manage("add", "account", "phys", "Description=x", "Organization=y")
    limited.manage("add", "account", "sub", "parent=phys", "fairshare=5", "grpjobs=3")
    limited.manage("modify", "account", "phys", "set", "grptres=cpu=8,mem=10G", "maxwall=30")
    listed = limited.manage("-nP", "show", "assoc", "tree", "format=account,user,share,grptres,maxwall,qos")
    assert listed.splitlines() == [
        "root||1|||normal",
        " root|root|1|||normal",
        " phys||1|cpu=8,mem=10G|00:30:00|normal",
        "  sub||5||00:30:00|normal",
    ]
    loop = limited.command("sacctmgr", "-i", "modify", "account", "phys", "set", "parent=sub")
    assert (loop.returncode, "would be its own ancestor" in loop.stderr) == (1, True)
    assert limited.command("sacctmgr", "-i", "add", "account", "phys").stdout == " Nothing new added.\n"
    unknown = limited.command("sacctmgr", "-i", "add", "account", "x", "bogus=3")
    assert unknown.stderr == " Unknown option: bogus=3\n Use keyword 'where' to modify condition\n"
    assert "Add Accounts" in limited.manage("show", "transactions")
    limited.manage("delete", "account", "phys")
    assert limited.manage("-nP", "show", "account", "format=account") == "root\n"


def test_reservations_are_listed_while_they_hold_and_afterwards(limited: Limited) -> None:
    made = limited.command(
        "scontrol", "create", "reservation", "reservationname=r1", "nodes=ALL", "start=now", "duration=60", "users=root"
    )
    assert made.returncode == 0, made.stderr
    asked = ("-nP", "show", "reservation", "names=r1", "format=name,id,assoc")
    until(lambda: limited.manage(*asked).startswith("r1|1|"), lambda: limited.manage(*asked))
    assert limited.command("scontrol", "delete", "reservationname=r1").returncode == 0
    ended = ("-nP", "show", "resv", "start=now-1hour", "format=name,end,tres,unusedwall")
    until(lambda: "r1|" in limited.manage(*ended), lambda: limited.manage(*ended))
    assert "|cpu=" in limited.manage(*ended)
    assert limited.manage("-nP", "show", "reservation", "id=999") == ""


def test_the_book_is_listed_as_json_and_as_yaml(limited: Limited) -> None:
    found = json.loads(limited.manage("--json", "show", "assoc"))
    assert [one["account"] for one in found["associations"]] == ["root", "root"]
    assert limited.manage("--yaml", "show", "qos").startswith("%YAML 1.2\n---\nqos:\n  - description:")
    assert "Possible data_parser plugins" in limited.manage("--json=list")
