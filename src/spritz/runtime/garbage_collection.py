"""Garbage collection on a schedule, for daemons with many records: not in the middle of an answer.

Nearly all objects of the controller are freed with their last reference. Python's collector still scans all live
objects whenever their number has grown by a quarter: 0.3 s on 10,000 nodes, and 40 ms for the middle generation. So
only the youngest objects are scanned as they come. Every ten minutes a sweep scans the objects that are new since the
last one, and once a day all of them.

Source: docs/decisions/0127-garbage-collection-by-the-clock.md.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.runtime.clock import Clock

#: Allocations after which the youngest are scanned. A cycle forks tables with lists as long as there are nodes: with a
#: smaller number they would be scanned several times.
YOUNG = 5_000
#: disables automatic scans of older generations
NEVER = 1 << 30

SWEEP_SECONDS = 600.0
#: sweeps until one scans everything: a day
ALL_AFTER = 144


def tame() -> None:
    """From now on only `sweep` scans old objects. Objects that exist now are taken to be permanent."""
    gc.set_threshold(YOUNG, NEVER, NEVER)
    gc.freeze()


def sweep(*, everything: bool) -> None:
    """Free reference cycles among new objects, or among all (`everything`)."""
    if everything:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


async def keep_sweeping(clock: Clock) -> None:
    """Collect every SWEEP_SECONDS, all generations at every ALL_AFTER-th time. Never returns."""
    sweeps = 0
    while True:
        await clock.sleep(SWEEP_SECONDS)
        sweeps += 1
        sweep(everything=sweeps % ALL_AFTER == 0)
