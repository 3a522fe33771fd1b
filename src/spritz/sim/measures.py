"""Figures of a replay: waits, bounded slowdown, utilisation, makespan; for all jobs and by user, group and size.

Bounded slowdown of a job is max(1, (wait + run) / max(run, bound)); utilisation is the processor time of all jobs over
that of the machine from the first submission to the last end.

Source: Feitelson, "Metrics for parallel job scheduling and their convergence" (JSSPP 2001).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.sim.trace.workload import Workload


class Measures(Struct, frozen=True, kw_only=True):
    """Figures of a set of jobs. Times in seconds; `utilization` is a fraction."""

    jobs: int
    mean_wait_seconds: float
    median_wait_seconds: float
    p95_wait_seconds: float
    max_wait_seconds: float
    mean_bounded_slowdown: float
    max_bounded_slowdown: float
    processor_seconds: float


def measure(workload: Workload, start: Sequence[float], jobs: Sequence[int], bound: float) -> Measures:
    """Figures of these jobs (at least one); `bound` seconds bound the slowdown from below."""
    waits = [start[job] - workload.submit[job] for job in jobs]
    slowdowns = [
        max(1.0, (wait + workload.run[job]) / max(workload.run[job], bound))
        for wait, job in zip(waits, jobs, strict=True)
    ]
    ordered = sorted(waits)
    count = len(waits)
    return Measures(
        jobs=count,
        mean_wait_seconds=sum(waits) / count,
        median_wait_seconds=ordered[(count - 1) // 2],
        p95_wait_seconds=ordered[min(count - 1, int(0.95 * count))],
        max_wait_seconds=ordered[-1],
        mean_bounded_slowdown=sum(slowdowns) / count,
        max_bounded_slowdown=max(slowdowns),
        processor_seconds=sum(workload.run[job] * workload.processors[job] for job in jobs),
    )


def makespan(workload: Workload, start: Sequence[float]) -> float:
    """Seconds from the first submission to the last end."""
    return max(begun + run for begun, run in zip(start, workload.run, strict=True)) - min(workload.submit)


def utilization(workload: Workload, start: Sequence[float], processors: int) -> float:
    """Fraction of the machine's processor time that the jobs used."""
    span = makespan(workload, start)
    used = sum(run * size for run, size in zip(workload.run, workload.processors, strict=True))
    return used / (processors * span) if span > 0 else 0.0


def by(workload: Workload, start: Sequence[float], what: str, bound: float) -> dict[str, Measures]:
    """Figures by `user`, `group`, `name`, `queue` or `size` (processors, in powers of two), largest use first."""
    members: dict[str, list[int]] = {}
    column = [size_class(size) for size in workload.processors] if what == "size" else getattr(workload, what)
    for job, word in enumerate(column):
        members.setdefault(word, []).append(job)
    figures = {word: measure(workload, start, jobs, bound) for word, jobs in members.items()}
    if what == "size":
        return dict(sorted(figures.items(), key=lambda item: int(item[0].partition("-")[0])))
    return dict(sorted(figures.items(), key=lambda item: (-item[1].processor_seconds, item[0])))


def size_class(processors: int) -> str:
    """Class of a job's size, in powers of two: `1`, `2`, `3-4`, `5-8`, …"""
    if processors <= 2:
        return str(processors)
    top = 1 << (processors - 1).bit_length()
    return f"{top // 2 + 1}-{top}"
