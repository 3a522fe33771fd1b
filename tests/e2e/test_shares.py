"""Usage, fair share and limits in minutes on a cluster with its slurmdbd: from sbatch to sshare and back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.cluster import Cluster, until, user_name
from tests.e2e.test_limits import Limited

pytestmark = pytest.mark.xdist_group("accounting")


@pytest.fixture
def shared(make_cluster: Callable[..., Cluster]) -> Iterator[Limited]:
    """Two accounts of one user, the first of which may have three times as much."""
    made = Limited(make_cluster)
    with made.cluster.conf.open("a") as conf:
        conf.write("PriorityType=priority/multifactor\nPriorityWeightFairshare=1000\nPriorityDecayHalfLife=0\n")
    made.start()
    made.cluster.start()
    until(
        lambda: made.command("sacctmgr", "-nP", "show", "assoc", "format=account").stdout.startswith("root"),
        lambda: f"the cluster has a root\n{made.log()}",
    )
    user = user_name()
    made.manage("add", "account", "many", "fairshare=3")
    made.manage("add", "account", "few", "fairshare=1")
    for account in ("many", "few"):
        made.manage("add", "user", user, f"account={account}")
    yield made
    if made.daemon is not None and made.daemon.poll() is None:
        made.kill()


def shares(made: Limited) -> dict[str, list[str]]:
    """Account of the user -> raw usage, factor."""
    text = made.command("sshare", "-nPU", "-u", user_name(), "-o", "account,rawusage,fairshare").stdout
    return {line.split("|")[0]: line.split("|")[1:] for line in text.splitlines()}


def test_what_runs_is_charged_lowers_the_factor_and_survives_the_controller(shared: Limited) -> None:
    job = shared.submit("-A", "many", "-n", "2").stdout.strip()
    until(lambda: int(shares(shared)["many"][0]) >= 2, lambda: f"usage grows: {shares(shared)}")
    assert shares(shared)["few"] == ["0", "1.000000"]
    shared.command("scancel", job)
    until(lambda: shared.reason(job) == "" or not shared.reason(job).startswith("R"), "it has ended")
    before = int(shares(shared)["many"][0])
    shared.cluster.kill_controller()
    shared.cluster.start_controller()
    until(lambda: "many" in shares(shared), "the controller is back")
    assert int(shares(shared)["many"][0]) == before, "without decay nothing changes while nothing runs"


def test_a_job_ends_when_its_account_has_used_up_its_minutes(shared: Limited) -> None:
    shared.manage("modify", "account", "few", "set", "grptresmins=cpu=1")
    shared.manage("modify", "qos", "normal", "set", "usagefactor=100")
    job = shared.submit("-A", "few", "-n", "1").stdout.strip()
    states = ("sacct", "-nXPj", job, "-o", "state")
    until(lambda: shared.command(*states).stdout.strip() == "TIMEOUT", lambda: shared.command(*states).stdout)
    after = shared.submit("-A", "few").stdout.strip()
    until(lambda: shared.reason(after) == "PD AssocGrpCPUMinutesLimit", lambda: shared.reason(after))


def test_usage_comes_back_from_the_records_when_the_controller_has_lost_its_state(shared: Limited) -> None:
    job = shared.submit("-A", "many", "-n", "3").stdout.strip()
    until(lambda: int(shares(shared)["many"][0]) >= 3, lambda: f"usage grows: {shares(shared)}")
    shared.command("scancel", job)
    until(lambda: "CANCELLED" in shared.command("sacct", "-nXPj", job, "-o", "state").stdout, "it has ended")
    compared = shared.command("spritz", "usage").stdout
    assert "All figures are the same (1 job in the records)." in compared, compared
    before = shares(shared)
    assert shared.cluster.stop_controller() == 0
    shutil.rmtree(shared.cluster.root / "state")
    shared.cluster.start_controller()
    until(lambda: shares(shared) == before, lambda: f"{shares(shared)}, was {before}")
