"""CompleteWait: no job starts in a partition while another job there is completing, so that all of that job's nodes
become free together.

Source: slurm.conf(5) CompleteWait, SchedulerParameters reduce_completing_frag.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from spritz.scheduling.view.snapshot import Snapshot


def waiting_partitions(snapshot: Snapshot, *, apart: bool) -> tuple[frozenset[str], float]:
    """Partitions in which no job may start now, and when the first of these waits ends (0.0: there is none).

    `apart`: only the partitions of completing jobs, and partitions that share nodes with them.
    """
    wait, now = snapshot.settings.complete_wait_seconds, snapshot.now
    first = bisect_right(snapshot.ends, now - wait, key=lambda end: end[0]) if wait else len(snapshot.ends)
    homes: set[str] = set()
    until = 0.0
    # `ends` is in order of time, and holds running jobs too, whose ends are in the future.
    for ended_at, job_id in snapshot.ends[first:]:
        if ended_at > now:
            break
        record = snapshot.records[job_id]
        if record.completing and record.allocation is not None:
            homes.add(record.allocation.partition)
            until = until or ended_at + wait
    if not homes or not apart:
        return frozenset(snapshot.partitions if homes else ()), until
    members = snapshot.eligibility.partition_nodes
    their_nodes = np.concatenate([members[name] for name in sorted(homes)])
    return frozenset(name for name, nodes in members.items() if np.isin(nodes, their_nodes).any()), until
