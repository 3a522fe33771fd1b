"""Limits on TRES minutes: what they hold back, and what they end. Source: sacctmgr(1) GrpTRESMins, GrpWall,
MaxTRESMinsPerJob, GrpTRESRunMins, UsageFactor; resource_limits.html."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.job.charges import seconds_ahead
from spritz.core.machine import Machine
from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Configure
from spritz.model.commands.job import Done, ResumeJob, SuspendJob, UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import Association, Policy, Qos, SetPolicy
from spritz.model.plan import Plan, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation
from spritz.model.states import JobState
from spritz_testing.builders import World, capacity, expect

ROOT = Association(id=1, cluster="cluster", account="root", qos="normal")
CHEM = Association(id=2, cluster="cluster", account="chem", parent="root")
ALICE = Association(id=3, cluster="cluster", account="chem", user="alice", is_default=True)
NORMAL = Qos(name="normal", id=1)
HOUR = 3600.0

Make = Callable[..., World]


@pytest.fixture
def site(make_world: Callable[..., World]) -> Make:
    def make(*, half_life: float = 0.0, safe: bool = False, **fields: Any) -> World:
        chem, alice, qos, root = (dict(fields.get(name, {})) for name in ("chem", "alice", "qos", "root"))
        enforce = ("associations", "limits", "qos", *(["safe"] if safe else []))
        settings = ClusterSettings(enforce=enforce, priority_policy=PriorityPolicy(half_life_seconds=half_life))
        made = make_world(settings=settings, hardware=capacity(cpus=8))
        associations = (replace(ROOT, **root), replace(CHEM, **chem), replace(ALICE, **alice))
        made.ok(SetPolicy(policy=Policy(version=1, associations=associations, qos=(replace(NORMAL, **qos),))))
        return made

    return make


def refusal(made: World, job: int, cpus: int = 1) -> str:
    """The limit that the core names when a scheduler starts the job; "" if it starts."""
    allocation = Allocation(partition="debug", nodes=(made.free_share("n1", cpus),))
    outcome = made.do(ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job, allocation=allocation),))))
    messages = expect(outcome.reply, Done).messages
    return messages[0].rpartition("limit ")[2] if messages else ""


def end_of(made: World, job: int, seconds: float) -> tuple[JobState, Reason, float]:
    """State, reason and run time after so long."""
    made.advance(seconds)
    record = made.job(job)
    return record.state, record.reason, record.ended_at - record.started_at if record.ended_at else 0.0


@pytest.mark.parametrize("where", ["chem", "alice", "qos"])
def test_jobs_end_when_the_minutes_of_their_group_are_used_up(site: Make, where: str) -> None:
    made = site(**{where: {"grp_tres_mins": "cpu=10"}})
    jobs = [made.submit(), made.submit()]
    for job in jobs:
        made.start(job, cpus=2)
    assert end_of(made, jobs[0], 149)[0] is JobState.RUNNING
    for job in jobs:
        state, reason, ran = end_of(made, job, 2)
        assert (state, reason) == (JobState.TIMEOUT, Reason.TIME_LIMIT)
        assert ran == pytest.approx(150.0), "4 CPUs use 10 minutes of one in 150 seconds"
    third = made.submit()
    assert refusal(made, third) == ("QOSGrpCPUMinutesLimit" if where == "qos" else "AssocGrpCPUMinutesLimit")


def test_decay_gives_minutes_back(site: Make) -> None:
    made = site(chem={"grp_tres_mins": "node=1"}, half_life=HOUR)
    job = made.submit()
    made.start(job)
    again = made.submit()
    due = made.machine.next_deadline()
    assert due is not None
    assert end_of(made, job, due - made.now)[0] is JobState.TIMEOUT
    assert refusal(made, again) == "AssocGrpNodeMinutes"
    made.now += HOUR
    assert refusal(made, again) == ""
    assert end_of(made, again, 100)[2] == pytest.approx(30.2, abs=0.1), "half of it was there again"


def test_nothing_is_started_for_an_instant(site: Make) -> None:
    """Usage fades below its limit as soon as it has ended a job: there must be enough left for a minute of the next."""
    made = site(chem={"grp_tres_mins": "cpu=10"}, half_life=HOUR)
    job, waits = made.submit(), made.submit()
    made.start(job, cpus=4)
    assert end_of(made, job, 200)[0] is JobState.TIMEOUT
    brief = made.submit(time_limit_minutes=1)
    minute = HOUR * log2(10 / 9)  # until one of the ten is left
    for after, refused in ((30.0, "AssocGrpCPUMinutesLimit"), (minute - 250, "AssocGrpCPUMinutesLimit"), (230, "")):
        made.now += after
        assert {refusal(made, waits), refusal(made, brief)} == {refused}


def test_usage_that_fades_as_fast_as_it_grows_never_reaches_the_limit(site: Make) -> None:
    made = site(chem={"grp_tres_mins": "cpu=90"}, half_life=HOUR)
    job = made.submit()
    made.start(job, cpus=1)  # it approaches 60 / ln 2 = 86.6 minutes
    assert end_of(made, job, 1000 * HOUR)[0] is JobState.RUNNING


def test_limits_of_root_bind_no_job(site: Make) -> None:
    made = site(root={"grp_tres_mins": "cpu=1", "grp_wall": 1})
    job = made.submit()
    made.start(job, cpus=4)
    assert end_of(made, job, HOUR)[0] is JobState.RUNNING


def test_wall_clock_of_all_jobs_together(site: Make) -> None:
    made = site(chem={"grp_wall": 2})
    jobs = [made.submit(), made.submit()]
    for job in jobs:
        made.start(job, cpus=3)
    assert [end_of(made, job, 100)[2] for job in jobs] == [60.0, 60.0]
    assert refusal(made, made.submit()) == "AssocGrpWallLimit"


def test_a_job_ends_when_it_has_used_its_own_minutes(site: Make) -> None:
    made = site(alice={"max_tres_mins": "cpu=4"})
    job = made.submit(time_limit_minutes=2)
    made.start(job, cpus=2)
    made.ok(UpdateJob(target=JobTarget(job), changes={"time_limit_minutes": 60}))
    made.advance(50)
    made.ok(SuspendJob(target=JobTarget(job)))
    made.advance(1000)
    made.ok(ResumeJob(target=JobTarget(job)))
    state, _, ran = end_of(made, job, 100)
    assert (state, ran) == (JobState.TIMEOUT, 1120.0)


def test_a_limit_of_the_qos_stands_in_place_of_that_of_the_account(site: Make) -> None:
    made = site(chem={"grp_tres_mins": "cpu=1,node=100"}, qos={"grp_tres_mins": "cpu=10"})
    job = made.submit()
    made.start(job)
    assert end_of(made, job, 1000)[2] == pytest.approx(600.0)


def test_usage_factor_makes_minutes_last_longer(site: Make) -> None:
    made = site(qos={"grp_tres_mins": "cpu=1", "usage_factor": 0.25})
    job = made.submit()
    made.start(job)
    assert end_of(made, job, 1000)[2] == pytest.approx(240.0)


def test_safe_starts_what_can_run_to_its_end_and_ends_nothing(site: Make) -> None:
    made = site(chem={"grp_tres_mins": "cpu=100"}, safe=True)
    first, second, large = (made.submit(time_limit_minutes=minutes) for minutes in (40, 61, 101))
    assert refusal(made, large) == "AssocGrpCPUMinutesLimit"
    assert refusal(made, first) == ""
    assert refusal(made, second) == "AssocGrpCPUMinutesLimit", "the first may use 40 of 100"
    made.advance(10 * 60)
    made.finished(first)
    assert refusal(made, second) == "", "it has used but 10"
    assert end_of(made, second, 61 * 60 + 1)[2] == 61 * 60, "it ends at its time limit"


def test_safe_starts_what_alone_ends_within_the_wall_clock_that_is_left(site: Make) -> None:
    made = site(chem={"grp_wall": 60}, safe=True)
    long, first, second = (made.submit(time_limit_minutes=minutes) for minutes in (61, 40, 40))
    assert refusal(made, long) == "AssocGrpWallLimit"
    assert (refusal(made, first), refusal(made, second)) == ("", ""), "as in Slurm, each by itself"


def test_safe_holds_back_a_job_that_alone_would_use_too_much(site: Make) -> None:
    made = site(alice={"max_tres_mins": "cpu=60"}, safe=True)
    assert refusal(made, made.submit(time_limit_minutes=31), cpus=2) == "AssocMaxCpuMinutesPerJobLimit"
    assert refusal(made, made.submit(time_limit_minutes=30), cpus=2) == ""


def test_factor_of_usage_counts_ahead_only_where_the_qos_says_so(site: Make) -> None:
    for flags, expected in (("", ""), ("UsageFactorSafe", "QOSGrpCPUMinutesLimit")):
        made = site(qos={"grp_tres_mins": "cpu=60", "usage_factor": 2.0, "flags": flags}, safe=True)
        assert refusal(made, made.submit(time_limit_minutes=40)) == expected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"chem": {"grp_tres_run_mins": "cpu=100"}}, "AssocGrpCPURunMinutesLimit"),
        ({"qos": {"grp_tres_run_mins": "cpu=100"}}, "QOSGrpCPURunMinutesLimit"),
        ({"qos": {"max_tres_run_mins_pu": "cpu=100"}}, "QOSGrpCPURunMinutesLimit"),
        ({"qos": {"max_tres_run_mins_pa": "cpu=100"}}, "QOSGrpCPURunMinutesLimit"),
    ],
)
def test_minutes_that_running_jobs_may_still_use(site: Make, fields: dict[str, Any], reason: str) -> None:
    made = site(**fields)
    first, second = made.submit(time_limit_minutes=80), made.submit(time_limit_minutes=30)
    assert refusal(made, first) == ""
    assert refusal(made, second) == reason
    made.advance(10 * 60)
    assert refusal(made, second) == "", "70 are left of the first: time has passed"


def test_a_suspended_job_keeps_the_minutes_that_it_has_left(site: Make) -> None:
    made = site(chem={"grp_tres_run_mins": "cpu=100"})
    first, second = made.submit(time_limit_minutes=80), made.submit(time_limit_minutes=40)
    made.start(first)
    made.advance(10 * 60)
    made.ok(SuspendJob(target=JobTarget(first)))
    for _ in range(3):
        made.advance(30 * 60)
        assert refusal(made, second) == "AssocGrpCPURunMinutesLimit", "70 are left of the first, as long as it waits"
        key = ("a", CHEM.id)
        left = made.state.minutes.committed.seconds(key, "cpu", made.now)
        assert left == seconds_ahead(made.job(first), made.now) == 70 * 60
    made.ok(ResumeJob(target=JobTarget(first)))
    made.advance(11 * 60)
    assert refusal(made, second) == ""


def test_a_qos_that_denies_refuses_at_submission(site: Make) -> None:
    deny = {"flags": "DenyOnLimit", "grp_tres_mins": "cpu=10"}
    made = site(qos=deny)
    assert made.submit_refused(time_limit_minutes=11) == "ESLURM_ACCOUNTING_POLICY"
    job = made.submit(time_limit_minutes=10)
    made.start(job)
    made.advance(601)
    assert made.submit_refused(time_limit_minutes=1) == "ESLURM_ACCOUNTING_POLICY"


def test_minutes_may_be_taken_from_running_jobs(site: Make) -> None:
    """A limit that is lowered below what was used ends what runs, as in Slurm."""
    made = site()
    job = made.submit()
    made.start(job)
    made.advance(600)
    lowered = (ROOT, replace(CHEM, grp_tres_mins="cpu=5"), ALICE)
    made.ok(SetPolicy(policy=Policy(version=2, associations=lowered, qos=(NORMAL,))))
    made.tick()
    assert made.job(job).state is JobState.TIMEOUT


def test_limit_factor_scales_limits_of_associations_alone(site: Make) -> None:
    made = site(chem={"grp_tres": "cpu=2"}, qos={"limit_factor": 1.5})
    assert refusal(made, made.submit(), cpus=3) == ""
    assert refusal(made, made.submit(), cpus=1) == "AssocGrpCpuLimit"


def test_a_controller_that_comes_back_ends_them_in_time(site: Make) -> None:
    made = site(chem={"grp_tres_mins": "cpu=10"}, half_life=100 * HOUR)
    job = made.submit()
    made.start(job)
    made.advance(200)
    made.start(made.submit())
    due = made.machine.next_deadline()
    assert due is not None
    again = Machine.from_image(made.machine.image())
    assert again.next_deadline() == pytest.approx(due)
    made.advance(300)
    assert made.job(job).state is JobState.TIMEOUT


def test_limits_that_are_enforced_from_now_on_end_what_runs(site: Make) -> None:
    made = site(chem={"grp_tres_mins": "cpu=1"})
    off = replace(made.settings, enforce=("associations",))
    made.ok(Configure(settings=off, nodes=made.nodes, partitions=made.partitions))
    job = made.submit()
    made.start(job)
    assert end_of(made, job, 600)[0] is JobState.RUNNING
    made.ok(Configure(settings=made.settings, nodes=made.nodes, partitions=made.partitions))
    made.tick()
    assert made.job(job).state is JobState.TIMEOUT


@pytest.mark.parametrize("minutes", [3, 2])
def test_a_job_that_asks_for_more_than_its_own_minutes_waits_whether_jobs_are_safe_or_not(
    site: Make, minutes: int
) -> None:
    """As Slurm 22.05 has it without `safe`."""
    made = site(alice={"max_tres_mins": "cpu=4"})
    job = made.submit(time_limit_minutes=minutes)
    allocation = Allocation(partition="debug", nodes=(made.free_share("n1", 2),))
    outcome = made.do(ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job, allocation=allocation),))))
    refused = (f"job {job}: limit AssocMaxCpuMinutesPerJobLimit",) if minutes > 2 else ()
    assert expect(outcome.reply, Done).messages == refused
