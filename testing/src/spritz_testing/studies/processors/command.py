"""`spritz simulate TRACE.swf --processors N --policy P`: replay on a number of processors."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from spritz.runtime.clock import SystemClock
from spritz.sim.course import course
from spritz.sim.measures import by, makespan, measure, utilization
from spritz.sim.progress import progress
from spritz.sim.report import Report, write_starts
from spritz.sim.trace.read import read_trace
from spritz.sim.trace.swf import machine_of
from spritz.sim.trace.workload import TraceError
from spritz_testing.studies.processors.policies import ORDERS, check_policy, run_policy
from spritz_testing.studies.processors.rlscheduler import WINDOWS, mean_bounded_slowdown, replay_window, window_starts

if TYPE_CHECKING:
    from argparse import Namespace

    from spritz.cli.call.context import Context
    from spritz.sim.trace.workload import Workload
    from spritz_testing.studies.processors.rlscheduler import Window


def run_swf(arguments: Namespace, context: Context) -> Report:
    """Replay a trace in Standard Workload Format, and print its measures."""
    clock = SystemClock()
    began = clock.monotonic()
    policy = arguments.policy or "easy"
    check_policy(policy)
    with progress(context, "reading", None) as tick:
        parsed = read_trace(arguments.trace, arguments.processors, tick)
    processors = arguments.processors or machine_of(parsed.header)
    if processors is None:
        raise TraceError("the trace does not say how large the machine was", "add --processors N")
    for remark in parsed.remarks():
        context.warn(remark)
    workload = parsed.workload
    if policy.startswith("rlscheduler-"):
        return _windows(workload, processors, arguments, context, began)
    with progress(context, "replaying", len(workload)) as tick:
        replayed = run_policy(
            workload,
            processors,
            policy,
            arguments.runtimes,
            guarantee=not arguments.no_guarantee,
            reserve=arguments.reserve,
            tick=tick,
        )
    start = replayed.start
    if arguments.starts:
        write_starts(arguments.starts, workload.job, start)
    everything = measure(workload, start, range(len(workload)), arguments.bound)
    figures: dict[str, object] = {
        "policy": policy,
        "runtimes": arguments.runtimes,
        "processors": processors,
        "jobs": everything.jobs,
        "skipped": sum(count.count for count in parsed.skipped.values()),
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
        title=f"{policy} on {processors:,} processors",
        figures=figures,
        groups={f"by_{what}": by(workload, start, what, arguments.bound) for what in arguments.by},
        course=course(workload, start, processors),
    )


def _windows(workload: Workload, processors: int, arguments: Namespace, context: Context, began: float) -> Report:
    """The RLScheduler study's ten windows."""
    order_name = arguments.policy.removeprefix("rlscheduler-")
    order, backfill = order_name.removesuffix("-backfill"), order_name.endswith("-backfill")
    for option in ("starts", "by"):
        if getattr(arguments, option):
            raise TraceError(f"--{option}: {arguments.policy} replays windows of the trace, each by itself")
    windows = []
    with progress(context, "windows", WINDOWS) as tick:
        for first in window_starts(len(workload), arguments.seed):
            windows.append(replay_window(workload, processors, first, ORDERS[order], backfill=backfill))
            if tick is not None:
                tick(len(windows))
    jobs = [(window.first + place, start) for window in windows for place, start in enumerate(window.start)]
    figures: dict[str, object] = {
        "policy": arguments.policy,
        "processors": processors,
        "windows": len(windows),
        "seed": arguments.seed,
        "jobs": len(jobs),
        "mean_wait_seconds": sum(start - workload.submit[job] for job, start in jobs) / len(jobs),
        "mean_bounded_slowdown": mean_bounded_slowdown(workload, windows, arguments.bound),
        "utilization": fmean(_used(workload, window, processors) for window in windows),
        "makespan_seconds": fmean(_span(workload, window) for window in windows),
        "events": 2 * len(jobs),
        "elapsed_seconds": round(SystemClock().monotonic() - began, 3),
    }
    return Report(title=f"{arguments.policy}: means of {len(windows)} windows", figures=figures)


def _span(workload: Workload, window: Window) -> float:
    jobs = range(window.first, window.first + len(window.start))
    last = max(start + workload.run[job] for job, start in zip(jobs, window.start, strict=True))
    return last - workload.submit[window.first]


def _used(workload: Workload, window: Window, processors: int) -> float:
    jobs = range(window.first, window.first + len(window.start))
    used = sum(workload.run[job] * workload.processors[job] for job in jobs)
    return used / (processors * _span(workload, window))
