"""Waiting jobs in a fixed order, with a fast search for the first that could be backfilled.

A binary tree over the ranks of all jobs of a trace: every inner node knows the smallest request and the shortest
estimate below it, so that a search skips whole stretches of a deep queue in one step.
"""

from __future__ import annotations

_NEVER = float("inf")


class WaitingTree:
    """Set of ranks 0 … count-1."""

    __slots__ = ("_estimates", "_first_leaf", "_sizes")

    def __init__(self, count: int) -> None:
        leaf = 1
        while leaf < max(1, count):
            leaf *= 2
        self._first_leaf = leaf
        #: smallest request and shortest estimate below each node; leaves are the ranks
        self._sizes: list[float] = [_NEVER] * (2 * leaf)
        self._estimates: list[float] = [_NEVER] * (2 * leaf)

    def add(self, rank: int, processors: int, estimate: float) -> None:
        """Insert a waiting job at its rank; `estimate` is in seconds."""
        sizes, estimates = self._sizes, self._estimates
        node = rank + self._first_leaf
        while node and (processors < sizes[node] or estimate < estimates[node]):
            if processors < sizes[node]:
                sizes[node] = processors
            if estimate < estimates[node]:
                estimates[node] = estimate
            node >>= 1

    def remove(self, rank: int) -> None:
        """Remove a job that no longer waits."""
        sizes, estimates = self._sizes, self._estimates
        node = rank + self._first_leaf
        sizes[node] = estimates[node] = _NEVER
        node >>= 1
        while node:
            left = 2 * node
            size = sizes[left] if sizes[left] < sizes[left + 1] else sizes[left + 1]
            estimate = estimates[left] if estimates[left] < estimates[left + 1] else estimates[left + 1]
            if size == sizes[node] and estimate == estimates[node]:
                return
            sizes[node], estimates[node] = size, estimate
            node >>= 1

    def first(self, rank: int, free: int, extra: int, window: float) -> int:
        """The first job at or after `rank` that fits into `free` processors and either needs no more than `extra` of
        them or ends within `window` seconds; -1 if there is none.
        """
        sizes, estimates, leaf = self._sizes, self._estimates, self._first_leaf
        if rank >= leaf:
            return -1
        node = rank + leaf
        while True:
            size = sizes[node]
            if size <= free and (size <= extra or estimates[node] <= window):
                if node >= leaf:
                    return node - leaf
                node *= 2
                continue
            while node & 1:
                node >>= 1
            if not node:
                return -1
            node += 1
