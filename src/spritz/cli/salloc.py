"""salloc: get an allocation, run a command in it, give it back.

Source: salloc(1); texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.context import Context
from spritz.cli.call.options import run_parse
from spritz.cli.jobs.filters import filters_of
from spritz.cli.jobs.launch import help_text
from spritz.cli.jobs.launch.allocation import SALLOC, refused
from spritz.cli.jobs.launch.salloc_session import Holding
from spritz.cli.jobs.submit import components, values, variables
from spritz.cli.jobs.submit.refusals import Refusal
from spritz.cli.jobs.submit.rows import rows_of

if TYPE_CHECKING:
    from spritz.client.locate import ControllerConfig

OPTIONS = rows_of("a")

_SYNOPSIS = "[OPTIONS(0)...] [ : [OPTIONS(N)...]] [command(0) [args(0)...]]"


def main(argv: list[str], context: Context) -> int:
    """The command's status; 1 for a refusal (SLURM_EXIT_ERROR, SLURM_EXIT_IMMEDIATE); 255 for a wrong command line."""
    return values.run_main(_main, argv, context)


def _main(argv: list[str], context: Context) -> int:
    parsed = run_parse(OPTIONS, argv, context, stop_early=True, exit_code=255)
    if isinstance(parsed, int):
        return parsed
    options_given, command = parsed
    options = values.from_parsed(options_given)
    parts = [options]
    if command[:1] == [":"]:
        more = components.parse(OPTIONS, command[1:], context)
        if isinstance(more, int):
            return more
        parts += more[0]
        options, command = components.command_options(parts), more[1]
    if options.keys() & {"version", "help", "usage"}:
        return help_text.answer("salloc", _SYNOPSIS, OPTIONS, options, context)
    outside = variables.read("salloc", OPTIONS, context.environ)
    options = values.merge(outside, options)
    several_clusters: list[ControllerConfig] = []
    if "clusters" in options:
        several_clusters = clusters.chosen(options["clusters"], context)
        clusters.use(several_clusters[0])
    if "verbose" in options:
        from spritz.cli.jobs.submit import listing

        listing.show(options, context)
        if len(options["verbose"]) > 1:
            context.info("debug:  Entering _msg_thr_internal")

    try:
        several = [options]
        if len(parts) > 1:
            parts[0] = options
            several = components.merge_components(outside, parts)
        filtering = filters_of("salloc", OPTIONS, context)
        if filtering is not None:
            weakest = filtering.defaults()
            several = [
                filtering.before(values.merge(weakest, component), command, offset)
                for offset, component in enumerate(several)
            ]
        holding = Holding(several[0], command, argv, context)
        holding.filters = filtering
        holding.clusters = several_clusters
        if len(parts) > 1:
            holding.components = several
        return holding.run()
    except Refusal as error:
        raise refused(error, SALLOC) from error


def entry() -> None:
    from spritz.cli.call.entry import run

    run("salloc", main)
