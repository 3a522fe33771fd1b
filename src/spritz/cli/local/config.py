"""Check a slurm.conf (and the gres.conf and cgroup.conf beside it): all mistakes at once, each with file, line,
accepted form and the nearest right word."""

from __future__ import annotations

from spritz.cli.context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    """`spritz config check FILE`."""
    parser.add_argument("action", choices=["check"], help="what to do with the file")
    parser.add_argument("file", metavar="FILE", help="a slurm.conf")


def run(arguments: Namespace, context: Context) -> int:
    """0: usable (warnings may be printed); 1: errors."""
    from spritz.config.diagnostics import ConfigError, report
    from spritz.config.load import load

    try:
        loaded = load(arguments.file)
    except ConfigError as error:
        context.out(report(error.diagnostics, color=context.terminal))
        return 1
    if loaded.warnings:
        context.out(report(loaded.warnings, color=context.terminal))
    context.out(
        f"{arguments.file}: usable: cluster {loaded.cluster.cluster_name}, "
        f"{len(loaded.nodes)} nodes, {len(loaded.partitions)} partitions\n"
    )
    return 0
