"""sstat: what running steps have used so far.

Source: sstat(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported, connected
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import Row as Option
from spritz.cli.call.options import about, run_parse
from spritz.cli.listings.acct.listing import RowListing, columns_of
from spritz.cli.listings.stat.running_steps import lines, references
from spritz.presentation.accounting.accounting_style import Style
from spritz.presentation.accounting.running_step_fields import DEFAULT, FIELDS, PIDS
from spritz.presentation.table import Table, help_format

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS: tuple[Option, ...] = (
    Option("allsteps", "a", "", "all running steps of jobs named without a step"),
    Option("autocomplete", "", "WORD", refused="Tab completion is made by `spritz completion`"),
    Option("format", "o", "FIELDS", "fields to print: name[%[-]width],…"),
    Option("fields", "", "FIELDS", alias="format"),
    Option("help", "h", "", "print this help"),
    Option("helpformat", "e", "", "list the fields of --format"),
    Option("jobs", "j", "IDS", "jobs, array tasks or steps; a job without a step: its lowest numbered step"),
    Option("noconvert", "", "", "keep units: 2048M stays 2048M"),
    Option("noheader", "n", "", "no headings"),
    Option("parsable", "p", "", "fields separated by |, with one at the end"),
    Option("parsable2", "P", "", "fields separated by |"),
    Option("pidformat", "i", "", "JobID, Nodelist and Pids"),
    Option("usage", "", "", "print a short usage"),
    Option("verbose", "v", "", "print the number of steps"),
    Option("version", "V", "", "print the version"),
)

_SYNOPSIS = "[<OPTION>] -j <job(.stepid)>"

USAGE = "Usage: sstat [options] -j <job(.stepid)>\n\tUse --help for help\n"


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible; steps that do not run are no failure."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    option_keys = {key for key, _ in options_given}
    if "helpformat" in option_keys:
        context.out(help_format(FIELDS))
        return 0
    if option_keys & {"help", "usage", "version"}:
        return about(option_keys, "sstat", _SYNOPSIS, OPTIONS, USAGE, context)
    options = {key: value or "" for key, value in options_given}
    jobs = ",".join([value or "" for key, value in options_given if key == "jobs"] + operands)
    if not jobs:
        context.error("You didn't give me any jobs to stat.")
        return 1

    try:
        return _run(options, jobs, context)
    except AlreadyReported as silent:
        return silent.exit_code


def _run(options: Mapping[str, str], jobs: str, context: Context) -> int:
    text = PIDS if "pidformat" in options else options.get("format", DEFAULT)
    job_references = references(jobs)
    parsable = 2 if "parsable2" in options else int("parsable" in options)
    style = Style(context.environ, convert="noconvert" not in options)
    listing = RowListing(Table(columns_of(text, FIELDS), parsable), style, context)
    count = 0
    clusters.follow_job(jobs.partition(",")[0].partition(".")[0])
    with connected(context, "slurm_load_job_steps error") as connection:
        if "noheader" not in options:
            listing.header()
        for line in lines(connection, job_references, context, all_steps="allsteps" in options):
            listing.row(line)
            count += 1
    if "verbose" in options:
        context.info(f"{count} steps")
    return 0


def entry() -> None:
    run("sstat", main)
