"""Limits on nodes count one that several jobs are on once. Source: answers of Slurm 22.05."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from spritz.model.events.cluster import PolicyAmended, PolicyChanged
from spritz.model.limits.records import Association, Policy, PolicyChange, Qos
from tests.unit.scheduling.site import SETTINGS, Site, node, spec
from tests.unit.scheduling.test_explain import told

ENFORCE = structs.replace(SETTINGS, enforce=("associations", "limits", "qos"))


def site_of(qos: Qos | None = None, settings: Any = ENFORCE, **fields: Any) -> Site:
    """Alice and Bob in one account with these limits; four nodes of eight CPUs."""
    site = Site([node(f"n{number}", 8) for number in range(1, 5)], settings=settings)
    users = [
        Association(id=place, cluster="c", account="lab", user=user) for place, user in enumerate(("alice", "bob"), 2)
    ]
    top = Association(id=1, cluster="c", account="lab", qos="normal", **fields)
    policy = Policy(version=1, associations=(top, *users), qos=(qos or Qos(name="normal"),))
    site.apply(PolicyChanged(at=site.now, policy=policy))
    return site


def job(site: Site, where: str = "", user: str = "alice", nodes: int = 1, **fields: Any) -> int:
    own = {"node_list": (where,)} if where else {}
    return site.submit(spec(nodes, nodes=nodes, user=user, account="lab", qos="normal", **own, **fields))


def test_an_account_goes_on_where_it_is() -> None:
    site = site_of(grp_tres="node=1")
    here, there = job(site, "n1"), job(site, "n2")
    more = [job(site, "n1"), job(site, "n1", "bob")]
    two = job(site, nodes=2)
    assert site.cycle().keys() == {here, *more}
    assert site.reason(there) == site.reason(two) == "AssocGrpNodeLimit"
    site.end(here)
    assert not site.cycle()
    for one in more:
        site.end(one)
    assert site.cycle().keys() == {there}


def test_users_and_a_qos_together_have_theirs() -> None:
    site = site_of(Qos(name="normal", max_tres_pu="node=1", grp_tres="node=2"))
    jobs = [job(site, "n1"), job(site, "n2", "bob"), job(site, "n2", "bob"), job(site, "n1", "bob"), job(site, "n3")]
    assert site.cycle().keys() == set(jobs[:3])
    assert [site.reason(number) for number in jobs[3:]] == ["QOSMaxNodePerUserLimit", "QOSGrpNodeLimit"]


def test_a_limit_that_comes_later_knows_where_jobs_are() -> None:
    site = site_of()
    job(site, "n1")
    assert len(site.cycle()) == 1
    change = PolicyChange(
        base=1,
        version=2,
        associations=(Association(id=1, cluster="c", account="lab", qos="normal", grp_tres="node=1"),),
    )
    site.apply(PolicyAmended(at=site.now, change=change))
    elsewhere, here = job(site, "n2"), job(site, "n1")
    assert site.cycle().keys() == {here}
    assert site.reason(elsewhere) == "AssocGrpNodeLimit"


def test_it_is_told_so() -> None:
    site = site_of(grp_tres="node=1")
    job(site, "n1")
    job(site, "n1")
    site.cycle()
    waits = job(site, "n2")
    site.cycle()
    (one,) = [limit for limit in told(site, waits).limits if limit.holds]
    assert (one.kind, one.used, one.limit) == ("AssocGrpNodeLimit", 1, 1)


@pytest.mark.parametrize(("memory_counts", "runs"), [(True, False), (False, True)])
def test_memory_is_limited_where_jobs_hold_it(memory_counts: bool, runs: bool) -> None:
    site = site_of(settings=structs.replace(ENFORCE, memory_consumable=memory_counts), grp_tres="mem=100")
    number = job(site, memory_mib_per_node=200)
    assert bool(site.cycle()) is runs
    assert runs or site.reason(number) == "AssocGrpMemLimit"


def test_a_job_without_a_memory_request_gets_what_its_qos_demands() -> None:
    """It gets all of its node's, whatever that will be."""
    settings = structs.replace(ENFORCE, default_memory_mib_per_cpu=None)
    site = site_of(Qos(name="normal", min_tres_pj="mem=100"), settings)
    number = job(site)
    assert site.cycle().keys() == {number}
