"""Orders for many nodes at once: who is told directly, and what it passes on (TreeWidth).

Pure. An order goes to at most `width` daemons; each heads a branch, carries the order out on its own nodes, and passes
it on in the same way. Branches are runs of nodes in the order that they were given in, which is that of the allocation
and so of slurm.conf: neighbours share a branch, and its head is one of them.

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

#: Effects that are told to many nodes as one order.
FORWARDED: tuple[type[Effect], ...] = (
    core_effects.LaunchPrologOn,
    core_effects.LaunchStepOn,
    core_effects.SignalOn,
    core_effects.SuspendOn,
    core_effects.TerminateJobOn,
    core_effects.TerminateStepOn,
)


class Daemon(Struct, frozen=True, kw_only=True):
    """A node daemon that an order is for. `nodes` are those of its nodes that are meant.

    `alone`: other nodes cannot reach it.
    """

    address: str
    port: int
    nodes: tuple[str, ...]
    alone: bool = False


def heads(daemons: Sequence[Daemon], width: int) -> list[tuple[Branch, Branches]]:
    """Whom to tell, and whom each of them passes it on to: at most `width`, beside those that stand alone."""
    told = [(Branch(address=daemon.address, port=daemon.port, nodes=daemon.nodes), daemon.alone) for daemon in daemons]
    tree = branches.tree([branch for branch, alone in told if not alone], max(1, width))
    return [*((branch, ()) for branch, alone in told if alone), *branches.split(tree)]


def orders(effects: Iterable[Effect]) -> list[list[Effect]]:
    """Effects that differ in their node alone, together; each node's stay in their order."""
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
