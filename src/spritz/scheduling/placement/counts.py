"""Requests that say the same more narrowly, in the order in which they are tried.

`--nodes=1,2,4` and `--nodes=2-16:2`: only some numbers of nodes will do. OverSubscribe: free CPUs first.

Source: sbatch(1) --nodes; slurm.conf(5) OverSubscribe; https://slurm.schedmd.com/cons_tres_share.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.scheduling.request import Request


def by_node_count(request: Request) -> Iterator[Request]:
    """The request for each number of nodes that it allows: the largest first, as with a range."""
    counts = sorted(request.node_counts, reverse=request.nodes_want_max)
    for count in counts:
        if request.nodes_min <= count <= (count if request.nodes_max is None else request.nodes_max):
            yield replace(request, nodes_min=count, nodes_max=count, node_counts=())


def by_company(request: Request) -> Iterator[Request]:
    """A request that may share its CPUs, with fewer jobs on each of them than may be."""
    for rows in range(2, request.share_rows):
        yield replace(request, share_rows=rows)
