"""Waiting jobs sorted by prediction, in blocks with bounds, so that a search skips whole blocks and a long queue costs
little.

Source: ours; expected slowdown as in `model.rules.predict`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from spritz.model.rules.predict import expected_slowdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Most jobs in a block; a larger one is split.
BLOCK_MAX = 128
#: In expected slowdowns, shorter predictions count as this many seconds.
BOUND = 10.0

_NEVER = float("inf")


class _Block:
    """Some jobs, shortest prediction first, with bounds. Bounds may be loose but never too tight."""

    __slots__ = ("jobs", "length_min", "size_min", "submit_min")

    def __init__(self, jobs: list[tuple[float, int]]) -> None:
        self.jobs = jobs
        self.size_min = self.length_min = self.submit_min = _NEVER


class Shortest:
    """The queue. `size`, `length` (seconds that must fit) and `submit` by job."""

    __slots__ = ("_blocks", "_length", "_size", "_submit")

    def __init__(self, size: Sequence[float], length: Sequence[float], submit: Sequence[float]) -> None:
        self._size, self._length, self._submit = size, length, submit
        self._blocks: list[_Block] = []

    def add(self, predicted: float, job: int) -> None:
        """Add a waiting job, whose `length` must be set."""
        place = bisect_left(self._blocks, (predicted, job), key=_last)
        if place == len(self._blocks):
            place -= 1
        if place < 0:
            self._blocks.append(_Block([]))
            place = 0
        block = self._blocks[place]
        insort(block.jobs, (predicted, job))
        if len(block.jobs) <= BLOCK_MAX:
            self._widen(block, job)
            return
        half = len(block.jobs) // 2
        parts = [_Block(block.jobs[:half]), _Block(block.jobs[half:])]
        for part in parts:
            self._bound(part)
        self._blocks[place : place + 1] = parts

    def remove(self, predicted: float, job: int) -> None:
        """Remove a job that no longer waits."""
        place = bisect_left(self._blocks, (predicted, job), key=_last)
        block = self._blocks[place]
        del block.jobs[bisect_left(block.jobs, (predicted, job))]
        if block.jobs:
            self._bound(block)
        else:
            del self._blocks[place]

    def length_of(self, job: int) -> float:
        """Seconds for which the job must have its processors."""
        return self._length[job]

    def _widen(self, block: _Block, job: int) -> None:
        block.size_min = min(block.size_min, self._size[job])
        block.length_min = min(block.length_min, self._length[job])
        block.submit_min = min(block.submit_min, self._submit[job])

    def _bound(self, block: _Block) -> None:
        block.size_min = min(self._size[job] for _, job in block.jobs)
        block.length_min = min(self._length[job] for _, job in block.jobs)
        block.submit_min = min(self._submit[job] for _, job in block.jobs)

    def fitting(self, room: Room) -> Iterator[int]:
        """Jobs that may fit, shortest first. Between two of them `room` may shrink, and jobs may leave."""
        for block in list(self._blocks):
            if room.admits(block.size_min, block.length_min):
                for _, job in list(block.jobs):
                    if room.admits(self._size[job], self._length[job]):
                        yield job

    def neediest(self, now: float) -> int:
        """The job with the largest expected slowdown, ties to the first submitted. The queue must not be empty."""
        best: tuple[float, float, int] = (0.0, 0.0, 0)
        bounded = ((self._slowdown_max(block, now), place) for place, block in enumerate(self._blocks))
        for most, place in sorted(bounded, reverse=True):
            if most < best[0]:
                break
            for predicted, job in self._blocks[place].jobs:
                submit = self._submit[job]
                best = max(best, (expected_slowdown(now - submit, predicted), -submit, -job))
        return -best[2]

    def _slowdown_max(self, block: _Block, now: float) -> float:
        """Upper bound of the block's expected slowdowns. Among predictions above `BOUND` the shortest has
        the largest.
        """
        shortest, longest = block.jobs[0][0], block.jobs[-1][0]
        waited = now - block.submit_min
        return max(expected_slowdown(waited, shortest), expected_slowdown(waited, max(shortest, min(longest, BOUND))))


class Room:
    """Free processors now; only `spare` of them are free longer than `seconds` from now."""

    __slots__ = ("free", "seconds", "spare")

    def __init__(self, free: float, spare: float, seconds: float) -> None:
        self.free, self.spare, self.seconds = free, spare, seconds

    def admits(self, size: float, length: float) -> bool:
        """Whether a job of this size and length may start."""
        return size <= self.free and (length <= self.seconds or size <= self.spare)

    def take(self, size: float, length: float) -> None:
        """Take the processors of a started job."""
        self.free -= size
        if length > self.seconds:
            self.spare -= size


def _last(block: _Block) -> tuple[float, int]:
    return block.jobs[-1]
