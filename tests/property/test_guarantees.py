"""Over random clusters, trees of accounts and queues: an account gets back what it is guaranteed, from those who have
borrowed it, when they have kept it long enough, and never more than it needs.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.property.test_preemption import do, end, leave, pass_time
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, partition, spec

from spritz.core.decide.starting.reclaim import guarantee_use, guarantees_of
from spritz.core.invariants import breaches
from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.events.cluster import PolicyChanged
from spritz.model.job.record import Job
from spritz.model.limits.guarantees import overpromised
from spritz.model.limits.records import Association, Policy
from spritz.model.plan import Plan
from spritz.model.rules.job_tres import allocated_pairs
from spritz.model.states import JobState

SPEED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TREE = {"a": "root", "a1": "a", "a2": "a", "b": "root", "c": "root"}
GPU = "gres/gpu"


@st.composite
def clusters(draw: st.DrawFn) -> Site:
    """One to three nodes of two or four GPUs; no more is guaranteed than there is."""
    configs = [
        node(f"n{number}", 16, gres=[gpus(draw(st.sampled_from([2, 4])))]) for number in range(draw(st.integers(1, 3)))
    ]
    total = sum(line.count for config in configs for line in config.capacity.gres)
    a, b = draw(st.integers(0, total)), draw(st.integers(0, total))
    b = min(b, total - a)
    a1 = draw(st.integers(0, a))
    counts = {"a": a, "a1": a1, "a2": draw(st.integers(0, a - a1)), "b": b}
    kind, mode = draw(
        st.sampled_from([("none", ()), ("partition_prio", ("REQUEUE",)), ("partition_prio", ("CANCEL",))])
    )
    policy = PreemptionPolicy(type=kind, mode=mode, youngest_first=draw(st.booleans()))
    here = Site(
        configs,
        [partition("main", configs, default=True, grace_seconds=draw(st.sampled_from([0, 0, 30])))],
        structs.replace(SETTINGS, preemption=policy, requeue_delay_seconds=7200.0),
    )
    rows = [Association(id=1, cluster="c", account="root")]
    for name, above in TREE.items():
        text = f"{GPU}={counts[name]}" if counts.get(name) else ""
        minutes = draw(st.sampled_from([None, 0, 1]))
        rows.append(
            Association(
                id=len(rows) + 1, cluster="c", account=name, parent=above, guarantee=text, reclaim_after=minutes
            )
        )
        rows.append(Association(id=len(rows) + 1, cluster="c", account=name, user=name))
    here.apply(PolicyChanged(at=here.now, policy=Policy(version=1, associations=tuple(rows))))
    return here


single = st.fixed_dictionaries(
    {"account": st.sampled_from(list(TREE)), "count": st.just(1), "priority": st.integers(1, 9)}
)
any_size = st.fixed_dictionaries(
    {"account": st.sampled_from(list(TREE)), "count": st.integers(1, 4), "priority": st.integers(1, 9)}
)


def submit(here: Site, job: dict[str, Any]) -> int:
    account = job["account"]
    request = spec(
        batch=True,
        tasks=1,
        nodes=1,
        gpus_per_node=job["count"],
        account=account,
        user=account,
        time_limit_minutes=6000,
    )
    return here.submit(request, priority=job["priority"])


def used(here: Site, association: int) -> int:
    return here.machine.state.ledger.use(("a", association)).tres.get(GPU, 0)


def size(job: Job) -> int:
    return job.spec.gpus_per_node[0].count


def step(here: Site) -> Plan:
    """Run a cycle. Jobs lose only what they have borrowed for long enough, to jobs within their guarantee."""
    plan = here.plan()
    state = here.machine.state
    use = guarantee_use(state)
    claimed: dict[int, int] = {}
    for start in plan.starts:
        for one in guarantees_of(state, here.jobs[start.job_id], "main"):
            claimed[one.id] = claimed.get(one.id, 0) + size(here.jobs[start.job_id])
    for planned in plan.preemptions:
        taker = here.jobs[planned.job_id]
        own = guarantees_of(state, taker, "main")
        roomy = [one for one in own if used(here, one.id) + claimed.get(one.id, 0) + size(taker) <= dict(one.tres)[GPU]]
        for victim in planned.victims:
            loser = here.jobs[victim.job_id]
            theirs = {one.id for one in guarantees_of(state, loser, "main")}
            lenders = [one for one in roomy if one.id not in theirs]
            assert lenders, f"job {taker.id} asks for more than it is guaranteed, or from its own"
            assert not use.within(loser.id) - {one.id for one in own}, f"job {loser.id} stands within a guarantee"
            assert here.now - loser.started_at >= lenders[0].reclaim_seconds
        assert len(planned.victims) <= size(taker), "no more jobs than GPUs that are missing"
        for one in own:
            claimed[one.id] = claimed.get(one.id, 0) + size(taker)
    outcome = do(here, ApplyPlan(plan=plan))
    assert outcome.reply.messages == (), (outcome.reply, plan)
    here.projection.adopt(plan)
    assert breaches(state) == []
    return plan


def settle(here: Site) -> None:
    """Cycles until nothing changes, everything that must leaves at once."""
    for _ in range(12):
        plan = step(here)
        leaving = any(job.completing or job.preempt_action for job in here.jobs.values())
        if not plan.starts and not plan.preemptions and not leaving:
            return
        pass_time(here, 31)
        leave(here)
    raise AssertionError("it never comes to rest")


def in_want(here: Site) -> list[tuple[int, int]]:
    """(job that waits within its guarantee, job that has kept what it borrowed for long enough), of one GPU each."""
    state = here.machine.state
    use = guarantee_use(state)
    found = []
    for job_id in state.pending:
        job = state.jobs[job_id]
        if job.reason.value == "BeginTime" or job.eligible_at > here.now:
            continue  # requeued a moment ago
        own = guarantees_of(state, job, "main")
        for one in own:
            if used(here, one.id) + 1 > dict(one.tres)[GPU]:
                continue
            for other_id in state.running:
                other = state.jobs[other_id]
                theirs = {item.id for item in guarantees_of(state, other, "main")}
                kept = here.now - other.started_at >= one.reclaim_seconds
                if one.id not in theirs and kept and not use.within(other_id) - {item.id for item in own}:
                    found.append((job_id, other_id))
    return found


@SPEED
@given(
    here=clusters(),
    moves=st.lists(
        st.one_of(single, st.sampled_from(["end", "settle"]), st.sampled_from([1.0, 61.0])), min_size=4, max_size=24
    ),
    data=st.data(),
)
def test_a_job_within_its_guarantee_starts_when_the_borrowers_time_is_over(
    here: Site, moves: list[Any], data: Any
) -> None:
    for move in moves:
        if isinstance(move, dict):
            submit(here, move)
        elif isinstance(move, float):
            pass_time(here, move)
        elif move == "end" and here.machine.state.running:
            end(here, data.draw(st.sampled_from(sorted(here.machine.state.running))))
            leave(here)
        else:
            settle(here)
            assert in_want(here) == []
    pass_time(here, 61)
    settle(here)
    assert in_want(here) == []


@SPEED
@given(
    here=clusters(),
    moves=st.lists(st.one_of(any_size, any_size, st.sampled_from(["end", 61.0])), min_size=4, max_size=24),
    data=st.data(),
)
def test_jobs_give_back_only_if_it_helps_and_only_what_exceeds_their_guarantee(
    here: Site, moves: list[Any], data: Any
) -> None:
    """Jobs of several GPUs, which may not fit for other reasons: a job that takes something back starts."""
    takers: set[int] = set()
    for move in moves:
        if isinstance(move, dict):
            submit(here, move)
        elif isinstance(move, float):
            pass_time(here, move)
        elif here.machine.state.running:
            end(here, data.draw(st.sampled_from(sorted(here.machine.state.running))))
        takers |= {planned.job_id for planned in step(here).preemptions if planned.victims}
        for _ in range(2):
            pass_time(here, 31)
            leave(here)
            takers |= {planned.job_id for planned in step(here).preemptions if planned.victims}
    for _ in range(3):
        pass_time(here, 31)
        leave(here)
        step(here)
    there = [here.jobs[job] for job in takers if job in here.jobs]
    waiting = [job.id for job in there if job.state is JobState.PENDING and not job.restart_count]
    assert waiting == [], "others were preempted for them in vain"


trees = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=6)


@settings(max_examples=100, deadline=None)
@given(own=trees, above=st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_promises_below_an_account_never_exceed_its_own_unseen(own: dict[str, int], above: list[int]) -> None:
    """Compared with a sum over the tree, written out."""
    names = ["root", *"abcdef"]
    parents = {name: names[min(above[place], place)] for place, name in enumerate("abcdef")}

    def promised(account: str) -> int:
        below = sum(promised(name) for name, parent in parents.items() if parent == account)
        return own.get(account, below)

    wrong = {
        name: total
        for name in own
        if (total := sum(promised(one) for one, parent in parents.items() if parent == name)) > own[name]
    }
    found = overpromised({name: {GPU: count} for name, count in own.items()}, parents | {"root": ""})
    assert {account: total for account, _tres, total, _own in found} == wrong


def test_a_running_jobs_gpus_are_what_it_counts() -> None:
    """The sums above count by request: it must be what is held."""
    configs = [node("n1", 4, gres=[gpus(2)])]
    here = Site(configs, [partition("main", configs, default=True)])
    job = submit(here, {"account": "a", "count": 2, "priority": 1})
    here.cycle()
    allocation = here.jobs[job].allocation
    assert allocation is not None
    assert dict(allocated_pairs(allocation))[GPU] == size(here.jobs[job])
