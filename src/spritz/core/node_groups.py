"""Nodes of one kind, by which a request is refused that no node could ever serve (`decide.submission.fit`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.node_shape import cpu_mask, usable_memory_mib

if TYPE_CHECKING:
    from spritz.model.resources import NodeCapacity


class NodeGroup:
    """Nodes of one partition with equal capacity and features."""

    __slots__ = ("capacity", "features", "gres", "names", "usable_cpus", "usable_memory")

    def __init__(self, capacity: NodeCapacity, feature_names: tuple[str, ...]) -> None:
        self.capacity = capacity
        self.features = frozenset(feature_names)
        self.names: dict[str, None] = {}
        self.usable_cpus = cpu_mask(capacity).bit_count()
        self.usable_memory = usable_memory_mib(capacity)
        self.gres: dict[tuple[str, str], int] = {}
        for line in capacity.gres:
            self.gres[line.name, line.type] = self.gres.get((line.name, line.type), 0) + line.count
            if line.type:
                self.gres[line.name, ""] = self.gres.get((line.name, ""), 0) + line.count
