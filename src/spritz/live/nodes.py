"""Nodes, and the part of their resources that is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from spritz.model.queries.nodes import NodeView

#: Nodes in one of these states start no jobs.
CLOSED = frozenset({"DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "UNKNOWN", "FUTURE", "MAINT", "REBOOT_REQUESTED"})


class Node(Struct, frozen=True, kw_only=True):
    """A node. Memory is in MiB. `gpus`: (type, mask of indexes). `gpu_use`: measured load in percent, by index."""

    name: str
    states: tuple[str, ...]
    reason: str
    reason_at: float
    cpus: int
    cpus_used: int
    memory_mib: int
    memory_used_mib: int
    gpus: tuple[tuple[str, int], ...]
    gpus_used: tuple[tuple[str, int, int], ...]
    partitions: tuple[str, ...]
    jobs: tuple[int, ...]
    cpu_load: float | None
    gpu_use: dict[int, int]
    features: str
    version: str

    @property
    def state(self) -> str:
        """The state with its flags, such as `MIXED+DRAIN`."""
        return "+".join(self.states)

    @property
    def state_short(self) -> str:
        """The state for a table, such as `mixed drain`, without the flag PLANNED."""
        return " ".join(state.lower() for state in self.states if state != "PLANNED")

    @property
    def is_closed(self) -> bool:
        """Whether no jobs can start on the node."""
        return bool(CLOSED.intersection(self.states))

    @property
    def gpu_count(self) -> int:
        return sum(mask.bit_count() for _, mask in self.gpus)

    @property
    def gpus_used_count(self) -> int:
        """Number of GPUs that jobs hold."""
        return sum(count for _, count, _ in self.gpus_used)


def node_of(view: NodeView) -> Node:
    """The node of a view in slurmctld's answer."""
    capacity, sample = view.node.config.capacity, view.sample
    masks: dict[str, int] = {}
    for line in capacity.gres:
        if line.name == "gpu" and line.count:
            masks[line.type] = masks.get(line.type, 0) | ((1 << line.count) - 1) << line.first_index
    return Node(
        name=view.node.name,
        states=view.state_names,
        reason=view.node.reason,
        reason_at=view.node.reason_at,
        cpus=capacity.cpus,
        cpus_used=view.cpus_allocated,
        memory_mib=capacity.memory_mib,
        memory_used_mib=view.memory_allocated_mib,
        gpus=tuple(masks.items()),
        gpus_used=tuple((kind, count, int(mask, 16)) for name, kind, count, mask in view.gres_used if name == "gpu"),
        partitions=view.partitions,
        jobs=view.jobs,
        cpu_load=sample.cpu_load / 100 if sample is not None else None,
        gpu_use={gpu.index: gpu.busy_percent for gpu in (sample.gpus if sample else ()) if gpu.busy_percent >= 0},
        features=",".join(view.node.active),
        version=view.node.version,
    )
