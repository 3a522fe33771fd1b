"""Every kind of fault and every kind of message occurs in the seeds of CI: what never occurs is not tested."""

from __future__ import annotations

import pytest

from spritz_testing.daemons import coverage, faults
from tests.simulation.daemons.seeds import FRESH, Group, result_of, results

#: The first test of these runs the seeds that no other test has run yet.
pytestmark = pytest.mark.timeout(600)

#: Faults that CI's seeds need not have, with the reason.
FAULTS_APART = {"bit flip": "after it few rules are judged; test_disk has every kind of it"}

#: Messages that no simulated user or daemon sends, with the reason.
MESSAGES_APART: dict[str, str] = {
    f"{daemon} {kind}": reason
    for daemon, reason, kinds in (
        (
            "slurmctld",
            "the scenario of a federation has these",
            "AskLock PutSibling ReportSibling ReturnLock RevokeSibling",
        ),
        ("slurmctld", "nodes save no power", "SetPowerException"),
        ("slurmctld", "the log is the story", "SetDebugFlag SetDampening SetSchedulingLog PauseScheduling"),
        ("slurmctld", "no crontabs of users, no tokens", "UpdateCrontab UseToken"),
        ("slurmctld", "administrators change partitions, and add none", "CreatePartition DeletePartition"),
        ("slurmctld", "not asked for by the workload yet", "AttachStep CreateHetStep UpdateReservation"),
        ("slurmctld", "nodes that are added introduce themselves", "CreateNodes"),
        ("slurmctld", "needs PrologFlags=Alloc", "NodePrologEnded"),
        ("slurmctld", "resets usage that limits need", "ResetUsage"),
        ("slurmdbd", "sent when the journal no longer has what slurmdbd lacks", "StoreState"),
        ("slurmd", "needs PrologFlags=Alloc", "LaunchProlog"),
        ("slurmd", "not asked for by the workload yet", "AttachClient MeasureStep StopDaemon"),
        ("slurmd", "only a person pings it", "Ping"),
        ("slurmdbd", "reports, which sacct's tests ask for", "AskHistory AskJobSizes AskReservations"),
        ("slurmdbd", "reports, which sacct's tests ask for", "SelectEvents GetDocuments RehearseEdit"),
        ("slurmdbd", "archives have tests of their own", "ArchiveDump ArchiveLoad"),
        ("slurmdbd", "changes records behind the checks' back", "FixRunaway ModifyJobs"),
        (
            "slurmdbd",
            "only a person asks",
            "ClearStatistics GetCallStatistics GetDatabaseConfiguration Ping Statistics",
        ),
        ("slurmdbd", "an injector restarts it", "ReconfigureDatabase ShutdownDatabase"),
        ("slurmdbd", "the scenario of a federation has it; no tokens", "PassToCluster MakeToken UseToken"),
    )
    for kind in kinds.split()
}


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """The sums of all fresh seeds."""
    total: dict[str, int] = {}
    for result in results(FRESH, tmp_path_factory):
        for name, count in result["counts"].items():
            total[name] = total.get(name, 0) + count
    return total


def test_every_kind_of_fault_occurs(counts: dict[str, int]) -> None:
    parts = frozenset(part for group in FRESH if group.scale == "every" for part in group.parts.split(",") if part)
    kinds = {kind.name for kind in faults.injectable(parts)}
    assert sorted(kinds - coverage.kinds(counts, "fault").keys() - FAULTS_APART.keys()) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_kind_of_fault_of_standby_controllers_occurs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Apart from CI's: they take long."""
    result = result_of(Group("1-4", "every", "standby"), tmp_path_factory)
    kinds = {kind.name for kind in faults.injectable(frozenset({"standby"})) if kind.part == "standby"}
    assert sorted(kinds - coverage.kinds(result["counts"], "fault").keys()) == []


def test_every_kind_of_message_occurs(counts: dict[str, int]) -> None:
    """Requests, effects and reports: what the tables of slurmctld, slurmd and slurmdbd accept."""
    never = {name for name in coverage.never_came(counts) if name.startswith("slurm")}
    assert sorted(never - MESSAGES_APART.keys()) == []


def test_exceptions_are_needed(counts: dict[str, int]) -> None:
    """An exception for something that occurs is taken out."""
    came = coverage.kinds(counts, "message").keys()
    assert sorted(came & MESSAGES_APART.keys()) == []
    assert sorted(FAULTS_APART.keys() - faults.KINDS.keys()) == []


def test_processes_are_killed_at_many_await_points(counts: dict[str, int]) -> None:
    """Lines of `await`, `async for` and `async with` in controller, node, client and accounting."""
    hit, of = coverage.awaits_hit(counts)
    print(f"killed at {hit} of {of} await points")
    assert hit >= 20


def test_await_points_are_found() -> None:
    """The places at which a process is killed are lines of the code that was read."""
    points = coverage.await_points()
    path = "controller/writer/loop.py"
    first, last = points[path][0]
    assert coverage.awaits_hit({f"await {path}:{first}": 1, "await controller/writer/loop.py:1": 1})[0] == 1
    assert first <= last
