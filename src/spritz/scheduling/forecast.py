"""When and where every waiting job is expected to start, as arrays: promises first, and a reckoning for the others.

Source: squeue(1) --start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

import numpy as np

from spritz.model.plan import Forecast
from spritz.scheduling.lanes import Lanes

if TYPE_CHECKING:
    from spritz.scheduling.backfill import Promise
    from spritz.scheduling.nodes import Ints
    from spritz.scheduling.placement.eligible import Eligibility
    from spritz.scheduling.profile import Profile
    from spritz.scheduling.records import Shape, SortKey

#: start and nodes by job number
Starts = dict[int, tuple[float, "Ints"]]


def promised(told: Iterable[tuple[int, Promise]]) -> Starts:
    """Starts of jobs that have promises; the earliest, where there are several."""
    found: Starts = {}
    for job_id, promise in told:
        if job_id not in found or promise.start_at < found[job_id][0]:
            found[job_id] = promise.start_at, np.array([index for index, _ in promise.parts], np.int32)
    return found


def reckoned(
    shapes: Sequence[Shape], known: Mapping[int, object], profile: Profile, eligibility: Eligibility, now: float
) -> Starts:
    """Starts of all jobs of these shapes that are not in `known`, in order of the queue."""
    left: list[tuple[SortKey, int, int, list[SortKey], Shape]] = []
    for shape in shapes:
        keys = [key for key in shape.keys if shape.jobs[key].id not in known]
        if keys:
            left.append((keys[0], shape.order, 0, keys, shape))
    found: Starts = {}
    if not left:
        return found
    lanes = Lanes(profile, now)
    heapify(left)
    while left:
        _key, order, done, keys, shape = left[0]
        count = min(len(keys) - done, max(1, done))
        starts = lanes.starts(shape.request, eligibility.nodes(shape.request), count)
        for key, start in zip(keys[done:], starts, strict=False):
            job_id = shape.jobs[key].id
            if job_id not in found or start[0] < found[job_id][0]:
                found[job_id] = start
        done += len(starts)
        if starts and done < len(keys):
            heapreplace(left, (keys[done], order, done, keys, shape))
        else:
            heappop(left)
    return found


def as_arrays(starts: Starts) -> Forecast:
    """In order of job numbers."""
    job_ids = sorted(starts)
    nodes = [starts[job_id][1] for job_id in job_ids]
    return Forecast(
        job_ids=np.array(job_ids, np.int64).tobytes(),
        start_at=np.array([starts[job_id][0] for job_id in job_ids], np.float64).tobytes(),
        ends=np.cumsum([len(each) for each in nodes]).astype(np.int64).tobytes(),
        nodes=np.concatenate(nodes).astype(np.int32).tobytes() if nodes else b"",
    )
