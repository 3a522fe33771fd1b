"""srun: run tasks, in a job of their own or as a step of the job around.

Source: srun(1); texts as Slurm 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import Fatal, run_parse
from spritz.cli.jobs.filters import filters_of
from spritz.cli.jobs.launch import help_text
from spritz.cli.jobs.submit import listing, values, variables
from spritz.cli.jobs.submit.refusals import Refusal
from spritz.cli.jobs.submit.rows import rows_of
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.jobs.filters.chain import Filters
    from spritz.cli.jobs.submit.values import Values
    from spritz.client.locate import ControllerConfig

OPTIONS = rows_of("s")

_SYNOPSIS = "[OPTIONS(0)... [executable(0) [args(0)...]]] [ : [OPTIONS(N)...]] executable(N) [args(N)...]"


def main(argv: list[str], context: Context) -> int:
    """The worst status of the tasks; 1 for a refusal (SLURM_EXIT_ERROR); 255 for a wrong command line."""
    return values.run_main(_main, argv, context)


def _main(argv: list[str], context: Context) -> int:
    parsed = run_parse(OPTIONS, argv, context, stop_early=True, exit_code=255)
    if isinstance(parsed, int):
        return parsed
    options_given, command = parsed
    options = values.from_parsed(options_given)
    if options.keys() & {"version", "help", "usage"} or options.get("mpi") == "list" or _asks_help(options):
        return help_text.answer("srun", _SYNOPSIS, OPTIONS, options, context)
    inside = "SLURM_JOB_ID" in context.environ or "jobid" in options
    if ":" in command or "het-group" in options:
        return _run_together(argv, context, inside)
    several: list[ControllerConfig] = []
    job = options.get("jobid", "")
    if job and "clusters" in options:
        clusters.only(options["clusters"], context)
    elif job and job != context.environ.get("SLURM_JOB_ID"):
        clusters.follow_job(job)
    options = values.merge(variables.read("srun", OPTIONS, context.environ, inside=inside), options)
    if "clusters" in options and not inside:
        several = clusters.chosen(options["clusters"], context)
        clusters.use(several[0])
    _list(options, context, inside)
    if options.get("gres", "").lower() == "help":
        from spritz.cli.jobs.submit.announce import gres_help

        return gres_help(context)
    if not command:
        raise Fatal("No command given to execute.")
    filtering = filters_of("srun", OPTIONS, context)
    if filtering is not None:
        options = filtering.before(values.merge(filtering.defaults(), options), command)
    return _run(options, command, argv, context, inside, filtering, several)


def _list(options: Values, context: Context, inside: bool) -> None:
    """-v: the options; inside a job, with the name that it goes by."""
    if "verbose" in options:
        name = context.environ.get("SLURM_JOB_NAME", "") if inside else ""
        listing.show({"job-name": name, **options} if name else options, context)


def _asks_help(options: Values) -> bool:
    return "help" in (options.get("cpu-bind"), options.get("mem-bind"), options.get("hint"))


def _run(
    options: Values,
    command: list[str],
    argv: list[str],
    context: Context,
    inside: bool,
    filtering: Filters | None = None,
    clusters: Sequence[ControllerConfig] = (),
) -> int:
    from spritz.cli.jobs.launch.session import Session

    try:
        with Session(options, command, argv, context, inside=inside) as session:
            session.filters = filtering
            session.clusters = clusters
            return session.run()
    except Refusal as error:
        from spritz.cli.jobs.launch.allocation import SRUN, refused

        raise refused(error, SRUN) from error


def _run_together(argv: list[str], context: Context, inside: bool) -> int:
    from spritz.cli.jobs.launch import het_step

    parts = het_step.programs(argv, context, inside=inside)
    if isinstance(parts, int):
        return parts
    if not all(command for _group, _given, command in parts):
        raise Fatal("No command given to execute.")
    filtering = filters_of("srun", OPTIONS, context)
    if filtering is not None:
        weakest = filtering.defaults()
        parts = [
            (group, filtering.before(values.merge(weakest, given), command, offset), command)
            for offset, (group, given, command) in enumerate(parts)
        ]
    if inside and len(parts) == 1 and parts[0][0] == 0:
        # The leader alone is a job like others.
        return _run(parts[0][1], parts[0][2], argv, context, inside, filtering)
    for _group, given, _command in parts:
        _list(given, context, inside)
        if "clusters" in given:
            clusters.only(given["clusters"], context)
        for option in ("bcast", "pty"):
            # A terminal can be had in one component; files are copied to nodes of the first alone.
            if option in given and (option == "bcast" or len(parts) > 1):
                raise SpritzError(
                    f"option --{option} is not supported by Spritz for these components of a heterogeneous job",
                    code="ESLURM_NOT_SUPPORTED",
                )
    try:
        with het_step.HetSession(parts, argv, context, inside=inside) as session:
            session.filters = filtering
            return session.run()
    except Refusal as error:
        from spritz.cli.jobs.launch.allocation import SRUN, refused

        raise refused(error, SRUN) from error


def entry() -> None:
    run("srun", main)
