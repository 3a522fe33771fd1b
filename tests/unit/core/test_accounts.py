"""Accounts, QOS and limits at submission and at the start. Source: slurm.conf(5) AccountingStorageEnforce."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.commands.job import Done, HoldJob, UpdateJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import Association, ChangePolicy, Policy, PolicyChange, Qos, SetPolicy, WcKey
from spritz.model.node.partition import Partition
from spritz.model.plan import Plan, PlannedStart
from spritz.model.resources import Allocation
from spritz_testing.builders import ALICE, BOB, World, capacity, expect, task_mask

ROOT_ACCOUNT = Association(id=1, cluster="cluster", account="root", qos="normal")
CHEM = Association(id=2, cluster="cluster", account="chem", parent="root")
ALICE_IN_CHEM = Association(id=3, cluster="cluster", account="chem", user="alice", is_default=True)
NORMAL = Qos(name="normal", id=1)
FAST = Qos(name="fast", id=2)


def world(
    *,
    chem: Association = CHEM,
    alice: Association = ALICE_IN_CHEM,
    qos: tuple[Qos, ...] = (NORMAL, FAST),
    partitions: tuple[Partition, ...] | None = None,
    **more: Any,
) -> World:
    """One account with one user, all of it enforced."""
    settings = ClusterSettings(enforce=("associations", "limits", "qos"), **more)
    made = World(settings=settings, hardware=capacity(cpus=8), partitions=partitions)
    made.ok(SetPolicy(policy=Policy(version=1, associations=(ROOT_ACCOUNT, chem, alice), qos=qos)))
    return made


def start_messages(made: World, job_id: int, cpus: int = 1) -> tuple[str, ...]:
    """What the core says of a start that a scheduler proposes."""
    allocation = Allocation(partition="debug", nodes=(made.free_share("n1", cpus),))
    outcome = made.do(ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job_id, allocation=allocation),))))
    return expect(outcome.reply, Done).messages


def test_defaults_are_filled_in_and_strangers_are_refused() -> None:
    made = world()
    spec = made.job(made.submit()).spec
    assert (spec.account, spec.qos) == ("chem", "normal")
    assert made.submit_refused(BOB) == "ESLURM_INVALID_ACCOUNT"
    assert made.submit_refused(account="phys") == "ESLURM_INVALID_ACCOUNT"
    assert made.submit_refused(qos="fast") == "ESLURM_INVALID_QOS"
    made.check()


def test_what_is_not_enforced_is_set_right_for_the_records() -> None:
    """An account that the user lacks is replaced by the default, and a user without association has QOS normal."""
    made = World(hardware=capacity(cpus=8))
    made.ok(SetPolicy(policy=Policy(version=1, associations=(ROOT_ACCOUNT, CHEM, ALICE_IN_CHEM), qos=(NORMAL, FAST))))
    spec = made.job(made.submit(account="phys", qos="fast")).spec
    assert (spec.account, spec.qos) == ("chem", "fast")
    spec = made.job(made.submit(BOB, account="phys")).spec
    assert (spec.account, spec.qos) == ("phys", "normal")


def test_users_cannot_move_a_job_to_an_account_or_qos_of_others() -> None:
    made = world()
    job = made.submit()
    for field, value, code in (("account", "phys", "ESLURM_INVALID_ACCOUNT"), ("qos", "fast", "ESLURM_INVALID_QOS")):
        assert made.refused(UpdateJob(target=JobTarget(job), changes={field: value}), ALICE) == code


@pytest.mark.parametrize("names", [("debug", "gpu"), ("gpu", "debug")])
def test_a_job_counts_in_each_partition_in_which_it_waits(names: tuple[str, ...]) -> None:
    """Answers of Slurm 22.05: limits on submission of the QOS of all its partitions hold, and DenyOnLimit of any."""
    home = Qos(name="home", id=3, max_submit_pu=1, max_tres_pj="cpu=2", flags="DenyOnLimit")
    nodes = ("n1", "n2", "n3", "n4")
    partitions = (Partition(name="debug", nodes=nodes, default=True), Partition(name="gpu", nodes=nodes, qos="home"))
    made = world(qos=(NORMAL, home), partitions=partitions)
    assert made.submit_refused(partitions=names, tasks=3) == "ESLURM_ACCOUNTING_POLICY"
    job = made.submit(partitions=names)
    assert made.submit_refused(partitions=("gpu",)) == "ESLURM_ACCOUNTING_POLICY"
    assert made.submit_refused(partitions=names) == "ESLURM_ACCOUNTING_POLICY"
    other = made.submit(partitions=("debug",))
    move = UpdateJob(target=JobTarget(other), changes={"partitions": names})
    assert made.refused(move, ALICE) == "ESLURM_ACCOUNTING_POLICY"
    assert start_messages(made, job) == ()  # in debug
    made.ok(move, ALICE)
    made.check()


def test_submit_limits_count_every_task_of_an_array() -> None:
    made = world(alice=replace(ALICE_IN_CHEM, max_submit=3))
    assert made.submit_refused(array="0-3") == "ESLURM_ACCOUNTING_POLICY"
    array = made.submit(array="0-2")
    refusal = made.submit_outcome().rejection
    assert refusal is not None
    assert refusal.details == ("AssocMaxSubmitJobLimit",)
    made.cancel(array)
    made.submit()
    made.check()


def test_the_core_drops_a_start_beyond_a_limit_of_the_account() -> None:
    made = world(chem=replace(CHEM, grp_tres="cpu=3"))
    first, second = made.submit(), made.submit()
    assert start_messages(made, first, 2) == ()
    assert start_messages(made, second, 2) == (f"job {second}: limit AssocGrpCpuLimit",)
    assert start_messages(made, second, 1) == ()
    made.check()


def test_deny_on_limit_refuses_what_could_never_start() -> None:
    strict = replace(NORMAL, flags="DenyOnLimit", max_tres_pj="cpu=2", max_wall=10)
    made = world(qos=(strict,))
    refusal = made.submit_outcome(tasks=3, tasks_given=True).rejection
    assert refusal is not None
    assert refusal.details == ("QOSMaxCpuPerJobLimit",)
    refusal = made.submit_outcome(time_limit_minutes=11).rejection
    assert refusal is not None
    assert refusal.details == ("QOSMaxWallDurationPerJobLimit",)
    assert made.job(made.submit(tasks=2, tasks_given=True)).time_limit_minutes == 10, "the longest that it may have"


def test_use_is_kept_by_an_image_and_is_nothing_when_all_is_over() -> None:
    made = world()
    job = made.submit()
    made.start(job, cpus=2)
    made.submit(array="0-4")
    again = Machine.from_image(made.machine.image())
    assert again.state.ledger.uses == made.state.ledger.uses != {}
    made.cancel(*made.state.jobs)
    assert made.state.ledger.uses == {}


def test_a_job_without_a_wckey_gets_its_users_default_where_they_are_tracked() -> None:
    made = World(settings=ClusterSettings(track_wckey=True), hardware=capacity(cpus=8))
    assert made.job(made.submit()).spec.wckey == "*"
    made.ok(SetPolicy(policy=Policy(version=1, default_wckeys=(("alice", "proj"),))))
    assert made.job(made.submit()).spec.wckey == "*proj"
    assert made.job(made.submit(wckey="own")).spec.wckey == "own"
    assert made.job(made.submit(BOB)).spec.wckey == "*"


def test_an_enforced_wckey_must_be_the_users() -> None:
    keys = (WcKey(cluster="cluster", name="proj", user="alice"),)
    made = World(
        settings=ClusterSettings(enforce=("associations", "wckeys"), track_wckey=True), hardware=capacity(cpus=8)
    )
    associations = (ROOT_ACCOUNT, CHEM, ALICE_IN_CHEM)
    made.ok(SetPolicy(policy=Policy(version=1, associations=associations, qos=(NORMAL,), wckeys=keys)))
    assert made.submit_refused(wckey="other") == "ESLURM_INVALID_WCKEY"
    assert made.submit_refused(wckey="other", account="phys") == "ESLURM_INVALID_ACCOUNT"
    assert made.submit_refused(no_wckey=True) == "ESLURM_INVALID_WCKEY", "none is a name that is not the user's"
    assert made.job(made.submit()).spec.wckey == "*", "Slurm takes no default for one, too"
    assert made.job(made.submit(wckey="proj")).spec.wckey == "proj"
    made.ok(
        SetPolicy(
            policy=Policy(
                version=2,
                associations=associations,
                qos=(NORMAL,),
                wckeys=keys,
                default_wckeys=(("alice", "proj"),),
            )
        )
    )
    assert made.job(made.submit()).spec.wckey == "*proj"


def test_a_change_of_the_policy_is_taken_for_the_version_that_it_is_for_and_no_other() -> None:
    made = world()
    fewer = replace(ALICE_IN_CHEM, max_jobs=1)
    change = PolicyChange(base=1, version=5, associations=(fewer,), gone_qos=("fast",))
    made.ok(ChangePolicy(change=change))
    policy = made.state.rules.policy
    assert policy == Policy(version=5, associations=(ROOT_ACCOUNT, CHEM, fewer), qos=(NORMAL,))
    refusal = made.do(ChangePolicy(change=change)).rejection
    assert refusal is not None
    assert "version 5" in refusal.hint
    assert made.state.rules.policy == policy
    # Read from the journal, it leads to the same rules.
    again = Machine()
    for event in made.events:
        again.apply(event)
    assert again.state.rules.policy == policy


def test_relative_limits_are_parts_of_the_cluster_or_of_the_partition_whose_qos_it_is() -> None:
    """sacctmgr(1) Relative: 25 % of 32 CPUs; of the partition of one node, 50 % of 8."""
    quarter = Qos(name="normal", id=1, flags="Relative", grp_tres="cpu=25")
    half = Qos(name="part", id=2, flags="Relative", grp_tres="cpu=50")
    partitions = (
        Partition(name="debug", nodes=("n1", "n2", "n3", "n4"), default=True),
        Partition(name="small", nodes=("n1",), qos="part"),
    )
    settings = ClusterSettings(enforce=("associations", "limits", "qos"))
    made = World(settings=settings, hardware=capacity(cpus=8), partitions=partitions)
    made.ok(SetPolicy(policy=Policy(version=1, associations=(ROOT_ACCOUNT, CHEM, ALICE_IN_CHEM), qos=(quarter, half))))
    first = made.submit()
    assert start_messages(made, first, cpus=8) == ()
    allocation = Allocation(partition="debug", nodes=(made.free_share("n2", 1),))
    start = PlannedStart(job_id=made.submit(), allocation=allocation)
    outcome = made.do(ApplyPlan(plan=Plan(starts=(start,))))
    assert "QOSGrpCpuLimit" in expect(outcome.reply, Done).messages[0]
    job_limits = made.state.rules.job_limits("chem", "alice", "small", "normal")
    assert [dict(one.grp) for one in job_limits.qos] == [{"cpu": 4}, {"cpu": 8}]
    made.check()


def test_an_edit_of_one_user_costs_what_it_touches() -> None:
    bob = Association(id=4, cluster="cluster", account="chem", user="bob", is_default=True)
    made = world()
    associations = (ROOT_ACCOUNT, CHEM, ALICE_IN_CHEM, bob)
    made.ok(SetPolicy(policy=Policy(version=2, associations=associations, qos=(NORMAL, FAST))))
    hers, his = made.submit(), made.submit(BOB)
    made.start(his)
    rules, charge, job_limits = (
        made.state.rules,
        made.state.charges[his],
        made.state.rules.job_limits("chem", "bob", "debug", ""),
    )
    change = PolicyChange(base=2, version=3, associations=(replace(ALICE_IN_CHEM, max_jobs=0),))
    made.ok(ChangePolicy(change=change))
    assert made.state.rules is rules
    assert made.state.charges[his] is charge
    assert rules.job_limits("chem", "bob", "debug", "") is job_limits
    assert start_messages(made, hers) == (f"job {hers}: limit AssocMaxJobsLimit",)
    assert rules.policy.associations == (ROOT_ACCOUNT, CHEM, replace(ALICE_IN_CHEM, max_jobs=0), bob)
    made.check()


def test_licenses_that_accounting_gives_the_cluster_are_taken_and_given_back() -> None:
    made = world()
    assert made.submit_refused(licenses="matlab@flex:2") == "ESLURM_INVALID_LICENSES"
    made.ok(ChangePolicy(change=PolicyChange(base=1, version=2, licenses=(("matlab@flex", 4),))))
    assert made.submit_refused(licenses="matlab@flex:5") == "ESLURM_INVALID_LICENSES"
    assert made.submit_refused(licenses="matlab:1") == "ESLURM_INVALID_LICENSES"
    first, second = made.submit(licenses="matlab@flex:3"), made.submit(licenses="matlab@flex:2")
    assert start_messages(made, first) == ()
    assert start_messages(made, second) == (f"job {second}: licenses in use",)
    made.cancel(first)
    made.ok(ChangePolicy(change=PolicyChange(base=2, version=3, licenses=(("matlab@flex", 1),))))
    assert start_messages(made, second) == (f"job {second}: licenses in use",)
    made.check()


def test_the_core_drops_a_start_of_a_job_that_has_lost_its_association_or_its_qos() -> None:
    gone = (replace(ALICE_IN_CHEM, user="bob"), "InvalidAccount"), (replace(ALICE_IN_CHEM, qos="fast"), "InvalidQOS")
    for alice, reason in gone:
        made = world()
        job = made.submit()
        made.ok(SetPolicy(policy=Policy(version=2, associations=(ROOT_ACCOUNT, CHEM, alice), qos=(NORMAL, FAST))))
        assert start_messages(made, job) == (f"job {job}: not allowed ({reason})",)


def test_accounts_and_qos_are_named_in_any_case() -> None:
    made = world()
    spec = made.job(made.submit(account="Chem", qos="NORMAL")).spec
    assert (spec.account, spec.qos) == ("chem", "normal")


def refused_move(made: World, job: int, **changes: object) -> str:
    """The error of an update by the owner; "" for none."""
    reply = made.do(UpdateJob(target=JobTarget(job_id=job), changes=changes), ALICE).reply
    return getattr(reply, "code", "")


def test_only_operators_move_a_job_to_where_its_user_may_not_submit() -> None:
    few = replace(FAST, max_submit_pu=1)
    strict = Qos(name="strict", id=3, flags="DenyOnLimit", max_tres_pj="cpu=1", max_wall=5)
    alice = replace(ALICE_IN_CHEM, qos="normal,fast,strict")
    made = world(alice=alice, qos=(NORMAL, few, strict))
    first, second = made.submit(qos="fast"), made.submit(tasks=2, time_limit_minutes=10)
    assert refused_move(made, first, qos="fast") == "", "it counts there already"
    assert refused_move(made, second, qos="fast") == "ESLURM_ACCOUNTING_POLICY"
    assert refused_move(made, second, qos="strict") == "ESLURM_ACCOUNTING_POLICY"
    assert refused_move(made, first, qos="strict") == ""
    assert refused_move(made, second, qos="fast") == "", "there is room now"
    made.ok(UpdateJob(target=JobTarget(job_id=second), changes={"qos": "strict"}))
    made.check()


def test_what_an_operator_sets_limits_do_not_hold_for_until_the_owner_sets_it() -> None:
    made = world(qos=(NORMAL, replace(FAST, max_wall=10, max_tres_pj="cpu=2")))
    job = made.submit(time_limit_minutes=5)
    target = JobTarget(job_id=job)
    assert refused_move(made, job, qos="fast") == "ESLURM_INVALID_QOS", "it is not his"
    made.ok(UpdateJob(target=target, changes={"qos": "fast", "time_limit_minutes": 30, "tasks": 4}))
    assert made.job(job).spec.exempt == ("cpu", "qos", "time")
    assert refused_move(made, job, time_limit_minutes=20) == ""
    assert start_messages(made, job, 4) == (f"job {job}: limit QOSMaxWallDurationPerJobLimit",)
    made.ok(UpdateJob(target=target, changes={"time_limit_minutes": 30}))
    assert start_messages(made, job, 4) == ()
    asked = made.submit(time_limit_minutes=5, exempt=("time",))
    assert made.job(asked).spec.exempt == (), "users cannot ask for it"
    made.check()


@pytest.mark.parametrize("kind", ["het", "array"])
def test_records_that_move_together_are_counted_together_before_the_first_changes(kind: str) -> None:
    """The QOS has room for one of the two: the update is refused as a whole."""
    home = Qos(name="home", id=3, max_submit_pu=1)
    made = world(alice=replace(ALICE_IN_CHEM, qos="normal,home"), qos=(NORMAL, home))
    if kind == "het":
        assert made.submit_het({}, {}).rejection is None
    else:
        made.submit(array="0-1")
        made.ok(HoldJob(target=JobTarget(1, tasks=task_mask([0]))), ALICE)
    before = made.machine.image()
    assert refused_move(made, 1, qos="home") == "ESLURM_ACCOUNTING_POLICY"
    assert made.machine.image() == before
    if kind == "array":
        made.ok(UpdateJob(target=JobTarget(1, tasks=task_mask([1])), changes={"qos": "home"}), ALICE)
    made.check()
