"""Messages for many nodes: splits the nodes into branches of a forwarding tree (TreeWidth).

Pure. A message goes to at most `width` daemons. Each heads a branch, executes the message for its own nodes, and
forwards it to its branch in the same way. A branch is a run of consecutive nodes in the order of the allocation, which
is the order of slurm.conf: neighbours share a branch, and its head is one of them.

Source: slurm.conf(5) TreeWidth; docs/decisions/0193.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from spritz.core import effects as core_effects
from spritz.core.effects import Effect
from spritz.model import branches
from spritz.model.branches import Branches
from spritz.model.launch import Branch

#: Effects that go to many nodes as one message.
FORWARDED: tuple[type[Effect], ...] = (
    core_effects.LaunchPrologOn,
    core_effects.LaunchStepOn,
    core_effects.SignalOn,
    core_effects.SuspendOn,
    core_effects.TerminateJobOn,
    core_effects.TerminateStepOn,
)


class Daemon(Struct, frozen=True, kw_only=True):
    """A node daemon that gets the message. `nodes`: those of its nodes that the message concerns.

    `alone`: other daemons cannot reach it.
    """

    address: str
    port: int
    nodes: tuple[str, ...]
    alone: bool = False


def heads(daemons: Sequence[Daemon], width: int) -> list[tuple[Branch, Branches]]:
    """The heads of branches, each with the daemons below it: at most `width`, plus those that other daemons cannot
    reach.
    """
    told = [(Branch(address=daemon.address, port=daemon.port, nodes=daemon.nodes), daemon.alone) for daemon in daemons]
    tree = branches.tree([branch for branch, alone in told if not alone], max(1, width))
    return [*((branch, ()) for branch, alone in told if alone), *branches.split(tree)]


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
