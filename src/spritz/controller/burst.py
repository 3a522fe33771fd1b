"""Batch jobs that are submitted one right after the other: while more come, those that are there wait to be started.

A lone submission starts in the same turn of the loop. A row of them is started when it pauses, or when it has lasted
long: to plan and start each by itself would take the time that the next answer needs, and mostly for the same plan.

Source: slurm.conf(5) SchedulerParameters=batch_sched_delay, which makes every batch job wait; docs/decisions/0151.
"""

from __future__ import annotations

#: Seconds after a submission within which the next one is of the same row.
PAUSE_SECONDS = 0.02


class Burst:
    """Moments are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._began_at = self._last_at = float("-inf")
        self._is_row = False

    def submitted(self, now: float) -> None:
        """A batch job has come."""
        self._is_row = now - self._last_at < PAUSE_SECONDS
        if not self._is_row:
            self._began_at = now
        self._last_at = now

    def over(self, now: float) -> None:
        """All that is there is looked at now: the rest of the row is one of its own."""
        self._began_at = now

    def seconds_left(self, now: float, longest: float) -> float:
        """How long starts wait yet, of `longest` at most; 0.0: not at all."""
        if not self._is_row:
            return 0.0
        return max(0.0, min(self._last_at + PAUSE_SECONDS, self._began_at + longest) - now)
