"""What was used, with decay: in closed form, up the tree, and across restarts. Source: slurm.conf(5)
PriorityDecayHalfLife, TRESBillingWeights; sacctmgr(1) UsageFactor, NoDecay."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.machine import Machine
from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import Configure
from spritz.model.commands.job import ResumeJob, SuspendJob, UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import AdoptUsage, Association, Policy, Qos, ResetUsage, SetPolicy, UsageRow
from spritz.model.limits.usage import RAW, WALL, Decay, Usage, billable
from spritz.model.node.partition import Partition
from spritz_testing.builders import ALICE, World, capacity

HOUR = 3600.0
TREE = (
    Association(id=1, cluster="cluster", account="root", qos="normal"),
    Association(id=2, cluster="cluster", account="science", parent="root"),
    Association(id=3, cluster="cluster", account="chem", parent="science"),
    Association(id=4, cluster="cluster", account="chem", user="alice", is_default=True),
    Association(id=5, cluster="cluster", account="arts", parent="root"),
)
NORMAL, HALF = Qos(name="normal", id=1), Qos(name="half", id=2, usage_factor=0.5)
KEPT = Qos(name="kept", id=3, flags="NoDecay")


def settings_of(half_life: float = HOUR, **more: object) -> ClusterSettings:
    return ClusterSettings(priority_policy=PriorityPolicy(half_life_seconds=half_life), **more)  # type: ignore[arg-type]


@pytest.fixture
def site(make_world: Callable[..., World]) -> Callable[..., World]:
    def make(half_life: float = HOUR, **more: object) -> World:
        made = make_world(settings=settings_of(half_life), hardware=capacity(cpus=8), **more)
        made.ok(SetPolicy(policy=Policy(version=1, associations=TREE, qos=(NORMAL, HALF, KEPT))))
        return made

    return make


def used(made: World, key: tuple[str, object], name: str = RAW) -> float:
    return made.state.usage.amount(key, name, made.now)  # type: ignore[arg-type]


def run(made: World, seconds: float, cpus: int = 4, **spec: Any) -> int:
    job = made.submit(**spec)
    made.start(job, cpus=cpus)
    made.advance(seconds)
    made.finished(job)
    return job


def test_a_job_counts_for_its_association_every_account_above_and_its_qos(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    run(made, 100, cpus=4)
    for key in (("a", 1), ("a", 2), ("a", 3), ("a", 4), ("q", "normal")):
        assert used(made, key) == 400.0
        assert used(made, key, "cpu") == 400.0
        assert used(made, key, "node") == used(made, key, WALL) == 100.0
    assert used(made, ("a", 5)) == 0.0


def test_usage_grows_while_the_job_runs_and_no_event_is_needed_for_it(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    made.start(made.submit(), cpus=2)
    events = len(made.events)
    made.now += 50
    assert used(made, ("a", 4)) == 100.0
    assert len(made.events) == events


def test_half_of_it_is_gone_after_each_half_life(site: Callable[..., World]) -> None:
    made = site()
    run(made, 1.0, cpus=8)
    before = used(made, ("a", 1))
    made.now += HOUR
    assert used(made, ("a", 1)) == pytest.approx(before / 2, rel=1e-12)
    made.now += 9 * HOUR
    assert used(made, ("a", 1)) == pytest.approx(before / 1024, rel=1e-12)


def test_a_job_that_runs_for_ever_approaches_rate_times_half_life_over_ln_2(site: Callable[..., World]) -> None:
    made = site()
    made.start(made.submit(), cpus=3)
    made.now += 60 * HOUR
    assert used(made, ("a", 2)) == pytest.approx(3 * HOUR / log(2), rel=1e-12)


def test_usage_factor_and_no_decay(site: Callable[..., World]) -> None:
    made = site()
    run(made, 100, cpus=4, qos="half")
    assert used(made, ("q", "half"), WALL) == pytest.approx(50, rel=0.02)
    assert used(made, ("q", "half")) == used(made, ("a", 4)) == pytest.approx(200, rel=0.02)
    run(made, 100, cpus=1, qos="kept")
    kept = used(made, ("q", "kept"))
    made.now += 100 * HOUR
    assert used(made, ("q", "kept")) == kept == 100.0
    assert used(made, ("a", 4)) < 1.0


def test_a_suspended_job_uses_nothing(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    job = made.submit()
    made.start(job, cpus=2)
    made.advance(10)
    made.ok(SuspendJob(target=JobTarget(job)))
    made.advance(1000)
    made.ok(ResumeJob(target=JobTarget(job)))
    made.advance(5)
    made.finished(job)
    assert used(made, ("a", 4)) == 30.0


def test_billing_weights_of_the_partition(make_world: Callable[..., World]) -> None:
    nodes = ("n1", "n2", "n3", "n4")
    partition = Partition(name="debug", nodes=nodes, default=True, billing_weights=(("cpu", 1.5), ("node", 0.25)))
    made = make_world(settings=settings_of(0.0), hardware=capacity(cpus=8), partitions=(partition,))
    made.ok(SetPolicy(policy=Policy(version=1, associations=TREE, qos=(NORMAL,))))
    job = run(made, 100, cpus=3)
    assert made.job(job).billing == 4.75
    assert used(made, ("a", 1)) == 475.0
    assert used(made, ("a", 1), "billing") == 400.0, "limits count whole numbers"
    waiting = made.submit(tasks=2, tasks_given=True)
    made.ok(UpdateJob(target=JobTarget(waiting), changes={"tasks": 4, "tasks_given": True}))
    assert made.job(waiting).billing == made.job(made.submit(tasks=4, tasks_given=True)).billing == 6.25


def test_it_survives_a_restart_in_the_middle_of_a_job(site: Callable[..., World]) -> None:
    made = site()
    run(made, 500)
    job = made.submit()
    made.start(job)
    made.advance(70)
    again = Machine.from_image(made.machine.image())
    made.advance(1000)
    mine, theirs = made.state.usage, again.state.usage
    for key in mine.entries:
        assert dict(mine.amounts(key, made.now)) == dict(theirs.amounts(key, made.now))


def test_another_half_life_holds_from_the_moment_it_is_configured(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    run(made, 100, cpus=1)
    made.now += 10 * HOUR
    made.ok(Configure(settings=settings_of(HOUR), nodes=made.nodes, partitions=made.partitions))
    assert used(made, ("a", 1)) == 100.0
    made.now += HOUR
    assert used(made, ("a", 1)) == pytest.approx(50.0)


def test_an_account_that_moves_takes_its_usage_along(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    run(made, 100, cpus=1)
    moved = tuple(replace(one, parent="arts") if one.account == "chem" and not one.user else one for one in TREE)
    made.ok(SetPolicy(policy=Policy(version=2, associations=moved, qos=(NORMAL,))))
    assert [used(made, ("a", number)) for number in (1, 2, 3, 4, 5)] == [100.0, 0.0, 100.0, 100.0, 100.0]
    assert ("q", "half") not in made.state.usage.entries


def test_reset_forgets_all_but_what_lasts_and_what_runs_goes_on(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    run(made, 100, cpus=1, qos="kept")
    made.start(made.submit(), cpus=2)
    made.advance(10)
    made.ok(ResetUsage())
    made.advance(5)
    assert used(made, ("a", 1)) == 10.0
    assert used(made, ("q", "kept")) == 100.0
    made.ok(ResetUsage(keys=(("q", "kept"),)))
    assert used(made, ("q", "kept")) == 0.0
    assert made.refused(ResetUsage(), ALICE) == "ESLURM_ACCESS_DENIED"
    for key in ((), ("a",), ("a", "2"), ("q", 2), ("x", 2), ("a", 2, 3)):
        assert made.refused(ResetUsage(keys=(key,))) == "ESLURM_NOT_SUPPORTED"


def test_adopted_usage_stands_in_place_of_the_old_and_grows_on(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    run(made, 100, cpus=1)
    made.start(made.submit(), cpus=2)
    since = made.now
    made.advance(10)
    made.ok(AdoptUsage(since=since, rows=(UsageRow(key=("a", 4), at=since, amounts={RAW: 7.0}),)))
    assert used(made, ("a", 4)) == 27.0
    assert used(made, ("a", 1)) == 20.0


def test_jobs_in_any_order_leave_what_each_alone_would() -> None:
    """Rates are whole numbers: nothing is left over when the last job has gone."""
    usage = Usage(Decay(half_life_seconds=HOUR))
    rates = ((RAW, 333_333), ("cpu", 7_000_001))
    for place in range(100):
        usage.change([("a", 1)], rates, 1, 10.0 * place)
    for place in range(100):
        usage.change([("a", 1)], rates, -1, 1000.0 + 7.0 * place)
    assert usage.entries[("a", 1)].rates == {}
    alone = Usage(Decay(half_life_seconds=HOUR))
    total = 0.0
    for place in range(100):
        alone.entries.clear()
        alone.change([("a", 1)], rates, 1, 10.0 * place)
        alone.change([("a", 1)], rates, -1, 1000.0 + 7.0 * place)
        total += alone.amount(("a", 1), "cpu", 5000.0)
    assert usage.amount(("a", 1), "cpu", 5000.0) == pytest.approx(total, rel=1e-9)


def test_rows_do_not_tell_in_which_order_names_and_keys_came_up() -> None:
    written = []
    changes = [(("a", 2), (("cpu", 1), ("mem", 2))), (("a", 1), (("node", 1),)), (("a", 2), (("billing", 1),))]
    for order in (changes, changes[::-1]):
        usage = Usage()
        for key, rates in order:
            usage.change([key], rates, 1, 0.0)
        usage.change([key for key, _rates in order], (), 1, 5.0)
        written.append([(row.key, list(row.amounts)) for row in usage.rows()])
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("most", "expected"), [("", 8 + 15 + 4 + 3), ("node", 15 + 3), ("gres", 15 + 4 + 3)], ids=["sum", "max", "max-gres"]
)
def test_billable(most: str, expected: float) -> None:
    """priority_multifactor.html: MAX of what a node has, plus the sum of what the cluster has."""
    weights = (("cpu", 1.0), ("mem", 0.25 / 1024), ("gres/gpu", 2.0), ("license/x", 3.0))
    pairs = (("cpu", 8), ("mem", 60 * 1024), ("gres/gpu", 2), ("license/x", 1))
    assert billable(weights, pairs, most) == expected


def test_an_account_that_is_reset_takes_it_from_those_above_and_below(site: Callable[..., World]) -> None:
    made = site(half_life=0.0)
    other = (*TREE, Association(id=6, cluster="cluster", account="arts", user="alice"))
    made.ok(SetPolicy(policy=Policy(version=2, associations=other, qos=(NORMAL,))))
    run(made, 100, cpus=1)
    run(made, 7, cpus=1, account="arts")
    made.ok(ResetUsage(keys=(("a", 2),)))
    assert [used(made, ("a", number)) for number in (1, 2, 3, 4, 5)] == [7.0, 0.0, 0.0, 0.0, 7.0]
    assert used(made, ("q", "normal")) == 107.0


def test_usage_goes_on_growing_when_the_clock_is_set_back(site: Callable[..., World]) -> None:
    """A machine that began a year ahead must not use nothing for a year."""
    made = site(half_life=0.0)
    made.now += 365 * 24 * HOUR
    run(made, 100, cpus=1)
    made.now -= 365 * 24 * HOUR
    run(made, 50, cpus=1)
    assert used(made, ("a", 4)) == 150.0


def test_a_clock_that_is_set_back_adds_no_time_to_a_suspended_job(site: Callable[..., World]) -> None:
    made = site()
    made.now += HOUR
    job = made.submit(time_limit_minutes=10)
    made.start(job)
    ends_at = made.job(job).ends_at
    made.ok(SuspendJob(target=JobTarget(job)))
    made.now -= HOUR
    made.ok(ResumeJob(target=JobTarget(job)))
    assert (made.job(job).suspended_seconds, made.job(job).ends_at) == (0.0, ends_at)
