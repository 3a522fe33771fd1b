"""Clients of clusters' slurmrestd: one for each cluster that there is."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from spritz.k8s.custom_resources import cluster_clients
from spritz.k8s.custom_resources.cluster_clients import ClusterClients
from spritz.k8s.custom_resources.cluster_objects import Cluster
from spritz.k8s.custom_resources.clusters import Clusters


class _Client:
    """Of a slurmrestd."""

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class _Objects:
    async def find(self, *_: str) -> dict[str, Any]:
        return {"data": {"jwt.key": base64.b64encode(b"k" * 32).decode()}}


@pytest.fixture(autouse=True)
def without_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_clients, "Control", _Client)


def cluster(uid: str) -> Cluster:
    whole = {"metadata": {"name": "c", "namespace": "n", "uid": uid}, "spec": {"image": "i"}}
    return msgspec.convert(whole, Cluster)


def clients(now: list[float]) -> ClusterClients:
    api: Any = SimpleNamespace(guard=None)
    objects: Any = _Objects()
    return ClusterClients(api, objects, lambda cluster: cluster.metadata.uid, lambda: now[0])


def test_a_deleted_cluster_leaves_nothing_in_memory() -> None:
    async def use() -> None:
        known = clients([0.0])
        first: Any = await known.of(cluster("u1"))
        again: Any = await known.of(cluster("u1"))
        assert again is first
        for _ in range(2):
            await known.forget("n/c")
        assert first.closed
        assert known._slurms == {}

    asyncio.run(use())


def test_a_cluster_that_is_made_again_under_its_name_gets_another_client() -> None:
    async def use() -> None:
        known = clients([0.0])
        first: Any = await known.of(cluster("u1"))
        second: Any = await known.of(cluster("u2"))
        assert first.closed
        assert (second.address, second.closed) == ("u2", False)
        assert len(known._slurms) == 1

    asyncio.run(use())


def test_a_token_is_replaced_before_it_ends() -> None:
    async def use() -> None:
        now = [0.0]
        known = clients(now)
        first: Any = await known.of(cluster("u1"))
        now[0] = 3001.0
        second: Any = await known.of(cluster("u1"))
        assert second is not first
        assert first.closed

    asyncio.run(use())


def test_the_last_look_at_a_deleted_cluster_forgets_it() -> None:
    async def use() -> None:
        api: Any = SimpleNamespace(guard=None)
        clusters = Clusters(api, lambda event, **fields: None)
        objects: Any = _Objects()
        clusters._clients = ClusterClients(api, objects, lambda _cluster: "", lambda: 0.0)
        await clusters._clients.of(cluster("u1"))
        clusters._checked["n/c"] = "", ""
        assert await clusters.look(("SpritzCluster", "n/c")) is None
        assert clusters._checked == {}
        assert clusters._clients._slurms == {}

    asyncio.run(use())
