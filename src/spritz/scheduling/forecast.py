"""When and where every waiting job is expected to start, as arrays: promises first, and a reckoning for the others.

Source: squeue(1) --start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from spritz.model.plan import Forecast

if TYPE_CHECKING:
    from spritz.scheduling.backfill import Promise
    from spritz.scheduling.nodes import NodeTable


def forecast(promised: Sequence[tuple[int, Promise]], table: NodeTable) -> Forecast:
    """Expected starts by job number."""
    found = {job_id: (promise.start_at, [index for index, _ in promise.parts]) for job_id, promise in promised}
    job_ids = sorted(found)
    return Forecast(
        job_ids=np.array(job_ids, np.int64).tobytes(),
        start_at=np.array([found[job_id][0] for job_id in job_ids], np.float64).tobytes(),
        ends=np.cumsum([len(found[job_id][1]) for job_id in job_ids]).astype(np.int64).tobytes(),
        nodes=np.array([index for job_id in job_ids for index in found[job_id][1]], np.int32).tobytes(),
    )
