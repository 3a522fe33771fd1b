"""Requests that say the same more narrowly, in the order in which they are tried.

`--nodes=1,2,4` and `--nodes=2-16:2`: only some numbers of nodes will do. OverSubscribe: free CPUs first.

Source: sbatch(1) --nodes; slurm.conf(5) OverSubscribe; https://slurm.schedmd.com/cons_tres_share.html.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.scheduling.placement.columns import could_hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.scheduling.placement.eligible import Eligibility
    from spritz.scheduling.request import Request
    from spritz.scheduling.table import NodeTable


def by_node_count(table: NodeTable, request: Request) -> Iterator[Request]:
    """The request for each number of nodes that it allows and that there are: the largest first, as with a range."""
    if not request.node_counts:
        return
    most = min(len(table.up), len(table.up) if request.nodes_max is None else request.nodes_max)
    counts = {count for count in request.node_counts if request.nodes_min <= count <= most}
    for count in sorted(counts, reverse=request.nodes_want_max):
        yield replace(request, nodes_min=count, nodes_max=count, node_counts=())


def by_company(table: NodeTable, request: Request, eligibility: Eligibility) -> Iterator[Request]:
    """With so many jobs on each CPU as there must be, fewer first: one's own CPUs, then those with the fewest jobs on
    them that could be enough, and so on. Just as it is if it shares nothing.
    """
    if not request.share_rows:
        yield request
        return
    # Most jobs find CPUs that nobody uses, and those are chosen in compiled calls.
    yield replace(request, share_rows=0)
    ways = [replace(request, share_rows=rows) for rows in range(2, request.share_rows + 1)]
    choices = eligibility.choices(request)
    # What fits beside few jobs fits beside more.
    yield from ways[bisect_left(ways, True, key=lambda way: could_hold(table, way, choices)) :]
