"""Limits on how many waiting jobs grow older. Source: sacctmgr(1) GrpJobsAccrue, MaxJobsAccrue; scontrol(1)
ResetAccrueTime; what Slurm 22.05 did with the same jobs.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from spritz.core.machine import Machine
from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import Configure
from spritz.model.commands.job import HoldJob, ReleaseJob, UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import Association, Policy, Qos, SetPolicy
from spritz_testing.builders import ALICE, BOB, World, capacity

ROOT = Association(id=1, cluster="cluster", account="root", qos="normal,fast")
CHEM = Association(id=2, cluster="cluster", account="chem", parent="root")
IN_CHEM = tuple(
    Association(id=number, cluster="cluster", account="chem", user=user, is_default=True)
    for number, user in ((3, "alice"), (4, "bob"))
)
QOS = (Qos(name="normal", id=1), Qos(name="fast", id=2))


def world(*, chem: Association = CHEM, qos: tuple[Qos, ...] = QOS, **more: Any) -> World:
    made = World(settings=ClusterSettings(enforce=("associations", "limits", "qos"), **more), hardware=capacity(cpus=8))
    limit(made, chem, qos)
    return made


def limit(made: World, chem: Association = CHEM, qos: tuple[Qos, ...] = QOS) -> None:
    version = made.state.rules.policy.version + 1
    made.ok(SetPolicy(policy=Policy(version=version, associations=(ROOT, chem, *IN_CHEM), qos=qos)))


def ages(made: World, *jobs: int) -> list[float]:
    """Since when each grows older."""
    return [made.job(job).grows_older_since for job in jobs]


def test_a_limit_of_the_account_lets_the_first_jobs_grow_older_and_the_next_when_one_leaves() -> None:
    made = world(chem=replace(CHEM, grp_jobs_accrue=2))
    began = made.now
    first, second, third, fourth = made.submit(), made.submit(BOB), made.submit(), made.submit(BOB)
    assert ages(made, first, second, third, fourth) == [began, began, 0.0, 0.0]
    made.advance(50)
    made.start(first)
    assert ages(made, second, third, fourth) == [began, made.now, 0.0]
    made.cancel(second, third, caller=BOB)
    assert ages(made, third, fourth) == [made.now, made.now]
    made.check()


def test_as_many_tasks_of_an_array_age_as_the_limit_allows() -> None:
    made = world(chem=replace(CHEM, grp_jobs_accrue=3))
    one = made.submit()
    array = made.submit(array="0-4")
    tasks = made.state.arrays[array]
    assert sorted(tasks) == [0, 1], "those that grow older have records of their own"
    assert ages(made, one, tasks[0], tasks[1], array) == [made.now, made.now, made.now, 0.0]
    made.advance(10)
    limit(made, replace(CHEM, grp_jobs_accrue=4))
    assert ages(made, made.state.arrays[array][2], array) == [made.now, 0.0]
    limit(made)
    assert ages(made, array) == [made.now]
    made.check()


def test_a_lower_limit_takes_nothing_from_those_that_have_begun() -> None:
    made = world()
    jobs = [made.submit() for _ in range(3)]
    limit(made, replace(CHEM, grp_jobs_accrue=1))
    assert ages(made, *jobs) == [made.now] * 3
    late = made.submit()
    made.cancel(jobs[0])
    assert ages(made, late) == [0.0], "two are still more than one"
    made.cancel(*jobs)
    assert ages(made, late) == [made.now]
    made.check()


def test_a_held_job_loses_its_place_and_waits_for_another_when_it_is_released() -> None:
    made = world(chem=replace(CHEM, max_jobs_accrue=1))
    first, second = made.submit(), made.submit()
    others = made.submit(BOB)
    began = made.now
    made.advance(5)
    made.ok(HoldJob(target=JobTarget(first)))
    assert ages(made, first, second, others) == [0.0, made.now, began], "the limit is each user's own"
    made.ok(ReleaseJob(target=JobTarget(first)))
    assert ages(made, first) == [0.0]
    made.cancel(second)
    assert ages(made, first) == [made.now]
    made.check()


def test_a_job_takes_a_place_when_its_time_comes() -> None:
    made = world(chem=replace(CHEM, max_jobs_accrue=1))
    later = made.submit(begin_at=made.now + 60)
    now = made.submit()
    assert ages(made, later, now) == [0.0, made.now]
    made.cancel(now)
    made.advance(61)
    assert ages(made, later) == [made.job(later).eligible_at]
    made.check()


def test_limits_of_the_jobs_qos_stand_in_place_of_those_of_associations() -> None:
    fast = Qos(name="fast", id=2, grp_jobs_accrue=2, max_jobs_accrue_pu=2)
    made = world(chem=replace(CHEM, grp_jobs_accrue=1, max_jobs_accrue=0), qos=(QOS[0], fast))
    jobs = [made.submit(qos="fast") for _ in range(3)]
    assert ages(made, *jobs) == [made.now, made.now, 0.0]
    assert ages(made, made.submit()) == [0.0]
    each = Qos(name="fast", id=2, max_jobs_accrue_pa=3)
    limit(made, qos=(QOS[0], each))
    assert ages(made, *jobs) == [made.now] * 3
    assert ages(made, made.submit(BOB, qos="fast")) == [0.0], "the account has its three"
    made.check()


def test_reset_accrue_time_resets_the_age_of_aging_jobs() -> None:
    made = world(chem=replace(CHEM, max_jobs_accrue=1))
    first, second = made.submit(), made.submit()
    made.advance(7)
    for job in (first, second):
        made.ok(UpdateJob(target=JobTarget(job), changes={"reset_accrue": True}), ALICE)
    assert ages(made, first, second) == [made.now, 0.0]
    made.start(first)
    assert made.refused(UpdateJob(target=JobTarget(first), changes={"reset_accrue": True})) == "ESLURM_JOB_NOT_PENDING"
    made.check()


def test_a_job_that_is_moved_comes_under_the_limits_of_where_it_goes() -> None:
    made = world(qos=(QOS[0], Qos(name="fast", id=2, max_jobs_accrue_pu=0)))
    job = made.submit()
    made.ok(UpdateJob(target=JobTarget(job), changes={"qos": "fast"}))
    assert ages(made, job) == [0.0]
    made.advance(5)
    made.ok(UpdateJob(target=JobTarget(job), changes={"qos": "normal"}))
    assert ages(made, job) == [made.job(job).eligible_at]
    made.check()


def test_with_accrue_always_limits_are_ignored_and_age_counts_from_submission() -> None:
    made = world(chem=replace(CHEM, max_jobs_accrue=0), priority_policy=PriorityPolicy(accrue_always=True))
    began = made.now
    job, held = made.submit(), made.submit(hold=True)
    made.advance(5)
    made.ok(HoldJob(target=JobTarget(job)))
    assert ages(made, job, held) == [began, began]
    made.check()


def test_nothing_is_limited_unless_limits_are_enforced() -> None:
    made = World(settings=ClusterSettings(enforce=("associations",)), hardware=capacity(cpus=8))
    limit(made, replace(CHEM, max_jobs_accrue=0))
    assert ages(made, made.submit()) == [made.now]


def test_jobs_that_wait_to_age_are_known_after_a_restart() -> None:
    made = world(chem=replace(CHEM, max_jobs_accrue=1))
    first, second = made.submit(), made.submit()
    made.machine = Machine.from_image(made.machine.image())
    made.advance(3)
    made.cancel(first)
    assert ages(made, second) == [made.now]
    assert made.state.ledger.use(("a", 2)).accruing == 1


def test_limits_that_are_no_longer_enforced_hold_no_job() -> None:
    made = world(chem=replace(CHEM, max_jobs_accrue=0))
    job = made.submit()
    made.advance(3)
    made.ok(Configure(settings=ClusterSettings(), nodes=made.nodes, partitions=made.partitions))
    assert ages(made, job) == [made.now]
    made.check()
