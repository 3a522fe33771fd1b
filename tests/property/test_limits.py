"""The ledger of limits in the core: it is what the jobs say, never exceeds a limit, and empties with the cluster."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spritz.model.limits.check import exceeded, over_submit
from spritz.model.limits.ledger import Ledger
from spritz.model.limits.records import Association, Policy, Qos
from spritz.model.limits.rules import Rules

COUNT = st.none() | st.integers(0, 4)
CPUS = st.just("") | st.integers(0, 9).map(lambda count: f"cpu={count}")


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """A tree of three accounts with two users in each, and two QOS."""

    def bounded(one: Association) -> Association:
        return replace(one, grp_jobs=draw(COUNT), grp_submit=draw(COUNT), grp_tres=draw(CPUS), max_jobs=draw(COUNT))

    tree = [Association(id=1, cluster="c", account="root", qos="normal,fast")]
    for number, (name, parent) in enumerate((("a", "root"), ("b", "a"), ("c", "root"))):
        tree.append(bounded(Association(id=10 + number, cluster="c", account=name, parent=parent)))
        for user in range(2):
            one = Association(id=20 + 2 * number + user, cluster="c", account=name, user=f"u{user}")
            tree.append(bounded(one))
    qos = [
        Qos(
            name=name,
            id=place,
            grp_jobs=draw(COUNT),
            grp_tres=draw(CPUS),
            max_jobs_pu=draw(COUNT),
            max_tres_pu=draw(CPUS),
            max_tres_pa=draw(CPUS),
            max_submit_pu=draw(COUNT),
        )
        for place, name in enumerate(("normal", "fast"), 1)
    ]
    return Policy(version=1, associations=tuple(tree), qos=tuple(qos))


JOBS = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(("u0", "u1")), st.sampled_from(("normal", "fast")), st.integers(1, 5)
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(policy=policies(), jobs=JOBS, order=st.randoms(use_true_random=False))
def test_what_is_let_in_never_exceeds_a_limit_and_all_of_it_is_given_back(
    policy: Policy, jobs: list[tuple[str, str, str, int]], order: object
) -> None:
    rules, ledger = Rules(policy), Ledger()
    running = []
    for account, user, qos, cpus in jobs:
        job_limits = rules.job_limits(account, user, "p", qos)
        if over_submit(job_limits, ledger, 1) is not None:
            continue
        ledger.add(job_limits.keys, submitted=1)
        tres = (("cpu", cpus), ("node", 1))
        fork = ledger.fork()
        if exceeded(job_limits, fork, tres, 1) is not None:
            ledger.add(job_limits.keys, submitted=1, sign=-1)
            continue
        fork.add(job_limits.keys, jobs=1, tres=tres)
        assert all(ledger.use(key).jobs == fork.use(key).jobs - 1 for key in job_limits.keys), "a fork is apart"
        ledger.add(job_limits.keys, jobs=1, tres=tres)
        running.append((job_limits, tres))
        _holds(rules, ledger, policy)
    order.shuffle(running)  # type: ignore[attr-defined]  # a Random
    for job_limits, tres in running:
        ledger.add(job_limits.keys, jobs=1, submitted=1, tres=tres, sign=-1)
        _holds(rules, ledger, policy)
    assert ledger.uses == {}


def _holds(rules: Rules, ledger: Ledger, policy: Policy) -> None:
    """Every limit of a QOS, by what is counted under it; those of associations, where no QOS stands in their place."""
    for qos in policy.qos:
        bounds = rules.qos[qos.name]
        for key, use in ledger.uses.items():
            if key[1] != qos.name:
                continue
            if key[0] == "q":
                assert qos.grp_jobs is None or use.jobs <= qos.grp_jobs
                assert all(use.tres.get(name, 0) <= limit for name, limit in bounds.grp)
            if key[0] == "qu":
                assert qos.max_jobs_pu is None or use.jobs <= qos.max_jobs_pu
                assert qos.max_submit_pu is None or use.submitted <= qos.max_submit_pu
                assert all(use.tres.get(name, 0) <= limit for name, limit in bounds.per_user)
            if key[0] == "qa":
                assert all(use.tres.get(name, 0) <= limit for name, limit in bounds.per_account)
    if any(one.grp_jobs is not None or one.grp_tres or one.max_jobs_pu is not None for one in policy.qos):
        return
    for association in policy.associations:
        use = ledger.use(("a", association.id))
        assert association.grp_jobs is None or use.jobs <= association.grp_jobs
        assert association.grp_submit is None or use.submitted <= association.grp_submit
        if association.user:
            assert association.max_jobs is None or use.jobs <= association.max_jobs
        for name, limit in rules.bounds(association).grp:
            assert use.tres.get(name, 0) <= limit
