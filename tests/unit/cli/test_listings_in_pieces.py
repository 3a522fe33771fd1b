"""Listings of nodes and steps come in pieces: no large answer is made in one turn of the controller's loop, and one
whose reader is slow is not there yet.
"""

from __future__ import annotations

import pytest

from spritz.client.command.sync import connect_controller
from spritz.controller.api import nodes
from spritz.controller.api.queue import steps
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.model.queries.steps import ListSteps, Steps
from tests.unit.cli.site import Site

NODES = ["n1", "n2", "n3", "n4"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three in a piece."""
    monkeypatch.setattr(nodes, "NODES_PER_SLICE", 3)
    monkeypatch.setattr(steps, "STEPS_PER_SLICE", 3)


def test_nodes_come_in_pieces_and_in_order(site: Site, few: None) -> None:
    with connect_controller() as controller:
        pieces = list(controller.stream(ListNodes(all=True, pieces=True), Nodes))
        assert [len(piece.nodes) for piece in pieces] == [3, 1]
        joined = controller.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
        assert [view.node.name for view in joined.nodes] == NODES


def test_a_client_that_asks_for_all_at_once_gets_one_answer(site: Site, few: None) -> None:
    """A command of an earlier release; and `joined` takes a plain answer, as an earlier controller gives it."""
    with connect_controller() as controller:
        assert [view.node.name for view in controller.call(ListNodes(all=True), Nodes).nodes] == NODES
        assert len(controller.joined(ListNodes(all=True), Nodes, "nodes").nodes) == 4
        assert controller.joined(ListSteps(), Steps, "steps").steps == []


@pytest.mark.parametrize("words", [("-N", "-h", "-o", "%N"), ("-h", "-o", "%D %N")])
def test_commands_show_all_of_it(site: Site, few: None, words: tuple[str, ...]) -> None:
    from spritz.cli import scontrol, sinfo

    shown = site.run(sinfo.main, *words).lines
    assert shown == NODES or shown == ["4 n[1-4]"]
    assert site.run(scontrol.main, "-o", "show", "node").out.count("NodeName=") == 4
