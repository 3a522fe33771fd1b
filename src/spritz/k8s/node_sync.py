"""Synchronises nodes of Kubernetes with nodes of the cluster, including drains requested on either side.

A node that appears becomes a node with State=EXTERNAL, of what it can give to pods, less what pods of others have there
now, as soon as its kubelet has said so. When that changes, as when a device plugin starts late, the node is made again,
which must wait until no job is there. A node on which a slurmd of ours registers is left as slurmd says it is.

    cordoned, or not Ready     DRAIN, with a reason that begins with `kubernetes:`
    uncordoned, and Ready      that drain is lifted; drains of others stay
    drained in Slurm           cordoned, with our annotation, so that other schedulers keep off; and back
    deleted                    DOWN, which ends its jobs; then deleted

Source: Kubernetes, "Safely Drain a Node", "Node Allocatable"; scontrol(1) create, update NodeName.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from lightkube.resources.core_v1 import Node as NodeResource
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.devices import Inventory, gres_of
from spritz.k8s.placing import FEATURE, KubeNode, product_of
from spritz.k8s.pods import PREFIX, SHARE_RESOURCES, Pod, Unfit, amount, gres_type, shape_of
from spritz.k8s.policy import Policy, features_of
from spritz.k8s.slurm import Node, Slurm, SlurmFailure
from spritz.k8s.watching import Change, Reflector
from spritz.k8s.workqueue import WorkQueue

#: Prefix of the reasons of the operator's own drains.
OURS: Final = "kubernetes: "

#: Reason of a node that Kubernetes has deleted, until it is deleted in Slurm too.
DELETED: Final = f"{OURS}deleted"

#: Annotation of a node that was cordoned because Slurm drains it: Slurm's reason.
CORDONED: Final = f"{PREFIX}drained"

#: Label of nodes; a node with the value false is left alone.
MANAGED: Final = f"{PREFIX}managed"

_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

#: Seconds between comparisons of all nodes of both sides, in case an event was lost.
_AGAIN: Final = 30.0

#: Seconds until a node whose resources have changed, but which has jobs, is compared again.
_OUTDATED: Final = 5.0

#: Seconds until the first comparison of all nodes is tried again after a failure.
_FIRST_AGAIN: Final = 1.0


class NodeSync:
    """Keeps the nodes of Slurm and of Kubernetes alike. `run` returns when it is cancelled."""

    def __init__(
        self,
        api: Api,
        slurm: Slurm,
        policy: Policy,
        log: Callable[..., None],
        nodes: Reflector[KubeNode],
        *,
        inventory: Inventory | None = None,
        scheduler: str = "spritz",
    ) -> None:
        self._api = api
        self._slurm = slurm
        self._policy = policy
        self._log = log
        self._scheduler = scheduler
        self._nodes = nodes
        self._inventory = inventory if inventory is not None else Inventory()
        self._known: dict[str, Node] = {}
        #: told when a node is there that was not, or is another
        self.made: Callable[[], None] = lambda: None
        #: node -> its allocatable resources when it was created in Slurm, or first seen
        self._given: dict[str, Mapping[str, str | int]] = {}
        #: Set once nodes that left Kubernetes while no operator ran have been removed from Slurm: only then may jobs be
        #: queued.
        self.cleared = asyncio.Event()
        self.queue: WorkQueue[str] = WorkQueue()

    def changed(self, change: Change[KubeNode]) -> None:
        """Queue the node for comparison; called by the reflector of nodes."""
        self.queue.add(change.key)

    async def run(self) -> None:
        """Compare nodes until cancelled; starts once the reflector has listed them."""
        await self._nodes.synced.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_at_all(), name="nodes.all")
            # Before, every node would seem to be missing in Slurm.
            await self.cleared.wait()
            group.create_task(self.queue.run(self._look, workers=4, on_failure=self._failed), name="nodes.work")

    async def _look_at_all(self) -> None:
        while True:
            try:
                self._known = {node.name: node for node in await self._slurm.nodes()}
            except SlurmFailure as failure:
                self._log("slurm.away", error=failure.message)
            else:
                gone = [name for name, node in self._known.items() if _is_external(node) and name not in self._nodes]
                if not self.cleared.is_set():
                    await asyncio.gather(*map(self._remove_first, gone))
                    self.cleared.set()
                for name in {*self._nodes.keys(), *gone}:
                    self.queue.add(name)
            await asyncio.sleep(_AGAIN if self.cleared.is_set() else _FIRST_AGAIN)

    def _failed(self, name: str, error: Exception, failures: int, delay: float) -> None:
        words = error.message if isinstance(error, SlurmFailure | ApiFailure) else repr(error)
        self._log("node.failed", node=name, error=words, failures=failures, again_seconds=round(delay, 1))

    async def _look(self, name: str) -> float | None:
        """Compare one node. Returns seconds until the next comparison, or None."""
        node, known = self._nodes.get(name), self._known.get(name)
        if node is None:
            if known is not None and _is_external(known):
                await self._remove(known)
        elif not _is_managed(node):
            return None
        elif known is None:
            if "cpu" in node.given:
                await self._add(node)
        elif not self._has_changed(node, known):
            await self._agree(node, known)
        elif await self._removed(name):
            await self._add(node)
        else:
            await self._agree(node, known)
            return _OUTDATED
        return None

    def _has_changed(self, node: KubeNode, known: Node) -> bool:
        """Whether its resources for pods differ from those of its node in Slurm."""
        if not _is_external(known) or "cpu" not in node.given:
            return False
        if "DOWN" in known.state and known.reason == DELETED:
            return True  # it went and has come back, before an operator that stopped there had deleted it
        had = re.sub(r"\([^)]*\)", "", known.gres)
        before = self._given.setdefault(node.name, node.given)
        return had != self._gres(node) or any(before.get(name) != node.given.get(name) for name in ("cpu", "memory"))

    async def _removed(self, name: str) -> bool:
        """Delete the node so that it can be created again. False if it has jobs: it stays until the next comparison."""
        try:
            await self._slurm.delete_node(name)
        except SlurmFailure as failure:
            if failure.passing:
                raise
            self._log("node.outdated", node=name, error=failure.message)
            return False
        return True

    def gres(self, name: str) -> str | None:
        """`Gres=` of the node in Slurm; None for a node that is not known there."""
        known = self._known.get(name)
        return known.gres if known is not None else None

    def runs_jobs(self, name: str) -> bool:
        """Whether a slurmd runs jobs there too."""
        known = self._known.get(name)
        return known is not None and not _is_external(known)

    def _gres(self, node: KubeNode) -> str:
        """`Gres=` that the node is to have: the devices of its ResourceSlices, or else those of device plugins."""
        try:
            offered = self._inventory.offered(node.name)
        except Unfit as unfit:
            self._log("node.devices", node=node.name, error=str(unfit))
            return ""
        return gres_of(offered) or gres_of_plugins(node)

    async def _add(self, node: KubeNode) -> None:
        pods = await self._api.list_as(
            msgspec.json.Decoder(Pod).decode, PodResource, fields=f"spec.nodeName={node.name}"
        )
        line = node_line(
            node,
            [pod for pod in pods.items if pod.spec.scheduler_name != self._scheduler],
            self._policy,
            self._gres(node),
        )
        try:
            await self._slurm.create_node(line)
        except SlurmFailure as failure:
            if "already" not in failure.message:
                raise
        self._given[node.name] = node.given
        self._log("node.added", node=node.name, line=line)
        await self._refresh(node.name)
        known = self._known.get(node.name)
        if known is not None:
            await self._agree(node, known)
        self.made()

    async def _remove(self, known: Node) -> None:
        if "DOWN" not in known.state:
            await self._slurm.update_node(known.name, state=["DOWN"], reason=DELETED)
        try:
            await self._slurm.delete_node(known.name)
        finally:
            await self._refresh(known.name)

    async def _remove_first(self, name: str) -> None:
        """Remove a node before anything is queued; a failure is retried with the next comparison of all nodes."""
        try:
            await self._remove(self._known[name])
        except SlurmFailure as failure:
            self._log("node.failed", node=name, error=failure.message)

    async def _agree(self, node: KubeNode, known: Node) -> None:
        drained = "DRAIN" in known.state
        ours = known.reason.startswith(OURS)
        followed = CORDONED in (node.metadata.annotations or {})
        wanted = "NotReady" if not node.is_ready else "cordoned" if node.spec.unschedulable and not followed else ""
        if wanted and not drained:
            await self._slurm.update_node(node.name, state=["DRAIN"], reason=f"{OURS}{wanted}")
            await self._refresh(node.name)
        elif drained and ours and not wanted:
            await self._slurm.update_node(node.name, state=["RESUME"])
            await self._refresh(node.name)
        elif drained and not ours and not followed and not node.spec.unschedulable:
            await self._cordon(node, known.reason)
        elif followed and not drained:
            await self._cordon(node, None)

    async def _cordon(self, node: KubeNode, reason: str | None) -> None:
        change = {
            "metadata": {"annotations": {CORDONED: reason}},
            "spec": {"unschedulable": reason is not None or None},
        }
        await self._api.patch(NodeResource, node.name, None, change)

    async def _refresh(self, name: str) -> None:
        node = await self._slurm.node(name)
        if node is None:
            self._known.pop(name, None)
        else:
            self._known[name] = node


def node_line(node: KubeNode, others: list[Pod], policy: Policy, gres: str = "") -> str:
    """The node's line for `scontrol create`. `others`: pods of other schedulers on it."""
    cpus, memory = amount(node.given.get("cpu", 0)), amount(node.given.get("memory", 0)) / 2**20
    for pod in others:
        if pod.is_over:
            continue
        try:
            shape = shape_of(pod)
        except Unfit:
            continue
        cpus, memory = cpus - shape.cpus, memory - shape.memory_mib
    labels: Mapping[str, str] = node.metadata.labels or {}
    words = [f"NodeName={node.name}", f"CPUs={max(1, math.floor(cpus))}", f"RealMemory={max(1, math.floor(memory))}"]
    if gres:
        words.append(f"Gres={gres}")
    words.append("Feature=" + ",".join([FEATURE, *features_of(labels, policy.feature_labels)]))
    places = [f"{network}:{labels[label]}" for label, network in policy.topology_labels.items() if labels.get(label)]
    if places:
        words.append("Topology=" + ",".join(places))
    return " ".join([*words, "State=EXTERNAL"])


def gres_of_plugins(node: KubeNode) -> str:
    """The devices that device plugins count, as `Gres=` has them. A label says how many GPUs shares are of."""
    product, words = product_of(node), []
    shared = sum(round(amount(value)) for resource, value in node.given.items() if resource in SHARE_RESOURCES)
    if shared:
        label = (node.metadata.labels or {}).get("nvidia.com/gpu.count", "")
        gpus = int(label) if label.isdecimal() and int(label) and shared % int(label) == 0 else 1
        words.append(f"gpu:{product}:{gpus}" if product else f"gpu:{gpus}")
    for resource, value in node.given.items():
        kind, count = gres_type(resource), round(amount(value))
        if kind is not None and count > 0:
            name, own = kind
            own = own or (product if name == "gpu" else "")
            words.append(f"{name}:{own}:{count}" if own else f"{name}:{count}")
    return ",".join(words)


def _is_external(node: Node) -> bool:
    return "EXTERNAL" in node.state


def _is_managed(node: KubeNode) -> bool:
    said = (node.metadata.labels or {}).get(MANAGED)
    if said is not None:
        return said != "false"
    return not any(taint.key == _CONTROL_PLANE for taint in node.spec.taints or ())
