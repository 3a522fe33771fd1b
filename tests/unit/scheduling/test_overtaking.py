"""Planned starts follow the order of the queue as priorities change by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.cluster.priority import PriorityInputs, PriorityPolicy
from spritz.model.job.record import Sharing
from spritz.scheduling.plan import overtaking
from tests.unit.scheduling.site import SETTINGS, Site, node, spec

USERS = 24


def site(nodes: int = 1, **options: Any) -> Site:
    """Nodes of one CPU; shares alone decide who is first."""
    settings = structs.replace(SETTINGS, priority_policy=PriorityPolicy(weight_fairshare=1000), **options)
    return Site([node(f"n{number}", 1) for number in range(nodes)], settings=settings)


def shares(here: Site, *users: str) -> None:
    """From now on these users' jobs come in this order."""
    factors = {("a", user): 1.0 - place / 100 for place, user in enumerate(users)}
    here.projection.set_priority_inputs(PriorityInputs(fairshare=factors))


def submit(here: Site, user: str, minutes: int, **fields: Any) -> int:
    return here.submit(spec(1, account="a", user=user, time_limit_minutes=minutes, **fields))


def expected(here: Site, *jobs: int) -> list[float]:
    """Minutes from now until the planned starts, once a full cycle has been."""
    here.cycle()
    records, ledger = here.projection.records, here.projection.ledger
    promises = [ledger.of(records[job].entries[0][1].request)[0] for job in jobs]
    return [(promise.start_at - here.now) / 60 for promise in promises]


def test_a_job_that_has_come_to_rank_first_gets_the_first_promise() -> None:
    here = site()
    shares(here, "x", "rich", "poor")
    submit(here, "x", 10)
    here.cycle()
    rich, poor = submit(here, "rich", 60), submit(here, "poor", 30)
    assert expected(here, rich, poor) == [10, 70]
    shares(here, "x", "poor", "rich")
    assert expected(here, poor, rich) == [10, 40]
    assert expected(here, poor, rich) == [10, 40]
    here.end(1)
    assert list(here.cycle()) == [poor]


def test_jobs_that_are_not_overtaken_keep_their_planned_starts() -> None:
    here = site(nodes=2)
    shares(here, "x", "rich", "poor")
    submit(here, "x", 10)
    submit(here, "x", 20)
    here.cycle()
    rich = submit(here, "rich", 60, node_list=("n0",))
    poor = submit(here, "poor", 30, node_list=("n1",))
    assert expected(here, rich, poor) == [10, 20]
    before = {id(item) for items in here.projection.ledger.by_request.values() for item in items}
    shares(here, "x", "poor", "rich")
    assert expected(here, rich, poor) == [10, 20]
    assert before == {id(item) for items in here.projection.ledger.by_request.values() for item in items}


def test_an_order_that_is_another_altogether_holds_after_one_full_cycle() -> None:
    here = site()
    users = [f"u{number}" for number in range(USERS)]
    shares(here, "x", *users)
    submit(here, "x", 10)
    here.cycle()
    jobs = [submit(here, user, 10 + place) for place, user in enumerate(users)]
    starts = expected(here, *jobs)
    assert starts == sorted(starts)
    assert USERS > overtaking.TRIES
    shares(here, "x", *reversed(users))
    starts = expected(here, *jobs)
    assert starts == sorted(starts, reverse=True)


def test_the_first_job_does_not_wait_for_what_was_promised_to_those_behind_it() -> None:
    here = site(nodes=2)
    shares(here, "x", "rich", "poor")
    early = submit(here, "x", 60)
    submit(here, "x", 10)
    here.cycle()
    rich = here.submit(spec(2, account="a", user="rich", time_limit_minutes=30))
    poor = here.submit(spec(1, account="a", user="poor", time_limit_minutes=50))
    assert expected(here, rich, poor) == [60, 10]
    here.now += 60
    here.end(early)
    assert expected(here, rich, poor) == [9, 39]


def test_what_a_full_cycle_plans_for_its_own_time_it_starts() -> None:
    """The next task of an array goes before a promise that was made while %1 held the task back."""
    here = Site([node("n1", 4)])
    here.submit(spec(1, time_limit_minutes=1))
    array = here.submit(spec(1, time_limit_minutes=1), array=range(1, 4), limit=1)
    _, second = here.cycle()
    assert here.jobs[second].array_job_id == array
    whole = here.submit(spec(1, sharing=Sharing.EXCLUSIVE, time_limit_minutes=1))
    assert expected(here, whole) == [1]
    here.now += 15
    here.end(second)
    assert here.cycle(50) == {}, "a quick cycle keeps promises"
    (task,) = here.cycle()
    assert here.jobs[task].array_job_id == array
    assert here.cycle_plan().look_again_at == 0.0
    assert expected(here, whole) == [1]


@pytest.mark.parametrize("option", ["", "slowdown"])
def test_with_predictions_no_promise_is_broken_by_a_change_of_shares(option: str) -> None:
    here = site(scheduler_parameters=(("bf_predict", option),))
    shares(here, "x", "rich", "poor")
    submit(here, "x", 10)
    here.cycle()
    rich = submit(here, "rich", 60)
    submit(here, "poor", 30)
    assert expected(here, rich) == [10]
    shares(here, "x", "poor", "rich")
    here.end(1)
    assert list(here.cycle()) == [rich]


def test_of_equal_jobs_that_start_at_the_same_time_none_is_overtaken() -> None:
    """When something is freed, a full cycle looks at all planned starts again, and at each once."""
    here = Site([*(node(f"n{number}", 4) for number in range(1, 4)), node("n4", 1)])
    for minutes in (5, 10, 10):
        here.submit(spec(4, time_limit_minutes=minutes))
    small = here.submit(spec(1, time_limit_minutes=30))
    assert len(here.cycle()) == 4
    for minutes in (20, 20, 20, 6):
        here.submit(spec(4, time_limit_minutes=minutes))
    here.cycle()
    begun = here.now
    planned = [begun + 60 * minutes for minutes in (5, 10, 10, 25)]
    assert here.projection.ledger.starts == planned
    here.now += 10
    here.end(small)
    here.cycle()
    assert here.projection.ledger.starts == planned


def test_of_two_equal_jobs_the_second_does_not_take_the_start_that_is_made_for_the_first() -> None:
    here = Site([node(f"n{number}", 4) for number in range(1, 5)])
    here.submit(spec(4, time_limit_minutes=3, node_list=("n1",)))
    short = here.submit(spec(4, time_limit_minutes=4, node_list=("n2",)))
    here.submit(spec(4, time_limit_minutes=4, node_list=("n3",)))
    assert len(here.cycle()) == 3
    first = here.submit(spec(8, 2, time_limit_minutes=2))
    here.submit(spec(8, 2, time_limit_minutes=2))
    here.cycle()
    (ledger,) = here.projection.ledger.by_request.values()
    assert [start.start_at - here.now for start in ledger] == [180.0, 240.0]
    here.now += 121
    here.end(short)
    assert list(here.cycle()) == [first]


def test_the_head_does_not_win_seconds_at_the_cost_of_hours_of_another() -> None:
    """One behind it is planned before it. A job that is cleared late puts both off."""
    here = Site([node(f"n{number}", 4) for number in range(1, 3)])
    late = here.submit(spec(4, time_limit_minutes=10, node_list=("n1",)))
    here.submit(spec(4, time_limit_minutes=30, node_list=("n2",)))
    assert len(here.cycle()) == 2
    first = here.submit(spec(4, time_limit_minutes=10, node_list=("n1",)))
    head = here.submit(spec(8, 2, time_limit_minutes=60))
    small = here.submit(spec(4, time_limit_minutes=10, node_list=("n1",)))
    begun = here.now
    here.cycle()
    here.now += 600
    here.end(late, completing=("n1",))
    here.now += 20
    here.gone(late, "n1")
    assert list(here.cycle(100)) == [first]
    here.cycle()
    promised = {
        item.holder: item.start_at - begun for items in here.projection.ledger.by_request.values() for item in items
    }
    assert promised == {small: 1220.0, head: 1820.0}
