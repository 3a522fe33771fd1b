"""Queries about nodes (`scontrol show node`, sinfo)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.node.record import Node, NodeSample


class ListNodes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes (all when `names` is empty). Reply: `Nodes`. Unknown names give ESLURM_INVALID_NODE_NAME.

    With `pieces` the reply is a stream of them, some hundred nodes in each.
    """

    names: tuple[str, ...] = ()
    all: bool = False
    pieces: bool = False


class NodeView(Struct, frozen=True, kw_only=True):
    """A node with what runs on it. `state_names` is Slurm's: base first, then flags (`MIXED`, `DRAIN` …)."""

    node: Node
    state_names: tuple[str, ...]
    cpus_allocated: int = 0
    memory_allocated_mib: int = 0
    #: (name, type, count, mask in hexadecimal) in use
    gres_used: tuple[tuple[str, str, int, str], ...] = ()
    partitions: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    sample: NodeSample | None = None
    #: the user, and the MCS label, whose jobs have the node for themselves
    owner: str = ""
    mcs_label: str = ""
    #: the active reservation of the whole node that starts first
    reservation: str = ""
    #: why the registration of its daemon was refused ("": it was not)
    refused: str = ""


class Nodes(Struct, frozen=True, kw_only=True):
    """Reply to ListNodes. `now`: the controller's time, seconds since the epoch."""

    now: float
    nodes: list[NodeView]
