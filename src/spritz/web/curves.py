"""Curves in uPlot's format: of runs, and of the usage of jobs and the cluster (`samples`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from spritz.web.records import Job
from spritz.web.samples import ClusterSample, JobSample

#: Most points of a curve; longer curves are thinned.
POINTS_MAX = 1500

_MIB = 1 << 20

T = TypeVar("T")


def drawn(figures: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures in uPlot's format: thinned, with a common list of x values for the curves of a figure."""
    result = []
    for title, figure in figures.items():
        curves = [(name, dict(zip(xs, ys, strict=True))) for name, xs, ys in figure["curves"][:16]]
        places = sorted({x for _, values in curves for x in values})
        if len(places) > POINTS_MAX:
            places = places[:: math.ceil(len(places) / POINTS_MAX)]
        result.append(
            {
                "title": title,
                "unit": f" {figure['unit']}" if figure["unit"] else "",
                "x": figure["x"],
                "zero": figure.get("zero", False),
                "names": [name for name, _ in curves],
                "data": [places, *([values.get(x) for x in places] for _, values in curves)],
            }
        )
    return result


def _figure(unit: str, *curves: tuple[str, list[float], list[float]]) -> dict[str, Any]:
    return {"unit": unit, "x": "time", "zero": True, "curves": list(curves)}


def _curve(name: str, rows: Sequence[T], value: Callable[[T], float | None]) -> tuple[str, list[float], list[float]]:
    known = [(row.at, figure) for row in rows if (figure := value(row)) is not None]  # type: ignore[attr-defined]  # a sample
    return name, [at for at, _ in known], [figure for _, figure in known]


def of_job(job: Job, rows: Sequence[JobSample]) -> list[dict[str, Any]]:
    """Figures of a job: its usage and its allocation."""
    if not rows:
        return []
    ends = [rows[0].at, rows[-1].at]
    large = any((row.memory or 0) > 10240 * _MIB or (row.gpu_memory or 0) > 10240 * _MIB for row in rows)
    unit, scale = ("GiB", 1024 * _MIB) if large else ("MiB", _MIB)
    figures = {
        "CPUs kept busy": _figure("", _curve("busy", rows, lambda row: row.cpus), ("has", ends, [float(job.cpus)] * 2)),
        "Memory, highest so far": _figure(
            unit, _curve("memory", rows, lambda row: None if row.memory is None else row.memory / scale)
        ),
        "Disk": _figure(
            "MiB/s",
            _curve("read", rows, lambda row: None if row.read is None else row.read / _MIB),
            _curve("written", rows, lambda row: None if row.written is None else row.written / _MIB),
        ),
        "GPUs busy": _figure("%", _curve("busy", rows, lambda row: row.gpu)),
        "GPU memory": _figure(
            unit, _curve("in use", rows, lambda row: None if row.gpu_memory is None else row.gpu_memory / scale)
        ),
    }
    return drawn({title: figure for title, figure in figures.items() if figure["curves"][0][1]})


def of_cluster(rows: Sequence[ClusterSample]) -> list[dict[str, Any]]:
    """Figures of the cluster: allocated resources, and the busy part of them."""
    if not rows:
        return []
    figures = {
        "GPUs": _figure(
            "",
            _curve("in use", rows, lambda row: row.gpus_used),
            _curve("busy", rows, lambda row: row.gpus_busy if row.gpus_busy >= 0 else None),
            _curve("there are", rows, lambda row: row.gpus),
        ),
        "CPUs": _figure(
            "",
            _curve("in use", rows, lambda row: row.cpus_used),
            _curve("busy", rows, lambda row: row.cpus_busy if row.cpus_busy >= 0 else None),
            _curve("there are", rows, lambda row: row.cpus),
        ),
        "Memory": _figure(
            "GiB",
            _curve("in use", rows, lambda row: row.memory_used / 1024),
            _curve("there is", rows, lambda row: row.memory / 1024),
        ),
        "Jobs": _figure(
            "", _curve("running", rows, lambda row: row.running), _curve("waiting", rows, lambda row: row.waiting)
        ),
    }
    if not any(row.gpus for row in rows):
        del figures["GPUs"]
    for figure in figures.values():
        figure["curves"] = [curve for curve in figure["curves"] if curve[1]]
    return drawn(figures)
