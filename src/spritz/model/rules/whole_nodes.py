"""The resources that a job with whole nodes will hold at least, whatever part of them it asks for.

Guarantees need it while the job waits (docs/decisions/0036): what it holds counts, so its request must count too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.rules.node_shape import cpu_mask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.resources import NodeCapacity


def with_whole_nodes(
    pairs: Iterable[tuple[str, int]], capacities: Iterable[NodeCapacity], nodes: int
) -> list[tuple[str, int]]:
    """The request, raised to what `nodes` whole nodes have: `nodes` times the smallest node's amount of each TRES.

    `capacities`: the distinct capacities of nodes that may serve it. Memory is not raised.
    """
    least: dict[str, int] | None = None
    for capacity in capacities:
        node_amounts = {"cpu": cpu_mask(capacity).bit_count()}
        for line in capacity.gres:
            for name in (f"gres/{line.name}", f"gres/{line.name}:{line.type}" if line.type else ""):
                if name:
                    node_amounts[name] = node_amounts.get(name, 0) + line.count
        least = (
            node_amounts
            if least is None
            else {name: min(count, node_amounts.get(name, 0)) for name, count in least.items()}
        )
    raised = dict(pairs)
    for name, count in (least or {}).items():
        if count:
            raised[name] = max(raised.get(name, 0), count * nodes)
    return list(raised.items())
