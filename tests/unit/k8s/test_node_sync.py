"""Nodes of Kubernetes and of Slurm that are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from spritz.http.rest import RestError
from spritz.k8s.policy import Policy
from spritz.k8s.scheduling.node_sync import CORDONED, MANAGED, NodeSync, Taken, free_of, gres_of_plugins, taken_by
from spritz.k8s.scheduling.placing import KubeNode
from spritz.k8s.slurm import Node
from spritz.k8s.watching import Change, ChangeKind


class _Cache:
    """The reflector's cache of nodes: one, which is ready."""

    def __init__(self, **labels: str) -> None:
        self.synced = asyncio.Event()
        self.synced.set()
        status = {
            "allocatable": {"cpu": "8", "memory": "16Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        about = {"name": "k1", "labels": labels}
        self.node = msgspec.convert({"metadata": about, "status": status}, KubeNode)

    def get(self, name: str) -> KubeNode | None:
        return self.node if name == "k1" else None

    def keys(self) -> list[str]:
        return ["k1"]

    def __contains__(self, name: str) -> bool:
        return name == "k1"

    def label(self, **labels: str) -> None:
        self.node = replace(self.node, metadata=replace(self.node.metadata, labels=labels))

    def annotate(self, annotations: dict[str, str] | None) -> None:
        self.node = replace(self.node, metadata=replace(self.node.metadata, annotations=annotations))


class _Others:
    """The reflector of pods of other schedulers."""

    def __init__(self) -> None:
        self.synced = asyncio.Event()
        self.synced.set()
        self._kept: dict[str, Taken] = {}
        self._on_change: Callable[[Change[Taken]], None] = lambda change: None

    def follow(self, on_change: Callable[[Change[Taken]], None]) -> None:
        self._on_change = on_change

    async def run(self) -> None:
        await asyncio.Event().wait()

    def put(self, key: str, taken: Taken) -> None:
        old = self._kept.get(key)
        self._kept[key] = taken
        self._on_change(Change(ChangeKind.MODIFIED if old else ChangeKind.ADDED, key, old, taken))

    def drop(self, key: str) -> None:
        self._on_change(Change(ChangeKind.DELETED, key, self._kept.pop(key), None))


class _Slurm:
    """Nodes of Slurm; those in `busy` have jobs."""

    def __init__(self) -> None:
        self.known: dict[str, Node] = {}
        self.busy: set[str] = set()
        self.deletions = 0
        self.made: list[str] = []

    async def nodes(self) -> list[Node]:
        return list(self.known.values())

    async def node(self, name: str) -> Node | None:
        return self.known.get(name)

    async def create_node(self, line: str) -> None:
        self.made.append(line)
        words = dict(word.split("=", 1) for word in line.split())
        self.known[words["NodeName"]] = Node(
            name=words["NodeName"],
            state=["IDLE", "EXTERNAL"],
            cpus=int(words["CPUs"]),
            real_memory=int(words["RealMemory"]),
        )

    async def delete_node(self, name: str) -> None:
        self.deletions += 1
        if name in self.busy:
            raise RestError("Node is in use by jobs", 500)
        del self.known[name]

    async def update_node(self, name: str, *, state: list[str], reason: str = "") -> None:
        node = self.known[name]
        if state == ["RESUME"]:
            self.known[name] = replace(node, state=["IDLE", "EXTERNAL"], reason="")
        else:
            self.known[name] = replace(node, state=["IDLE", "EXTERNAL", *state], reason=reason)


class _Api:
    """Takes the annotation of a node that is cordoned."""

    def __init__(self, cache: _Cache) -> None:
        self._cache = cache

    async def patch(self, _resource: object, _name: str, _namespace: object, change: dict[str, Any]) -> None:
        reason = change["metadata"]["annotations"][CORDONED]
        self._cache.annotate({CORDONED: reason} if reason is not None else None)


class _Scene:
    """One node, Slurm, and what compares them."""

    def __init__(self) -> None:
        self.cache, self.others, self.slurm = _Cache(), _Others(), _Slurm()
        cache: Any = self.cache
        others: Any = self.others
        slurm: Any = self.slurm
        api: Any = _Api(self.cache)
        self.sync = NodeSync(api, slurm, Policy(), lambda event, **fields: None, cache, others=others)

    async def look(self) -> float | None:
        self.sync._known = {node.name: node for node in await self.slurm.nodes()}
        return await self.sync._look("k1")

    @property
    def node(self) -> Node:
        return self.slurm.known["k1"]


def play(scene: Callable[[_Scene], Any]) -> None:
    async def run() -> None:
        await scene(_Scene())

    asyncio.run(run())


def test_no_node_is_made_before_the_nodes_of_slurm_are_known() -> None:
    class Away(_Slurm):
        """Does not answer at first; then it has the node."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = 0
            self.known["k1"] = Node(
                name="k1", state=["IDLE", "EXTERNAL"], features=["kubernetes"], cpus=8, real_memory=16384
            )

        async def nodes(self) -> list[Node]:
            self.asked += 1
            if self.asked == 1:
                raise RestError("slurmrestd does not answer")
            return await super().nodes()

    async def use() -> None:
        cache, slurm, others = _Cache(), Away(), _Others()
        arguments: Any = (None, slurm, Policy(), lambda event, **fields: None, cache)
        kept: Any = others
        sync = NodeSync(*arguments, others=kept)
        sync.changed(Change(ChangeKind.ADDED, "k1", None, cache.node))
        running = asyncio.create_task(sync.run())
        await sync.cleared.wait()
        while not sync.queue.idle:  # noqa: ASYNC110  # nothing tells that the queue is empty
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        assert slurm.asked == 2
        assert not slurm.made

    asyncio.run(use())


def test_a_node_has_what_pods_of_other_schedulers_leave() -> None:
    """Also where they come later: those of a DaemonSet that is made when the node has joined."""

    async def scene(site: _Scene) -> None:
        site.others.put("system/a", Taken("k1", 0.1, 100.0))
        site.others.put("system/b", Taken("k1", 1.9, 284.0))
        await site.look()
        assert (site.node.cpus, site.node.real_memory) == (6, 16000)
        site.others.put("daemons/c", Taken("k1", 2.0, 0.0))
        assert await site.look() is None
        assert site.node.cpus == 4
        site.others.drop("system/b")
        await site.look()
        assert (site.node.cpus, site.node.real_memory) == (5, 16284)
        assert await site.look() is None
        assert len(site.slurm.made) == 3, "nothing changes without a cause"

    play(scene)


def test_a_node_with_less_than_slurm_believes_gets_no_further_jobs() -> None:
    """Until its jobs have ended and it can be made again, or the pods have gone."""

    async def scene(site: _Scene) -> None:
        await site.look()
        site.slurm.busy.add("k1")
        site.others.put("daemons/c", Taken("k1", 2.0, 0.0))
        assert await site.look() is not None
        assert "DRAIN" in site.node.state
        assert site.node.reason == "kubernetes: pods of other schedulers have taken CPUs or memory"
        assert site.cache.node.metadata.annotations is None, "nobody else is kept off"
        site.others.drop("daemons/c")
        await site.look()
        assert "DRAIN" not in site.node.state
        site.others.put("daemons/c", Taken("k1", 2.0, 0.0))
        await site.look()
        site.slurm.busy.clear()
        assert await site.look() is None
        assert site.node.state == ["IDLE", "EXTERNAL"]
        assert site.node.cpus == 6

    play(scene)


def test_a_node_that_has_more_than_slurm_believes_goes_on_as_it_is() -> None:
    async def scene(site: _Scene) -> None:
        site.others.put("daemons/c", Taken("k1", 2.0, 0.0))
        await site.look()
        site.slurm.busy.add("k1")
        site.others.drop("daemons/c")
        assert await site.look() is not None
        assert site.node.state == ["IDLE", "EXTERNAL"]
        site.slurm.busy.clear()
        await site.look()
        assert site.node.cpus == 8

    play(scene)


def test_an_administrators_drain_outlives_a_change_of_the_node() -> None:
    async def scene(site: _Scene) -> None:
        await site.look()
        await site.slurm.update_node("k1", state=["DRAIN"], reason="new disk")
        await site.look()
        assert site.cache.node.metadata.annotations == {CORDONED: "new disk"}
        site.others.put("daemons/c", Taken("k1", 2.0, 0.0))
        await site.look()
        assert site.node.cpus == 6
        assert "DRAIN" in site.node.state
        assert site.node.reason == "new disk"
        assert site.cache.node.metadata.annotations == {CORDONED: "new disk"}

    play(scene)


@pytest.mark.parametrize("busy", [False, True])
def test_a_node_that_is_not_to_be_managed_any_more_is_let_go(busy: bool) -> None:
    """Its jobs end first; nothing new starts there meanwhile. With the label gone it is back."""

    async def scene(site: _Scene) -> None:
        await site.look()
        if busy:
            site.slurm.busy.add("k1")
        site.cache.label(**{MANAGED: "false"})
        again = await site.look()
        if busy:
            assert again is not None
            assert "DRAIN" in site.node.state
            assert site.node.reason == "kubernetes: not managed"
            site.cache.label()
            await site.look()
            assert "DRAIN" not in site.node.state
            site.cache.label(**{MANAGED: "false"})
            await site.look()
            site.slurm.busy.clear()
            await site.look()
        assert "k1" not in site.slurm.known
        assert await site.look() is None, "and left alone"
        site.cache.label()
        await site.look()
        assert site.node.state == ["IDLE", "EXTERNAL"]

    play(scene)


def test_a_pod_takes_what_the_kubelet_counts() -> None:
    """Requests that cannot be a job's, such as GPUs of two kinds, take CPUs all the same."""
    amounts = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1", "amd.com/gpu": "1"}
    spec = {"nodeName": "k1", "containers": [{"resources": {"requests": amounts}}]}
    pod = msgspec.json.encode({"metadata": {"name": "p"}, "spec": spec})
    assert taken_by(pod) == Taken("k1", 0.5, 1024.0, (("nvidia.com/gpu", 1), ("amd.com/gpu", 1)))
    node = _Cache().node
    assert free_of(node, [Taken("k1", 0.1)] * 10) == (7, 16384), "fractions add up"
    assert free_of(node, [Taken("k1", 100.0, 1e9)]) == (1, 1)


def test_a_gpu_of_another_schedulers_pod_is_not_on_offer() -> None:
    status = {"allocatable": {"cpu": "8", "nvidia.com/gpu": "4"}}
    node = msgspec.convert({"metadata": {"name": "k1"}, "status": status}, KubeNode)
    assert gres_of_plugins(node, [Taken("k1", devices=(("nvidia.com/gpu", 1),))]) == "gpu:3"
    assert gres_of_plugins(node, [Taken("k1", devices=(("nvidia.com/gpu", 4),))]) == ""


def test_a_full_node_is_drained_and_not_made_again_and_again() -> None:
    """No node of Slurm has less than one CPU; the kubelet would refuse a pod that got it."""

    async def scene(site: _Scene) -> None:
        site.others.put("system/a", Taken("k1", 7.5, 0.0))
        for _ in range(4):
            await site.look()
        assert "DRAIN" in site.node.state
        assert len(site.slurm.made) == 1
        site.others.drop("system/a")
        for _ in range(4):
            await site.look()
        assert site.node.state == ["IDLE", "EXTERNAL"]
        assert len(site.slurm.made) == 2

    play(scene)


def test_a_node_that_an_administrator_took_down_stays_down() -> None:
    async def scene(site: _Scene) -> None:
        await site.look()
        await site.slurm.update_node("k1", state=["DOWN"], reason="bad disk, RMA")
        site.others.put("daemons/c", Taken("k1", 2.0, 0.0))
        await site.look()
        assert "DOWN" in site.node.state
        assert site.node.reason == "bad disk, RMA"
        assert len(site.slurm.made) == 1

    play(scene)


def test_our_cordon_is_lifted_though_an_attempt_to_let_go_stopped_half_way() -> None:
    async def scene(site: _Scene) -> None:
        await site.look()
        site.cache.annotate({CORDONED: "new disk"})
        site.cache.label(**{MANAGED: "false"})
        del site.slurm.known["k1"]
        await site.look()
        assert site.cache.node.metadata.annotations is None

    play(scene)


def test_a_busy_node_is_not_asked_to_go_again_and_again() -> None:
    async def scene(site: _Scene) -> None:
        await site.look()
        site.slurm.known["k1"] = replace(site.node, state=["ALLOCATED", "EXTERNAL"])
        site.slurm.busy.add("k1")
        site.others.put("daemons/c", Taken("k1", 2.0, 0.0))
        for _ in range(3):
            assert await site.look() is not None
            site.slurm.known["k1"] = replace(site.node, state=["ALLOCATED", "EXTERNAL", "DRAIN"])
        assert site.slurm.deletions == 0

    play(scene)
