"""slurmdbd in the simulation: the real daemon, on virtual time, killed and disturbed in every way."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from spritz.model.accounting.records import JobRecord, JobWithSteps
from spritz.model.accounting.usage import HolderUsage
from spritz_testing.daemons import history
from spritz_testing.daemons.accounting import policy
from spritz_testing.daemons.checks import Story
from spritz_testing.daemons.checks.final import Limit
from spritz_testing.daemons.history import Began, Ended, Operation
from spritz_testing.daemons.plan import MIXED, Action, Scale, scale_of
from spritz_testing.daemons.runs.campaign import plan_of
from spritz_testing.daemons.system.machine import USERS
from spritz_testing.daemons.system.world import EPOCH
from spritz_testing.daemons.workloads.workload import NewJob, cpus_of, script_of
from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.day import Day

T = TypeVar("T")


class Cluster:
    """A cluster with accounting in a world of its own. Only in a forked process."""

    def __init__(self, seed: int, directory: Path, nodes: int = 2) -> None:
        from spritz_testing.daemons import seam
        from spritz_testing.daemons.clients.users import Users
        from spritz_testing.daemons.site import Site
        from spritz_testing.daemons.system.network import Network
        from spritz_testing.daemons.system.world import World

        self.world = World(seed, directory)
        self.world.network = Network(self.world)
        parts = frozenset({"accounting"})
        self.originals = [original for original, _ in seam.replacements()]
        seam.install(self.world)
        self.site = Site(self.world, Scale(nodes=nodes, parts=parts))
        assert self.site.accounting is not None
        self.accounting = self.site.accounting
        self.users = Users(self.site)
        os.environ["SLURM_CONF"] = str(self.site.conf)
        self.controller = self.site.units["ctl1/slurmctld"]
        self.site.start()

    def submit(self, tag: str, user: str = "alice", **wanted: Any) -> None:
        fields = {"script": script_of(tag, 10), "environment": (f"TAG={tag}",), "memory_mib_per_node": 500, **wanted}
        data = {"wanted": msgspec.to_builtins(NewJob(tag=tag, **fields))}
        self.users.perform(Action(at=0.0, kind="submit", target=user, data=data))

    def ask(self, kind: str, user: str = "alice", **data: Any) -> None:
        self.users.perform(Action(at=0.0, kind=kind, target=user, data=data))

    def told(self, main: Any) -> Any:
        """What a command of an administrator is answered."""
        from spritz_testing.daemons.accounting.client import Command

        command = Command(self.site.controllers[0], "sacct", main)
        assert self.world.run_until(lambda: command.is_over, 300.0), self.story()
        return command.result

    def jobs(self) -> list[Any]:
        rows: list[Any] = self.told(self.accounting.client.read_jobs)
        return rows

    def differences(self) -> list[str]:
        """Of the tables from what the journal says."""
        from spritz_testing.daemons.accounting import records

        host = self.site.controllers[0]
        found = records.journal_differences(self.accounting.database.path, host, host.directory / "state")
        assert found is not None
        return found

    def story(self) -> str:
        return "\n".join(
            f"{at - EPOCH:12.6f} {text.replace(str(self.world.root), '')}" for at, text in self.world.story
        )


def simulated(work: Callable[..., T], *arguments: Any, seed: int = 1, **options: Any) -> T:
    """What `work(cluster, *arguments)`, of this module, returns for a cluster in a process of its own."""
    answer: T = apart(_simulate, work, arguments, seed, options)
    return answer


def _simulate(work: Callable[..., T], arguments: tuple[Any, ...], seed: int, options: dict[str, Any]) -> T:
    directory = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir="/dev/shm"))
    gc.disable()
    try:
        return work(Cluster(seed, directory, **options), *arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _cancelled(cluster: Cluster) -> Any:
    cluster.world.run(5.0)
    cluster.submit("a", held=True)
    cluster.world.run(1.0)
    cluster.ask("cancel", tag="a")
    cluster.world.run(1.0)
    return [(row.job.job_id, row.job.state, row.job.account, row.job.user) for row in cluster.jobs()], cluster.story()


def test_a_cancelled_job_is_in_the_records() -> None:
    """From the submission to sacct's answer, by the daemons alone."""
    rows, story = simulated(_cancelled)
    assert rows == [(1, "CANCELLED", "physics", "alice")], story


def _refused(cluster: Cluster, kind: str) -> Any:
    from spritz_testing.daemons.accounting import faults

    cluster.world.run(5.0)
    faults.inject(cluster.accounting, kind, {"seconds": 300.0})
    cluster.submit("a")
    cluster.world.run(320.0)
    return [row.job.state for row in cluster.jobs()], cluster.world.counts, cluster.story()


@pytest.mark.parametrize("kind", ["accounts full", "accounts read-only"])
def test_a_database_that_refuses_is_tried_every_ten_seconds_at_most(kind: str) -> None:
    """Each attempt registers again and sends all associations: there were two a second where that was refused, too."""
    states, counts, story = simulated(_refused, kind)
    assert states == ["COMPLETED"], story
    assert 30 <= counts["message slurmdbd RegisterCluster"] <= 70, story


class Outcome(msgspec.Struct, kw_only=True):
    """How a disturbed run ended."""

    #: of the tables from the journal; of sreport from sacct; of the records from what nodes ran
    differences: list[str]
    usage: list[str]
    runs: list[str]
    jobs: int
    counts: dict[str, int]
    story: str
    unhandled: list[str]
    cpu_seconds: float
    virtual_seconds: float


def disturbed(cluster: Cluster, rounds: int, kinds: tuple[str, ...], quiet_seconds: float = 4200.0) -> Outcome:
    """Users submit, hold and cancel jobs while faults happen; then all is well until everything has ended."""
    from spritz_testing.daemons.accounting import faults, records

    began, world = process_time(), cluster.world
    chance = random.Random(world.seed)
    world.run(8.0)
    for number in range(rounds):
        for job in range(3):
            tag, user = f"{number}.{job}", chance.choice(("alice", "bob", "carol", "dave"))
            script = script_of(tag, chance.choice((1, 20, 200)), chance.choice((0, 0, 0, 3)))
            cluster.submit(tag, user, script=script, array="0-2" if chance.random() < 0.2 else "")
            world.run(chance.uniform(0.0, 0.3))
            if chance.random() < 0.5:
                cluster.ask(chance.choice(("cancel", "hold", "release")), user, tag=tag)
        kind = chance.choice(kinds)
        if kind == "slurmctld killed":
            cluster.controller.kill()
        else:
            faults.inject(cluster.accounting, kind, faults.KINDS[kind].draw(chance))
        world.run(chance.choice((0.01, 0.1, 1.0, 8.0, 60.0)))
    world.run(quiet_seconds)
    jobs = cluster.jobs()
    begin, end = (int(at) // 3600 * 3600 for at in (EPOCH, world.now))
    _, holders = cluster.told(lambda: cluster.accounting.client.read_usage(begin, end))
    return Outcome(
        differences=cluster.differences(),
        usage=records.usage_differences(jobs, holders, begin, end),
        runs=records.run_differences(cluster.site.history.entries, jobs, slack_seconds=30.0),
        jobs=len(jobs),
        counts=world.counts,
        story=cluster.story(),
        unhandled=[repr(each) for each in world.unhandled],
        cpu_seconds=process_time() - began,
        virtual_seconds=world.now - EPOCH,
    )


@pytest.mark.slow
def test_twenty_kills_of_slurmdbd_and_slurmctld_lose_nothing_and_store_nothing_twice() -> None:
    outcome = simulated(disturbed, 40, ("slurmdbd killed", "slurmctld killed"), seed=7)
    assert not outcome.differences, outcome.story
    assert outcome.jobs > 100, outcome.story
    assert outcome.counts["fault slurmdbd killed"] >= 15


@pytest.mark.slow
def test_a_commit_whose_acknowledgement_is_lost_stores_nothing_twice() -> None:
    outcome = simulated(disturbed, 30, ("accounts acknowledgement lost",), seed=3)
    assert not outcome.differences, outcome.story
    assert outcome.counts["database acknowledgement lost"] >= 20
    assert outcome.counts["log outbox.refused"] >= 5, "the controller was told of the error"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_records_are_the_truth_after_every_kind_of_fault(seed: int) -> None:
    """By the journal, by what nodes ran, and for sreport by the jobs that sacct tells of."""
    from spritz_testing.daemons.accounting import faults

    outcome = simulated(disturbed, 25, (*faults.KINDS, "slurmctld killed"), seed=seed)
    assert not [*outcome.differences, *outcome.usage, *outcome.runs], outcome.story
    assert not outcome.unhandled, outcome.story


def test_a_suspension_outside_of_its_jobs_times_has_a_clock_that_was_set() -> None:
    """It was suspended while the clock was two hours behind."""
    from spritz_testing.daemons.accounting import records

    job = JobRecord(
        number=1,
        job_id=1,
        account="physics",
        user="alice",
        cpus=2,
        started_at=100.0,
        ended_at=1100.0,
        suspended_seconds=300.0,
    )
    used = HolderUsage(cluster="sim", account="physics", user="alice", tres="cpu", seconds=2000)
    history = Day()

    def differences(*clocks: tuple[float, float, float], seconds: int = 2000) -> list[str]:
        story = Story(history.history.entries, history.final(clocks=clocks))
        holders = [replace(used, seconds=seconds)]
        return records.usage_differences([JobWithSteps(job=job)], holders, 0, 3600, set_by=story.set_by)

    text = "user alice of account physics: sreport has 2000 CPU seconds, the jobs have 1400"
    assert differences((0.0, inf, 0.0)) == [text]
    assert differences((0.0, 1500.0, 0.0), (1500.0, 1600.0, -7200.0), (1600.0, inf, 0.0)) == [text]
    assert differences((0.0, 400.0, 0.0), (400.0, 410.0, -20.0), (410.0, inf, 0.0)) == [text]
    set_back = (0.0, 400.0, 0.0), (400.0, 900.0, -7200.0), (900.0, inf, 0.0)
    assert not differences(*set_back)
    assert differences(*set_back, seconds=1300)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_story() -> None:
    first, second = (
        simulated(disturbed, 8, ("slurmdbd killed", "accounts full", "slurmdbd without power"), 600.0, seed=5)
        for _ in range(2)
    )
    assert first.story == second.story


def _limited(cluster: Cluster) -> Any:
    cluster.world.run(8.0)
    cluster.accounting.unit.stop()
    cluster.world.run(60.0)
    for number in range(10):
        cluster.submit(f"c{number}", "carol", script=script_of(f"c{number}", 100))
        cluster.submit(f"d{number}", "dave", script=script_of(f"d{number}", 200), cpus_per_task=4, qos="low")
        cluster.world.run(20.0)
        if number == 5:
            cluster.controller.kill()
    for number in range(19):
        cluster.submit(f"b{number}", "bob", held=True)
        cluster.world.run(0.2)
    cluster.world.run(1200.0)
    most: dict[int, int] = {}
    now: dict[int, dict[tuple[int, str], int]] = {}
    for entry in cluster.site.history.entries:
        if isinstance(entry, Began):
            jobs = now.setdefault(entry.uid, {})
            jobs[entry.job_id, entry.node] = len(entry.job_cpus)
            most[entry.uid] = max(
                most.get(entry.uid, 0), sum(jobs.values()) if entry.uid == USERS["dave"] else len(jobs)
            )
        elif isinstance(entry, Ended):
            for jobs in now.values():
                jobs.pop((entry.job_id, entry.node), None)
    refused = [entry for entry in cluster.site.history.entries if isinstance(entry, Operation) and entry.answered_at]
    codes = [
        entry.answer for entry in refused if entry.uid == USERS["bob"] and entry.outcome is history.Outcome.REFUSED
    ]
    return most, codes, cluster.story()


def test_limits_hold_while_slurmdbd_is_away() -> None:
    """MaxJobs of carol, MaxTRESPerUser of a QOS, MaxSubmitJobs of bob, also after the controller was killed."""
    most, codes, story = simulated(_limited, nodes=6)
    assert most[USERS["carol"]] == 3, story
    assert most[USERS["dave"]] == 24, story
    assert codes == ["ESLURM_ACCOUNTING_POLICY"] * 5, story


def _powerless(cluster: Cluster, delay: float) -> tuple[list[str], str]:
    from spritz.model.limits.records import Book, GetBook

    made = cluster.accounting.begin_policy(cluster.site.login)
    assert cluster.world.run_until(lambda: made.is_over, 60.0)
    cluster.world.run(delay)
    cluster.accounting.host.lose_power()
    cluster.world.run(5.0)
    cluster.accounting.host.boot()
    cluster.accounting.unit.start()
    cluster.world.run(5.0)
    book: Book = cluster.told(lambda: cluster.accounting.client.call(GetBook(), Book))
    return [account.name for account in book.accounts], cluster.story()


def test_accounts_that_sacctmgr_was_told_are_made_outlive_a_loss_of_power() -> None:
    accounts, story = simulated(_powerless, 0.0, seed=2)
    assert set(accounts) == {"root", *policy.ACCOUNTS}, story


def _lately_imported(cluster: Cluster) -> list[str]:
    disturbed(cluster, 6, ("slurmdbd killed", "slurmdbd restarted", "accounts full", "accounts set back"), 600.0)
    kept = {id(original) for original in cluster.originals}
    return [
        f"{name}.{attribute}"
        for name, module in sys.modules.items()
        if name.startswith("spritz.")
        for attribute, value in vars(module).items()
        if id(value) in kept
    ]


def test_no_production_code_that_is_imported_late_meets_the_real_machine() -> None:
    assert simulated(_lately_imported) == []


def test_every_job_of_a_plan_fits_into_its_limits_alone() -> None:
    """One that does not waits for ever, and the checks take it for one that was overlooked."""
    for seed in range(1, 40):
        scale = scale_of(MIXED, seed, frozenset({"accounting"}))
        for action in plan_of(seed, scale).actions:
            if action.kind not in ("submit", "srun", "salloc"):
                continue
            job = msgspec.convert(action.data["wanted"], NewJob)
            cpus = cpus_of(job) if job.nodes_min <= scale.nodes else 0  # more nodes than there are: refused
            for limit in policy.limits():
                concerns = limit.qos == job.qos or job.account in (limit.accounts or ())
                if concerns and limit.uid in (None, USERS[action.target]) and limit.cpus is not None:
                    assert cpus <= limit.cpus, f"seed {seed}: {job.tag} does not fit into {limit.name}"


def test_every_limit_is_told_to_the_checks() -> None:
    told = {limit.name: limit for limit in policy.limits()}
    carol, everyone = USERS["carol"], frozenset({"science", "physics", "biology"})
    high = frozenset({"high"})
    assert told["Max biology carol"] == Limit(
        name="Max biology carol",
        accounts=frozenset({"biology"}),
        uid=carol,
        jobs=3,
        submitted=16,
        preceded={"jobs": high, "submitted": high},
    )
    science = told["Grp science"]
    assert (science.accounts, science.submitted, science.preceded["jobs"]) == (everyone, 60, frozenset({"low"}))
    assert told["PU QOS high"] == Limit(name="PU QOS high", qos="high", per_user=True, jobs=2, submitted=5)
