"""Narrower forms of a request, in the order in which they are tried.

`--nodes=1,2,4` and `--nodes=2-16:2` permit only some numbers of nodes. With OverSubscribe, free CPUs come first.

Source: sbatch(1) --nodes; slurm.conf(5) OverSubscribe; https://slurm.schedmd.com/cons_tres_share.html.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.scheduling.placement.columns import could_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import NodeTable


#: numbers of nodes tried for one request
TRIED_MAX = 16


def node_counts(request: Request, most: int, holds: Callable[[Request], bool]) -> list[int]:
    """Numbers of nodes to try, best first: the largest, as with a range, or the smallest.

    Numbers above `most`, the number of nodes there are, are left out. If more are left than may be tried, they begin at
    the best one for which there may be room; `holds` says whether there is room for a request.
    """
    if request.nodes_max is not None:
        most = min(most, request.nodes_max)
    counts = sorted({count for count in request.node_counts if request.nodes_min <= count <= most})
    first, last = 0, len(counts) - 1
    if len(counts) > TRIED_MAX:
        if not holds(_any_of(request, counts[0], counts[-1])):
            return []
        if request.nodes_want_max:
            last = bisect_left(counts, True, key=lambda count: not holds(_any_of(request, count, counts[-1]))) - 1
        else:
            first = bisect_left(counts, True, key=lambda count: holds(_any_of(request, counts[0], count)))
    tried = counts[first : last + 1]
    return (tried[::-1] if request.nodes_want_max else tried)[:TRIED_MAX]


def _any_of(request: Request, fewest: int, most: int) -> Request:
    """The request for any number of nodes in this range, wherever they lie in the network: a necessary condition."""
    return replace(
        request,
        nodes_min=fewest,
        nodes_max=most,
        node_counts=(),
        flat=True,
        switches=0,
        segment=1,
        segments_spread=False,
    )


def by_jobs_per_cpu(table: NodeTable, request: Request, eligibility: Eligibility) -> Iterator[Request]:
    """The request with an increasing number of jobs per CPU: CPUs of its own first, then as few sharers as may suffice.
    Unchanged if it shares no CPUs.
    """
    if not request.share_rows:
        yield request
        return
    # Most jobs find unused CPUs, and the compiled code can choose those.
    yield replace(request, share_rows=0)
    ways = [replace(request, share_rows=rows) for rows in range(2, request.share_rows + 1)]
    choices = eligibility.choices(request)
    # What fits with few jobs per CPU fits with more, so bisect for the first that may fit.
    yield from ways[bisect_left(ways, True, key=lambda way: could_hold(table, way, choices)) :]
