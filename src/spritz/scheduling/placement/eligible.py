"""Which nodes a request may use at all: partition, features, named and excluded nodes. What is free does not matter
here.

Answers are remembered until nodes or partitions change, since thousands of jobs ask the same.

Source: sbatch(1) --constraint, --prefer, --nodelist, --exclude.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from spritz.notation import features
from spritz.scheduling.placement.fabric import Fabric

if TYPE_CHECKING:
    from spritz.model.partition import Partition
    from spritz.model.topology import Topology
    from spritz.notation.features import Constraint
    from spritz.scheduling.placement.fragment import Workload
    from spritz.scheduling.request import Request
    from spritz.scheduling.reservations import Reserved
    from spritz.scheduling.table import Ints, NodeTable


class Choice(Struct, frozen=True):
    """One way to satisfy the constraints: `nodes` (ascending indexes) may serve;

    of each of `groups` at least `count` must be taken.
    """

    nodes: Ints
    groups: tuple[tuple[frozenset[int], int], ...] = ()


class Eligibility:
    """Choices by request, in order of preference; and the required nodes."""

    def __init__(
        self, table: NodeTable, partitions: Mapping[str, Partition], topologies: Sequence[Topology] = ()
    ) -> None:
        self._index_of = table.index_of
        self._features = [row.features for row in table.rows]
        self.partition_nodes: dict[str, Ints] = {
            name: self._indexes(partition.nodes) for name, partition in partitions.items()
        }
        #: the network of each partition that has one
        self.fabrics = _fabrics(partitions, topologies, table.index_of)
        #: what GPUs are kept together for (None: nothing)
        self.workload: Workload | None = None
        #: reservation -> the nodes to which its jobs are confined (None: to none)
        self._reserved: dict[str, Ints | None] = {}
        self._reserved_by: Reserved | None = None
        self._all_nodes: dict[tuple[object, ...], Ints] = {}
        self._choices: dict[tuple[object, ...], tuple[Choice, ...]] = {}

    def reserve(self, reserved: Reserved) -> None:
        """Reservations have changed."""
        self._reserved_by = reserved
        self._reserved = {
            name: None if nodes is None else self._indexes(nodes) for name, nodes in reserved.nodes().items()
        }
        self._all_nodes.clear()
        self._choices.clear()

    def _key(self, request: Request) -> tuple[object, ...]:
        key = (request.partition, request.features, request.prefer, request.exclude)
        if self._reserved_by is None or not self._reserved:
            return key
        return (*key, request.reservation, self._reserved_by.too_long(request))

    def _unreserved(self, nodes: Ints, request: Request) -> Ints:
        """Those of its reservation, without those of reservations that float before it for ever."""
        own = self._reserved.get(request.reservation)
        if own is not None:
            nodes = np.intersect1d(nodes, own, assume_unique=True)
        if self._reserved_by is not None:
            for name in self._reserved_by.too_long(request):
                nodes = np.setdiff1d(nodes, self._indexes(self._reserved_by.by_name[name].nodes), assume_unique=True)
        return nodes

    def _indexes(self, names: Iterable[str]) -> Ints:
        found = sorted({self._index_of[name] for name in names if name in self._index_of})
        return np.array(found, np.int64)

    def required(self, request: Request) -> frozenset[int] | None:
        """Indexes of --nodelist; None if one of them does not exist or is not in the partition."""
        if not request.node_list:
            return frozenset()
        nodes = frozenset(self._index_of.get(name, -1) for name in request.node_list)
        inside = self.partition_nodes.get(request.partition)
        if inside is None or not nodes <= frozenset(inside.tolist()):
            return None
        return nodes

    def choices(self, request: Request) -> tuple[Choice, ...]:
        """Ways to satisfy the constraints, best first;

        none if the partition is unknown or the constraint is no notation.
        """
        key = self._key(request)
        found = self._choices.get(key)
        if found is None:
            found = self._choices[key] = tuple(self._work_out(request))
        return found

    def nodes(self, request: Request) -> Ints:
        """Every node that some choice has."""
        choices = self.choices(request)
        if len(choices) == 1:
            return choices[0].nodes
        key = self._key(request)
        found = self._all_nodes.get(key)
        if found is None:
            parts = [choice.nodes for choice in choices]
            found = self._all_nodes[key] = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        return found

    def _work_out(self, request: Request) -> list[Choice]:
        nodes = self.partition_nodes.get(request.partition)
        if nodes is None:
            return []
        nodes = self._unreserved(nodes, request)
        if request.exclude:
            nodes = np.setdiff1d(nodes, self._indexes(request.exclude), assume_unique=True)
        required = self._narrow(nodes, request.features)
        if not request.prefer:
            return required
        preferred = [
            Choice(better.nodes, base.groups + better.groups)
            for base in required
            for better in self._narrow(base.nodes, request.prefer)
        ]
        return preferred + required

    def _narrow(self, nodes: Ints, text: str) -> list[Choice]:
        try:
            constraint = features.parse(text)
        except features.FeatureError:
            return []
        if constraint is None:
            return [Choice(nodes)]
        return [self._choice(nodes, alternative) for alternative in features.alternatives(constraint)]

    def _choice(self, nodes: Ints, constraint: Constraint) -> Choice:
        serving = [index for index in nodes.tolist() if constraint.matches(self._features[index])]
        groups = tuple(
            (frozenset(index for index in serving if part.matches(self._features[index])), count)
            for part, count in features.counts(constraint)
        )
        return Choice(np.array(serving, np.int64), groups)


def _fabrics(
    partitions: Mapping[str, Partition], topologies: Sequence[Topology], index_of: Mapping[str, int]
) -> dict[str, Fabric]:
    made: dict[str, Fabric] = {}
    found = {}
    for name, partition in partitions.items():
        topology = next((each for each in topologies if partition.topology in ("", each.name)), None)
        if topology is None or topology.kind == "flat":
            continue
        if topology.name not in made:
            made[topology.name] = Fabric(topology, index_of)
        found[name] = made[topology.name]
    return found
