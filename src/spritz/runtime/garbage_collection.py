"""When a daemon with many records looks for reference cycles: by the clock, and not in the middle of an answer.

Nearly all that the controller makes is freed when the last reference goes. The collector still walks through everything
that lives whenever a quarter has come to it: 0.3 s on 10,000 nodes, and 40 ms for what came last. So only the youngest
are looked at as they come; the rest every ten minutes, and of that what is new since, but once a day everything.

Source: docs/decisions/0127-garbage-collection-by-the-clock.md.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.runtime.clock import Clock

#: Containers made and not freed after which these are looked at. A cycle forks tables whose lists are as long as there
#: are nodes: with fewer they are walked through several times.
YOUNG = 5_000
#: Older ones are never looked at by themselves.
NEVER = 1 << 30

SWEEP_SECONDS = 600.0
#: Sweeps until one looks at everything: a day.
ALL_AFTER = 144


def tame() -> None:
    """From now on old objects are looked at by `sweep` alone. What there is by now is taken to stay."""
    gc.set_threshold(YOUNG, NEVER, NEVER)
    gc.freeze()


def sweep(*, everything: bool) -> None:
    """Free what is new, or `everything`, that only refers to itself."""
    if everything:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


async def keep_sweeping(clock: Clock) -> None:
    """For ever."""
    sweeps = 0
    while True:
        await clock.sleep(SWEEP_SECONDS)
        sweeps += 1
        sweep(everything=sweeps % ALL_AFTER == 0)
