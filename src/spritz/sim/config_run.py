"""`spritz simulate TRACE --config A.conf [--against B.conf]`: a whole cluster through the production core and cycle."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from spritz.config.diagnostics import ConfigError, report
from spritz.config.load import load
from spritz.runtime.clock import SystemClock
from spritz.sim.cluster.requests import arrivals
from spritz.sim.cluster.world import replay_cluster
from spritz.sim.course import course
from spritz.sim.measures import by, makespan, measure, utilization
from spritz.sim.progress import progress
from spritz.sim.report import Report, write_starts
from spritz.sim.trace.read import read_trace
from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from argparse import Namespace

    from spritz.cli.call.context import Context
    from spritz.config.loaded import LoadedConfig
    from spritz.sim.trace.workload import Workload


def run_config(arguments: Namespace, context: Context) -> list[Report]:
    """One report for each configuration. `--starts` is written for the first."""
    configs = [_load(path) for path in (arguments.config, arguments.against) if path is not None]
    # The cluster itself refuses jobs that fit on none of its nodes, so no size limit applies here.
    parsed = read_trace(arguments.trace, sys.maxsize)
    for remark in parsed.remarks():
        context.warn(remark)
    return [
        _replay(config, parsed.workload, arguments, context, first=not index) for index, config in enumerate(configs)
    ]


def _load(path: str) -> LoadedConfig:
    try:
        return load(path, check_users=False)
    except ConfigError as error:
        raise TraceError(
            f"{path}: no usable configuration\n{report(error.diagnostics, color=False).rstrip()}"
        ) from error


def _replay(config: LoadedConfig, workload: Workload, arguments: Namespace, context: Context, *, first: bool) -> Report:
    clock = SystemClock()
    began = clock.monotonic()
    with progress(context, config.path, 2 * len(workload)) as tick:
        replay = replay_cluster(config, arrivals(workload, config), tick)
    for code, count in sorted(Counter(replay.refused.values()).items()):
        context.warn(f"{config.path}: {count:,} submissions refused: {code}")
    for reason, count in sorted(Counter(replay.waiting.values()).items()):
        context.warn(f"{config.path}: {count:,} jobs never started: {reason}")
    ran = [index for index, start in enumerate(replay.start) if start >= 0]
    if not ran:
        raise TraceError(f"{config.path}: no job of the trace could run")
    done = workload.take(ran)
    start = [replay.start[index] for index in ran]
    if arguments.starts and first:
        write_starts(arguments.starts, done.job, start)
    cpus = sum(node.capacity.cpus for node in config.nodes)
    everything = measure(done, start, range(len(done)), arguments.bound)
    figures: dict[str, object] = {
        "config": config.path,
        "cluster": config.cluster.cluster_name,
        "nodes": len(config.nodes),
        "processors": cpus,
        "jobs": everything.jobs,
        "refused": len(replay.refused),
        "never_started": len(replay.waiting),
        "mean_wait_seconds": everything.mean_wait_seconds,
        "median_wait_seconds": everything.median_wait_seconds,
        "p95_wait_seconds": everything.p95_wait_seconds,
        "max_wait_seconds": everything.max_wait_seconds,
        "mean_bounded_slowdown": everything.mean_bounded_slowdown,
        "max_bounded_slowdown": everything.max_bounded_slowdown,
        "utilization": utilization(done, start, cpus),
        "makespan_seconds": makespan(done, start),
        "preemptions": replay.preemptions,
        "requeues": replay.requeues,
        "reserved_starts": replay.reserved,
        "reserved_starts_broken": replay.broken,
        "cycles": replay.cycles,
        "events": replay.events,
        "elapsed_seconds": round(clock.monotonic() - began, 3),
    }
    return Report(
        title=f"{config.path}: {len(config.nodes):,} nodes, {cpus:,} CPUs",
        figures=figures,
        groups={f"by_{what}": by(done, start, what, arguments.bound) for what in arguments.by},
        course=course(done, start, cpus),
    )
