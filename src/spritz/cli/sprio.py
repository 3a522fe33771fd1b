"""sprio: what the priorities of waiting jobs are made of.

Source: sprio(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported, connected
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, about, run_parse
from spritz.cli.listings.priority.listing import PriorityListing
from spritz.cli.listings.queue.conditions import merge
from spritz.model.queries.priorities import ListPriorities, Priorities

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.client.command.sync import Connection
    from spritz.client.locate import ControllerConfig

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("clusters", "M", "NAMES", "name of another cluster", env="SLURM_CLUSTERS"),
    Row("cluster", "", "NAMES", alias="clusters"),
    Row("federation", "", "", "combine the clusters of this cluster's federation", env="SPRIO_FEDERATION"),
    Row("format", "o", "FORMAT", "columns by letter: %[.][width]letter", env="SPRIO_FORMAT"),
    Row("help", "", "", "print this help"),
    Row("jobs", "j", "[=IDS]", "only these jobs"),
    Row("job", "", "[=IDS]", alias="jobs"),
    Row("local", "", "", "only this cluster (default)", env="SPRIO_LOCAL"),
    Row("long", "l", "", "all factors, with users and nice values"),
    Row("helpformat", "", "", "list the letters of --format"),
    Row("noheader", "h", "", "no headings"),
    Row("norm", "n", "", "factors before their weights"),
    Row("partition", "p", "NAMES", "only these partitions"),
    Row("sib", "", "", alias="sibling"),
    Row("sibling", "", "", "every cluster's copy of a federated job", env="SPRIO_SIBLING"),
    Row("sort", "S", "LETTERS", "sort order, by letters of --format; a - reverses"),
    Row("usage", "", "", "print a short usage"),
    Row("user", "u", "USERS", "only jobs of these users"),
    Row("users", "", "USERS", alias="user"),
    Row("verbose", "v", "", "print the request"),
    Row("version", "V", "", "print the version"),
    Row("weights", "w", "", "print only the weights"),
)

_SYNOPSIS = "[OPTIONS]"

USAGE = """\
Usage: sprio [-j jid[s]] [-u user_name[s]] [-o format] [-p partitions]
   [--sort fields] [-h --noheader] [-n --norm] [-l --long] [-w --weights]
   [--usage] [-v]
"""

_NOT_MULTIFACTOR = """\
You are not running a supported priority plugin
(priority/basic).
Only 'priority/multifactor' is supported.
"""


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, words = parsed
    option_keys = {key for key, _ in options_given}
    if option_keys & {"help", "usage", "version"}:
        return about(option_keys, "sprio", _SYNOPSIS, OPTIONS, USAGE, context)
    if "helpformat" in option_keys:
        from spritz.presentation.priority_fields import LETTERS
        from spritz.presentation.table import names_listed

        context.out(names_listed(f"%{letter}" for letter in LETTERS))
        return 0
    if words and any(key == "jobs" and not value for key, value in options_given):
        # As in Slurm, the numbers may come after a blank.
        options_given = [(key, value or words[0]) if key == "jobs" else (key, value) for key, value in options_given]
        words = words[1:]
    if words:
        context.error(f"Unrecognized option: {words[0]}")
        context.err(USAGE)
        return 1

    options = merge(options_given, OPTIONS, context)
    if "verbose" in options:
        _say_options(options, sum(1 for key, _ in options_given if key == "verbose"), context)
    try:
        if "clusters" in options:
            clusters.only(options["clusters"], context, names_source=clusters.source(options_given))
            options.pop("sibling", None)
            return _run(options, context)
        several: list[ControllerConfig] = []
        if "local" not in options:
            by_option = options.keys() & {"federation", "sibling"}
            several = clusters.federated() if by_option else clusters.federated_by_default()
        return _run(options, context, several)
    except AlreadyReported as silent:
        return silent.exit_code


def _say_options(options: dict[str, str], times: int, context: Context) -> None:
    """Print the options in Slurm's words."""
    rule = "-" * 29
    rows = [("format", options.get("format")), ("job_flag", str(int("jobs" in options)))]
    rows += [("jobs", options.get("jobs")), ("partition", options.get("partition")), ("users", options.get("user"))]
    rows.append(("verbose", str(times)))
    lines = (f"{title:<10} = {'(null)' if value is None else value}" for title, value in rows)
    context.out("\n".join([rule, *lines, rule]) + "\n\n\n")


def _run(options: dict[str, str], context: Context, several: Sequence[ControllerConfig] = ()) -> int:
    """`several`: the clusters of a federation, of which each job is shown once; none: the cluster in force."""
    listing = PriorityListing(options, context)
    request = ListPriorities(filter=listing.wanted)

    def answer(controller: Connection) -> list[Priorities]:
        return list(controller.stream(request, Priorities, timeout=controller.timeout_seconds))

    if several:
        opened = clusters.connections(several, lambda: _connected(context))
        answers = {name: answer(controller) for name, controller in opened}
    else:
        with _connected(context) as controller:
            answers = {"": answer(controller)}
    if not any(pieces[0].weights.multifactor for pieces in answers.values()):
        context.err(_NOT_MULTIFACTOR)
        return 1
    listing.show(answers)
    return 0


def _connected(context: Context) -> Connection:
    return connected(context, "Couldn't get priority factors from controller")


def entry() -> None:
    run("sprio", main)
