"""What slurmdbd sends of an edit, applied by a controller, is what it would have sent whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.property.test_core_check import CheckedWorld

from spritz.core.machine import Machine
from spritz.model.cluster.priority import PriorityInputs
from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands.job import JobSubmitted
from spritz.model.limits.change import amended, change_between, is_empty
from spritz.model.limits.records import Association, ChangePolicy, Policy, Qos, SetPolicy, WcKey
from spritz.model.limits.rules import Rules
from spritz.model.node.partition import Partition
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.scheduling.view.changes.limits_policy import put_policy
from spritz.scheduling.view.priority.inputs import policy_inputs
from spritz.scheduling.view.projection import Projection
from spritz_testing.builders import World, capacity, expect

_NAMES = st.sampled_from(["a", "b", "c", "d"])


@st.composite
def policies(draw: st.DrawFn, version: int) -> Policy:
    """In slurmdbd's order, as it sends them."""
    associations = draw(
        st.dictionaries(st.integers(1, 8), st.tuples(_NAMES, _NAMES | st.just(""), st.integers(1, 3)), max_size=6)
    )
    qos = draw(st.dictionaries(_NAMES, st.integers(0, 3), max_size=4))
    wckeys = draw(st.sets(st.tuples(_NAMES, _NAMES), max_size=4))
    defaults = draw(st.dictionaries(_NAMES, _NAMES, max_size=4))
    return Policy(
        version=version,
        associations=tuple(
            Association(id=number, cluster="c", account=account, user=user, shares=shares)
            for number, (account, user, shares) in sorted(associations.items())
        ),
        qos=tuple(Qos(name=name, id=ord(name), priority=priority) for name, priority in sorted(qos.items())),
        wckeys=tuple(WcKey(cluster="c", name=name, user=user) for name, user in sorted(wckeys)),
        default_wckeys=tuple(sorted(defaults.items())),
    )


@given(policies(3), policies(7))
def test_the_policy_before_with_the_change_is_the_policy_after(before: Policy, after: Policy) -> None:
    change = change_between(before, after)
    assert amended(before, change) == after
    assert (change.base, change.version) == (3, 7)
    again = change_between(after, after)
    assert is_empty(again)
    # Of what is the same nothing is sent.
    assert not set(change.associations) & set(before.associations)
    assert not set(change.qos) & set(before.qos)


_COUNT = st.none() | st.integers(0, 3)
_ACCOUNTS = ("root", "a", "b", "c")


@st.composite
def trees(draw: st.DrawFn, version: int) -> Policy:
    """Accounts under root, perhaps one below another, and users in them, with limits of every kind."""
    kept = draw(st.sets(st.sampled_from(_ACCOUNTS[1:])))
    accounts = {"root": "", **dict.fromkeys(sorted(kept), "root")}
    if {"a", "b"} <= kept and draw(st.booleans()):
        accounts["b"] = "a"
    found = []
    for number, (name, parent) in enumerate(accounts.items()):
        limits = draw(st.tuples(_COUNT, _COUNT, _COUNT, st.sampled_from(["", "cpu=2"]), st.sampled_from(["", "cpu=9"])))
        found.append(
            Association(
                id=_ACCOUNTS.index(name) + 1,
                cluster="c",
                account=name,
                parent=parent,
                max_jobs=limits[0],
                grp_jobs_accrue=limits[1],
                priority=limits[2],
                guarantee=limits[3] if number else "",
                grp_tres_mins=limits[4],
            )
        )
    for place, (user, account) in enumerate((("ann", "root"), ("ann", "a"), ("bob", "a"), ("bob", "b"), ("eve", "c"))):
        if account in accounts and draw(st.booleans()):
            own = draw(st.tuples(_COUNT, _COUNT, st.booleans(), st.sampled_from(["", "cpu=5"])))
            found.append(
                Association(
                    id=10 + place,
                    cluster="c",
                    account=account,
                    user=user,
                    max_jobs=own[0],
                    max_jobs_accrue=own[1],
                    is_default=own[2],
                    max_tres_mins=own[3],
                )
            )
    qos = []
    for number, name in enumerate(("normal", "fast", "part")):
        if draw(st.booleans()):
            grp, mins, flags, factor = draw(
                st.tuples(
                    _COUNT,
                    st.sampled_from(["", "cpu=7"]),
                    st.sampled_from(["", "", "NoDecay"]),
                    st.sampled_from([1.0, 2.0]),
                )
            )
            qos.append(Qos(name=name, id=number, grp_jobs=grp, grp_tres_mins=mins, flags=flags, usage_factor=factor))
    keys = draw(st.sets(st.sampled_from(["ann", "bob"])))
    return Policy(
        version=version,
        associations=tuple(found),
        qos=tuple(qos),
        wckeys=tuple(WcKey(cluster="c", name="w", user=user) for user in sorted(keys)),
        default_wckeys=tuple((user, "w") for user in sorted(keys)),
        licenses=draw(st.sampled_from([(), (("x@s", 3),)])),
        admins=draw(st.sampled_from([(), (("ann", "Operator"),)])),
    )


_JOBS = [
    (account, user, partition, qos)
    for account in _ACCOUNTS
    for user in ("ann", "bob", "eve")
    for partition in ("p", "q")
    for qos in ("normal", "fast", "none")
]


@given(trees(3), trees(7))
def test_edited_rules_equal_rules_built_from_the_new_policy(before: Policy, after: Policy) -> None:
    change = change_between(before, after)
    rules, fresh = Rules(before, {"q": "part"}), Rules(after, {"q": "part"})
    for job in _JOBS:
        rules.job_limits(*job)
    if not rules.can_amend(change):
        return
    touched = rules.amend(change)
    assert rules.policy == after
    assert (rules.times_jobs, rules.foresees or fresh.foresees, rules.accrues) == (
        fresh.times_jobs,
        rules.foresees,
        fresh.accrues,
    )
    assert (rules.parents(), rules.minute_limits_by_key(), rules.guarantees) == (
        fresh.parents(),
        fresh.minute_limits_by_key(),
        fresh.guarantees,
    )
    old = Rules(before, {"q": "part"})
    for job in _JOBS:
        assert rules.job_limits(*job) == fresh.job_limits(*job), job
        counted = touched.recounts(job[0], job[1], job[3]) or ("part" in touched.counted_qos and job[2] == "q")
        assert counted or old.job_limits(*job).keys == fresh.job_limits(*job).keys, "it counts where it did"
    for user in ("ann", "bob", "eve"):
        if sum(association.is_default for association in after.associations if association.user == user) <= 1:
            assert rules.default_account(user) == fresh.default_account(user)
    assert policy_inputs(policy_inputs(PriorityInputs(), old), rules, touched) == policy_inputs(PriorityInputs(), fresh)


@settings(max_examples=18, suppress_health_check=[HealthCheck.too_slow])
@given(trees(1), st.lists(trees(1), min_size=1, max_size=3))
def test_state_and_projection_after_edits_are_those_of_the_whole_policy(first: Policy, later: list[Policy]) -> None:
    """Running and waiting jobs of everybody: what counts, what falls due, and what the scheduler sees. Each edit is
    tried and taken back first.
    """
    made = CheckedWorld(
        nodes=2,
        hardware=capacity(cpus=40),
        settings=ClusterSettings(enforce=("limits",)),
        partitions=(
            Partition(name="p", nodes=("n1", "n2"), default=True),
            Partition(name="q", nodes=("n2",), qos="part"),
        ),
    )
    made.ok(SetPolicy(policy=first))
    for number, (account, user, partition, qos) in enumerate(_JOBS[::5]):
        fields: dict[str, Any] = {"account": account, "user": user, "partitions": (partition,), "qos": qos}
        outcome = made.submit_outcome(made_by(user), **fields)
        if outcome.rejection is None and number % 2:
            job = made.job(expect(outcome.reply, JobSubmitted).job_id)
            share = made.free_share("n2", 1)
            # Not if a limit keeps it from starting.
            made.plan(PlannedStart(job_id=job.id, allocation=Allocation(partition=job.partition, nodes=(share,))))
    projection = loaded(made)
    version, before = first.version, first
    for policy in later:
        version += 1
        after = replace(policy, version=version)
        made.now += 10
        outcome = made.do(ChangePolicy(change=change_between(before, after)))
        projection.follow(outcome.changes)
        before = after
    made.check()
    fresh = loaded(made)
    assert projection.in_use.uses == fresh.in_use.uses
    assert projection.priority_inputs == fresh.priority_inputs
    again = Machine.from_image(made.machine.image()).state
    assert made.state.ledger.uses == again.ledger.uses
    assert made.state.charges.keys() == again.charges.keys()
    assert dict(made.state.minute_deadlines.items()) == pytest.approx(dict(again.minute_deadlines.items()))


def made_by(user: str) -> Caller:
    """One of the users of the trees."""
    uid = 2000 + len(user) + ord(user[0])
    return Caller(uid=uid, gid=uid, user=user, group=user, groups=(uid,))


def loaded(made: World) -> Projection:
    """The scheduler's view of a world, from its records."""
    state, projection = made.state, Projection()
    projection.reset(state.jobs.values(), state.nodes.values(), state.partitions.values(), state.settings)
    put_policy(projection, state.rules.policy)
    return projection
