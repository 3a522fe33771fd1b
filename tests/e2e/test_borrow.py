"""QOS that preempt others, and accounts that take back what they are guaranteed: set with sacctmgr, real daemons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.cluster import Cluster, until, user_name
from tests.e2e.test_limits import Limited

pytestmark = pytest.mark.xdist_group("accounting")


class Sharing(Limited):
    """One node of two CPUs; the QOS high may preempt jobs of low."""

    def __init__(self, make_cluster: Callable[..., Cluster]) -> None:
        super().__init__(make_cluster)
        with self.cluster.conf.open("a") as conf:
            conf.write("PreemptType=preempt/qos\nPreemptMode=REQUEUE\nDefMemPerCPU=10\n")

    def fill(self, *arguments: str) -> int:
        """A job of all CPUs; its number."""
        done = self.submit(f"-n{self.cluster.cpus * len(self.cluster.names)}", *arguments)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)


@pytest.fixture
def sharing(make_cluster: Callable[..., Cluster]) -> Iterator[Sharing]:
    made = Sharing(make_cluster)
    made.start()
    made.cluster.start()
    until(
        lambda: made.command("sacctmgr", "-nP", "show", "assoc", "format=account").stdout.startswith("root"),
        lambda: f"the cluster has a root\n{made.log()}",
    )
    yield made
    if made.daemon is not None and made.daemon.poll() is None:
        made.kill()


def test_which_jobs_preempt_and_which_take_back(sharing: Sharing) -> None:
    user = user_name()
    sharing.manage("add", "qos", "low", "high")
    sharing.manage("modify", "qos", "high", "set", "preempt=low")
    sharing.manage("modify", "qos", "low", "set", "preemptexempttime=0:02", "preemptmode=cancel")
    for account in ("owners", "guests"):
        sharing.manage("add", "account", account)
        sharing.manage("add", "user", user, f"account={account}", "qos=normal,low,high")
    shown = sharing.command("sacctmgr", "-nP", "show", "qos", "low", "format=preemptmode,preemptexempttime").stdout
    assert shown == "cancel|00:00:02\n"

    low = sharing.fill("-A", "guests", "--qos=low")
    sharing.cluster.wait_state(low, "RUNNING")
    high = sharing.fill("-A", "guests", "--qos=high")
    assert sharing.cluster.wait_state(low, "PREEMPTED").exit_status == 15
    sharing.cluster.wait_state(high, "RUNNING")

    count = sharing.cluster.cpus * len(sharing.cluster.names)
    sharing.manage("modify", "account", "owners", "set", f"guarantee=cpu={count}", "reclaimafter=0")
    refused = sharing.command("sacctmgr", "-i", "modify", "user", user, "set", "guarantee=cpu=1")
    assert refused.returncode == 1, "users are guaranteed nothing"
    mine = sharing.fill("-A", "owners", "--qos=normal")
    sharing.cluster.wait_state(mine, "RUNNING")
    assert sharing.cluster.job(high).state.value == "PENDING", "requeued: the cluster's PreemptMode"
    until(lambda: "reclaimed_for=owners" in sharing.cluster.controller_log(), "the administrator can read of it")
    said = sharing.command("spritz", "shares", "--json")
    rows = {row["account"]: row for row in json.loads(said.stdout)["rows"]}
    assert (rows["owners"]["guaranteed"], rows["owners"]["used"], rows["owners"]["borrowed"]) == (count, count, 0)
    assert f"cpu: {count} in the cluster, {count} in use" in sharing.command("spritz", "shares").stdout
