"""sacct: jobs and steps, as they are and as they were.

Source: sacct(1).
"""

from __future__ import annotations

from time import ctime
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.msgpack import Decoder

from spritz.cli.call import clusters
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.call.options import AUTOCOMPLETE, Fatal, help_text, run_parse, version_text
from spritz.cli.call.options import Row as Option
from spritz.cli.listings.acct.answer import answered, portions
from spritz.cli.listings.acct.conditions import build, gathered
from spritz.cli.listings.acct.connect import connected
from spritz.cli.listings.acct.listing import RowListing, columns_of
from spritz.cli.listings.queue.conditions import merge
from spritz.client.locate import locate_database
from spritz.model.accounting.records import Documents, GetDocuments
from spritz.presentation.accounting import accounting_fields as fields
from spritz.presentation.accounting.accounting_fields import FIELDS
from spritz.presentation.accounting.accounting_style import Style
from spritz.presentation.table import Table, help_format
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from spritz.cli.listings.acct.conditions import Question
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.accounting.records import JobWithSteps

OPTIONS: tuple[Option, ...] = (
    AUTOCOMPLETE,
    Option("accounts", "A", "ACCOUNTS", "only jobs of these accounts (comma list)"),
    Option("allclusters", "L", "", "jobs of all clusters in the database"),
    Option("allocations", "X", "", "only jobs, without steps"),
    Option("allusers", "a", "", "jobs of all users"),
    Option("associations", "x", "IDS", "only jobs of associations with these numbers"),
    Option("batch-script", "B", "", "print the batch scripts (of the jobs of -j)"),
    Option("brief", "b", "", "JobID, State and ExitCode"),
    Option("clusters", "M", "NAMES", "only jobs of these clusters; all: every cluster"),
    Option("cluster", "", "NAMES", alias="clusters"),
    Option("completion", "c", "", "jobs of the completion log (JobCompType=jobcomp/filetxt)"),
    Option("constraints", "C", "FEATURES", "only jobs that requested all of these features"),
    Option("delimiter", "", "TEXT", "separator of fields for -p and -P; default: |"),
    Option("duplicates", "D", "", "all lives of a requeued job, not only the last"),
    Option("endtime", "E", "TIME", "only jobs before this time; default: now"),
    Option("env-vars", "", "", "print the environments of batch jobs (of -j)"),
    Option("expand-patterns", "", "", "expand %j, %A … in StdIn, StdOut and StdErr"),
    Option("federation", "", "", "jobs of every cluster of this cluster's federation", env="SACCT_FEDERATION"),
    Option("file", "f", "FILE", "jobs of this completion log"),
    Option("flags", "F", "FLAGS", "only jobs started by: SchedSubmit, SchedMain, SchedBackfill"),
    Option("format", "o", "FIELDS", "fields to print: name[%[-]width],…", env="SACCT_FORMAT"),
    Option("fields", "", "FIELDS", alias="format"),
    Option("gid", "g", "GROUPS", "only jobs of these groups"),
    Option("group", "", "GROUPS", alias="gid"),
    Option("help", "h", "", "print this help"),
    Option("helpformat", "e", "", "list the fields of --format"),
    Option("help-fields", "", "", alias="helpformat"),
    Option("helpstate", "", "", "list the states of --state"),
    Option("helpreason", "", "", refused="scontrol show job and the manual explain reasons"),
    Option("array", "", "", refused="tasks that have begun have lines of their own"),
    Option("jobs", "j", "IDS", "only these jobs, array tasks or steps"),
    Option("json", "", "[=list|VERSION]", "full records as JSON"),
    Option("local", "", "", "only this cluster (default)", env="SACCT_LOCAL"),
    Option("long", "l", "", "the long form"),
    Option("name", "", "NAMES", "only jobs of these names"),
    Option("ncpus", "I", "N[-M]", "only jobs with this number of CPUs"),
    Option("nnodes", "i", "N[-M]", "only jobs with this number of nodes"),
    Option("noconvert", "", "", "keep units: 2048M stays 2048M"),
    Option("nodelist", "N", "HOSTS", "only jobs that ran on one of these nodes"),
    Option("noheader", "n", "", "no headings"),
    Option("parsable", "p", "", "fields separated by |, with one at the end"),
    Option("parsable2", "P", "", "fields separated by |"),
    Option("partition", "r", "NAMES", "only jobs of these partitions"),
    Option("qos", "q", "NAMES", "only jobs of these QOS"),
    Option("reason", "R", "REASONS", "only jobs that waited for one of these reasons"),
    Option("starttime", "S", "TIME", "only jobs after this time; default: midnight"),
    Option("state", "s", "STATES", "only jobs that were in one of these states"),
    Option("timelimit-max", "K", "TIME", "with -k: the upper bound of the time limit"),
    Option("timelimit-min", "k", "TIME", "only jobs with this time limit"),
    Option("truncate", "T", "", "cut times to --starttime and --endtime"),
    Option("uid", "u", "USERS", "only jobs of these users; default: your own, for root those of all users"),
    Option("user", "", "USERS", alias="uid"),
    Option("units", "", "KMGTP", "print values in this unit"),
    Option("usage", "", "", "print a short usage"),
    Option("use-local-uid", "", "", "UID: this machine's number for the user's name, not the recorded one"),
    Option("verbose", "v", "", "print the time window"),
    Option("version", "V", "", "print the version"),
    Option("wckeys", "W", "NAMES", "only jobs of these wckeys"),
    Option("whole-hetjob", "", "[=yes|no]", "with -j: all components of a heterogeneous job, or only those named"),
    Option("yaml", "", "[=list|VERSION]", "full records as YAML"),
)

_SYNOPSIS = "[<OPTION>]"

USAGE = "Usage: sacct [options]\n\tUse --help for help\n"


def main(argv: list[str], context: Context) -> int:
    """0, or 1 for anything that was not understood or not possible."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    option_keys = {key for key, _ in options_given}
    if option_keys & {"help", "usage", "version", "helpformat", "helpstate"}:
        return _about(option_keys, context)

    try:
        options = merge(gathered(options_given, context), OPTIONS, context)
    except AlreadyReported as silent:
        return silent.exit_code
    forms = [key for key, _ in options_given if key in ("parsable", "parsable2")]
    for form in forms[:-1]:
        if form != forms[-1]:
            options.pop(form, None)
    if operands:
        for line in ("Unknown arguments:", *(f" {word}" for word in operands)):
            context.error(line)
        return 1
    try:
        if not options.keys() & {"local", "clusters", "allclusters"}:
            several = clusters.federated() if "federation" in options else clusters.federated_by_default()
            options |= {"clusters": ",".join(cluster.cluster_name for cluster in several)} if several else {}
        return _run(options, context)
    except AlreadyReported as silent:
        return silent.exit_code


def _about(option_keys: set[str], context: Context) -> int:
    if "version" in option_keys:
        context.out(version_text())
    elif "helpformat" in option_keys:
        context.out(help_format(FIELDS))
    elif "helpstate" in option_keys:
        from spritz.presentation.job.job_states import STATE_NAMES

        context.out("".join(f"{name}\n" for name in STATE_NAMES))
    elif "help" in option_keys:
        context.out(help_text("sacct", _SYNOPSIS, OPTIONS))
    else:
        context.out(USAGE)
    return 0


def _run(options: dict[str, str], context: Context) -> int:
    if "batch-script" in options and "env-vars" in options:
        raise Fatal("Options --batch-script and --env-vars are mutually exclusive")
    for option, what in (("batch-script", "scripts"), ("env-vars", "environment")):
        if option in options and "jobs" not in options:
            raise Fatal(f"When requesting job {what} you must also request specific jobs with the '-j' option.")
    if "json" in options and options["json"] == "list":
        from spritz.presentation.json.envelope import show

        show(context, "list", {})
        return 0
    logged = "completion" in options or "file" in options
    listing = _listing(options, context, logged=logged)
    now = SystemClock().now()
    if logged:
        from spritz.cli.listings.acct.completion import show as show_logged

        return show_logged(options, listing, now, context)

    question = build(options, locate_database().cluster_name, now, context)
    if "verbose" in options:
        _say_window(question, context)
    connection, _ = connected(context)
    with connection:
        if question.query.qos or listing.asks("QOSRAW"):
            listing.know_qos(_need_qos(connection, question.query.qos, context))
        if "whole-hetjob" in options:
            from spritz.cli.listings.acct.components import picked

            question.query = picked(connection, question.query, options["whole-hetjob"])
        if "batch-script" in options or "env-vars" in options:
            _show_documents(connection, question, context, environment="env-vars" in options)
        elif "json" in options:
            _show_json(connection, question, context, options["json"])
        else:
            _show(connection, question, listing, header="noheader" not in options)
    return 0


def _show_json(connection: DatabaseConnection, question: Question, context: Context, version_word: str) -> None:
    from spritz.presentation.json.accounting_jobs import job_json
    from spritz.presentation.json.envelope import DEFAULT, show, version_of
    from spritz.presentation.json.pretty import encoded

    version = version_of(version_word)
    records = (job_json(with_steps, now, question.window) for with_steps, now in answered(connection, question.query))
    jobs = [Raw(encoded(record)) for record in records] if version == DEFAULT else list(records)
    show(context, version_word, {"jobs": jobs}, "GET /slurmdb/jobs")


def _need_qos(connection: DatabaseConnection, names: tuple[str, ...], context: Context) -> dict[str, int]:
    """The numbers of every QOS. Raises Fatal after Slurm's line for one that there is not."""
    from spritz.model.limits.records import Book, GetBook

    known = {qos_record.name: qos_record.id for qos_record in connection.call(GetBook(), Book, timeout=60.0).qos}
    for name in names:
        if name not in known:
            context.error(f"You gave a bad qos '{name}'. Valid QOS's are {','.join(known)}")
            raise Fatal("problem processing qos list")
    return known


def _listing(options: dict[str, str], context: Context, *, logged: bool) -> RowListing:
    """The columns. Reports every mistake in them before any daemon is asked."""
    unit = options.get("units", "").upper()
    if "units" in options and (len(unit) != 1 or unit not in "KMGTP"):
        context.error(f"Invalid unit type '{options['units']}'. Possible options are 'KMGTP'")
        raise Fatal("Invalid unit type")
    brief, long, default = fields.BRIEF, fields.LONG, fields.DEFAULT
    if logged:
        from spritz.cli.listings.acct import completion

        brief, long, default = completion.BRIEF, completion.LONG, completion.DEFAULT
    text = brief if "brief" in options else long if "long" in options else options.get("format", default)
    style = Style(
        context.environ,
        unit=unit,
        convert="noconvert" not in options,
        expand="expand-patterns" in options,
        local_uid="use-local-uid" in options,
    )
    parsable = 1 if "parsable" in options else 2 if "parsable2" in options else 0
    table = Table(columns_of(text), parsable, options.get("delimiter") or "|")
    return RowListing(table, style, context)


def _say_window(question: Question, context: Context) -> None:
    start, end = question.query.starts_at, question.query.ends_at
    since = ctime(start) if start is not None else "Epoch 0"
    until = ctime(end) if end is not None else "Now"
    states = ",".join(question.query.states) or "Eligible"
    context.info(f"Jobs {states} in the time window from {since} to {until}")


def _show(connection: DatabaseConnection, question: Question, listing: RowListing, *, header: bool) -> None:
    if header:
        listing.header()
    waiting: set[int] = set()
    for record, now in answered(connection, question.query):
        number = record.job.job_id
        if number >> 26 and record.job.state == "PENDING" and not question.query.duplicates:
            if number in waiting:
                continue  # each cluster that may run it has a copy
            waiting.add(number)
        _show_job(record, now, question, listing)


def _show_job(job_with_steps: JobWithSteps, now: float, question: Question, listing: RowListing) -> None:
    from spritz.presentation.accounting.accounting_row import Row

    job = job_with_steps.job
    step_ids = question.steps.get(job.job_id)
    if step_ids is None and job.array_job_id:
        step_ids = question.steps.get(job.array_job_id)
    if step_ids is None:
        listing.row(Row(job, None, job_with_steps.steps, now, question.window))
    for step in job_with_steps.steps:
        if step_ids is None or step.step_id in step_ids:
            listing.row(Row(job, step, job_with_steps.steps, now, question.window))


def _show_documents(connection: DatabaseConnection, question: Question, context: Context, *, environment: bool) -> None:
    from spritz.presentation.accounting.accounting_row import Row

    requests = (
        GetDocuments(clusters=question.query.clusters, picks=picks, environment=environment)
        for picks in portions(question.query.picks)
    )
    what, proviso = ("Environment used for", " (must be batch to display)") if environment else ("Batch Script for", "")
    pieces = (piece for request in requests for piece in connection.stream(request, Documents, timeout=60.0))
    for job_document in (document for piece in pieces for document in piece.documents):
        title = f"{what} {Row(job_document.job, None, [], 0.0, (0.0, 0.0)).job_name()}{proviso}"
        context.out(f"{title}\n{'-' * 80}\n")
        body = job_document.body if job_document.body is not None else b"NONE"
        if environment and job_document.body is not None:
            body = b"\n".join(Decoder(list[bytes]).decode(job_document.body))
        text = body.decode("utf-8", "surrogateescape")
        context.out(text + "\n")


def entry() -> None:
    from spritz.cli.call.entry import run

    run("sacct", main)
