"""sinfo: partitions and nodes.

Source: sinfo(1).
"""

from __future__ import annotations

from time import ctime, sleep
from typing import TYPE_CHECKING

from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported, connected
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, about, run_parse
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from spritz.cli.listings.info.listing import NodeListing
    from spritz.client.command.sync import Connection
    from spritz.client.locate import ControllerConfig

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("all", "a", "", "include hidden partitions", env="SINFO_ALL"),
    Row("clusters", "M", "NAMES", "names of clusters, or all", env="SLURM_CLUSTERS"),
    Row("cluster", "", "NAMES", alias="clusters"),
    Row("dead", "d", "", "only nodes that do not respond"),
    Row("exact", "e", "", "group only nodes that are equal in every column"),
    Row("federation", "", "", "combine the clusters of this cluster's federation", env="SINFO_FEDERATION"),
    Row("Format", "O", "NAMES", "columns by name: name[:[.][width][suffix]],…"),
    Row("format", "o", "FORMAT", "columns by letter: %[.][width]letter", env="SINFO_FORMAT"),
    Row("future", "F", "", "include nodes in state FUTURE", env="SINFO_FUTURE"),
    Row("help", "", "", "print this help"),
    Row("helpformat", "", "", "list the letters of --format"),
    Row("helpFormat", "", "", "list the names of --Format"),
    Row("helpstate", "", "", "list the states of --states"),
    Row("hide", "", "", "exclude hidden partitions (default)"),
    Row("iterate", "i", "SECONDS", "repeat at this interval"),
    Row("json", "", "[=list|VERSION]", "full records as JSON"),
    Row("list-reasons", "R", "", "list reasons of nodes that are down or drained"),
    Row("local", "", "", "only this cluster (default)", env="SINFO_LOCAL"),
    Row("long", "l", "", "the long form"),
    Row("noconvert", "", "", "keep units (they are never converted here)"),
    Row("Node", "N", "", "one line for each node"),
    Row("nodes", "n", "HOSTS", "only these nodes"),
    Row("noheader", "h", "", "no headings"),
    Row("partition", "p", "NAMES", "only these partitions", env="SINFO_PARTITION"),
    Row("reservation", "T", "", "list reservations instead of nodes"),
    Row("responding", "r", "", "only nodes that respond"),
    Row("sort", "S", "LETTERS", "sort order, by letters of --format; a - reverses", env="SINFO_SORT"),
    Row("states", "t", "STATES", "only nodes in these states"),
    Row("summarize", "s", "", "one line for each partition, with node counts"),
    Row("usage", "", "", "print a short usage"),
    Row("verbose", "v", "", "print the request"),
    Row("version", "V", "", "print the version"),
    Row("yaml", "", "[=list|VERSION]", "full records as YAML"),
)

_SYNOPSIS = "[OPTIONS]"

USAGE = """\
Usage: sinfo [-adeFhlNRrsTvV] [-i seconds] [-t states] [-p partition] [-n nodes]
             [-S fields] [-o format] [-O Format] [--json]
"""


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, _ = parsed  # words that are no options mean nothing, as in Slurm
    option_keys = {key for key, _ in options_given}
    if option_keys & {"help", "usage", "version"}:
        return about(option_keys, "sinfo", _SYNOPSIS, OPTIONS, USAGE, context)
    if option_keys & {"helpformat", "helpFormat", "helpstate"}:
        context.out(_listed(option_keys))
        return 0
    from spritz.cli.listings.info.listing import check_displaced
    from spritz.cli.listings.queue.conditions import check_form, merge

    check_form(options_given, ("format", "Format"))
    options = merge(options_given, OPTIONS, context)
    if "verbose" in options:
        options["verbose"] = str(sum(key == "verbose" for key, _ in options_given))
    if "summarize" in option_keys and "format" not in option_keys:
        options.pop("format", None)  # the environment's
    try:
        check_displaced(options_given, context)
        several: list[ControllerConfig] = []
        if "clusters" in options:
            several = clusters.chosen(options["clusters"], context, names_source=clusters.source(options_given))
            options.pop("federation", None)
        elif "federation" in options and "local" not in options:
            several = clusters.federated()
        elif not options.keys() & {"local", "reservation"} and (several := clusters.federated_by_default()):
            options["federation"] = ""
        if not several:
            options.pop("federation", None)  # of a cluster that is in none, as in Slurm
        return _run(options, context, several)
    except AlreadyReported as silent:
        return silent.exit_code


def _listed(option_keys: set[str]) -> str:
    """What --states, --format or --Format may name."""
    if "helpstate" in option_keys:
        from spritz.presentation.node.node_states import VALID

        return "".join(f"{name}\n" for name in VALID.split(","))
    from spritz.presentation.node import node_fields
    from spritz.presentation.table import names_listed

    letters = "helpformat" in option_keys
    return names_listed((f"%{letter}" for letter in node_fields.LETTERS) if letters else node_fields.NAMES)


def _run(options: dict[str, str], context: Context, several: list[ControllerConfig]) -> int:
    from spritz.cli.listings.info.listing import NodeListing

    seconds = _seconds(options, context)
    listing = NodeListing(options, context)
    if "verbose" in options:
        listing.say_options()
    if seconds:
        from spritz.cli.call import repeat

        repeat.end_on_interrupt()
    while True:
        if several and options.keys() & {"federation", "json"}:
            status = _show_together(options, listing, several, context)
        elif not several:
            _show(options, listing, context)
            status = 0
        else:

            def shown(cluster: ControllerConfig) -> int:
                if cluster is not several[0] and "noheader" not in options:
                    context.out("\n")
                _show(options, listing, context, cluster.cluster_name, repeat=cluster is not several[0])
                return 0

            status = clusters.each(several, shown)
        if not seconds or "json" in options:
            return status
        context.out("\n")
        context.stdout.flush()
        sleep(seconds)


def _show(
    options: dict[str, str], listing: NodeListing, context: Context, cluster: str = "", *, repeat: bool = False
) -> None:
    """Print one listing. `cluster`: for its heading; `again`: an earlier listing was of another cluster."""
    dated = (
        not repeat
        and "noheader" not in options
        and ("iterate" in options or bool(options.keys() & {"long", "verbose"}))
    )
    if cluster and not options.keys() & {"noheader", "json"}:
        if dated:
            _print_date(context)
        context.out(f"CLUSTER: {cluster}\n")
    with _connected(context) as controller:
        if "json" in options:
            listing.show_json((controller,))
            return
        if dated and not cluster:
            _print_date(context)
        if "reservation" in options:
            listing.show_reservations(controller)
        else:
            listing.show(controller)


def _show_together(
    options: dict[str, str], listing: NodeListing, several: list[ControllerConfig], context: Context
) -> int:
    """Print one listing, or one document, with the nodes of all clusters."""
    if "json" in options:
        listing.show_json(controller for _, controller in clusters.connections(several, lambda: _connected(context)))
        return 0
    if "reservation" in options:
        raise SpritzError("--federation lists nodes; for reservations of several clusters use --clusters")
    if "noheader" not in options and ("iterate" in options or options.keys() & {"long", "verbose"}):
        _print_date(context)
    listing.show_all(clusters.connections(several, lambda: _connected(context)))
    return 0


def _print_date(context: Context) -> None:
    context.out(ctime() + "\n")


def _connected(context: Context) -> Connection:
    return connected(context, "slurm_load_partitions", named=False)


def _seconds(options: dict[str, str], context: Context) -> int:
    """The seconds of --iterate; 0 without it. Raises SpritzError."""
    if "iterate" not in options:
        return 0
    text = options["iterate"]
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0):
        raise SpritzError(f"Error: invalid entry for --iterate={text}")
    return int(text)


def entry() -> None:
    run("sinfo", main)
