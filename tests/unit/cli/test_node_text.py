"""Values of nodes in words."""

from __future__ import annotations

import pytest

from spritz.model.node.record import Node, NodeConfig
from spritz.model.queries.nodes import NodeView
from spritz.model.resources import GresCapacity, NodeCapacity
from spritz.presentation.node.node_text import gres_text


@pytest.mark.parametrize(
    ("cores", "told"),
    [
        (("", ""), "gpu:a:2,shard:8"),
        (("0-3", "4-7"), "gpu:a:2(S:0-1),shard:8(S:0-1)"),
        (("", "4"), "gpu:a:2(S:1),shard:8(S:1)"),
    ],
)
def test_the_sockets_that_devices_are_near_to_are_told(cores: tuple[str, str], told: str) -> None:
    gpus = tuple(GresCapacity(name="gpu", type="a", count=1, cores=text) for text in cores)
    shards = GresCapacity(name="shard", count=8, per_device=4)
    capacity = NodeCapacity(cpus=8, sockets=2, cores_per_socket=4, gres=(*gpus, shards))
    config = NodeConfig(name="n1", capacity=capacity, gres_text="gpu:a:2,shard:8")
    assert gres_text(NodeView(node=Node(config=config), state_names=("IDLE",))) == told
