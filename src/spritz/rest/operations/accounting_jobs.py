"""Jobs in accounting. Source: OpenAPI slurmdbd `job`; sacct(1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

from spritz.model.accounting.accounting_admin import Changed, ModifyJobs
from spritz.model.accounting.records import Documents, GetDocuments, JobPick, JobRecords, SelectJobs
from spritz.model.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE
from spritz.notation import jobid
from spritz.notation.errors import NotationError
from spritz.notation.hostlist import expand
from spritz.notation.times import parse_time
from spritz.presentation.json.accounting_jobs import job_json
from spritz.presentation.json.shape import MISSING
from spritz.rest.answers import Answer, Refused, encoded
from spritz.rest.operations import Ask, Listing, Result, operation
from spritz.rest.operations.job_fields import bad
from spritz.rest.users import gid_of, uid_of

if TYPE_CHECKING:
    from spritz.model.accounting.records import JobWithSteps

_PSEUDO = {"batch": STEP_BATCH, "extern": STEP_EXTERN, "interactive": STEP_INTERACTIVE}

#: Parameters of unsupported features.
_REFUSED = ("exit_code", "reservation", "reservation_id", "scheduler_unset")


def picks_of(text: str) -> tuple[JobPick, ...]:
    """Parse a comma-separated list of `12`, `12_3`, `12.batch`. Raises Refused."""
    picks = []
    for word in text.split(","):
        if not word:
            continue
        name, dot, step = word.partition(".")
        try:
            (reference,) = jobid.parse_list(name if step in _PSEUDO else word)
        except (jobid.JobIdError, ValueError) as error:
            raise Refused("ESLURM_INVALID_JOB_ID", f"Invalid job id specified: {word[:80]}", word[:80]) from error
        tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
        picks.append(
            JobPick(
                reference.job_id,
                tasks,
                _PSEUDO[step] if dot and step in _PSEUDO else reference.step,
                reference.component,
            )
        )
    return tuple(picks)


async def _query(ask: Ask) -> SelectJobs:
    query = ask.query
    for name in _REFUSED:
        if query.get(name):
            raise bad(name, "not supported by Spritz: jobs are not chosen by this", "ESLURM_NOT_SUPPORTED")

    def words(name: str) -> tuple[str, ...]:
        return tuple(word for word in (query.get(name) or "").split(",") if word)

    schedulers = {
        "scheduled_on_submit": "Submit",
        "scheduled_by_main": "Main",
        "scheduled_by_backfill": "Backfill",
    }
    clusters = words("cluster") or (ask.daemons.cluster,)
    associations = words("association")
    if not all(word.isascii() and word.isdigit() for word in associations):
        raise bad("association", "numbers are accepted", "ESLURM_REST_INVALID_QUERY")
    try:
        nodes = tuple(expand(query.get("node") or ""))
    except NotationError as error:
        raise bad("node", str(error), "ESLURM_REST_INVALID_QUERY") from error
    return SelectJobs(
        clusters=clusters,
        picks=picks_of(query.get("step") or ""),
        users=tuple([await uid_of(word) for word in words("users")]),
        groups=tuple([await gid_of(word) for word in words("groups")]),
        accounts=words("account"),
        partitions=words("partition"),
        qos=words("qos"),
        wckeys=words("wckey"),
        names=words("job_name"),
        states=tuple(word.upper() for word in words("state")),
        nodes=nodes,
        reasons=words("reason"),
        constraints=words("constraints"),
        associations=tuple(map(int, associations)),
        schedulers=tuple(word for name, word in schedulers.items() if _is_set(query.get(name))),
        starts_at=_moment(query, "start_time", ask.now),
        ends_at=_moment(query, "end_time", ask.now),
        duplicates=_is_set(query.get("show_duplicates")),
        steps=not _is_set(query.get("skip_steps")),
        not_eligible=bool(query.get("step")),
    )


def _is_set(text: str | None) -> bool:
    return text is not None and text.lower() not in ("0", "false", "no")


def _moment(given: dict[str, Any], name: str, now: float) -> float | None:
    text = given.get(name)
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) < 13:
        return float(text) or None
    try:
        return parse_time(text, now)
    except NotationError as error:
        raise bad(name, str(error), "ESLURM_REST_INVALID_QUERY") from error


@operation("GET /slurmdb/jobs")
async def get_jobs(ask: Ask) -> Result:
    """Jobs that match the query, streamed as slurmdbd reads them."""
    query = await _query(ask)
    if _is_set(ask.query.get("show_batch_script")) or _is_set(ask.query.get("show_job_environment")):
        return await _with_documents(ask, query)
    pieces = ask.database.stream(query, JobRecords)
    first = await anext(pieces, None)
    # Read the first piece before sending: after that, a refusal could no longer change the status.
    return Listing(name="jobs", pieces=_encoded(ask, first, pieces), rest={}, tag="")


async def _encoded(
    ask: Ask, first: JobRecords | None, pieces: AsyncGenerator[JobRecords, None]
) -> AsyncIterator[list[bytes]]:
    keys = ask.record("jobs")

    def record(job_with_steps: JobWithSteps) -> bytes:
        loose = job_json(job_with_steps, ask.now, (0.0, 0.0))
        return encoded({key: convert(loose.get(key, MISSING)) for key, convert in keys.items()})

    try:
        if first is not None:
            yield [record(job) for job in first.jobs]
        async for piece in pieces:
            yield [record(job) for job in piece.jobs]
    finally:
        await pieces.aclose()


async def _records(ask: Ask, query: SelectJobs) -> list[JobWithSteps]:
    return [job async for piece in ask.database.stream(query, JobRecords) for job in piece.jobs]


async def _with_documents(ask: Ask, query: SelectJobs) -> Result:
    if not query.picks:
        raise bad("step", "name the jobs whose scripts or environments you want", "ESLURM_REST_INVALID_QUERY")
    environment = not _is_set(ask.query.get("show_batch_script"))
    request = GetDocuments(clusters=query.clusters, picks=query.picks, environment=environment)
    bodies = {}
    async for piece in ask.database.stream(request, Documents):
        for document in piece.documents:
            bodies[document.job.job_id] = (document.body or b"").decode("utf-8", "replace")
    records = [
        {**job_json(record, ask.now, (0.0, 0.0)), "script": bodies.get(record.job.job_id, "")}
        for record in await _records(ask, query)
    ]
    return Answer(body={"jobs": records})


@operation("GET /slurmdb/job/{job_id}")
async def get_job(ask: Ask) -> Result:
    """A job, or all tasks of an array."""
    picks = picks_of(ask.path["job_id"])
    query = SelectJobs(clusters=(ask.daemons.cluster,), picks=picks, not_eligible=True, duplicates=False)
    records = [job_json(record, ask.now, (0.0, 0.0)) for record in await _records(ask, query)]
    if not records:
        raise Refused("ESLURM_INVALID_JOB_ID", f"Unable to find JobId={ask.path['job_id'][:80]}", "slurmdb_jobs_get")
    return Answer(body={"jobs": records})


@operation("POST /slurmdb/job/{job_id}")
async def post_job(ask: Ask) -> Result:
    return await _modify(ask, picks_of(ask.path["job_id"]), ask.body)


@operation("POST /slurmdb/jobs")
async def post_jobs(ask: Ask) -> Result:
    """Change the accounting records of several jobs in the same way."""
    words = ",".join(word for word in ask.body.get("job_id_list") or () if word)
    return await _modify(ask, picks_of(words), ask.body.get("job_rec") or {})


async def _modify(ask: Ask, picks: tuple[JobPick, ...], changes: dict[str, Any]) -> Result:
    if not picks:
        raise Refused("ESLURM_REST_INVALID_QUERY", "no jobs are named", "job_id_list")
    if (changes.get("tres") or {}).get("allocated"):
        raise bad("tres/allocated", "a job's allocation cannot be changed", "ESLURM_NOT_SUPPORTED")
    comment = changes.get("comment") or {}
    fields: dict[str, Any] = {
        "comment": comment.get("job"),
        "admin_comment": comment.get("administrator"),
        "system_comment": comment.get("system"),
        "extra": changes.get("extra"),
        "wckey": changes.get("wckey"),
    }
    code = (changes.get("derived_exit_code") or {}).get("return_code")
    if code is not None:
        if not 0 <= code <= 255:
            raise bad("derived_exit_code", f"{code} is out of range")
        fields["derived_exit_status"] = int(code) << 8
    fields = {name: value for name, value in fields.items() if value is not None}
    if not fields:
        raise Refused("ESLURM_REST_INVALID_QUERY", "no field of the jobs to change", "#")
    request = ModifyJobs(cluster=ask.daemons.cluster, picks=picks, **fields)
    done = await ask.database.call(request, Changed)
    if not done.names:
        raise Refused("ESLURM_INVALID_JOB_ID", "Nothing modified", "slurmdb_job_modify")
    return Answer(body={"results": list(done.names)})
