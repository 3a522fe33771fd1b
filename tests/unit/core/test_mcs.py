"""Labels that keep jobs apart, as the core gives and checks them. Source: sbatch(1) --mcs-label, --exclusive=mcs."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.model.cluster.settings import ClusterSettings, McsPolicy
from spritz.model.job.record import JobSpec, Sharing
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.model.rules.mcs import BadLabel, kept_by, label_of
from spritz_testing.builders import World, node_share

ANN: dict[str, Any] = {"user": "ann", "account": "physics"}


@pytest.mark.parametrize(
    ("plugin", "fields", "label"),
    [
        ("none", {}, ""),
        ("user", {}, ""),
        ("user", {"sharing": Sharing.MCS}, "ann"),
        ("user", {"mcs_label": "ann"}, "ann"),
        ("account", {"sharing": Sharing.MCS}, "physics"),
        ("account", {"mcs_label": "physics"}, "physics"),
        ("group", {"sharing": Sharing.MCS}, "g2"),
        ("group", {"mcs_label": "g3"}, "g3"),
        ("label", {"mcs_label": "secret"}, "secret"),
    ],
)
def test_a_label_is_given_to_jobs_that_ask_for_one(plugin: str, fields: dict[str, Any], label: str) -> None:
    policy = McsPolicy(plugin=plugin, groups=("g1", "g2", "g3"))
    assert label_of(policy, JobSpec(**ANN, **fields), ("g3", "g2")) == label


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        (McsPolicy(), {"mcs_label": "x"}),
        (McsPolicy(), {"sharing": Sharing.MCS}),
        (McsPolicy(plugin="user"), {"mcs_label": "bob"}),
        (McsPolicy(plugin="account"), {"mcs_label": "chemistry"}),
        (McsPolicy(plugin="group", groups=("g1",)), {"mcs_label": "g2"}),
        (McsPolicy(plugin="group", groups=("g1",), enforced=True), {}),
        (McsPolicy(plugin="label", enforced=True), {}),
    ],
)
def test_a_label_that_may_not_be_is_refused(policy: McsPolicy, fields: dict[str, Any]) -> None:
    with pytest.raises(BadLabel):
        label_of(policy, JobSpec(**ANN, **fields), ("g2",))


def test_where_labels_are_enforced_every_job_has_one() -> None:
    assert label_of(McsPolicy(plugin="user", enforced=True), JobSpec(**ANN), ()) == "ann"


@pytest.mark.parametrize(
    ("select", "plain", "mcs"), [("select", "x", "x"), ("ondemandselect", "", "x"), ("noselect", "", "")]
)
def test_which_jobs_exclude_others(select: str, plain: str, mcs: str) -> None:
    policy = McsPolicy(plugin="label", select=select)
    assert kept_by(policy, JobSpec(mcs_label="x")) == plain
    assert kept_by(policy, JobSpec(mcs_label="x", sharing=Sharing.MCS)) == mcs
    assert kept_by(policy, JobSpec(sharing=Sharing.MCS)) == ""


def test_the_core_lets_no_plan_bring_two_labels_together() -> None:
    here = World(settings=ClusterSettings(mcs=McsPolicy(plugin="label", select="select")))
    red, blue = here.submit(mcs_label="red"), here.submit(mcs_label="blue")
    here.start(red, "n1")
    allocation = Allocation(partition="debug", nodes=(node_share("n1", cpus="0x2"),))
    assert "not free" in str(here.plan(PlannedStart(job_id=blue, allocation=allocation)).reply)
    here.start(blue, "n2")
    assert World().submit_refused(mcs_label="x") == "ESLURM_INVALID_MCS_LABEL"


def test_the_core_checks_that_the_rest_of_a_leaf_is_kept() -> None:
    here = World(nodes=2)
    job = here.submit(sharing=Sharing.TOPO)
    nodes = (node_share("n1"),)
    bare = Allocation(partition="debug", nodes=nodes)
    assert "not kept" in str(here.plan(PlannedStart(job_id=job, allocation=bare)).reply)
    keeping = Allocation(partition="debug", nodes=nodes, kept=("n2",))
    assert "messages=()" in str(here.plan(PlannedStart(job_id=job, allocation=keeping)).reply)
    other = here.submit()
    there = Allocation(partition="debug", nodes=(node_share("n2"),))
    assert "kept for job" in str(here.plan(PlannedStart(job_id=other, allocation=there)).reply)
    here.check()
    here.cancel(job)
    here.gone(job)
    here.start(other, "n2")
    here.check()
