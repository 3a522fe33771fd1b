"""Figures: the job on each GPU (or CPU) of each node, capacity by type, and the time line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from spritz.web import words
from spritz.web.picture import Picture
from spritz.web.records import Job, Node

#: Most cells of a node without GPUs: a cell stands for several CPUs if it has more.
CPU_CELLS_MAX = 8


def cells_of(node: Node, jobs: Iterable[Job]) -> list[int]:
    """The id of the job on each GPU of the node (without GPUs: on each group of CPUs); 0 if it is free."""
    if node.gpu_count:
        return _gpu_cells(node, jobs)
    per_cell = max(1, -(-node.cpus // CPU_CELLS_MAX))
    cells = [0] * -(-node.cpus // per_cell) if node.cpus else []
    taken = 0
    for job in jobs:
        for place in job.nodes:
            if place.node == node.name:
                for cell in range(-(-taken // per_cell), min(len(cells), -(-(taken + place.cpu_count) // per_cell))):
                    cells[cell] = job.id
                taken += place.cpu_count
    return cells


def _gpu_cells(node: Node, jobs: Iterable[Job]) -> list[int]:
    size = max(gpu.first + gpu.count for gpu in node.gpus)
    cells = [0] * size
    counted: list[tuple[int, int]] = []
    for job in jobs:
        for place in job.nodes:
            if place.node != node.name:
                continue
            for gres in place.gpus:
                mask = gres.mask
                if not mask:
                    counted.append((job.id, gres.count if gres.name == "gpu" else 0))
                while mask:
                    low = (mask & -mask).bit_length() - 1
                    if low < size:
                        cells[low] = job.id
                    mask &= mask - 1
    for number, count in counted:  # without indexes: show them as the lowest free GPUs
        for place_of_cell, owner in enumerate(cells):
            if count and not owner:
                cells[place_of_cell], count = number, count - 1
    return cells


def grid(picture: Picture) -> bytes:
    """The occupancy as JSON: `nodes` as [name, condition, cells, has GPUs, busy (0 to 100, -1 unknown)], `jobs`."""
    known = picture.cache.get("grid")
    if known is not None and known[0] == picture.version:
        return known[1]
    by_node = picture.by_node()
    rows = []
    shown: dict[int, Job] = {}
    for node in picture.nodes.values():
        jobs = by_node.get(node.name, [])
        shown.update((job.id, job) for job in jobs)
        rows.append([node.name, node.condition, cells_of(node, jobs), bool(node.gpu_count), busy(node)])
    about = {
        str(job.id): [job.label, words.visible(job.name, 60), job.user, job.partition, job.gpus, job.cpus]
        for job in shown.values()
    }
    data = msgspec.json.encode({"version": picture.version, "nodes": rows, "jobs": about})
    picture.cache["grid"] = (picture.version, data)
    return data


def busy(node: Node) -> int:
    """Load of the node's GPUs, or without GPUs of its CPUs, in percent; -1 if unknown."""
    told = [sample.busy_percent for sample in node.gpu_samples if sample.busy_percent >= 0]
    if told:
        return round(sum(told) / len(told))
    return min(100, round(100 * node.cpu_load / node.cpus)) if node.cpu_load is not None and node.cpus else -1


class Capacity(Struct):
    """How much of one GPU type, or of the CPUs, is in use. Counts are of devices."""

    name: str
    total: int = 0
    used: int = 0
    #: on nodes that cannot start jobs
    unavailable: int = 0
    #: latest time at which the next become free, and how many
    next_at: float = 0.0
    next_count: int = 0

    @property
    def free(self) -> int:
        """Number of free devices on nodes that can start jobs."""
        return max(0, self.total - self.used - self.unavailable)

    @property
    def percent(self) -> int:
        """Percentage in use, rounded; 0 if there are no devices."""
        return round(100 * self.used / self.total) if self.total else 0


def capacities(picture: Picture) -> list[Capacity]:
    """GPUs by type, if the cluster has GPUs; then CPUs and memory (GiB)."""
    by_type: dict[str, Capacity] = {}
    cpus, memory = Capacity("CPUs"), Capacity("Memory")
    types_of: dict[str, str] = {}
    for node in picture.nodes.values():
        cpus.total += node.cpus
        cpus.used += node.cpus_allocated
        memory.total += node.memory_mib
        memory.used += node.memory_allocated_mib
        if not node.takes_jobs:
            cpus.unavailable += node.cpus - node.cpus_allocated
            memory.unavailable += node.memory_mib - node.memory_allocated_mib
        used = {kind: count for kind, count, _ in node.gpus_used}
        for line in node.gpus:
            types_of[node.name] = line.type
            capacity = by_type.setdefault(line.type, Capacity(line.type or "GPU"))
            in_use = min(line.count, used.get(line.type, 0))
            used[line.type] = used.get(line.type, 0) - in_use
            capacity.total += line.count
            capacity.used += in_use
            if not node.takes_jobs:
                capacity.unavailable += line.count - in_use
    for job in picture.jobs.values():
        if job.raw_state != "RUNNING" or not job.ends_at:
            continue
        for place in job.nodes:
            for gres in place.gres:
                one_of = by_type.get(gres.type or types_of.get(place.node, ""))
                if gres.name == "gpu" and one_of is not None:
                    _sooner(one_of, job.ends_at, gres.count)
    return [*by_type.values(), cpus, memory]


def _sooner(capacity: Capacity, at: float, count: int) -> None:
    if not capacity.next_at or at < capacity.next_at - 1:
        capacity.next_at, capacity.next_count = at, count
    elif abs(at - capacity.next_at) <= 1:
        capacity.next_count += count


class Bar(Struct, kw_only=True):
    """A job on the time line. Positions are in percent of the line's width."""

    job: Job
    left: float
    width: float
    #: "running" or "expected" (waits; drawn from its expected start)
    kind: str
    #: part of the bar that has passed, in percent
    over: float = 0.0
    cut_left: bool = False
    cut_right: bool = False


class Timeline(Struct, kw_only=True):
    """Bars with their axis: ticks are (percent, text)."""

    bars: list[Bar]
    ticks: list[tuple[float, str]]
    now: float
    left_out: int


#: Most bars of a time line: more would be too thin to distinguish.
BARS_MAX = 120


def timeline(picture: Picture, jobs: Sequence[Job], seconds: float) -> Timeline:
    """Running jobs until their limits, and waiting jobs from their expected starts, for the next `seconds`."""
    now = picture.now()
    begin, end = now - seconds / 5, now + seconds
    scale = 100 / (end - begin)
    bars: list[Bar] = []
    for job in sorted(jobs, key=lambda job: (job.started_at or now, job.id)):
        if job.raw_state in ("RUNNING", "SUSPENDED"):
            first, last, kind = job.started_at, job.ends_at or end + 1, "running"
        elif job.is_pending and job.id in picture.expected:
            first = max(now, picture.expected[job.id][0])
            minutes = job.time_limit_minutes
            last = first + minutes * 60 if minutes is not None and minutes < 0xFFFFFFFE else end + 1
            kind = "expected"
        else:
            continue
        if first > end or last < begin:
            continue
        left, right = max(begin, first), min(end, max(last, first + 1))
        over = 100 * (min(now, right) - left) / (right - left) if kind == "running" and right > left else 0.0
        bars.append(
            Bar(
                job=job,
                left=round((left - begin) * scale, 3),
                width=round(max(0.3, (right - left) * scale), 3),
                kind=kind,
                over=round(max(0.0, min(100.0, over)), 2),
                cut_left=first < begin,
                cut_right=last > end,
            )
        )
    bars.sort(key=lambda bar: (bar.kind == "expected", bar.left if bar.kind == "expected" else bar.left + bar.width))
    return Timeline(
        bars=bars[:BARS_MAX],
        ticks=_ticks(begin, end, scale, now),
        now=round((now - begin) * scale, 3),
        left_out=max(0, len(bars) - BARS_MAX),
    )


_STEPS = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)


def _ticks(begin: float, end: float, scale: float, now: float) -> list[tuple[float, str]]:
    step = next((seconds for seconds in _STEPS if (end - begin) / seconds <= 9), _STEPS[-1])
    shift = datetime.fromtimestamp(begin).astimezone().utcoffset()
    offset = shift.total_seconds() if shift is not None else 0.0
    first = ((begin + offset) // step + 1) * step - offset
    ticks = []
    while first < end:
        ticks.append((round((first - begin) * scale, 3), words.clock(first, now)))
        first += step
    return ticks
