"""Which nodes a request may use at all: partition, features, named and excluded nodes. What is free does not matter.

Answers are cached until nodes or partitions change, since thousands of jobs ask for the same.

Source: sbatch(1) --constraint, --prefer, --nodelist, --exclude, --extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from spritz.model.node.node_features import to_activate
from spritz.notation import features
from spritz.notation.extra import is_met
from spritz.scheduling.view.fabric import Fabric

if TYPE_CHECKING:
    from spritz.model.cluster.topology import Topology
    from spritz.model.node.partition import Partition
    from spritz.model.resources import NodeCapacity
    from spritz.notation.features import Constraint
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.reservations import Reserved
    from spritz.scheduling.view.table import Bools, Ints, NodeTable


class WorkloadSample:
    """The requests for which nodes are to stay usable, each with its number of jobs.

    `derived` is what placement computes from them on first use; `before` is that of the previous sample, reused if the
    two are nearly equal.
    """

    __slots__ = ("before", "derived", "requests")

    def __init__(self, requests: Sequence[tuple[Request, int]], before: object = None) -> None:
        self.requests = requests
        self.derived: object = None
        self.before = before


#: requests whose capacities are cached
CAPACITIES_MAX = 4096


#: (nodes, how many of them must be taken), ...; a node counts for one pair alone
CountedNodes = tuple[tuple[frozenset[int], int], ...]


class Choice(Struct, frozen=True):
    """One way to satisfy the constraints: nodes of `nodes` (ascending indexes) may serve, and of each set of `groups`
    as many must be taken as it says. A node counts in every set.
    """

    nodes: Ints
    groups: tuple[CountedNodes, ...] = ()
    #: bool[len(nodes)]: nodes that must be rebooted first, and so must be empty (None: none)
    boots: Bools | None = None

    def only(self, which: Bools | Ints) -> Choice:
        """The choice restricted to these nodes: a mask, or positions."""
        return Choice(self.nodes[which], self.groups, None if self.boots is None else self.boots[which])


class Eligibility:
    """The choices of each request, in order of preference, and its required nodes."""

    def __init__(
        self, table: NodeTable, partitions: Mapping[str, Partition], topologies: Sequence[Topology] = ()
    ) -> None:
        self._index_of = table.index_of
        self._features = [row.features for row in table.rows]
        self._changeable = [row.changeable for row in table.rows]
        self._extra = [row.extra for row in table.rows]
        #: nodes on which another workload manager runs jobs
        self._external = np.array([row.index for row in table.rows if row.external], np.int64)
        self.partition_nodes: dict[str, Ints] = {
            name: self._indexes(partition.nodes) for name, partition in partitions.items()
        }
        #: the network of each partition that has one
        self.fabrics = _fabrics(partitions, topologies, table.index_of)
        #: the workload by which fragmentation of GPUs is measured (None: not measured)
        self.workload: WorkloadSample | None = None
        #: reservation -> the nodes to which its jobs are confined (None: not confined)
        self._reserved: dict[str, Ints | None] = {}
        #: reservation whose jobs are not confined -> its own nodes, which they take first
        self._flexible: dict[str, Ints] = {}
        self._reserved_by: Reserved | None = None
        self._all_nodes: dict[tuple[object, ...], Ints] = {}
        self._kinds = [row.hardware.capacity for row in table.rows]
        self._capacities: dict[Request, tuple[NodeCapacity, ...]] = {}
        self._choices: dict[tuple[object, ...], tuple[Choice, ...]] = {}
        #: cache for placement: valid for this object's nodes and partitions
        self.derived: dict[Request, object] = {}

    def reserve(self, reserved: Reserved) -> None:
        """Take over the reservations, and forget the answers that depend on them."""
        self._reserved_by = reserved
        self._reserved = {
            name: None if nodes is None else self._indexes(nodes) for name, nodes in reserved.nodes().items()
        }
        self._flexible = {
            name: self._indexes(item.nodes) for name, item in reserved.by_name.items() if item.flexible and item.nodes
        }
        self._all_nodes.clear()
        self._choices.clear()
        self._capacities.clear()

    def _key(self, request: Request) -> tuple[object, ...]:
        key: tuple[object, ...] = (request.partition, request.features, request.prefer, request.exclude)
        if request.boots:
            key = (*key, request.boots, request.boots_later)
        if request.extra:
            key = (*key, "extra", request.extra)
        if request.external:
            key = (*key, "external")
        if self._reserved_by is None or not self._reserved:
            return key
        return (*key, request.reservation, self._reserved_by.too_long(request))

    def _unreserved(self, nodes: Ints, request: Request) -> Ints:
        """`nodes` within the request's reservation, without those of floating reservations that it could never end
        before.
        """
        reserved = self._reserved.get(request.reservation)
        if reserved is not None:
            nodes = np.intersect1d(nodes, reserved, assume_unique=True)
        if self._reserved_by is not None:
            for name in self._reserved_by.too_long(request):
                nodes = np.setdiff1d(nodes, self._indexes(self._reserved_by.by_name[name].nodes), assume_unique=True)
        return nodes

    def _indexes(self, names: Iterable[str]) -> Ints:
        indexes = sorted({self._index_of[name] for name in names if name in self._index_of})
        return np.array(indexes, np.int64)

    def required(self, request: Request) -> frozenset[int] | None:
        """Indexes of --nodelist; None if a node does not exist or is not in the partition."""
        if not request.node_list:
            return frozenset()
        nodes = frozenset(self._index_of.get(name, -1) for name in request.node_list)
        inside = self.partition_nodes.get(request.partition)
        if inside is None or not nodes <= frozenset(inside.tolist()):
            return None
        return nodes

    def choices(self, request: Request) -> tuple[Choice, ...]:
        """Ways to satisfy the constraints, best first. Empty if the partition is unknown or the constraint is
        malformed.
        """
        key = self._key(request)
        choices = self._choices.get(key)
        if choices is None:
            choices = self._choices[key] = tuple(self._work_out(request))
        return choices

    def nodes(self, request: Request) -> Ints:
        """Indexes, ascending, of all nodes that could serve the request by any of its choices."""
        choices = self.choices(request)
        if len(choices) == 1:
            return choices[0].nodes
        key = self._key(request)
        nodes = self._all_nodes.get(key)
        if nodes is None:
            parts = [choice.nodes for choice in choices]
            nodes = self._all_nodes[key] = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        return nodes

    def capacities(self, request: Request) -> tuple[NodeCapacity, ...]:
        """The distinct capacities of nodes that may serve."""
        capacities = self._capacities.get(request)
        if capacities is None:
            if len(self._capacities) >= CAPACITIES_MAX:
                self._capacities.clear()
            kinds = {id(kind): kind for kind in (self._kinds[index] for index in self.nodes(request).tolist())}
            capacities = self._capacities[request] = tuple(kinds.values())
        return capacities

    def _work_out(self, request: Request) -> list[Choice]:
        nodes = self.partition_nodes.get(request.partition)
        if nodes is None:
            return []
        nodes = self._unreserved(nodes, request)
        if request.exclude:
            nodes = np.setdiff1d(nodes, self._indexes(request.exclude), assume_unique=True)
        if request.extra:
            nodes = self._with_extra(nodes, request.extra)
        if len(self._external) and not request.external:
            nodes = np.setdiff1d(nodes, self._external, assume_unique=True)
        required = self._narrow(nodes, request.features)
        if request.boots and not request.boots_later:
            required += self._rebooted(nodes, request)
        required = self._reserved_first(required, request)
        if not request.prefer:
            return required
        preferred = [
            Choice(better.nodes, base.groups + better.groups)
            for base in required
            if base.boots is None
            for better in self._narrow(base.nodes, request.prefer)
        ]
        return preferred + required

    def _with_extra(self, nodes: Ints, text: str) -> Ints:
        """Nodes whose extra data satisfies --extra; none if it is malformed."""
        answers = {said: is_met(text, said) for said in {self._extra[index] for index in nodes.tolist()}}
        return np.array([index for index in nodes.tolist() if answers[self._extra[index]]], np.int64)

    def _reserved_first(self, choices: list[Choice], request: Request) -> list[Choice]:
        """With a flexible reservation, prefer its nodes, which other jobs cannot use: first its nodes alone, then any
        nodes with at least one of its own, then the choice as it is.
        """
        own_nodes = self._flexible.get(request.reservation)
        if own_nodes is None:
            return choices
        preferred = []
        for choice in choices:
            inside = choice.only(np.isin(choice.nodes, own_nodes))
            if len(inside.nodes):
                preferred.append(inside)
                if request.nodes_max != 1:
                    group = (frozenset(inside.nodes.tolist()), 1)
                    preferred.append(Choice(choice.nodes, (*choice.groups, (group,)), choice.boots))
            preferred.append(choice)
        return preferred

    def _rebooted(self, nodes: Ints, request: Request) -> list[Choice]:
        """Choices of nodes that have the features, or could have them after a reboot."""
        able, boots = [], []
        for index in nodes.tolist():
            change = to_activate(request.boots, self._features[index], self._changeable[index])
            if change is not None:
                able.append(index)
                boots.append(bool(change))
        return [Choice(np.array(able, np.int64), (), np.array(boots, np.bool_))] if any(boots) else []

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
            tuple(
                (frozenset(index for index in serving if part.matches(self._features[index])), count)
                for part, count in pairs
            )
            for pairs in features.counted_sets(constraint)
        )
        return Choice(np.array(serving, np.int64), groups)


def _fabrics(
    partitions: Mapping[str, Partition], topologies: Sequence[Topology], index_of: Mapping[str, int]
) -> dict[str, Fabric]:
    made: dict[str, Fabric] = {}
    fabrics = {}
    for name, partition in partitions.items():
        topology = next((candidate for candidate in topologies if partition.topology in ("", candidate.name)), None)
        if topology is None or topology.kind == "flat":
            continue
        if topology.name not in made:
            made[topology.name] = Fabric(topology, index_of)
        fabrics[name] = made[topology.name]
    return fabrics
