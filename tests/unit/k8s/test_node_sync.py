"""Nodes of Kubernetes and of Slurm that are compared."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from spritz.k8s.node_sync import NodeSync
from spritz.k8s.placing import KubeNode
from spritz.k8s.policy import Policy
from spritz.k8s.slurm import Node, SlurmFailure
from spritz.k8s.watching import Change, ChangeKind


class _Nodes:
    """The reflector's cache: one node, which is ready."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()
        status = {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
        self.node = msgspec.convert({"metadata": {"name": "k1"}, "status": status}, KubeNode)

    def get(self, name: str) -> KubeNode | None:
        return self.node if name == "k1" else None

    def keys(self) -> list[str]:
        return ["k1"]

    def __contains__(self, name: str) -> bool:
        return name == "k1"


class _Slurm:
    """Does not answer at first; then it has the node."""

    def __init__(self) -> None:
        self.asked = 0
        self.answered = asyncio.Event()
        self.made: list[str] = []

    async def nodes(self) -> list[Node]:
        self.asked += 1
        if self.asked == 1:
            raise SlurmFailure("slurmrestd does not answer")
        self.answered.set()
        return [Node(name="k1", state=["IDLE", "EXTERNAL"], features=["kubernetes"])]

    async def create_node(self, line: str) -> None:
        self.made.append(line)


def test_no_node_is_made_before_the_nodes_of_slurm_are_known() -> None:
    async def use() -> None:
        nodes, slurm = _Nodes(), _Slurm()
        kube: Any = nodes
        sync = NodeSync(None, slurm, Policy(), lambda event, **fields: None, kube)  # type: ignore[arg-type]
        sync.changed(Change(ChangeKind.ADDED, "k1", None, nodes.node))
        running = asyncio.create_task(sync.run())
        await sync.cleared.wait()
        while not sync.queue.idle:  # noqa: ASYNC110  # nothing tells that the queue is empty
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert slurm.asked == 2
        assert not slurm.made

    asyncio.run(use())
