"""Indexes: sets and counts by key, without empty entries."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")


def discard(index: dict[K, dict[int, None]], key: K, job_id: int) -> None:
    """Remove the job from the key's set, and the key with its last job."""
    members = index.get(key)
    if members is not None:
        members.pop(job_id, None)
        if not members:
            del index[key]


def count_down(counts: dict[K, int], key: K, count: int = 1) -> None:
    """Lower the key's count; remove the key at zero."""
    left = counts.get(key, 0) - count
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
