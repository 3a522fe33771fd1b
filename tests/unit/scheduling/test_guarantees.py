"""Guarantee and borrow: what an account is guaranteed it gets back from those who have borrowed it, and no more.

See docs/decisions/0036.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from msgspec import structs

from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.commands.cluster import ApplyPlan
from spritz.model.events.cluster import PolicyChanged
from spritz.model.job.record import Sharing
from spritz.model.limits.records import Association, Policy, Qos
from spritz.model.plan import Plan
from spritz.scheduling.explain.context import PlanView
from spritz.scheduling.explain.explanation import explain
from spritz.scheduling.forecast import full_cycle
from tests.unit.scheduling.site import SETTINGS, Site, gpus, node, partition, spec
from tests.unit.scheduling.test_preemption import leave, run, states, tick, victims

#: account -> account above it
TREE = {"ai": "root", "vision": "ai", "speech": "ai", "bio": "root", "guests": "root"}


def site(
    guarantees: dict[str, str],
    *,
    nodes: int = 1,
    after: dict[str, int] | None = None,
    home: dict[str, Any] | None = None,
    **policy: Any,
) -> Site:
    """Nodes of eight CPUs and four GPUs; accounts as in TREE, each with a user of its name."""
    configs = [node(f"n{number}", 8, gres=[gpus(4)]) for number in range(1, nodes + 1)]
    rules = PreemptionPolicy(**({"type": "none"} | policy))
    homes = [
        partition("main", configs, default=True, **(home or {})),
        partition("urgent", configs, priority_tier=10, **(home or {})),
    ]
    here = Site(configs, homes, structs.replace(SETTINGS, preemption=rules, requeue_delay_seconds=3600.0))
    set_guarantees(here, guarantees, after or {})
    return here


def set_guarantees(here: Site, guarantees: dict[str, str], after: dict[str, int]) -> None:
    rows = [Association(id=1, cluster="c", account="root")]
    for name, above in TREE.items():
        row = Association(id=len(rows) + 1, cluster="c", account=name, parent=above)
        rows.append(structs.replace(row, guarantee=guarantees.get(name, ""), reclaim_after=after.get(name)))
        rows.append(Association(id=len(rows) + 1, cluster="c", account=name, user=name))
    policy = Policy(version=here.machine.state.rules.policy.version + 1, associations=tuple(rows), qos=(Qos(name="q"),))
    here.apply(PolicyChanged(at=here.now, policy=policy))


def submit(here: Site, account: str, count: int = 1, *, priority: int = 1, **fields: Any) -> int:
    fields = {"gpus_per_node": count, "nodes": 1, "tasks": 1, "time_limit_minutes": 600, "batch": True} | fields
    return here.submit(spec(account=account, user=account, **fields), priority=priority)


def later(here: Site, seconds: float = 1.0) -> None:
    here.now += seconds


def test_what_is_idle_may_be_borrowed_and_is_given_back_by_the_youngest_when_it_is_asked_for() -> None:
    here = site({"ai": "gres/gpu=2"})
    guests = []
    for _ in range(4):
        guests.append(submit(here, "guests"))
        run(here)
        later(here)
    assert states(here, *guests) == ["RUNNING"] * 4
    mine = submit(here, "vision")
    assert victims(run(here)) == [[guests[3]]]
    leave(here)
    run(here)
    assert states(here, guests[3], mine) == ["PENDING", "RUNNING"]


def test_a_job_within_its_guarantee_does_not_block_the_guarantees_of_others() -> None:
    """ai must wait an hour before it takes back, and is promised a node that a guest will leave; bio need not wait."""
    here = site({"ai": "gres/gpu=4", "bio": "gres/gpu=2"}, nodes=4, after={"ai": 60, "bio": 0})
    guests = []
    for _ in range(16):
        guests.append(submit(here, "guests"))
        run(here)
        later(here)
    first = submit(here, "ai")
    run(here)
    later(here)
    mine = submit(here, "bio")
    assert len(victims(run(here))) == 1
    leave(here)
    run(here)
    assert states(here, first, mine) == ["PENDING", "RUNNING"]


def test_no_job_gives_back_while_there_is_room() -> None:
    here = site({"ai": "gres/gpu=2"})
    submit(here, "guests", 3)
    run(here)
    mine = submit(here, "vision")
    assert run(here).preemptions == ()
    assert states(here, mine) == ["RUNNING"]


def test_an_account_that_has_its_share_takes_nothing_more() -> None:
    here = site({"ai": "gres/gpu=2"})
    submit(here, "vision", 2)
    submit(here, "guests", 2)
    run(here)
    submit(here, "speech", 1)
    assert run(here).preemptions == ()


def test_a_request_larger_than_what_is_left_of_the_guarantee_takes_nothing() -> None:
    here = site({"ai": "gres/gpu=2"})
    submit(here, "guests", 4)
    run(here)
    submit(here, "vision", 3)
    assert run(here).preemptions == ()


def test_the_oldest_jobs_stand_within_the_guarantee_and_the_youngest_have_borrowed() -> None:
    here = site({"ai": "gres/gpu=2", "bio": "gres/gpu=2"})
    mine = []
    for _ in range(4):
        mine.append(submit(here, "vision"))
        run(here)
        later(here)
    for _ in range(3):
        submit(here, "bio")
    assert sorted(chain.from_iterable(victims(run(here)))) == mine[2:], "two of its own are left to each"


@pytest.mark.parametrize(("account", "expected"), [("vision", True), ("bio", False)])
def test_within_an_account_its_own_accounts_have_their_guarantees(account: str, expected: bool) -> None:
    """The older jobs of speech stand within ai's guarantee: safe from bio, but not from vision, whose share it is."""
    here = site({"ai": "gres/gpu=4", "vision": "gres/gpu=1", "bio": "gres/gpu=1"} if expected else {"ai": "gres/gpu=4"})
    if not expected:
        set_guarantees(here, {"ai": "gres/gpu=4", "bio": "gres/gpu=1"}, {})
    speech = [submit(here, "speech") for _ in range(4)]
    run(here)
    submit(here, account)
    taken = list(chain.from_iterable(victims(run(here))))
    assert (len(taken), set(taken) <= set(speech)) == ((1, True) if expected else (0, True))


def test_what_was_borrowed_may_be_kept_for_a_while() -> None:
    here = site({"ai": "gres/gpu=2"}, after={"ai": 10})
    guest = submit(here, "guests", 4)
    run(here)
    began = here.now
    later(here, 60)
    mine = submit(here, "vision")
    plan = run(here)
    assert (plan.preemptions, plan.look_again_at) == ((), began + 600), "a cycle is due when the time is over"
    later(here, 539)
    assert run(here).preemptions == ()
    later(here)
    assert victims(run(here)) == [[guest]]
    leave(here)
    run(here)
    assert states(here, mine) == ["RUNNING"]


def test_the_accounts_below_have_the_reclaim_time_of_those_above_unless_they_set_their_own() -> None:
    here = site({"vision": "gres/gpu=1", "speech": "gres/gpu=1"}, after={"ai": 10, "speech": 0})
    rules = here.machine.state.rules
    assert {guarantee.account: guarantee.reclaim_seconds for guarantee in rules.guarantees.values()} == {
        "vision": 600,
        "speech": 0,
    }


@pytest.mark.parametrize(
    ("policy", "after"),
    [
        ({}, "PENDING"),
        ({"type": "partition_prio", "mode": ("CANCEL",)}, "PREEMPTED"),
        ({"type": "partition_prio", "mode": ("SUSPEND", "GANG")}, "PENDING"),
        ({"type": "qos", "mode": ("REQUEUE",)}, "PENDING"),
    ],
)
def test_a_borrower_is_requeued_or_cancelled_as_preempt_mode_says(policy: dict[str, Any], after: str) -> None:
    here = site({"ai": "gres/gpu=2"}, home={"oversubscribe": "FORCE:1"}, **policy)
    guest = submit(here, "guests", 4)
    run(here)
    submit(here, "vision")
    run(here)
    assert states(here, guest) == [after]


def test_a_partition_that_is_never_preempted_keeps_what_it_has() -> None:
    here = site({"ai": "gres/gpu=2"}, home={"preempt_mode": "OFF"}, type="partition_prio", mode=("REQUEUE",))
    submit(here, "guests", 4)
    run(here)
    submit(here, "vision")
    assert run(here).preemptions == ()


def test_the_grace_time_is_given_to_borrowers_too() -> None:
    here = site({"ai": "gres/gpu=2"}, home={"grace_seconds": 30})
    guest = submit(here, "guests", 4)
    run(here)
    submit(here, "vision")
    run(here)
    assert (states(here, guest), here.jobs[guest].ends_at) == (["RUNNING"], here.now + 30)
    later(here, 30)
    tick(here)
    assert states(here, guest) == ["PENDING"]


def test_nothing_is_taken_back_that_could_be_borrowed_again_at_once() -> None:
    here = site({"ai": "gres/gpu=2"}, type="partition_prio", mode=("REQUEUE",))
    submit(here, "guests", 4, partitions=("urgent",))
    run(here)
    submit(here, "vision")
    assert run(here).preemptions == ()


def test_jobs_within_their_guarantee_go_before_jobs_that_would_borrow() -> None:
    here = site({"ai": "gres/gpu=2"})
    first = submit(here, "guests", 4)
    run(here)
    rich = submit(here, "guests", 3, priority=1000)
    mine = submit(here, "vision", 2, priority=1)
    more = submit(here, "vision", 1, priority=0)
    here.end(first)
    run(here)
    assert states(here, rich, mine, more) == ["PENDING", "RUNNING", "RUNNING"], "the last, in what rich cannot use"


def test_what_was_promised_to_a_borrower_does_not_hold_up_the_owner() -> None:
    """The promised start of a job that waits for more is void when the owner comes."""
    here = site({"ai": "gres/gpu=2"})
    submit(here, "guests", 2, time_limit_minutes=60)
    run(here)
    here.follow(here.plan())
    submit(here, "guests", 4, priority=1000)
    here.follow(here.plan())
    assert len(here.projection.ledger) == 1
    mine = submit(here, "vision", 2)
    here.follow(here.plan())
    assert states(here, mine) == ["RUNNING"]


def test_whole_nodes_count_in_full() -> None:
    """--exclusive gives four GPUs, where two are guaranteed: nothing is taken back for it."""
    here = site({"ai": "gres/gpu=2"})
    submit(here, "guests", 1)
    run(here)
    submit(here, "vision", 4, sharing=Sharing.EXCLUSIVE)
    assert run(here).preemptions == ()


def test_a_guarantee_of_nodes_is_given_back_in_nodes() -> None:
    here = site({"bio": "node=2"}, nodes=3)
    guests = [submit(here, "guests", 4) for _ in range(3)]
    run(here)
    mine = submit(here, "bio", 4, nodes=2, tasks=2)
    assert [len(victim) for victim in victims(run(here))] == [2]
    leave(here)
    run(here)
    assert states(here, mine) == ["RUNNING"]
    assert states(here, *guests).count("RUNNING") == 1


def test_the_core_takes_nothing_from_within_a_guarantee_whatever_the_plan_says() -> None:
    here = site({"ai": "gres/gpu=2", "bio": "gres/gpu=2"})
    safe = submit(here, "bio", 2)
    run(here)
    later(here)
    guest = submit(here, "guests", 2)
    run(here)
    submit(here, "vision", 2)
    plan = here.plan()
    [planned] = plan.preemptions
    wrong = structs.replace(planned, victims=(structs.replace(planned.victims[0], job_id=safe),))
    outcome = here.machine.handle(ApplyPlan(plan=Plan(preemptions=(wrong,))), here.now)
    assert getattr(outcome.reply, "messages", ()) == (f"job {planned.job_id}: victim {safe}: not preemptable",)
    run(here)
    assert states(here, safe, guest) == ["RUNNING", "PENDING"]


def test_the_event_records_what_it_was_taken_back_for() -> None:
    here = site({"ai": "gres/gpu=2"})
    submit(here, "guests", 4)
    run(here)
    submit(here, "vision")
    outcome = here.machine.handle(ApplyPlan(plan=here.plan()), here.now)
    assert [getattr(event, "reclaimed_for", None) for event in outcome.events if hasattr(event, "by_job_id")] == ["ai"]


def test_without_any_guarantee_nothing_is_looked_at_twice() -> None:
    """Requests of different accounts are one shape where there are no guarantees."""
    here = site({})
    for account in ("vision", "bio", "guests"):
        submit(here, account, 4)
    assert len(here.projection.snapshot(here.now).queue.shapes) == 1
    set_guarantees(here, {"bio": "gres/gpu=1"}, {})
    assert len(here.projection.snapshot(here.now).queue.shapes) == 2


def test_tasks_of_an_array_beyond_the_guarantee_wait_for_their_turn() -> None:
    here = site({"ai": "gres/gpu=1"})
    request = spec(
        batch=True, account="vision", user="vision", gpus_per_node=1, nodes=1, tasks=1, time_limit_minutes=600
    )
    array = here.submit(request, array=range(4), priority=1)
    others = submit(here, "guests", 3, priority=9)
    run(here)
    assert states(here, others) == ["RUNNING"]
    assert here.machine.state.arrays_running[array] == 1


def test_what_was_looked_for_in_vain_is_not_looked_for_again_at_once() -> None:
    here = site({"ai": "gres/gpu=2"}, type="partition_prio", mode=("REQUEUE",), home={"preempt_mode": "OFF"})
    submit(here, "guests", 4)
    run(here)
    submit(here, "vision")
    first = run(here).examined
    assert run(here).examined < first


def test_an_explanation_says_that_a_guarantee_goes_before_priority() -> None:
    here = site({"ai": "gres/gpu=2"}, after={"ai": 60})
    submit(here, "guests", 4)
    run(here)
    rich, mine = submit(here, "guests", 2, priority=9), submit(here, "vision", 2, priority=1)
    snapshot = here.projection.snapshot(here.now)
    view = PlanView(snapshot, full_cycle.run(snapshot, held=True), here.jobs, here.projection.nodes)
    told = explain(view, here.jobs[rich]).ahead
    assert [(one.job, one.because) for one in told.first] == [(str(mine), "within the guarantee of account vision")]
    assert explain(view, here.jobs[mine]).ahead.count == 0


def test_an_explanation_says_when_the_borrowers_time_is_over() -> None:
    here = site({"ai": "gres/gpu=2"}, after={"ai": 10})
    submit(here, "guests", 4)
    run(here)
    later(here, 60)
    mine = submit(here, "vision")
    for _ in range(2):
        snapshot = here.projection.snapshot(here.now)
        view = PlanView(snapshot, full_cycle.run(snapshot, held=True), here.jobs, here.projection.nodes)
        expected = explain(view, here.jobs[mine]).expected
        assert expected is not None
        assert "; perhaps in 9 min, when the exempt time of jobs that it may preempt is over" in expected.text
        assert run(here).preemptions == ()
    later(here, 540)
    assert len(run(here).preemptions) == 1
