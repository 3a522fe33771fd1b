"""`spritz simulate TRACE.swf --processors N --policy P`: replay on a number of processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.runtime.clock import SystemClock
from spritz.sim.processors.measures import by, makespan, measure, utilization
from spritz.sim.processors.policies import run_policy
from spritz.sim.progress import progress
from spritz.sim.report import Report, write_starts
from spritz.sim.trace.swf import read_swf
from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from argparse import Namespace

    from spritz.cli.context import Context


def run_swf(arguments: Namespace, context: Context) -> Report:
    """Read, replay, measure."""
    clock = SystemClock()
    began = clock.monotonic()
    with progress(context, "reading", None) as tick:
        reading = read_swf(arguments.trace, arguments.processors, tick)
    processors = arguments.processors or _machine_of(reading.header)
    for remark in reading.remarks():
        context.warn(remark)
    workload = reading.workload
    with progress(context, "replaying", len(workload)) as tick:
        replayed = run_policy(workload, processors, arguments.policy, arguments.runtimes, tick)
    start = replayed.start
    if arguments.starts:
        write_starts(arguments.starts, workload.job, start)
    everything = measure(workload, start, range(len(workload)), arguments.bound)
    figures: dict[str, object] = {
        "policy": arguments.policy,
        "runtimes": arguments.runtimes,
        "processors": processors,
        "jobs": everything.jobs,
        "skipped": sum(one.count for one in reading.skipped.values()),
        "mean_wait_seconds": everything.mean_wait_seconds,
        "median_wait_seconds": everything.median_wait_seconds,
        "p95_wait_seconds": everything.p95_wait_seconds,
        "max_wait_seconds": everything.max_wait_seconds,
        "mean_bounded_slowdown": everything.mean_bounded_slowdown,
        "max_bounded_slowdown": everything.max_bounded_slowdown,
        "utilization": utilization(workload, start, processors),
        "makespan_seconds": makespan(workload, start),
        "events": replayed.events,
        **replayed.counts,
        "elapsed_seconds": round(clock.monotonic() - began, 3),
    }
    return Report(
        title=f"{arguments.policy} on {processors:,} processors",
        figures=figures,
        groups={f"by_{what}": by(workload, start, what, arguments.bound) for what in arguments.by},
    )


def _machine_of(header: dict[str, str]) -> int:
    """Processors that the trace's own header names."""
    for key in ("MaxProcs", "MaxNodes"):
        word = header.get(key, "").split(" ")[0]
        if word.isdigit() and int(word) > 0:
            return int(word)
    raise TraceError("the trace does not say how large the machine was", "add --processors N")
