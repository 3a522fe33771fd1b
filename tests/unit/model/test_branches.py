"""Trees of daemons as lists: each node is in them once, none forwards to more than the width, heads get their part."""

from __future__ import annotations

import pytest

from spritz.model.node_daemon.branches import Branches, all_nodes, levels, place, split, tree
from spritz.model.node_daemon.launch import Branch


def daemons(count: int) -> list[Branch]:
    return [Branch(address=f"10.0.0.{number}", port=6818, nodes=(f"n{number}",)) for number in range(count)]


def told_by(branches: Branches) -> list[int]:
    """How many each daemon tells, the sender of all first."""
    told, path = [0], [0]
    for branch in branches:
        del path[branch.depth + 1 :]
        told[path[-1]] += 1
        path.append(len(told))
        told.append(0)
    return told


@pytest.mark.parametrize(
    ("count", "width"), [(0, 3), (1, 1), (5, 1), (7, 2), (50, 50), (1000, 16), (1000, 50), (3000, 1)]
)
def test_every_daemon_is_told_once_and_tells_at_most_the_width(count: int, width: int) -> None:
    found = tree(daemons(count), width)
    assert all_nodes(found) == all_nodes(daemons(count)), "in their order"
    assert max(told_by(found), default=0) <= width
    assert len(split(found)) == min(count, width)


def test_a_thousand_are_reached_in_three_levels_of_sixteen() -> None:
    assert levels(tree(daemons(1000), 50)) == 2
    assert levels(tree(daemons(1000), 16)) == 3


def test_heads_lead_their_neighbours() -> None:
    found = tree(daemons(7), 2)
    assert [(head.nodes, all_nodes(below)) for head, below in split(found)] == [
        (("n0",), ("n1", "n2")),
        (("n3",), ("n4", "n5", "n6")),
    ]


def test_a_list_that_is_no_tree_is_read_without_harm() -> None:
    """What a peer sends: a first daemon that is below none, depths that jump or are negative."""
    odd = tuple(Branch(address="x", port=1, nodes=(str(depth),), depth=depth) for depth in (5, 9, -3, 2))
    assert [head.nodes for head, _below in split(odd)] == [("5",), ("-3",)]


@pytest.mark.parametrize(("count", "width"), [(1, 1), (5, 1), (7, 2), (12, 3), (50, 50), (1000, 16), (3000, 1)])
def test_the_place_of_each_is_that_in_the_tree(count: int, width: int) -> None:
    path: list[int] = []
    parents: dict[int, int] = {}
    for index, branch in enumerate(tree(daemons(count), width)):
        del path[branch.depth :]
        parents[index] = path[-1] if path else -1
        path.append(index)
    told = [sum(parent == index for parent in parents.values()) for index in range(count)] if count <= 50 else None
    for index, parent in parents.items():
        found = place(index, count, width)
        assert found[0] == parent
        assert told is None or found[1] == told[index]
