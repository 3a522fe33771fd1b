"""The inner loops of the scheduler, compiled where there is a C compiler.

They work on arrays and know nothing of jobs. Each has a twin in Python or numpy. The twin is the specification, runs
where the compiled module is missing, and is what tests compare the loop with:

 compiled | twin |
---|---|
 `lanes_*` (lanes.c) | `kernels.lanes` |
 `timeline_*` (timeline.c) | `view.profile`, `view.node_timeline` |
 `openings_*` (openings.c) | `placement.openings.Openings` |
 `choose_nodes` (openings.c, choose.h) | `placement.runs` on `placement.columns` |

Why C and not Cython or numba: docs/decisions/0166.
"""

from __future__ import annotations

#: whether the compiled module is available; tests set it to False to run the twins
compiled: bool
try:
    from spritz.scheduling.kernels._compiled import (
        choose_nodes,
        lanes_free_at,
        lanes_pool,
        lanes_soonest,
        lanes_take,
        openings_after,
        openings_at,
        openings_first,
        timeline_hold,
        timeline_lowest,
        timeline_put,
    )

    compiled = True
except ImportError:
    compiled = False

__all__ = (
    "choose_nodes",
    "compiled",
    "lanes_free_at",
    "lanes_pool",
    "lanes_soonest",
    "lanes_take",
    "openings_after",
    "openings_at",
    "openings_first",
    "timeline_hold",
    "timeline_lowest",
    "timeline_put",
)
