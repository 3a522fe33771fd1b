"""Suggestions for the next request: `#SBATCH` lines with reasons. Pure.

A fifth is added to the memory that was used, a third to the time: the next run may differ. There is no suggestion where
use is close to the request, nor on CPUs of a job that ran for less than `SHORT_SECONDS`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.notation.duration import format_duration
from spritz.notation.memory import format_mib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.local.questions.efficiency.measure import Efficiency

SHORT_SECONDS = 30
#: factors from use to request
MEMORY_ROOM, TIME_ROOM, CPU_ROOM = 1.2, 1.33, 1.1
#: a change is suggested below this part of the request
_WORTH = 0.75
_STEPS_MINUTES = (5, 10, 15, 30, 60)


class Advice(Struct, frozen=True):
    """`line`: for the script ("": none); `why`: the reason."""

    line: str
    why: str


def advise(jobs: Sequence[Efficiency]) -> list[Advice]:
    """Suggestions for one job, or for tasks of one array: enough for each of them."""
    known = [job for job in jobs if job.out_of_memory or (job.sampled and job.elapsed_seconds)]
    if not known:
        return []
    advice = [_cpus(known), _memory(known), _gpus(known), _time(known)]
    return [suggestion for suggestion in advice if suggestion is not None]


def _cpus(jobs: list[Efficiency]) -> Advice | None:
    long = [job for job in jobs if job.elapsed_seconds >= SHORT_SECONDS]
    if not long:
        return None
    # The job that needs the largest part of its allocation counts.
    job = max(long, key=lambda usage: usage.cpus_busy / max(1, usage.cpus))
    busy = job.cpus_busy
    if busy >= 0.95 * job.cpus:
        return Advice("", f"{_number(busy)} of {job.cpus} CPUs were busy on average: more could make it quicker")
    why = f"{_number(busy)} of {job.cpus} CPUs were busy on average"
    per_task = job.cpus_asked / job.tasks
    needed = max(1, math.ceil(busy * CPU_ROOM / job.tasks))
    if per_task <= 1:
        return Advice("", f"{why}: fewer tasks would do") if busy * CPU_ROOM <= (job.tasks - 1) * _WORTH else None
    if needed > per_task * _WORTH:
        return None
    # On one node both are said: it may have asked for its CPUs by tasks that it never started.
    tasks = f"--ntasks={job.tasks} " if job.node_count == 1 else ""
    return Advice(f"#SBATCH {tasks}--cpus-per-task={needed}", why)


def _memory(jobs: list[Efficiency]) -> Advice | None:
    if not any(job.out_of_memory for job in jobs):
        # What failed or was cancelled may not have come to use its memory.
        jobs = [job for job in jobs if job.running or job.state in ("COMPLETED", "TIMEOUT")]
        if not jobs:
            return None
    job = max(jobs, key=lambda usage: (usage.out_of_memory, usage.memory_mib))
    requested = job.memory_asked_per_node_mib
    if job.out_of_memory:
        if requested is None:
            return Advice("", "it ran out of memory")
        needed = _rounded(max(requested * 1.5, job.memory_mib * MEMORY_ROOM))
        return Advice(f"#SBATCH --mem={size(needed)}", f"{format_mib(requested)} was not enough: it ran out of memory")
    if requested is None or not job.memory_mib:
        return None
    needed = _rounded(job.memory_mib * MEMORY_ROOM)
    if requested * _WORTH <= needed <= requested:
        return None
    if needed > requested and job.memory_mib < requested * 0.9:
        return None
    where = f"on {job.memory_node}" if job.node_count > 1 and job.memory_node else "at most"
    return Advice(
        f"#SBATCH --mem={size(needed)}", f"{size(job.memory_mib)} of {format_mib(requested)} was used {where}"
    )


def _gpus(jobs: list[Efficiency]) -> Advice | None:
    requested = max(job.gpus for job in jobs)
    if not requested or any(job.gpu_memory_mib or job.gpu_percent or not job.gpus_known for job in jobs):
        return None
    if all(job.elapsed_seconds < SHORT_SECONDS for job in jobs):
        return None
    what = "the GPU was" if requested == 1 else f"none of the {requested} GPUs was"
    return Advice(
        "", f"{what} seen {'un' if requested == 1 else ''}used: leave --gpus and --gres=gpu away, if that is so"
    )


def _time(jobs: list[Efficiency]) -> Advice | None:
    limits = [job.limit_seconds for job in jobs if job.limit_seconds is not None]
    if len(limits) < len(jobs):
        return None
    limit = max(limits)
    if any(job.state == "TIMEOUT" for job in jobs):
        return Advice(f"#SBATCH --time={format_duration(limit * 2)}", f"{format_duration(limit)} was not enough")
    if any(job.running or job.state != "COMPLETED" for job in jobs):
        return None
    longest = max(job.elapsed_seconds for job in jobs)
    needed = _rounded_minutes(longest * TIME_ROOM) * 60
    if needed > limit * _WORTH:
        return None
    return Advice(
        f"#SBATCH --time={format_duration(needed)}", f"it took {format_duration(longest)} of {format_duration(limit)}"
    )


def _rounded_minutes(seconds: float) -> int:
    minutes = math.ceil(seconds / 60)
    step = next((step for step in _STEPS_MINUTES if minutes <= step * 12), 60)
    return math.ceil(minutes / step) * step


def _rounded(mib: float) -> float:
    """Up to a number that people would write: whole GiB, or hundreds of MiB."""
    step = 1024 if mib > 4096 else 100
    return math.ceil(mib / step) * step


def size(mib: float) -> str:
    """`6G`, `700M`; as --mem takes it."""
    whole = math.ceil(mib)
    return f"{whole // 1024}G" if whole % 1024 == 0 else f"{whole}M" if whole < 10240 else f"{math.ceil(mib / 1024)}G"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
