"""What of a node's generic resources is in use, as nodes are listed."""

from __future__ import annotations

from spritz.controller.api.nodes import gres_used
from spritz.model.resources import GresCapacity, NodeCapacity
from spritz.model.rules.node_use import NodeUse


def test_lines_of_one_type_are_added_up() -> None:
    lines = tuple(GresCapacity(name="gpu", type="a", count=2, first_index=first) for first in (0, 2))
    use = NodeUse()
    use.devices["gpu"] = 0b0110
    assert gres_used(NodeCapacity(gres=lines), use) == (("gpu", "a", 2, "6"),)


def test_shares_are_counted_on_the_devices_of_their_line() -> None:
    lines = tuple(GresCapacity(name="mps", count=100, per_device=100, first_index=index) for index in (0, 1))
    use = NodeUse()
    use.shards = {("mps", 0): 60, ("mps", 1): 50}
    assert gres_used(NodeCapacity(gres=lines), use) == (("mps", "", 110, "0"),)
