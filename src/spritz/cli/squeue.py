"""squeue: jobs and steps in the queue.

Source: squeue(1).
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
from spritz.notation.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.client.command.sync import Connection
    from spritz.client.locate import ControllerConfig

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("account", "A", "ACCOUNTS", "only jobs of these accounts (comma list)", env="SQUEUE_ACCOUNT"),
    Row("accounts", "", "ACCOUNTS", alias="account"),
    Row("all", "a", "", "include jobs of hidden partitions", env="SQUEUE_ALL"),
    Row("array", "r", "", "one line for each task of an array", env="SQUEUE_ARRAY"),
    Row("array-unique", "", "", "one line for each pending record of an array", env="SQUEUE_ARRAY_UNIQUE"),
    Row("clusters", "M", "NAMES", "names of clusters, or all", env="SLURM_CLUSTERS"),
    Row("cluster", "", "NAMES", alias="clusters"),
    Row("expand-patterns", "", "", "expand %j, %A … in file names"),
    Row("federation", "", "", "combine the clusters of this cluster's federation", env="SQUEUE_FEDERATION"),
    Row("Format", "O", "NAMES", "columns by name: name[:[.][width][suffix]],…", env="SQUEUE_FORMAT2"),
    Row("format", "o", "FORMAT", "columns by letter: %[.][width]letter", env="SQUEUE_FORMAT"),
    Row("help", "", "", "print this help"),
    Row("helpformat", "", "", "list the letters of --format"),
    Row("helpFormat", "", "", "list the names of --Format"),
    Row("helpstate", "", "", "list the states of --states"),
    Row("hide", "", "", "exclude jobs of hidden partitions (default)"),
    Row("iterate", "i", "SECONDS", "repeat at this interval"),
    Row("jobs", "j", "[=IDS]", "only these jobs, arrays or array tasks"),
    Row("job", "", "[=IDS]", alias="jobs"),
    Row("json", "", "[=list|VERSION]", "full records as JSON"),
    Row("licenses", "L", "NAMES", "only jobs that request these licenses", env="SQUEUE_LICENSES"),
    Row("local", "", "", "only this cluster (default)", env="SQUEUE_LOCAL"),
    Row("long", "l", "", "the long form"),
    Row("me", "", "", "only my jobs"),
    Row("name", "n", "NAMES", "only jobs of these names", env="SQUEUE_NAMES"),
    Row("nodelist", "w", "HOSTS", "only jobs on these nodes"),
    Row("nodes", "", "HOSTS", alias="nodelist"),
    Row("node", "", "HOSTS", alias="nodelist"),
    Row("noconvert", "", "", "keep units: 2048M stays 2048M"),
    Row("noheader", "h", "", "no headings"),
    Row("notme", "", "", "only jobs of other users"),
    Row("only-job-state", "", "", "only job ids and states; allows no options other than -j and --json"),
    Row("partition", "p", "NAMES", "only jobs of these partitions", env="SQUEUE_PARTITION"),
    Row("partitions", "", "NAMES", alias="partition"),
    Row("priority", "P", "", "one line for each partition of a pending job", env="SQUEUE_PRIORITY"),
    Row("qos", "q", "NAMES", "only jobs of these QOS", env="SQUEUE_QOS"),
    Row("reservation", "R", "NAME", "only jobs in this reservation"),
    Row("running-over", "", "TIME", "only jobs that have run longer"),
    Row("running-under", "", "TIME", "only jobs that have run for less time"),
    Row("sib", "", "", alias="sibling"),
    Row("sibling", "", "", "every cluster's copy of a federated job, including revoked ones", env="SQUEUE_SIBLING"),
    Row("sort", "S", "LETTERS", "sort order, by letters of --format; a - reverses", env="SQUEUE_SORT"),
    Row("start", "", "", "list expected start times of pending jobs"),
    Row("states", "t", "STATES", "only jobs in these states, or all", env="SQUEUE_STATES"),
    Row("steps", "s", "[=IDS]", "list steps instead of jobs"),
    Row("usage", "", "", "print a short usage"),
    Row("user", "u", "USERS", "only jobs of these users", env="SQUEUE_USERS"),
    Row("users", "", "USERS", alias="user"),
    Row("verbose", "v", "", "print the request"),
    Row("version", "V", "", "print the version"),
    Row("yaml", "", "[=list|VERSION]", "full records as YAML"),
)

_SYNOPSIS = "[OPTIONS]"

USAGE = """\
Usage: squeue [-A account] [-i seconds] [--job jobid] [-n name] [-o format]
              [-O fields] [-p partitions] [--qos qos] [--reservation name]
              [--sort fields] [--start] [--step step_id] [-t states]
              [-u user_name] [--me] [--json] [--usage] [-L licenses]
              [-w nodes] [-ahjlPrsvV]
"""


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    option_keys = {key for key, _ in options_given}
    if option_keys & {"help", "usage", "version"}:
        return about(option_keys, "squeue", _SYNOPSIS, OPTIONS, USAGE, context)
    if option_keys & {"helpformat", "helpFormat", "helpstate"}:
        context.out(_listed(option_keys, steps="steps" in option_keys))
        return 0
    from spritz.cli.listings.queue import conditions

    conditions.check_form(options_given, ("format",))
    conditions.check_formats(options_given)
    options = conditions.merge(options_given, OPTIONS, context)
    if "verbose" in options:
        options["verbose"] = str(sum(key == "verbose" for key, _ in options_given))
    if "long" in option_keys and "Format" not in option_keys:
        # The environment's form gives way to what the command line asks for.
        options.pop("format", None)
        options.pop("Format", None)
    for option in ("jobs", "steps"):
        # `-j 12`: the list is optional, so that getopt leaves a separate word for the command.
        if operands and options.get(option) == "":
            options[option] = operands.pop(0)
            conditions.targets(options[option], steps=option == "steps")
    if operands:
        context.error(f"Unrecognized option: {operands[0]}")
        context.out(USAGE)
        return 1
    try:
        conditions.check_displaced(options_given, context)
        several: list[ControllerConfig] = []
        if "clusters" in options:
            several = clusters.chosen(options["clusters"], context, names_source=clusters.source(options_given))
            options.pop("federation", None)
            if len(several) > 1 and "noheader" in options:
                options["name-clusters"] = ""
        elif options.keys() & {"federation", "sibling"} and "local" not in options:
            several = clusters.federated()
            options["federation"] = ""
        elif not options.keys() & {"local", "steps"} and (several := clusters.federated_by_default()):
            options["federation"] = ""
        return _run(options, context, several)
    except AlreadyReported as silent:
        return silent.exit_code


def _listed(option_keys: set[str], *, steps: bool) -> str:
    """What --states, --format or --Format may name."""
    if "helpstate" in option_keys:
        from spritz.presentation.job.job_states import STATE_NAMES

        return "".join(f"{name}\n" for name in STATE_NAMES)
    from spritz.presentation.job import job_fields, step_fields
    from spritz.presentation.table import names_listed

    module = step_fields if steps else job_fields
    return names_listed((f"%{letter}" for letter in module.LETTERS) if "helpformat" in option_keys else module.NAMES)


def _run(options: Mapping[str, str], context: Context, several: list[ControllerConfig]) -> int:
    from spritz.cli.listings.queue import conditions

    seconds = conditions.iterate_seconds(options["iterate"], context) if "iterate" in options else 0
    show = _listing(options, context)
    if "verbose" in options:
        from spritz.cli.listings.queue import verbose

        context.out(verbose.text(options, int(options["verbose"])))
    if seconds:
        from spritz.cli.call import repeat

        repeat.end_on_interrupt()
    while True:
        if several and options.keys() & {"federation", "json"}:
            status = _show_together(options, several, context)
        elif not several:
            _show(options, show, context)
            status = 0
        else:

            def shown(cluster: ControllerConfig) -> int:
                if cluster is not several[0] and "noheader" not in options:
                    context.out("\n")
                _show(options, show, context, cluster.cluster_name, repeat=cluster is not several[0])
                return 0

            status = clusters.each(several, shown)
        if not seconds:
            return status
        context.out("\n")
        context.stdout.flush()
        sleep(seconds)


def _show(
    options: Mapping[str, str],
    show: Callable[[Connection], None],
    context: Context,
    cluster: str = "",
    *,
    repeat: bool = False,
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
        if options.get("nodelist"):
            _check_nodes(options["nodelist"], controller)
        if dated and not cluster:
            _print_date(context)
        _call(show, controller, context)


def _show_together(options: Mapping[str, str], several: list[ControllerConfig], context: Context) -> int:
    """Print one listing, or one document, with the jobs of all clusters."""
    from spritz.cli.listings.queue import conditions
    from spritz.cli.listings.queue.jobs import JobListing

    opened = (controller for _, controller in clusters.connections(several, lambda: _connected(context)))
    if "json" in options:
        from spritz.presentation.json.jobs import JobsJson

        job_filter = conditions.build_filter(options, context)
        every = bool(options.keys() & {"all", "sibling"})
        JobsJson(options["json"], job_filter, context, all_jobs=every).show_all(opened)
        return 0
    if "steps" in options:
        raise SpritzError("--federation lists jobs; for steps of several clusters use --clusters")
    if "noheader" not in options and ("iterate" in options or options.keys() & {"long", "verbose"}):
        _print_date(context)
    listing = JobListing(options, conditions.build_filter(options, context), context)
    listing.show_all(opened)
    return 0


def _connected(context: Context) -> Connection:
    return connected(context, "slurm_load_jobs error", named=False)


def _listing(options: Mapping[str, str], context: Context) -> Callable[[Connection], None]:
    """The function that prints one listing. Reports every mistake in the options before any daemon is asked."""
    from spritz.cli.listings.queue import conditions

    job_filter = conditions.build_filter(options, context)
    if "only-job-state" in options:
        conditions.check_only_state(options)
    if "json" in options:
        from spritz.presentation.json.jobs import JobsJson

        return JobsJson(options["json"], job_filter, context, all_jobs="all" in options).show
    if "steps" in options:
        from spritz.cli.listings.queue.steps import StepListing

        return StepListing(options, job_filter, context).show
    from spritz.cli.listings.queue.jobs import JobListing

    return JobListing(options, job_filter, context).show


def _call(show: Callable[[Connection], None], controller: Connection, context: Context) -> None:
    from spritz.client.errors import RemoteError

    try:
        show(controller)
    except RemoteError as error:
        if error.code == "ESLURM_INVALID_JOB_ID":
            context.err(f"slurm_load_jobs error: {error.message}\n")
            raise AlreadyReported from error
        raise


def _check_nodes(text: str, controller: Connection) -> None:
    """Every node that is named must exist."""
    from spritz.client.errors import RemoteError
    from spritz.model.queries.nodes import ListNodes, Nodes

    for name in expand(text):
        try:
            controller.call(ListNodes(names=(name,)), Nodes)
        except RemoteError as error:
            if error.code == "ESLURM_ACCESS_DENIED":
                return  # PrivateData=nodes: jobs are listed all the same
            if error.code != "ESLURM_INVALID_NODE_NAME":
                raise
            raise SpritzError(f"Invalid node name {name}") from error


def _print_date(context: Context) -> None:
    context.out(ctime() + "\n")


def entry() -> None:
    run("squeue", main)
