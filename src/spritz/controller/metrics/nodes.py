"""Nodes by state and their resources, in total and by partition. Pure. Memory in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from spritz.controller.api.nodes import base_state, holding, shown_flags
from spritz.model.resources import mask_of
from spritz.model.states import NodeFlag, NodeState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.node.record import NodeSample

_MIB = 1024 * 1024

_BASES = {
    NodeState.ALLOCATED: "alloc",
    NodeState.DOWN: "down",
    NodeState.ERROR: "error",
    NodeState.FUTURE: "future",
    NodeState.IDLE: "idle",
    NodeState.MIXED: "mixed",
    NodeState.UNKNOWN: "unknown",
}
_FLAGS = {
    NodeFlag.BLOCKED: "blocked",
    NodeFlag.CLOUD: "cloud",
    NodeFlag.COMPLETING: "completing",
    NodeFlag.DRAIN: "drain",
    NodeFlag.DYNAMIC_FUTURE: "dyn_future",
    NodeFlag.DYNAMIC_NORM: "dyn_normal",
    NodeFlag.FAIL: "fail",
    NodeFlag.INVALID_REG: "invalid_reg",
    NodeFlag.MAINTENANCE: "maint",
    NodeFlag.NOT_RESPONDING: "noresp",
    NodeFlag.PLANNED: "planned",
    NodeFlag.POWER_DOWN: "power_down",
    NodeFlag.POWER_UP: "power_up",
    NodeFlag.POWERED_DOWN: "powered_down",
    NodeFlag.POWERING_DOWN: "powering_down",
    NodeFlag.POWERING_UP: "powering_up",
    NodeFlag.REBOOT_ISSUED: "reboot_issued",
    NodeFlag.REBOOT_REQUESTED: "reboot_req",
    NodeFlag.RESERVED: "resv",
}
#: All suffixes; there are no external nodes.
STATES = tuple(sorted({*_BASES.values(), *_FLAGS.values(), "drained", "draining", "external"} - {"error"}))


#: Nodes that are added up in a slice: a millisecond.
_SLICE = 250


class NodeRow:
    """One node. `free`: as the kernel reports it; 0 if no daemon has reported it."""

    __slots__ = (
        "cpus", "cpus_alloc", "cpus_effective", "free", "gpus", "gpus_alloc", "load", "memory", "memory_alloc",
        "memory_effective", "name", "sample", "words",
    )  # fmt: skip

    def __init__(self, state: State, name: str, sample: NodeSample | None, now: float, planned: bool) -> None:
        node, use = state.nodes[name], state.uses[name]
        capacity = node.config.capacity
        base = base_state(node, use)
        planned = planned and base in (NodeState.IDLE, NodeState.MIXED)
        flags = shown_flags(node, use, holding(state, name, now), planned=planned)
        self.name = name
        self.words = _words(base, flags, bool(use.jobs))
        self.cpus = capacity.cpus
        self.cpus_effective = max(0, capacity.cpus - mask_of(capacity.cpus_reserved).bit_count())
        self.cpus_alloc = min(use.cpu_claims, self.cpus_effective)
        self.memory = capacity.memory_mib * _MIB
        self.memory_effective = max(0, capacity.memory_mib - capacity.memory_reserved_mib) * _MIB
        self.memory_alloc = use.memory_mib * _MIB
        self.gpus = sum(line.count for line in capacity.gres if line.name == "gpu")
        self.gpus_alloc = use.devices.get("gpu", 0).bit_count() + sum(
            count for (gres, _), count in use.uncounted.items() if gres == "gpu"
        )
        self.sample = sample
        self.free = sample.free_memory_mib * _MIB if sample is not None else 0
        self.load = sample.cpu_load / 100 if sample is not None else 0.0


@cache  # the operators of flags are Python functions
def _words(base: NodeState, flags: int, busy: bool) -> tuple[str, ...]:
    words = [_BASES[base], *(word for flag, word in _FLAGS.items() if flags & flag)]
    if flags & NodeFlag.DRAIN:
        words.append("draining" if busy else "drained")
    return tuple(words)


class NodeTotals:
    """Sums over a set of nodes."""

    def __init__(self) -> None:
        self.states = dict.fromkeys(STATES, 0)
        self.nodes = self.cpus = self.cpus_alloc = self.cpus_effective = self.gpus = self.gpus_alloc = 0
        self.memory = self.memory_alloc = self.memory_effective = self.free = 0

    def add(self, rows: Iterable[NodeRow]) -> Iterator[None]:
        """Add these nodes. Yields after each slice, so that the controller can serve others in between."""
        for row in rows:
            self.nodes += 1
            if self.nodes % _SLICE == 0:
                yield
            for word in row.words:
                if word in self.states:
                    self.states[word] += 1
            self.cpus += row.cpus
            self.cpus_alloc += row.cpus_alloc
            self.cpus_effective += row.cpus_effective
            self.gpus += row.gpus
            self.gpus_alloc += row.gpus_alloc
            self.memory += row.memory
            self.memory_alloc += row.memory_alloc
            self.memory_effective += row.memory_effective
            self.free += row.free

    @property
    def cpus_idle(self) -> int:
        """CPUs available to jobs and not allocated."""
        return max(0, self.cpus_effective - self.cpus_alloc)


def rows_of(
    state: State, samples: dict[str, NodeSample], now: float, has_planned: Callable[[str], bool]
) -> Iterator[NodeRow]:
    """Rows of all nodes. Nodes may come and go between two of them."""
    for name in list(state.nodes):
        if name in state.nodes:
            yield NodeRow(state, name, samples.get(name), now, has_planned(name))
