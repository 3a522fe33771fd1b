"""Groups nodes into lines of sinfo: nodes of a partition with equal values share a line.

Source: sinfo(1); grouping of `_match_node_data` and `_match_part_data`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spritz.model.node.partition import Partition
    from spritz.model.queries.nodes import NodeView

    Key = Callable[[Partition, NodeView], object]


class Group:
    """One line: `partition`, its position in the configuration, and its nodes (none: a partition without requested
    nodes).
    """

    __slots__ = ("cluster", "partition", "place", "views")

    def __init__(self, partition: Partition, place: int) -> None:
        self.partition = partition
        self.place = place
        self.views: list[NodeView] = []
        #: in listings of several clusters
        self.cluster = ""


def make_groups(
    partitions: Sequence[Partition],
    views: dict[str, NodeView],
    keys: Iterable[Key],
    *,
    by_partition: bool,
    by_node: bool,
    empty: bool,
) -> list[Group]:
    """`by_partition`: separate lines for partitions (else a node of two partitions counts once). `by_node`: a line for
    each node, with `by_partition` in each of its partitions. `empty`: partitions without nodes get lines too.
    """
    keys = tuple(keys)
    groups: dict[object, Group] = {}
    members: dict[object, set[str]] = {}
    for place, partition in enumerate(partitions):
        seen = False
        for name in partition.nodes:
            view = views.get(name)
            if view is None:
                continue
            seen = True
            key: tuple[object, ...] = tuple(make(partition, view) for make in keys)
            if by_partition:
                key = (place, *key)
            if by_node:
                key = (name, *key)
            group = groups.get(key)
            if group is None:
                group = groups[key] = Group(partition, place)
                members[key] = set()
            if name not in members[key]:
                members[key].add(name)
                group.views.append(view)
        if not seen and empty:
            groups[(place, "none")] = Group(partition, place)
    return list(groups.values())
