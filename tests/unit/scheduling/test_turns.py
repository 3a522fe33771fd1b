"""Jobs that limits or licenses hold back are told when they start, too: the moment at which they then do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from spritz.model.events.cluster import PolicyChanged
from spritz.model.limits.records import Association, Policy, Qos
from spritz.scheduling.forecast import held_jobs
from tests.unit.scheduling.site import SETTINGS, Site, node, spec
from tests.unit.scheduling.test_forecast import starts

ENFORCE = structs.replace(SETTINGS, enforce=("associations", "limits", "qos"), licenses=(("lab", 2),))


def site_of(qos: Qos | None = None, nodes: int = 20, **fields: Any) -> Site:
    """Alice and Bob in one account with these limits, and more nodes than they may use."""
    site = Site([node(f"n{number}", 4) for number in range(nodes)], settings=ENFORCE)
    users = [
        Association(id=place, cluster="c", account="lab", user=user) for place, user in enumerate(("alice", "bob"), 2)
    ]
    top = Association(id=1, cluster="c", account="lab", qos="normal", **fields)
    policy = Policy(version=1, associations=(top, *users), qos=(qos or Qos(name="normal"),))
    site.apply(PolicyChanged(at=site.now, policy=policy))
    return site


def job(site: Site, user: str = "alice", tasks: int = 1, array: range | None = None, **fields: Any) -> int:
    return site.submit(spec(tasks, user=user, account="lab", qos="normal", **fields), array=array)


def told(site: Site) -> dict[int, float]:
    """Seconds from now until each is expected to start; it has nodes."""
    found = starts(site.plan())
    assert all(nodes for _at, nodes in found.values())
    return {number: at - site.now for number, (at, _nodes) in found.items()}


def test_a_limit_on_jobs_lets_them_in_one_after_the_other() -> None:
    site = site_of(Qos(name="normal", max_jobs_pu=2))
    for minutes in (5, 20):
        job(site, time_limit_minutes=minutes)
    site.cycle()
    waiting = [job(site) for _ in range(3)]
    job(site, "bob")
    site.cycle()
    assert told(site) == {waiting[0]: 300.0, waiting[1]: 900.0, waiting[2]: 1200.0}


def test_jobs_that_this_cycle_starts_count_as_well() -> None:
    site = site_of(grp_tres="cpu=4")
    job(site, tasks=3)
    waiting = job(site, "bob", tasks=2)
    assert told(site) == {waiting: 600.0}


def test_an_array_takes_its_turns_before_the_jobs_behind_it() -> None:
    site = site_of(Qos(name="normal", max_jobs_pu=1))
    job(site)
    site.cycle()
    array = job(site, array=range(3))
    behind = job(site)
    assert told(site) == {array: 600.0, behind: 2400.0}


def test_licenses_come_back_with_the_jobs_that_hold_them() -> None:
    site = site_of()
    for minutes in (5, 7):
        job(site, time_limit_minutes=minutes, licenses="lab")
    site.cycle()
    both, one = job(site, licenses="lab:2"), job(site, "bob", licenses="lab")
    assert told(site) == {both: 900.0, one: 300.0}


def test_room_is_waited_for_as_well() -> None:
    site = site_of(Qos(name="normal", max_jobs_pu=1), nodes=1)
    job(site, time_limit_minutes=5)
    job(site, "bob", tasks=3, time_limit_minutes=30)
    site.cycle()
    waiting = job(site, tasks=4)
    assert told(site) == {waiting: 1800.0}


@pytest.mark.parametrize(
    ("limits", "fields"),
    [({"grp_tres": "cpu=2"}, {"tasks": 3}), ({"grp_tres_mins": "cpu=1"}, {}), ({}, {"licenses": "lab:3"})],
    ids=["more than the limit by itself", "minutes of use", "more licenses than there are"],
)
def test_what_no_end_of_a_job_does_away_with_is_not_told(limits: dict[str, Any], fields: dict[str, Any]) -> None:
    site = site_of(**limits)
    job(site, licenses="lab")
    site.cycle()
    job(site, **fields)
    assert told(site) == {}


def test_what_is_beyond_the_checks_goes_on_at_the_pace_found(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_of(Qos(name="normal", max_jobs_pu=1))
    job(site)
    site.cycle()
    waiting = [job(site) for _ in range(50)]
    exact = told(site)
    monkeypatch.setattr(held_jobs, "CHECKS", 12)
    assert told(site) == exact == {number: 600.0 * place for place, number in enumerate(waiting, 1)}


asked = st.fixed_dictionaries(
    {
        "user": st.sampled_from(["alice", "bob"]),
        "tasks": st.integers(1, 3),
        "time_limit_minutes": st.integers(1, 4),
        "licenses": st.sampled_from(["", "", "lab", "lab:2"]),
    }
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(asked, min_size=1, max_size=14),
    st.sampled_from([{}, {"grp_tres": "cpu=4"}, {"grp_jobs": 3}]),
    st.sampled_from([{}, {"max_jobs_pu": 2}, {"max_tres_pu": "cpu=3"}, {"grp_tres": "cpu=5"}]),
)
def test_where_there_is_room_jobs_start_when_they_were_told_to(
    jobs: list[dict[str, Any]], group: dict[str, Any], qos: dict[str, Any]
) -> None:
    """All run for as long as they may."""
    site = site_of(Qos(name="normal", **qos), **group)
    numbers = [job(site, **fields) for fields in jobs]
    began = site.now
    expected = dict.fromkeys(site.cycle(), began) | {number: at for number, (at, _nodes) in starts(site.plan()).items()}
    seen = {number: began for number in expected if expected[number] == began}
    while ends := [(site.jobs[number].ends_at, number) for number in seen if site.jobs[number].state.active]:
        site.now = min(ends)[0]
        for at, number in ends:
            if at == site.now:
                site.end(number)
        seen |= dict.fromkeys(site.cycle(), site.now)
    assert set(seen) == set(numbers)
    assert seen == expected
