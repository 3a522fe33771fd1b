"""Synchronises nodes of Kubernetes with nodes of the cluster, including drains requested on either side.

A node that appears becomes a node with State=EXTERNAL, of what it can give to pods, less what pods of other schedulers
have there, as soon as its kubelet has said so. When that changes, as when a device plugin starts late or a DaemonSet is
made, the node is made again, which must wait until no job is there. Until then a node with less than Slurm believes
gets no further jobs, whose pods its kubelet would refuse. A node on which a slurmd of ours registers is left as it is.

    cordoned, or not Ready     DRAIN, with a reason that begins with `kubernetes:`
    less than Slurm believes   likewise
    uncordoned, and Ready      that drain is lifted; drains of others stay
    drained in Slurm           cordoned, with our annotation, so that other schedulers keep off; and back
    no longer managed          DRAIN, and deleted when its jobs have ended
    deleted                    DOWN, which ends its jobs; then deleted

Source: Kubernetes, "Safely Drain a Node", "Node Allocatable"; scontrol(1) create, update NodeName.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from lightkube.resources.core_v1 import Node as NodeResource
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.http.rest import RestError
from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.living import keep
from spritz.k8s.pods import PREFIX, SHARE_RESOURCES, Pod, Unfit, amount, gres_type, requests_of
from spritz.k8s.policy import Policy, features_of
from spritz.k8s.scheduling.devices import Inventory, gres_of
from spritz.k8s.scheduling.placing import FEATURE, KubeNode, product_of
from spritz.k8s.slurm import Node, Slurm
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


class Taken(msgspec.Struct, frozen=True):
    """What a pod of another scheduler has on its node."""

    node: str
    cpus: float = 0.0
    memory_mib: float = 0.0
    #: (resource of a device plugin, count)
    devices: tuple[tuple[str, int], ...] = ()


_pod = msgspec.json.Decoder(Pod)


def taken_by(data: bytes) -> Taken:
    """What a pod, given as JSON, has on its node."""
    pod = _pod.decode(data)
    try:
        amounts = requests_of(pod)
    except Unfit:
        return Taken(pod.spec.node_name)  # the API server admits no such quantity
    devices = tuple((name, round(value)) for name, value in amounts.items() if gres_type(name) is not None and value)
    return Taken(pod.spec.node_name, amounts.get("cpu", 0.0), amounts.get("memory", 0.0) / 2**20, devices)


def pods_of_others(api: Api, scheduler: str) -> Reflector[Taken]:
    """Follows the pods that other schedulers placed, and that have not ended."""
    fields = f"spec.schedulerName!={scheduler},spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    return Reflector(api, PodResource, fields=fields, decode=taken_by)


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
        others: Reflector[Taken] | None = None,
    ) -> None:
        self._api = api
        self._slurm = slurm
        self._policy = policy
        self._log = log
        self._nodes = nodes
        self._others = others if others is not None else pods_of_others(api, scheduler)
        self._others.follow(self._other_changed)
        #: node -> what pods of other schedulers have there, by their keys
        self._taken: dict[str, dict[str, Taken]] = {}
        self._inventory = inventory if inventory is not None else Inventory()
        self._known: dict[str, Node] = {}
        #: told when a node is there that was not, or is another
        self.made: Callable[[], None] = lambda: None
        #: Set once nodes that left Kubernetes while no operator ran have been removed from Slurm: only then may jobs be
        #: queued.
        self.cleared = asyncio.Event()
        self.queue: WorkQueue[str] = WorkQueue()

    def changed(self, change: Change[KubeNode]) -> None:
        """Queue the node for comparison; called by the reflector of nodes."""
        self.queue.add(change.key)

    def _other_changed(self, change: Change[Taken]) -> None:
        for taken in (change.old, change.new):
            if taken is None:
                continue
            there = self._taken.setdefault(taken.node, {})
            there.pop(change.key, None)
            if taken is change.new:
                there[change.key] = taken
            if not there:
                del self._taken[taken.node]
            self.queue.add(taken.node)

    async def run(self) -> None:
        """Compare nodes until cancelled; starts once the reflectors have listed nodes and pods."""
        await self._nodes.synced.wait()
        async with asyncio.TaskGroup() as group:
            keep(group, self._others.run(), name="nodes.pods")
            await self._others.synced.wait()
            keep(group, self._look_at_all(), name="nodes.all")
            # Before, every node would seem to be missing in Slurm.
            await self.cleared.wait()
            keep(group, self.queue.run(self._look, workers=4, on_failure=self._failed), name="nodes.work")

    async def _look_at_all(self) -> None:
        while True:
            try:
                self._known = {node.name: node for node in await self._slurm.nodes()}
            except RestError as failure:
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
        words = error.message if isinstance(error, RestError | ApiFailure) else repr(error)
        self._log("node.failed", node=name, error=words, failures=failures, again_seconds=round(delay, 1))

    async def _look(self, name: str) -> float | None:
        """Compare one node. Returns seconds until the next comparison, or None."""
        node, known = self._nodes.get(name), self._known.get(name)
        if node is None:
            if known is not None and _is_external(known):
                await self._remove(known)
        elif not _is_managed(node):
            return await self._release(node, known)
        elif known is None:
            if "cpu" in node.given:
                await self._add(node)
        elif not self._has_changed(node, known):
            await self._agree(node, known)
        elif _is_put_aside(known):
            await self._agree(node, known)  # made again when the administrator has resumed it
        elif not _has_jobs(known) and await self._removed(name):
            # A drain of an administrator is the node's, not that of the record that is made again.
            theirs = "DRAIN" in known.state and not known.reason.startswith(OURS)
            await self._add(node, drain=known.reason if theirs else "")
        else:
            await self._agree(node, known)
            return _OUTDATED
        return None

    async def _release(self, node: KubeNode, known: Node | None) -> float | None:
        """Let go of a node that is not to be managed any more. As `_look`."""
        if known is not None and _is_external(known):
            if "DRAIN" not in known.state:
                await self._slurm.update_node(known.name, state=["DRAIN"], reason=f"{OURS}not managed")
            if _has_jobs(known) or not await self._removed(known.name):
                await self._refresh(known.name)
                return _OUTDATED
            await self._refresh(known.name)
        # Also where an earlier attempt has come so far and no further.
        if CORDONED in (node.metadata.annotations or {}):
            await self._cordon(node, None)
        return None

    def _free(self, node: KubeNode) -> tuple[int, int]:
        """CPUs and MiB of memory that the node has for jobs."""
        return free_of(node, self._taken.get(node.name, {}).values())

    def _is_short(self, node: KubeNode, known: Node) -> bool:
        """Whether the node has less for jobs than Slurm believes."""
        cpus, memory_mib = left_of(node, self._taken.get(node.name, {}).values())
        return known.cpus > cpus or known.real_memory > memory_mib

    def _has_changed(self, node: KubeNode, known: Node) -> bool:
        """Whether its resources for pods differ from those of its node in Slurm."""
        if not _is_external(known) or "cpu" not in node.given:
            return False
        if "DOWN" in known.state and known.reason == DELETED:
            return True  # it went and has come back, before an operator that stopped there had deleted it
        had = re.sub(r"\([^)]*\)", "", known.gres)
        return had != self._gres(node) or (known.cpus, known.real_memory) != self._free(node)

    async def _removed(self, name: str) -> bool:
        """Delete the node so that it can be created again. False if it has jobs: it stays until the next comparison."""
        try:
            await self._slurm.delete_node(name)
        except RestError as failure:
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
        return gres_of(offered) or gres_of_plugins(node, self._taken.get(node.name, {}).values())

    async def _add(self, node: KubeNode, drain: str = "") -> None:
        """Create the node in Slurm. `drain`: an administrator's reason to drain it."""
        line = node_line(node, self._free(node), self._policy, self._gres(node))
        try:
            await self._slurm.create_node(line)
        except RestError as failure:
            if "already" not in failure.message:
                raise
        self._log("node.added", node=node.name, line=line)
        if drain:
            await self._slurm.update_node(node.name, state=["DRAIN"], reason=drain)
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
        except RestError as failure:
            self._log("node.failed", node=name, error=failure.message)

    async def _agree(self, node: KubeNode, known: Node) -> None:
        """Drain and cordon as the other side does; drain a node that has less for jobs than Slurm believes."""
        drained = "DRAIN" in known.state
        ours = known.reason.startswith(OURS)
        followed = CORDONED in (node.metadata.annotations or {})
        if not node.is_ready:
            wanted = "NotReady"
        elif node.spec.unschedulable and not followed:
            wanted = "cordoned"
        else:
            counts = _is_external(known) and "cpu" in node.given and not _is_put_aside(known)
            short = counts and self._is_short(node, known)
            wanted = "pods of other schedulers have taken CPUs or memory" if short else ""
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


def left_of(node: KubeNode, others: Iterable[Taken]) -> tuple[int, int]:
    """CPUs and MiB of memory of the node that pods of other schedulers have not taken; below 1 if it is full."""
    cpus, memory_mib = amount(node.given.get("cpu", 0)), amount(node.given.get("memory", 0)) / 2**20
    for taken in others:
        cpus, memory_mib = cpus - taken.cpus, memory_mib - taken.memory_mib
    # Sums of fractions such as 0.1 are not exact.
    return math.floor(cpus + 1e-6), math.floor(memory_mib + 1e-6)


def free_of(node: KubeNode, others: Iterable[Taken]) -> tuple[int, int]:
    """As `left_of`, and 1 at least of each: no node of Slurm has less. A node with less is drained."""
    cpus, memory_mib = left_of(node, others)
    return max(1, cpus), max(1, memory_mib)


def node_line(node: KubeNode, free: tuple[int, int], policy: Policy, gres: str = "") -> str:
    """The node's line for `scontrol create`. `free`: its CPUs and MiB of memory for jobs."""
    labels: Mapping[str, str] = node.metadata.labels or {}
    words = [f"NodeName={node.name}", f"CPUs={free[0]}", f"RealMemory={free[1]}"]
    if gres:
        words.append(f"Gres={gres}")
    words.append("Feature=" + ",".join([FEATURE, *features_of(labels, policy.feature_labels)]))
    places = [f"{network}:{labels[label]}" for label, network in policy.topology_labels.items() if labels.get(label)]
    if places:
        words.append("Topology=" + ",".join(places))
    return " ".join([*words, "State=EXTERNAL"])


def gres_of_plugins(node: KubeNode, others: Iterable[Taken] = ()) -> str:
    """The devices that device plugins count and pods of other schedulers have not taken, as `Gres=` has them. A label
    says how many GPUs shares are of.
    """
    taken: Counter[str] = Counter()
    for pod in others:
        taken.update(dict(pod.devices))
    product, words = product_of(node), []
    shared = sum(round(amount(value)) for resource, value in node.given.items() if resource in SHARE_RESOURCES)
    if shared:
        label = (node.metadata.labels or {}).get("nvidia.com/gpu.count", "")
        gpus = int(label) if label.isdecimal() and int(label) and shared % int(label) == 0 else 1
        words.append(f"gpu:{product}:{gpus}" if product else f"gpu:{gpus}")
    for resource, value in node.given.items():
        kind, count = gres_type(resource), round(amount(value)) - taken[resource]
        if kind is not None and count > 0:
            name, own = kind
            own = own or (product if name == "gpu" else "")
            words.append(f"{name}:{own}:{count}" if own else f"{name}:{count}")
    return ",".join(words)


def _is_external(node: Node) -> bool:
    return "EXTERNAL" in node.state


def _has_jobs(node: Node) -> bool:
    """Whether Slurm would refuse to delete the node."""
    return not {"ALLOCATED", "MIXED", "COMPLETING"}.isdisjoint(node.state)


def _is_put_aside(node: Node) -> bool:
    """Whether an administrator has said that it is DOWN or fails: made again, it would be up."""
    return not {"DOWN", "FAIL"}.isdisjoint(node.state) and not node.reason.startswith(OURS)


def _is_managed(node: KubeNode) -> bool:
    said = (node.metadata.labels or {}).get(MANAGED)
    if said is not None:
        return said != "false"
    return not any(taint.key == _CONTROL_PLANE for taint in node.spec.taints or ())
