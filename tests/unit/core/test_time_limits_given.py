"""The time limit of a job that asks for none. Source: answers of Slurm 22.05 (tests/conformance/limits.txt)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import UpdateJob
from spritz.model.ids import INFINITE
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import Association, ChangePolicy, Policy, PolicyChange, Qos, SetPolicy
from spritz_testing.builders import World, capacity


def world(qos: dict[str, Any], above: dict[str, Any], account: dict[str, Any], user: dict[str, Any]) -> World:
    """Alice in chem below science."""
    made = World(settings=ClusterSettings(enforce=("associations", "limits", "qos")), hardware=capacity(cpus=8))
    associations = (
        Association(id=1, cluster="cluster", account="root", qos="normal,fast", grp_wall=1),
        Association(id=2, cluster="cluster", account="science", parent="root", **above),
        Association(id=3, cluster="cluster", account="chem", parent="science", **account),
        Association(id=4, cluster="cluster", account="chem", user="alice", is_default=True, **user),
    )
    some = (Qos(name="normal", id=1), Qos(name="fast", id=2, **qos))
    made.ok(SetPolicy(policy=Policy(version=1, associations=associations, qos=some)))
    return made


@pytest.mark.parametrize(
    ("qos", "above", "account", "user", "minutes"),
    [
        ({}, {}, {}, {}, INFINITE),
        ({"max_wall": 30, "grp_wall": 15}, {}, {}, {}, 15),
        ({"max_wall": 25, "grp_wall": 30}, {}, {}, {}, 25),
        ({"grp_wall": 10}, {}, {"max_wall": 5}, {}, 10),
        ({}, {}, {}, {"grp_wall": 20, "max_wall": 10}, 20),
        ({}, {"grp_wall": 9}, {"grp_wall": 7, "max_wall": 8}, {}, 8),
        ({}, {"grp_wall": 9}, {"grp_wall": 7}, {}, 7),
        ({}, {"grp_wall": 9}, {}, {}, 9),
        ({"max_tres_mins_pj": "cpu=8"}, {}, {}, {}, INFINITE),
        ({"flags": "DenyOnLimit", "max_tres_mins_pj": "cpu=40", "max_wall": 30}, {}, {}, {}, 20),
        ({"flags": "DenyOnLimit"}, {}, {"grp_tres_mins": "cpu=24", "grp_tres_run_mins": "cpu=10"}, {}, 5),
    ],
)
def test_limits_on_how_long_jobs_run_give_the_time_of_one_that_asks_for_none(
    qos: dict[str, Any], above: dict[str, Any], account: dict[str, Any], user: dict[str, Any], minutes: int
) -> None:
    made = world(qos, above, account, user)
    job = made.job(made.submit(qos="Fast", tasks=2))
    assert job.time_limit_minutes == minutes
    assert job.spec.qos == "fast", "names are written in any case"
    assert made.job(made.submit(qos="fast", time_limit_minutes=4)).time_limit_minutes == 4


def test_an_association_that_leaves_no_time_refuses_a_job_that_asks_for_none() -> None:
    made = world({}, {"grp_wall": 0}, {}, {})
    assert made.submit_refused(qos="fast") == "ESLURM_ACCOUNTING_POLICY"
    made.submit(qos="fast", time_limit_minutes=4)


def test_the_time_that_limits_gave_changes_with_them_while_the_job_waits() -> None:
    made = world({}, {}, {"max_wall": 40}, {})
    given, asked, set_later = made.submit(), made.submit(time_limit_minutes=30), made.submit()
    made.ok(UpdateJob(target=JobTarget(job_id=set_later), changes={"time_limit_minutes": 25}))

    def minutes() -> list[int | None]:
        return [made.job(number).time_limit_minutes for number in (given, asked, set_later)]

    assert minutes() == [40, 30, 25]
    for limit, expected in ((20, 20), (60, 60), (None, INFINITE), (50, 50)):
        policy = made.state.rules.policy
        chem = replace(next(association for association in policy.associations if association.id == 3), max_wall=limit)
        change = PolicyChange(base=policy.version, version=policy.version + 1, associations=(chem,))
        made.ok(ChangePolicy(change=change))
        assert minutes() == [expected, 30, 25]
    assert made.job(made.submit(time_granted=True, time_limit_minutes=90)).time_limit_minutes == 90
    made.check()
