"""The dispatch tables are complete."""

from __future__ import annotations

import pytest
from msgspec import Struct

from spritz.core.apply import APPLIERS
from spritz.core.decide import DECISIONS
from spritz.core.effects import Effect
from spritz.core.machine import Machine
from spritz.model import plan as plans
from spritz.model.commands import cluster, job, step
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.events import ALL_EVENTS
from spritz.model.node_daemon import reports
from spritz.model.node_daemon.reports import NodeLost, NodeTrouble
from spritz.model.queries.daemons import Ping
from spritz_testing.builders import ALICE, World

#: structs in the commands' modules that are replies or parts of commands
PARTS = {
    "JobTarget",
    "JobFilter",
    "JobSubmitted",
    "WillRun",
    "CancelOutcome",
    "CancelResult",
    "Done",
    "StepCreated",
    "RunningStep",
    "Registered",
    "NodeSamples",
    "CreateNodes",
    "IntroduceNode",
    "Introduced",
    "TaskEnd",
    "Usage",
    "Metric",
}


def test_every_event_has_an_applier() -> None:
    assert set(APPLIERS) == set(ALL_EVENTS.values())


def test_every_event_kind_is_its_class_name_and_tag() -> None:
    for kind, event in ALL_EVENTS.items():
        assert event.__name__ == kind
        assert event.__struct_config__.tag == kind


def test_every_command_and_report_has_a_decision() -> None:
    said = {
        name: member
        for module in (cluster, job, step, reports)
        for name, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, Struct) and member.__module__ == module.__name__
    }
    missing = {name for name, member in said.items() if member not in DECISIONS} - PARTS
    assert not missing


def test_every_event_declares_whom_it_concerns() -> None:
    silent = [kind for kind, event in ALL_EVENTS.items() if "concerns" not in vars(event)]
    assert not silent, "say in `concerns` who must hear of it (model/events/base.py has the words)"
    words = {word for event in ALL_EVENTS.values() for word in event.concerns.split()}
    assert words == {"accounting", "subscribers"}


def test_what_is_no_command_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="Ping is not a command"):
        Machine().handle(Ping(), 1.0)


def test_users_cannot_speak_for_nodes_or_the_scheduler() -> None:
    world = World()
    for command in (ApplyPlan(plan=plans.Plan()), Tick(), NodeLost(names=("n1",)), NodeTrouble(name="n1", reason="x")):
        assert world.refused(command, ALICE) == "ESLURM_ACCESS_DENIED"
        world.ok(command)


def test_effects_name_ids_only() -> None:
    for kind in Effect.__subclasses__():
        for name, annotation in kind.__annotations__.items():
            assert annotation in ("str", "int", "float", "bool", "int | None"), (
                f"{kind.__name__}.{name} is {annotation}"
            )


def test_plans_are_plain_data() -> None:
    assert plans.Plan() == plans.Plan(starts=(), notes=(), examined=0, complete=True)
