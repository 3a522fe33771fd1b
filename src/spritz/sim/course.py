"""The course of a replay: share of the machine in use and number of waiting jobs over time, in equal spans; as a line
of blocks on a terminal, and as a picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.extras import pip_install
from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.sim.trace.workload import Workload

SPANS = 60
PICTURE_SPANS = 600

_BLOCKS = "▁▂▃▄▅▆▇█"


class Course(Struct, frozen=True, kw_only=True):
    """Mean share in use and mean number of waiting jobs, for each span between `begin` and `end` (trace seconds)."""

    begin: float
    end: float
    used: list[float]
    waiting: list[float]


def course(workload: Workload, start: Sequence[float], processors: int, spans: int = PICTURE_SPANS) -> Course:
    """The course of a replay. Needs at least one job; all must have started."""
    begin = min(workload.submit)
    end = max(begun + run for begun, run in zip(start, workload.run, strict=True))
    width = max((end - begin) / spans, 1e-9)
    used, waiting = [0.0] * spans, [0.0] * spans
    for submit, begun, run, size in zip(workload.submit, start, workload.run, workload.processors, strict=True):
        _spread(waiting, (submit - begin) / width, (begun - begin) / width, 1.0)
        _spread(used, (begun - begin) / width, (begun + run - begin) / width, size / processors)
    return Course(begin=begin, end=end, used=used, waiting=waiting)


def _spread(values: list[float], first: float, last: float, height: float) -> None:
    """Add `height` to the spans from `first` to `last`; to those at both ends only their part."""
    last = min(last, float(len(values)))
    place = min(int(first), len(values) - 1)
    while first < last and place < len(values):
        edge = min(last, place + 1.0)
        values[place] += height * (edge - first)
        first = edge
        place += 1


def blocks(values: Sequence[float], top: float, spans: int = SPANS) -> str:
    """A line of block characters; a full block is `top`."""
    step = len(values) / spans
    means = []
    for span in range(spans):
        part = values[int(span * step) : max(int((span + 1) * step), int(span * step) + 1)]
        means.append(sum(part) / len(part))
    if top <= 0:
        return _BLOCKS[0] * spans
    return "".join(_BLOCKS[min(int(mean / top * len(_BLOCKS)), len(_BLOCKS) - 1)] for mean in means)


def draw(path: str, courses: Sequence[tuple[str, Course]]) -> None:
    """Draw one or more courses. Raises TraceError without matplotlib, or if the file cannot be written."""
    try:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise TraceError("--plot needs matplotlib", pip_install("plot")) from error
    figure, (upper, lower) = pyplot.subplots(2, 1, sharex=True, figsize=(10, 6), layout="constrained")
    for title, curve in courses:
        width = (curve.end - curve.begin) / len(curve.used) / 86400
        days = [width * (span + 0.5) for span in range(len(curve.used))]
        upper.plot(days, [100 * share for share in curve.used], label=title, linewidth=0.8)
        lower.plot(days, curve.waiting, label=title, linewidth=0.8)
    upper.set_ylabel("in use, %")
    upper.set_ylim(0, 101)
    lower.set_ylabel("jobs waiting")
    lower.set_xlabel("days")
    upper.legend(loc="lower right", fontsize="small")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        pyplot.close(figure)
