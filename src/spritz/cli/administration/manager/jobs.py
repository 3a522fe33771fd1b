"""`sacctmgr show runawayjobs` and `modify job`: an administrator's repairs of job records.

Source: sacctmgr(1); what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.manager.arguments import match
from spritz.cli.administration.manager.commit import agreed, may
from spritz.cli.administration.manager.show import columns_of, print_table
from spritz.cli.call.already_reported import AlreadyReported
from spritz.client.command.sync import connect_controller
from spritz.model.accounting import accounting_admin as model
from spritz.model.accounting.records import JobPick, JobRecords, SelectJobs
from spritz.model.errors import SpritzError
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.notation import jobid
from spritz.presentation.accounting.history_fields import RUNAWAY_FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.administration.manager.arguments import Word
    from spritz.cli.administration.manager.show import Style
    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.accounting.records import JobRecord

_DEFAULT = "id,name,partition,cluster,state,timesubmit,timestart,timeend"


def show_runaway(
    connection: DatabaseConnection,
    cluster: str,
    words: Sequence[Word],
    style: Style,
    context: Context,
    *,
    at_once: bool,
) -> int:
    """List jobs that are alive in the database but unknown to their controller, and offer to end their records."""
    if not may(connection, "Operator"):
        context.error("You must have an AdminLevel>=Operator to fix runaway jobs")
        raise AlreadyReported
    format_words = ""
    for word in words:
        known = match(word.key, ("cluster", "format"), 2) if word.key else None
        if known == "format":
            format_words += ("," if format_words else "") + word.value
        elif known == "cluster":
            if word.values != [cluster]:
                raise _elsewhere(word.value)
        else:
            context.err(f" Unknown condition: {word.text}\n")
            raise AlreadyReported
    columns = columns_of(format_words or _DEFAULT, RUNAWAY_FIELDS, context)
    runaway = _runaway(connection, cluster)
    if not runaway:
        context.out(f"Runaway Jobs: No runaway jobs found on cluster {cluster}\n")
        return 0
    context.out(
        "NOTE: Runaway jobs are jobs that don't exist in the controller but have a start time and no end time\n"
    )
    context.out("in the database.\n")
    print_table(columns, ({"job": job} for job in runaway), style, context)
    question = (
        "\nWould you like to fix these runaway jobs?\n"
        "(This will set the end time for each job to the latest out of the start, eligible, or submit times,\n"
        "and set the state to completed.\nOnce corrected this will trigger the "
        "rollup to reroll usage from before the earliest submit time of all the runaway jobs.)\n\n"
    )
    if not at_once and not agreed(context, question):
        return 0
    connection.call(
        model.FixRunaway(cluster=cluster, numbers=tuple(job.number for job in runaway)), model.Changed, timeout=120.0
    )
    return 0


def _elsewhere(name: str) -> Exception:
    return SpritzError(
        f"cluster {name}: cannot query the jobs of another cluster's controller from here",
        code="ESLURM_NOT_SUPPORTED",
    )


def _runaway(connection: DatabaseConnection, cluster: str) -> list[JobRecord]:
    """Records alive in the database and unknown to the controller.

    Reads the database before and after the controller, because a job that ends in between is not runaway.
    """
    before = {record.number: record for record in _alive(connection, cluster)}
    if not before:
        return []

    known: set[int] = set()
    with connect_controller() as controller:
        for piece in controller.stream(ListJobs(fields=("id",), all=True), JobRows, timeout=30.0):
            known.update(int(str(row[0])) for row in piece.rows)
    after = {record.number for record in _alive(connection, cluster)}
    return [record for number, record in before.items() if number in after and record.job_id not in known]


def _alive(connection: DatabaseConnection, cluster: str) -> list[JobRecord]:
    query = SelectJobs(
        clusters=(cluster,), states=("PENDING", "RUNNING", "SUSPENDED"), duplicates=True, steps=False, not_eligible=True
    )
    records: list[JobRecord] = []
    for piece in connection.stream(query, JobRecords, timeout=120.0):
        if cluster in piece.behind:
            raise SpritzError(f"slurmdbd does not have cluster {cluster}'s newest events; try again when it has")
        records += [job.job for job in piece.jobs if job.job.ended_at == 0.0]
    return records


_SETTINGS = ("admincomment", "comment", "derivedexitcode", "derivedes", "extra", "systemcomment", "wckey")


def modify_jobs(
    connection: DatabaseConnection,
    cluster: str,
    where: Sequence[Word],
    setting: Sequence[Word],
    context: Context,
    *,
    at_once: bool,
) -> int:
    """`modify job where jobid=… set comment=…`. Returns the exit code; raises AlreadyReported after a message."""
    picks = ""
    for word in where:
        known = match(word.key, ("jobid", "cluster"), 2) if word.key else None
        if known == "jobid":
            picks += ("," if picks else "") + word.value
        elif known == "cluster":
            cluster = word.value.lower()
        else:
            context.err(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
            raise AlreadyReported
    changes: dict[str, str] = {}
    for word in setting:
        known = match(word.key, _SETTINGS, 2)
        if known is None:
            context.err(f" Unknown option: {word.text}\n Use keyword 'where' to modify condition\n")
            raise AlreadyReported
        changes[known] = word.value
    if not changes:
        context.err(" You didn't give me anything to set\n")
        raise AlreadyReported
    if not picks:
        context.err(" You need to specify the job to modify with jobid=\n")
        raise AlreadyReported
    request = _request(cluster, picks, changes, context)
    if not at_once and not agreed(context):
        context.out(" Changes Discarded\n")
        return 0
    done = connection.call(request, model.Changed, timeout=60.0)
    if not done.names:
        context.out(" Nothing modified\n")
        return 1
    context.out(" Modified jobs...\n" + "".join(f"  {name}\n" for name in done.names))
    return 0


def _request(cluster: str, picks: str, changes: dict[str, str], context: Context) -> model.ModifyJobs:
    job_picks = []
    for item in picks.split(","):
        try:
            parsed = jobid.parse(item.strip())
        except jobid.JobIdError as error:
            context.err(f" Invalid job id: {item}\n")
            raise AlreadyReported from error
        job_picks.append(JobPick(parsed.job_id, "" if parsed.task_ids is None else format(parsed.task_ids, "x")))
    status: int | None = None
    code = changes.get("derivedexitcode", changes.get("derivedes"))
    if code is not None:
        number = code.partition(":")[0]
        if not (number.isascii() and number.isdigit() and int(number) < 256):
            context.err(f" Bad derivedexitcode value: {code}\n")
            raise AlreadyReported
        status = int(number) << 8
    return model.ModifyJobs(
        cluster=cluster,
        picks=tuple(job_picks),
        derived_exit_status=status,
        comment=changes.get("comment"),
        admin_comment=changes.get("admincomment"),
        system_comment=changes.get("systemcomment"),
        extra=changes.get("extra"),
        wckey=changes.get("wckey"),
    )
