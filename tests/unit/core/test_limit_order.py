"""Which of several limits a job is told to wait for. Source: what Slurm 22.05 said, each time the limit that it had
named was taken away.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.limits.check import exceeded, never, over_submit
from spritz.model.limits.job_limits import JobLimits
from spritz.model.limits.ledger import Ledger
from spritz.model.limits.minutes import Minutes, out_of_minutes, spent
from spritz.model.limits.reasons import first_of
from spritz.model.limits.records import Association, Policy, Qos
from spritz.model.limits.rules import Rules
from spritz.model.limits.usage import Usage

TRES = (("cpu", 4), ("mem", 400), ("node", 1), ("billing", 4))

OF_QOS: dict[str, dict[str, Any]] = {
    "QOSGrpJobsLimit": {"grp_jobs": 0},
    "QOSGrpWallLimit": {"grp_wall": 0},
    "MaxJobsPerAccount": {"max_jobs_pa": 0},
    "QOSMaxJobsPerUserLimit": {"max_jobs_pu": 0},
    "QOSMaxWallDurationPerJobLimit": {"max_wall": 5},
    "QOSGrpCPUMinutesLimit": {"grp_tres_mins": "cpu=0"},
    "QOSGrpCpuLimit": {"grp_tres": "cpu=1"},
    "QOSGrpCPURunMinutesLimit": {"grp_tres_run_mins": "cpu=1"},
    "QOSMaxCpuMinutesPerJobLimit": {"max_tres_mins_pj": "cpu=1"},
    "QOSMaxCpuPerJobLimit": {"max_tres_pj": "cpu=1"},
    "QOSMaxCpuPerNode": {"max_tres_pn": "cpu=1"},
    "QOSMinCpuNotSatisfied": {"min_tres_pj": "cpu=9"},
    "MaxCpuPerAccount": {"max_tres_pa": "cpu=1"},
    "QOSMaxCpuPerUserLimit": {"max_tres_pu": "cpu=1"},
}
OF_USER: dict[str, dict[str, Any]] = {
    "AssocGrpJobsLimit": {"grp_jobs": 0},
    "AssocGrpWallLimit": {"grp_wall": 0},
    "AssocMaxJobsLimit": {"max_jobs": 0},
    "AssocMaxWallDurationPerJobLimit": {"max_wall": 5},
    "AssocGrpCPUMinutesLimit": {"grp_tres_mins": "cpu=0"},
    "AssocGrpCpuLimit": {"grp_tres": "cpu=1"},
    "AssocGrpCPURunMinutesLimit": {"grp_tres_run_mins": "cpu=1"},
    "AssocMaxCpuMinutesPerJobLimit": {"max_tres_mins": "cpu=1"},
    "AssocMaxCpuPerJobLimit": {"max_tres": "cpu=1"},
    "AssocMaxCpuPerNode": {"max_tres_per_node": "cpu=1"},
}
#: numbers of jobs and wall clock of the QOS and of the association, then the rest of each
ORDER = [*list(OF_QOS)[:5], *list(OF_USER)[:4], *list(OF_QOS)[5:], *list(OF_USER)[4:]]


def party_with(limits: list[str], flags: str = "") -> JobLimits:
    """Whose job exceeds all of these."""
    qos, user = Qos(name="q", id=1, flags=flags), Association(id=2, cluster="c", account="a", user="u")
    for name in limits:
        if name in OF_QOS:
            qos = replace(qos, **OF_QOS[name])
        else:
            user = replace(user, **OF_USER[name])
    above = (Association(id=1, cluster="c", account="root"), Association(id=3, cluster="c", account="a", parent="root"))
    return Rules(Policy(version=1, associations=(*above, user), qos=(qos,))).job_limits("a", "u", "p", "q")


def named(limits: list[str]) -> str:
    """The reason for a job that exceeds all of these."""
    job_limits = party_with(limits)
    found = first_of(
        (
            exceeded(job_limits, Ledger(), TRES, 30),
            out_of_minutes(job_limits, Minutes(), dict(TRES), 30, 0.0, safe=False),
        )
    )
    return found.reason.value if found is not None else ""


def test_of_all_limits_the_one_is_told_that_slurm_tells() -> None:
    left, told = list(ORDER), []
    while left:
        told.append(named(left))
        left.remove(told[-1])
    assert told == ORDER
    assert named([]) == ""


#: Names of limits that are refused at submission of a job whose QOS has DenyOnLimit, in Slurm's order.
AT_SUBMISSION = [
    *("MaxCpuPerAccount", "QOSMaxCpuPerUserLimit", "QOSGrpCpuLimit", "QOSMaxCpuMinutesPerJobLimit"),
    *("QOSGrpCPUMinutesLimit", "QOSGrpCPURunMinutesLimit", "QOSMaxWallDurationPerJobLimit", "QOSGrpWallLimit"),
    *("QOSMaxCpuPerJobLimit", "QOSMaxCpuPerNode", "QOSMinCpuNotSatisfied", "AssocGrpCpuLimit"),
    *("AssocGrpCPUMinutesLimit", "AssocGrpCPURunMinutesLimit", "AssocGrpWallLimit", "AssocMaxCpuPerJobLimit"),
    *("AssocMaxCpuPerNode", "AssocMaxCpuMinutesPerJobLimit", "AssocMaxWallDurationPerJobLimit"),
]


def test_what_a_strict_qos_refuses_is_told_in_slurms_order() -> None:
    left, told = list(AT_SUBMISSION), []
    while left:
        job_limits = party_with(left, flags="DenyOnLimit")
        found = first_of(
            (
                never(job_limits, TRES, 30),
                spent(job_limits, Usage(), dict(TRES), 30, 0.0),
                over_submit(job_limits, Ledger(), 1),
            ),
            submitted=True,
        )
        assert found is not None
        told.append(found.reason.value)
        left.remove(found.reason.value)
    assert told == AT_SUBMISSION
    assert never(party_with(AT_SUBMISSION), TRES, 30) is None, "without the flag it may wait"


def levels_with(above: dict[str, Any], account: dict[str, Any], user: dict[str, Any], **qos: Any) -> JobLimits:
    """One of a tree of two accounts; limits of each level."""
    associations = (
        Association(id=1, cluster="c", account="root"),
        Association(id=2, cluster="c", account="t", parent="root", **above),
        Association(id=3, cluster="c", account="a", parent="t", **account),
        Association(id=4, cluster="c", account="a", user="u", **user),
    )
    policy = Policy(version=1, associations=associations, qos=(Qos(name="q", id=1, **qos),))
    return Rules(policy).job_limits("a", "u", "p", "q")


@pytest.mark.parametrize(
    ("above", "account", "user", "told"),
    [
        ({"grp_jobs": 0, "grp_tres": "cpu=1"}, {"max_jobs": 0}, {}, "AssocMaxJobsLimit"),
        ({}, {"grp_jobs": 0, "max_wall": 10}, {}, "AssocMaxWallDurationPerJobLimit"),
        ({"grp_wall": 0}, {}, {"grp_tres": "cpu=0", "grp_tres_mins": "cpu=0"}, "AssocGrpWallLimit"),
        ({"grp_tres": "cpu=0"}, {"grp_tres_mins": "cpu=0"}, {"max_tres": "cpu=0"}, "AssocMaxCpuPerJobLimit"),
        ({"grp_tres": "cpu=0"}, {"grp_tres_mins": "cpu=0"}, {}, "AssocGrpCPUMinutesLimit"),
    ],
)
def test_a_jobs_own_association_is_looked_at_before_those_above(
    above: dict[str, Any], account: dict[str, Any], user: dict[str, Any], told: str
) -> None:
    job_limits = levels_with(above, account, user)
    found = first_of(
        (
            exceeded(job_limits, Ledger(), TRES, 30),
            out_of_minutes(job_limits, Minutes(), dict(TRES), 30, 0.0, safe=False),
        )
    )
    assert found is not None
    assert found.reason == told


def test_more_nodes_than_there_may_be_are_told_before_anything_else_it_would_take() -> None:
    wanted = (("cpu", 4), ("node", 3))

    def told(**qos: Any) -> str:
        found = exceeded(levels_with({}, {}, {}, **qos), Ledger(), wanted, 30)
        return found.reason.value if found else ""

    assert told(max_tres_pu="cpu=2,node=2") == "QOSMaxNodePerUserLimit"
    assert told(grp_tres="cpu=2,node=3") == "QOSGrpCpuLimit", "it could have that number"
    assert told(max_tres_pu="node=2", grp_tres="node=1") == "QOSGrpNodeLimit", "the least of them"
    assert told(max_jobs_pu=0, grp_tres="node=1") == "QOSMaxJobsPerUserLimit"


def test_what_one_node_may_give_is_reckoned_in_whole_parts() -> None:
    job_limits = levels_with({}, {"max_tres_per_node": "cpu=2"}, {})
    assert exceeded(job_limits, Ledger(), (("cpu", 5), ("node", 2)), 30, nodes=2) is None
    assert exceeded(job_limits, Ledger(), (("cpu", 6), ("node", 2)), 30, nodes=2) is not None
