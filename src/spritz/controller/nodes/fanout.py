"""Messages for many nodes: splits the nodes into branches of a forwarding tree (TreeWidth).

Pure. A message goes to at most `width` daemons. Each heads a branch, executes the message for its own nodes, and
forwards it to its branch in the same way. A branch is a run of consecutive nodes in the order of the allocation, which
is the order of slurm.conf: neighbours share a branch, and its head is one of them. TopologyParam may group the nodes by
leaf switch or partition first.

Source: slurm.conf(5) TreeWidth, TopologyParam; docs/decisions/0193.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from spritz.core import effects as core_effects
from spritz.core.effects import Effect
from spritz.model.node_daemon import branches
from spritz.model.node_daemon.branches import Branches
from spritz.model.node_daemon.launch import Branch

if TYPE_CHECKING:
    from spritz.core.state import State

#: the region of a node; nodes of none share None
Region = Callable[[str], object]

#: Effects that go to many nodes as one message.
FORWARDED: tuple[type[Effect], ...] = (
    core_effects.LaunchPrologOn,
    core_effects.LaunchStepOn,
    core_effects.NotifyOn,
    core_effects.SignalOn,
    core_effects.SuspendOn,
    core_effects.TerminateJobOn,
    core_effects.TerminateStepOn,
)


class Daemon(Struct, frozen=True, kw_only=True):
    """A node daemon that gets the message. `nodes`: those of its nodes that the message concerns.

    `alone`: other daemons cannot reach it. `started_at`: when it started, by its clock.
    """

    address: str
    port: int
    nodes: tuple[str, ...]
    started_at: float = 0.0
    alone: bool = False


def heads(daemons: Sequence[Daemon], width: int, region: Region | None = None) -> list[tuple[Branch, Branches]]:
    """The heads of branches, each with the daemons below it: at most `width`, plus those that other daemons cannot
    reach.

    Daemons of a region have a branch of their own; if there are more regions than branches, a branch has neighbouring
    regions.
    """
    leaves = [
        (
            Branch(address=daemon.address, port=daemon.port, nodes=daemon.nodes, started_at=daemon.started_at),
            daemon.alone,
        )
        for daemon in daemons
    ]
    regions: dict[object, list[Branch]] = {}
    for branch, alone in leaves:
        if not alone:
            regions.setdefault(region(branch.nodes[0]) if region is not None else None, []).append(branch)
    width = max(1, width)
    if 1 < len(regions) <= width:
        tree = tuple(branch for members in regions.values() for branch in _below_first(members, width))
    else:
        tree = branches.tree([branch for members in regions.values() for branch in members], width)
    return [*((branch, ()) for branch, alone in leaves if alone), *branches.split(tree)]


def _below_first(members: Sequence[Branch], width: int) -> Branches:
    """A tree with one head."""
    below = branches.tree(members[1:], width)
    return (members[0], *(structs.replace(branch, depth=branch.depth + 1) for branch in below))


def regions(state: State, words: Sequence[str]) -> Region | None:
    """The grouping that branches follow by TopologyParam (`words`): leaf switches, partitions, or None.

    Source: slurm.conf(5) TopologyParam RouteTree, RoutePart.
    """
    partitions = state.partitions.values()
    if "RouteTree" in words and partitions:
        partition = next((candidate for candidate in partitions if not candidate.topology), next(iter(partitions)))
        return state.units(partition).get
    if "RoutePart" in words:
        partition_of: dict[str, str] = {}
        for partition in partitions:
            for name in partition.nodes:
                partition_of.setdefault(name, partition.name)
        return partition_of.get
    return None


def orders(effects: Iterable[Effect]) -> list[list[Effect]]:
    """Groups effects that differ only in their node; the order of effects for each node is kept."""
    groups: list[list[Effect]] = []
    joined: dict[Effect, int] = {}
    last: dict[str, int] = {}
    for effect in effects:
        group = -1
        if isinstance(effect, FORWARDED):
            key = structs.replace(effect, node="")
            group = joined.get(key, -1)
        if group <= last.get(effect.node, -1):
            group = len(groups)
            groups.append([])
            if isinstance(effect, FORWARDED):
                joined[key] = group
        groups[group].append(effect)
        last[effect.node] = group
    return groups
