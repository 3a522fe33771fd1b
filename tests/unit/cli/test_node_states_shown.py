"""Metrics count nodes in the states in which commands list them."""

from __future__ import annotations

from msgspec.structs import replace

from spritz.cli.sinfo import main as sinfo
from spritz.controller.metrics.nodes import NodeRow
from spritz.model.states import NodeFlag
from tests.unit.cli.site import Site


def test_a_node_that_is_powered_up_does_not_respond_yet(site: Site) -> None:
    state = site.world.state
    node = state.nodes["n1"]
    state.nodes["n1"] = replace(node, flags=node.flags | NodeFlag.CLOUD | NodeFlag.POWERING_UP)
    # As the core would have it in the middle of ResumeProgram; the record goes back before the state is checked.
    listed = site.run(sinfo, "-h", "-n", "n1", "-O", "statecomplete:80").out.strip()
    counted = NodeRow(state, "n1", None, site.world.now, planned=False).words
    state.nodes["n1"] = node
    assert {"powering_up", "not_responding"} <= set(listed.split("+"))
    assert {"powering_up", "noresp"} <= set(counted)
