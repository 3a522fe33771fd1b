"""Nodes on which scripts fail at once, and whose scripts: what `decide.node.failing_nodes` counts."""

from __future__ import annotations


class Failures:
    """The scripts that failed at once. Kept in memory alone: a restarted controller counts again."""

    __slots__ = ("by_node", "node_of")

    def __init__(self) -> None:
        #: node -> uid -> scripts in a row that failed at once there
        self.by_node: dict[str, dict[int, int]] = {}
        #: uid -> the node where scripts of this user fail at once; "": they do on several nodes
        self.node_of: dict[int, str] = {}

    def copy(self) -> Failures:
        other = Failures()
        other.by_node = {node: dict(counts) for node, counts in self.by_node.items()}
        other.node_of = dict(self.node_of)
        return other
