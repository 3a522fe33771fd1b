"""Expected starts of jobs that are not in the queue yet: begin times, dependencies, arrays with `%`."""

from __future__ import annotations

import random
from math import exp, log, log2
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from spritz.model.commands.job import JobSubmitted, SubmitHetJob, SubmitJob
from spritz.model.events.cluster import PolicyChanged
from spritz.model.limits.records import Association, Policy, Qos
from spritz.model.limits.usage import WALL, Decay
from spritz.scheduling.forecast import held_jobs
from spritz.scheduling.forecast.lanes import Group, Lanes
from spritz.scheduling.view.profile import Floats
from spritz.scheduling.view.table import Ints
from tests.unit.scheduling.play import Play, depends
from tests.unit.scheduling.site import node, spec
from tests.unit.scheduling.test_explain import told
from tests.unit.scheduling.test_forecast import starts
from tests.unit.scheduling.test_turns import ENFORCE

MINUTE = 60.0


def site_of(nodes: int = 30, qos: Qos | None = None, *, safe: bool = False) -> Play:
    """Alice's, with room for everybody."""
    enforce = structs.replace(ENFORCE, enforce=(*ENFORCE.enforce, *(("safe",) if safe else ())))
    site = Play([node(f"n{number}", 4) for number in range(nodes)], settings=enforce)
    top = Association(id=1, cluster="c", account="lab", qos="normal")
    alice = Association(id=2, cluster="c", account="lab", user="alice")
    policy = Policy(version=1, associations=(top, alice), qos=(qos or Qos(name="normal"),))
    site.apply(PolicyChanged(at=site.now, policy=policy))
    return site


def job(site: Play, minutes: int = 10, needs: str = "", array: str = "", **fields: Any) -> int:
    fields = {**(depends(needs) if needs else {}), **fields}
    request = spec(fields.pop("tasks", 1), user="alice", account="lab", qos="normal", time_limit_minutes=minutes)
    return site.sbatch(request, array=array, **fields)


def minutes(site: Play) -> dict[int, float]:
    """Until each that waits is expected to start."""
    site.look()
    now = site.now
    return {number: (at - now) / MINUTE for number, at in site.told().items()}


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ("afterany:1", 10),
        ("afterok:1", 10),
        ("afternotok:1", 10),
        ("aftercorr:1", 10),
        ("after:1", None),
        ("after:1+3", 3),
        ("afterok:1,afterany:2", 20),
        ("afterok:1?afterany:2", 10),
        ("after:2+15?afterany:2", 15),
        ("singleton", 20),
    ],
)
def test_what_runs_ends_by_its_limit(needs: str, expected: float | None) -> None:
    site = site_of()
    for limit in (10, 20):
        job(site, limit)
    site.look()
    waiting = job(site, needs=needs)
    assert minutes(site) == ({} if expected is None else {waiting: expected})


def test_a_chain_goes_link_by_link() -> None:
    site = site_of()
    first = job(site, 5)
    second = job(site, 7, f"afterok:{first}")
    third = job(site, 1, f"afterok:{second}")
    fourth = job(site, 1, f"after:{third}+2")
    assert minutes(site) == {second: 5, third: 12, fourth: 14}


def test_tasks_beyond_the_percent_follow_those_that_run() -> None:
    site = site_of()
    array = job(site, 10, array="0-6%2")
    site.look()
    after = job(site, needs=f"afterany:{array}")
    first_of_it = job(site, needs=f"after:{array}")
    fourth = job(site, needs=f"afterok:{array}_3")
    assert minutes(site) == {array: 10, after: 40, first_of_it: 30, fourth: 20}


def test_tasks_follow_their_counterparts() -> None:
    site = site_of()
    first = job(site, 10, array="0-3%2")
    second = job(site, 5, f"aftercorr:{first}", array="1-4")
    third = job(site, 1, f"afterany:{second}")
    assert minutes(site) == {first: 10, second: 10, third: 25}


def test_what_has_been_waited_for_is_then_under_its_limits() -> None:
    site = site_of(qos=Qos(name="normal", max_jobs_pu=2))
    first = job(site, 5)
    rest = [job(site, 10, f"afterany:{first}") for _ in range(4)]
    assert minutes(site) == dict(zip(rest, (5, 5, 15, 15), strict=True))


def test_begin_times_come_and_conditions_with_them() -> None:
    site = site_of()
    first = job(site, 5, begin_at=site.now + 600)
    second = job(site, 5, f"afterany:{first}")
    third = job(site, 5, f"after:{first}", begin_at=site.now + 1200)
    assert minutes(site) == {first: 10, second: 15, third: 20}


def test_components_start_together_and_are_waited_for_together() -> None:
    site = site_of()
    first = job(site, 10)
    parts = [
        SubmitJob(
            spec=structs.replace(
                spec(1, time_limit_minutes=limit, user="alice", account="lab", qos="normal"),
                partitions=("debug",),
                uid=1000,
                batch=limit == 5,
                **depends(f"afterany:{first}"),
            ),
            script=b"#!/bin/sh\n" if limit == 5 else b"",
        )
        for limit in (5, 7)
    ]
    whole = site.do(SubmitHetJob(components=tuple(parts)))
    assert isinstance(whole, JobSubmitted)
    leader = whole.job_id
    after = job(site, needs=f"afterany:{leader}")
    assert minutes(site) == {leader: 10, leader + 1: 10, after: 17}


def test_unknown_starts_are_not_reported() -> None:
    site = site_of()
    endless = job(site, 0xFFFFFFFF)
    held = job(site, hold="user")
    failed = job(site, 1)
    site.fail.add(failed)
    site.look()
    for number in (endless, held, failed):
        job(site, needs=f"afterok:{number}")
    either = job(site, needs=f"afterany:{endless}?after:{failed}+3")
    site.now += 60
    site._finish(failed)
    assert minutes(site) == {either: 2}
    assert site.jobs[either].dependencies


def test_room_is_waited_for_as_well() -> None:
    site = site_of(nodes=1)
    first = job(site, 5)
    job(site, 20, tasks=3)
    whole = job(site, 5, f"afterany:{first}", tasks=4)
    assert minutes(site) == {whole: 20}


def random_site(rng: random.Random) -> Play:
    """Jobs, arrays with and without `%`, limits; each may wait for some before it in any way."""
    qos: dict[str, Any] = rng.choice([{}, {}, {"max_jobs_pu": 3}, {"grp_tres": "cpu=4"}])
    site = site_of(nodes=60, qos=Qos(name="normal", **qos))
    arrays, needs = [""], [""]
    # Tasks that follow their counterparts get later numbers, by which ties are settled.
    singletons = rng.random() < 0.5
    for number in range(1, rng.randint(3, 10)):
        mark = rng.choice(",,?")
        conditions = ["singleton"] if singletons and rng.random() < 0.3 else []
        for target in rng.sample(range(1, number), min(number - 1, rng.choice([0, 1, 1, 2, 3]))):
            kind = rng.choice(["after", "after+", "afterany", "end", "end", "aftercorr"])
            if kind == "aftercorr" and (singletons or qos or mark == "?" or target in site.fail):
                kind = "end"
            if kind == "end":
                kind = "afternotok" if target in site.fail else "afterok"
            # Tasks that are released at the same time have no order.
            one_task = (
                arrays[target] and "aftercorr" not in needs[target] and kind != "aftercorr" and rng.random() < 0.5
            )
            name = f"{target}_{rng.randint(0, 4)}" if one_task else str(target)
            conditions.append(f"after:{name}+{rng.randint(1, 6)}" if kind == "after+" else f"{kind}:{name}")
        needs.append(mark.join(dict.fromkeys(conditions)))
        array = rng.choice(["", "", "0-3", "0-4%2", "1-3%1"])
        begin_at = rng.choice([0.0, 0.0, site.now + 90.0])
        if rng.random() < 0.2:
            site.fail.add(number)
        fields = {"begin_at": begin_at, "name": rng.choice("ab"), "tasks": 1 if qos else rng.randint(1, 2)}
        assert number == job(site, rng.randint(1, 4), needs[number], array, **fields)
        arrays.append(array)
    return site


@settings(max_examples=60, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 1 << 32))
def test_where_there_is_room_all_starts_are_told_and_come_true(seed: int) -> None:
    """All run for as long as they may, and end as those that wait for them wish."""
    site = random_site(random.Random(seed))
    expected = site.told()
    site.run()
    assert expected == site.began


HOUR = 3600.0


def used_up(site: Play, cpu_minutes: float, *, half_life: float) -> None:
    """Charge this number of CPU minutes to the QOS."""
    usage = site.machine.state.minutes.usage
    usage.configure(Decay(half_life_seconds=half_life), site.now)
    usage.change([("q", "normal")], (("cpu", 1_000_000), (WALL, 1_000_000)), 1, site.now - cpu_minutes * 60.0)
    usage.change([("q", "normal")], (("cpu", 1_000_000), (WALL, 1_000_000)), -1, site.now)
    usage.entries[("q", "normal")].amounts = {"cpu": cpu_minutes * 60.0, WALL: cpu_minutes * 60.0}


@pytest.mark.parametrize(
    ("qos", "safe", "hours"),
    [
        # a minute must be left for its start
        ({"grp_tres_mins": "cpu=60"}, False, log2(120 / 59)),
        ({"grp_wall": 60}, False, log2(120 / 59)),
        # ten of the ninety must be left for the job itself
        ({"grp_tres_mins": "cpu=90"}, True, log2(120 / 80)),
    ],
)
def test_minutes_of_use_fade(qos: dict[str, Any], safe: bool, hours: float) -> None:
    site = site_of(qos=Qos(name="normal", **qos), safe=safe)
    used_up(site, 120.0, half_life=HOUR)
    waiting = job(site, 10)
    assert minutes(site) == {waiting: pytest.approx(hours * 60.0, abs=0.01)}


def test_minutes_that_do_not_fade_are_not_told() -> None:
    site = site_of(qos=Qos(name="normal", grp_tres_mins="cpu=60"))
    used_up(site, 120.0, half_life=0.0)
    job(site, 10)
    assert minutes(site) == {}


def test_minutes_that_running_jobs_may_still_use_become_fewer() -> None:
    site = site_of(qos=Qos(name="normal", grp_tres_run_mins="cpu=30"))
    job(site, 25)
    site.look()
    second, third = job(site, 10), job(site, 10)
    assert minutes(site) == {second: pytest.approx(5, abs=0.01), third: pytest.approx(10, abs=0.01)}


def test_what_runs_is_used_up_meanwhile() -> None:
    """One job uses up what there is, which fades once it has ended."""
    site = site_of(qos=Qos(name="normal", grp_tres_mins="cpu=20"))
    used_up(site, 0.001, half_life=HOUR)
    job(site, 30)
    site.look()
    second = job(site, 10, "afterany:1")
    (found,) = minutes(site).values()
    constant = log(2.0) / HOUR
    left = 1800.0 * (1 - exp(-constant * 1800.0)) / (constant * 1800.0)
    assert second == 2
    assert found == pytest.approx(30 + log(left / 1140.0) / constant / MINUTE, abs=0.01)


def words(site: Play, number: int) -> str:
    found = told(site, number).expected
    assert found is not None
    return f"{found.sure}: {found.text}"


def test_it_is_said_how_sure_a_start_is_and_why_there_is_none() -> None:
    site = site_of(qos=Qos(name="normal", grp_tres_mins="cpu=60"))
    first, held = job(site, 5), job(site, 5, hold="user")
    site.look()
    after, never, later = (
        job(site, 5, f"afterok:{first}"),
        job(site, 5, f"afterok:{held}"),
        job(site, 5, begin_at=site.now + 60),
    )
    assert "taken to come true" in words(site, after)
    assert words(site, after).startswith("forecast")
    assert words(site, later).startswith("forecast: an estimate: from its begin time")
    assert words(site, never).startswith("unknown: unknown: no start or end is foreseen of what it depends on")
    assert words(site, held).startswith("unknown: unknown: it is held")
    used_up(site, 120.0, half_life=0.0)
    spent = job(site, 5)
    site.look()
    assert words(site, spent).startswith("unknown: never, unless the limit is raised")
    used_up(site, 120.0, half_life=HOUR)
    assert words(site, spent).startswith("forecast: an estimate: when what was used of the limit has faded")


def test_beyond_the_checks_lines_that_have_not_moved_come_after_those_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = site_of(qos=Qos(name="normal", max_jobs_pu=1))
    job(site, 10)
    site.look()
    waiting = [job(site, 10) for _ in range(20)] + [job(site, 5) for _ in range(3)]
    exact = minutes(site)
    monkeypatch.setattr(held_jobs, "CHECKS", 12)
    assert sorted(minutes(site)) == waiting
    assert minutes(site)[waiting[20]] == exact[waiting[20]]


def test_beyond_the_placements_times_alone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_of()
    chain = [job(site, 10)]
    for _ in range(5):
        chain.append(job(site, 10, f"afterany:{chain[-1]}"))
    site.look()
    monkeypatch.setattr(held_jobs, "PLACEMENTS", 3)
    found = starts(site.plan())
    assert [(at - site.now) / MINUTE for at, _nodes in found.values()] == [10, 20, 30, 40, 50]
    assert [len(nodes) for _at, nodes in found.values()] == [1, 1, 1, 0, 0]


def test_work_grows_with_the_moments_and_not_with_the_jobs_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain, a fan and one name: one search for nodes at each moment; jobs that are held are not looked at."""
    site = site_of()
    first = previous = job(site, 10)
    for number in range(300):
        previous = job(site, 10, f"afterany:{previous}" if number < 100 else f"afterany:{first}", name="x")
    for _ in range(100):
        job(site, 10, "singleton", name="y")
    held = [job(site, 10, hold="user") for _ in range(50)]
    site.look()
    searches: list[int] = []
    search = Lanes.starts

    def counted(lanes: Lanes, group: Group, seconds: Floats, since: float = 0.0) -> tuple[Floats, Ints]:
        searches.append(len(seconds))
        return search(lanes, group, seconds, since)

    monkeypatch.setattr(Lanes, "starts", counted)
    assert len(starts(site.plan())) == 399
    assert len(searches) <= 210
    assert not site.projection.ineligible.keys() & set(held)
    searches.clear()
    site.plan(budget=64)
    assert not searches


def test_nothing_is_kept_for_jobs_to_come() -> None:
    """Starts, promises and expected starts of all others are the same with them and without them."""
    plans = []
    for to_come in (False, True):
        site = site_of(nodes=2)
        for limit in (10, 20):
            job(site, limit, tasks=4)
        site.look()
        for limit in (5, 30, 5):
            job(site, limit, tasks=4)
        if to_come:
            for number in (1, 2, 3, 4):
                job(site, 5, f"afterany:{number}", tasks=4)
        plan = site.plan()
        plans.append((plan.starts, plan.future_starts, {number: starts(plan)[number] for number in (3, 4, 5)}))
    assert plans[0] == plans[1]
