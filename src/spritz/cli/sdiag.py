"""sdiag: how the controller fares: jobs that came and went, cycles, requests and the time they took.

Source: sdiag(1); lines as 22.05 prints them.
"""

from __future__ import annotations

from time import ctime
from typing import TYPE_CHECKING

from spritz.cli.call.clusters import only
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, about, run_parse
from spritz.client.command.sync import connect_controller
from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.model.commands.job import Done
from spritz.model.queries.diagnostics import Diagnostics, GetDiagnostics, ResetDiagnostics

if TYPE_CHECKING:
    from spritz.model.accounting.accounting_admin import CallCount
    from spritz.model.queries.diagnostics import CycleCounts

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("all", "a", "", "print everything (always done)"),
    Row("cluster", "M", "NAME", "name of another cluster"),
    Row("clusters", "", "NAME", alias="cluster"),
    Row("help", "h", "", "print this help"),
    Row("json", "", "[=list|VERSION]", "as JSON"),
    Row("no-trunc", "", "", "print names in full (always done)"),
    Row("reset", "r", "", "reset the counters (administrators)"),
    Row("sort-by-id", "i", "", "sort requests by number"),
    Row("sort-by-time", "t", "", "sort requests by total time"),
    Row("sort-by-time2", "T", "", "sort requests by average time"),
    Row("usage", "", "", "print a short usage"),
    Row("version", "V", "", "print the version"),
    Row("yaml", "", "[=list|VERSION]", "as YAML"),
)

USAGE = "Usage: sdiag [-M cluster] [-aritT]\n"

_STARS = "*" * 55


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, _ = parsed
    options = dict(options_given)
    if options.keys() & {"help", "usage", "version"}:
        return about(set(options), "sdiag", "[OPTIONS]", OPTIONS, USAGE, context)

    if "cluster" in options:
        only(options["cluster"] or "", context)
    config = locate_controller()
    with connect_controller(config, wait_seconds=config.message_timeout_seconds) as connection:
        if "reset" in options:
            try:
                connection.call(ResetDiagnostics(), Done)
            except ClientError as error:
                context.err(f"slurm_reset_statistics: {error.message}\n")
                return 1
            context.out("Reset scheduling statistics\n")
            return 0
        figures = connection.call(GetDiagnostics(), Diagnostics)
    if "json" in options or "yaml" in options:
        from spritz.presentation.json.diagnostics import statistics
        from spritz.presentation.json.envelope import YAML, show

        output = (options["json"] or "") if "json" in options else YAML + (options["yaml"] or "")
        show(context, output, {"statistics": statistics(figures)}, "GET /slurm/diag")
        return 0
    order = next((key for key in ("sort-by-id", "sort-by-time", "sort-by-time2") if key in options), "")
    context.out(_text(figures, order))
    return 0


def _when(at: float) -> str:
    return f"{ctime(at)} ({int(at)})"


def _text(diagnostics: Diagnostics, order: str) -> str:
    from spritz.presentation.request_kinds import name_of, number_of, sorted_kinds
    from spritz.presentation.users import name_of as user_name

    minutes = max(1, int(diagnostics.now - diagnostics.since) // 60)
    lines = [
        _STARS,
        f"sdiag output at {_when(diagnostics.now)}",
        f"Data since      {_when(diagnostics.since)}",
        _STARS,
        f"Server thread count:  {sum(diagnostics.pending.values())}",
        "Agent queue size:     0",
        "Agent count:          0",
        "Agent thread count:   0",
        f"DBD Agent queue size: {diagnostics.unsent_events}",
        # Ours, and only where there is something to repair.
        *([f"DBD events set aside: {diagnostics.set_aside_events}"] if diagnostics.set_aside_events else []),
        *([f"Contained failures:   {_failures(diagnostics.failures)}"] if diagnostics.failures else []),
        "",
        f"Jobs submitted: {diagnostics.jobs_submitted}",
        f"Jobs started:   {diagnostics.jobs_started}",
        f"Jobs completed: {diagnostics.jobs_completed}",
        f"Jobs canceled:  {diagnostics.jobs_cancelled}",
        f"Jobs failed:    {diagnostics.jobs_failed}",
        "",
        f"Job states ts:  {_when(diagnostics.now)}",
        f"Jobs pending:   {diagnostics.jobs_pending}",
        f"Jobs running:   {diagnostics.jobs_running}",
        "",
        "Main schedule statistics (microseconds):",
        *_main_cycles(diagnostics.quick, minutes),
        "",
        "Backfilling stats",
        f"\tTotal backfilled jobs (since last slurm start): {diagnostics.backfilled}",
        f"\tTotal backfilled jobs (since last stats cycle start): {diagnostics.backfilled_since}",
        *_backfill_cycles(diagnostics.full),
        "",
        f"Latency for 1000 calls to gettimeofday(): {diagnostics.clock_latency} microseconds",
        "",
        *_connections(diagnostics),
        "Remote Procedure Call statistics by message type",
    ]
    for row in sorted_kinds(diagnostics.kinds, order):
        lines.append(f"\t{name_of(row):<40}({number_of(row):>5}) {_counts(row)}")
    lines += ["", "Remote Procedure Call statistics by user"]
    for row in sorted_kinds(diagnostics.users, order):
        user = user_name(int(row.name)) if int(row.name) >= 0 else "unknown"
        lines.append(f"\t{user:<16}({int(row.name):>8}) {_counts(row)}")
    lines += ["", "Pending RPC statistics"]
    waiting = [
        f"\t{kind:<40} count:{count}" for kind, count in sorted(diagnostics.pending.items()) if kind != "GetDiagnostics"
    ]
    lines += waiting or ["\tNo pending RPCs"]
    return "\n".join(lines) + "\n"


def _failures(counts: dict[str, int]) -> str:
    return ", ".join(f"{where} {count}" for where, count in counts.items())


def _connections(diagnostics: Diagnostics) -> list[str]:
    """Slurm has no such lines: connections and their memory now, and the limits that they have met."""
    if not diagnostics.connections:
        return []
    return ["Connections (Spritz)", *(f"\t{name:<40} {count}" for name, count in diagnostics.connections.items()), ""]


def _counts(row: CallCount) -> str:
    average = row.microseconds // max(1, row.count)
    return f"count:{row.count:<6} ave_time:{average:<6} total_time:{row.microseconds}"


def _main_cycles(cycle_counts: CycleCounts, minutes: int) -> list[str]:
    lines = [
        f"\tLast cycle:   {cycle_counts.last}",
        f"\tMax cycle:    {cycle_counts.longest}",
        f"\tTotal cycles: {cycle_counts.count}",
    ]
    if cycle_counts.count:
        lines += [
            f"\tMean cycle:   {cycle_counts.total // cycle_counts.count}",
            f"\tMean depth cycle:  {cycle_counts.depth_total // cycle_counts.count}",
            f"\tCycles per minute: {cycle_counts.count // minutes}",
        ]
    return [*lines, f"\tLast queue length: {cycle_counts.queue}"]


def _backfill_cycles(cycle_counts: CycleCounts) -> list[str]:
    lines = [
        "\tTotal backfilled heterogeneous job components: 0",
        f"\tTotal cycles: {cycle_counts.count}",
        f"\tLast cycle when: {_when(cycle_counts.last_at) if cycle_counts.last_at else 'N/A'}",
        f"\tLast cycle: {cycle_counts.last}",
        f"\tMax cycle:  {cycle_counts.longest}",
    ]
    if cycle_counts.count:
        lines.append(f"\tMean cycle: {cycle_counts.total // cycle_counts.count}")
    lines += [f"\tLast depth cycle: {cycle_counts.depth}", f"\tLast depth cycle (try sched): {cycle_counts.tried}"]
    if cycle_counts.count:
        lines += [
            f"\tDepth Mean: {cycle_counts.depth_total // cycle_counts.count}",
            f"\tDepth Mean (try depth): {cycle_counts.tried_total // cycle_counts.count}",
        ]
    lines.append(f"\tLast queue length: {cycle_counts.queue}")
    if cycle_counts.count:
        lines.append(f"\tQueue length mean: {cycle_counts.queue_total // cycle_counts.count}")
    # Programs look for these lines. They tell of a table of times that Slurm's backfill keeps, and ours has not.
    lines += ["\tLast table size: 0", *(["\tMean table size: 0"] if cycle_counts.count else [])]
    return lines


def entry() -> None:
    run("sdiag", main)
