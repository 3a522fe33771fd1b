"""Which orders of the core become messages to nodes, by the state at the time when they are sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from spritz.controller.nodes.messages import NodeMessages
from spritz.core.effects import LaunchStepOn, TerminateJobOn
from spritz.model.commands.cluster import UpdateNode
from spritz.model.node_daemon.launch import LaunchStep, TerminateJob
from spritz_testing.builders import World, only


@pytest.mark.parametrize("requeue", [False, True])
@pytest.mark.parametrize("down", [("n1",), ("n1", "n2"), ("n1", "n2", "n3")])
def test_nodes_that_an_administrator_sets_down_end_a_job_of_several_nodes(down: tuple[str, ...], requeue: bool) -> None:
    """Their daemons answer: else its processes would go on, and meet those of later jobs once the nodes are resumed."""
    world = World(nodes=3)
    job_id = world.submit(nodes_min=3, nodes_given=True, requeue=requeue)
    world.start(job_id, "n1", "n2", "n3")
    outcome = world.ok(UpdateNode(names=down, state="DOWN", reason="fan"))
    blobs: Any = None
    messages = NodeMessages(lambda: world.machine.state, blobs, lambda: 1)
    told = {effect.node: asyncio.run(messages.message(effect)) for effect in only(outcome.effects, TerminateJobOn)}
    assert sorted(told) == ["n1", "n2", "n3"]
    for message in told.values():
        assert isinstance(message, TerminateJob)
        assert (message.job.id, message.job.restart_count) == (job_id, 0)
        assert message.given_back == (message.node in down)


def test_a_step_is_not_launched_again_where_its_part_is_over() -> None:
    world = World(nodes=2)
    job_id = world.submit(nodes_min=2, nodes_given=True)
    world.start(job_id, "n1", "n2")
    step = world.step(job_id, nodes_min=2, tasks=2)
    blobs: Any = None
    messages = NodeMessages(lambda: world.machine.state, blobs, lambda: 1)
    world.finished(job_id, node="n1", step_id=step.step_id, gone=False)
    launch = LaunchStepOn(node="n1", job_id=job_id, restart_count=0, step_id=step.step_id)
    told = {name: asyncio.run(messages.message(structs.replace(launch, node=name))) for name in ("n1", "n2")}
    assert told["n1"] is None
    assert isinstance(told["n2"], LaunchStep)
