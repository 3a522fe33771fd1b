"""Nodes that are rebooted for the features of a job, as the core decides it. Source: helpers.conf(5)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.core.effects import RebootOn
from spritz.core.machine import Machine
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings, FeaturePolicy
from spritz.model.commands.cluster import RebootNodes, UpdateNode
from spritz.model.plan import PlannedStart
from spritz.model.resources import Allocation
from spritz.model.states import JobFlag, JobState, NodeFlag, NodeState
from spritz_testing.builders import World, node_share, only, replayed

NAMES = ("nps1", "nps2")
POLICY = FeaturePolicy(names=NAMES, exclusive=(NAMES,), boot_seconds=100)
SETTINGS = ClusterSettings(features=POLICY, power=PowerPolicy(reboots=True, resume_timeout_seconds=30))


def world(settings: ClusterSettings = SETTINGS) -> World:
    """Two nodes, both with nps1."""
    made = World(nodes=2, settings=settings, features=("ib",))
    for name in made.names:
        report(made, name, "nps1")
    return made


def report(here: World, name: str, *active: str, **fields: Any) -> None:
    """The node registers, and says what it has."""
    here.register(name, features_changeable=NAMES, features_active=active, **fields)


def reboots(here: World, **fields: Any) -> int:
    """A job for which n1 is rebooted."""
    job_id = here.submit(features="ib&nps2", **fields)
    here.start(job_id, "n1")
    return job_id


def test_features_of_slurm_conf_and_of_helpers_are_both_active() -> None:
    here = world()
    node = here.state.nodes["n1"]
    assert node.active == ("ib", "nps1")
    assert node.available == ("ib", "nps1", "nps2")
    here.ok(UpdateNode(names=("n1",), changes={"features": ["x", "nps2"]}))
    assert here.state.nodes["n1"].active == ("x", "nps1")
    here.register("n1")
    assert here.state.nodes["n1"].available == ("x", "nps2")
    here.check()


@pytest.mark.parametrize("text", ["nps1&nps2", "[nps1|nps2]", "nps1*2", "(ib|nps1)&ib"])
def test_what_no_node_could_be_changed_to_is_refused(text: str) -> None:
    assert world().submit_refused(features=text) == "ESLURM_INVALID_FEATURE"


def test_the_node_boots_and_the_job_begins_when_it_is_back() -> None:
    here = world()
    job_id = here.submit(features="ib&nps2", time_limit_minutes=5)
    plan = PlannedStart(job_id=job_id, allocation=Allocation(partition="debug", nodes=(node_share("n1"),)))
    outcome = here.plan(plan)
    order = only(outcome.effects, RebootOn)[0]
    assert (order.node, here.state.nodes["n1"].features_wanted) == ("n1", ("nps2",))
    assert here.job(job_id).flags & JobFlag.POWER_UP_NODE
    # A daemon that is only restarted is told again, and is not what the job waits for.
    report(here, "n1", "nps1")
    assert here.state.nodes["n1"].flags & NodeFlag.REBOOT_ISSUED
    here.now += 50
    report(here, "n1", "nps2", booted_at=here.now)
    assert not here.job(job_id).flags & JobFlag.POWER_UP_NODE
    assert here.job(job_id).ends_at == here.now + 300
    assert here.state.nodes["n1"].features_wanted == ()
    assert here.state.nodes["n1"].active == ("ib", "nps2")
    here.check()
    again = Machine.from_image(replayed(here.events, here.settings).image())
    assert again.state.nodes["n1"] == here.state.nodes["n1"]


def test_a_clock_that_was_set_back_delays_no_reboot() -> None:
    here = world()
    job_id = here.submit(features="nps2")
    here.now -= 600
    outcome = here.plan(
        PlannedStart(job_id=job_id, allocation=Allocation(partition="debug", nodes=(node_share("n1"),)))
    )
    assert [order.node for order in only(outcome.effects, RebootOn)] == ["n1"]


def test_a_node_that_comes_back_without_the_feature_is_drained_and_the_job_queued_again() -> None:
    here = world()
    job_id = reboots(here, requeue=True)
    here.now += 50
    report(here, "n1", "nps1", booted_at=here.now)
    node = here.state.nodes["n1"]
    assert node.flags & NodeFlag.DRAIN
    assert node.reason == "features not active after reboot: nps2"
    assert here.job(job_id).state is JobState.PENDING
    here.check()


def test_a_helper_that_needs_no_reboot_says_so() -> None:
    here = world()
    job_id = reboots(here)
    order = here.state.nodes["n1"].reboot_at
    here.now += 5
    report(here, "n1", "nps2", changed_for=order)
    assert not here.job(job_id).flags & JobFlag.POWER_UP_NODE
    assert not here.state.nodes["n1"].flags & NodeFlag.REBOOT_ISSUED


def test_it_may_take_as_long_as_boottime_says() -> None:
    here = world()
    job_id = reboots(here, requeue=True)
    here.advance(99)
    assert here.state.nodes["n1"].flags & NodeFlag.REBOOT_ISSUED
    here.advance(2)
    assert here.state.nodes["n1"].state is NodeState.DOWN
    assert here.job(job_id).state is JobState.PENDING


@pytest.mark.parametrize(
    ("fields", "settings", "why"),
    [
        ({"delay_boot_seconds": 60}, SETTINGS, "not rebooted yet"),
        ({}, ClusterSettings(features=POLICY), "may not be rebooted"),
        ({"features": "nps3"}, ClusterSettings(features=FeaturePolicy(names=(*NAMES, "nps3"))), "has not the features"),
    ],
)
def test_a_plan_that_wants_more_than_is_allowed_is_dropped(
    fields: dict[str, Any], settings: ClusterSettings, why: str
) -> None:
    here = world(replace(settings, scheduler_parameters=(("ignore_constraint_validation", ""),)))
    job_id = here.submit(**{"features": "nps2"} | fields)
    allocation = Allocation(partition="debug", nodes=(node_share("n1"),))
    messages = here.plan(PlannedStart(job_id=job_id, allocation=allocation)).reply
    assert why in str(messages)
    assert here.job(job_id).state is JobState.PENDING


def test_a_busy_node_is_not_rebooted() -> None:
    here = world()
    here.start(here.submit(), "n1")
    job_id = here.submit(features="nps2")
    allocation = Allocation(partition="debug", nodes=(node_share("n1", cpus="0x2"),))
    outcome = here.plan(PlannedStart(job_id=job_id, allocation=allocation))
    assert "not free to be rebooted" in str(outcome.reply)


def test_a_reboot_by_hand_changes_nothing() -> None:
    here = world()
    here.ok(RebootNodes(names=("n1",)))
    assert here.state.nodes["n1"].flags & NodeFlag.REBOOT_ISSUED
    assert here.state.nodes["n1"].features_wanted == ()
