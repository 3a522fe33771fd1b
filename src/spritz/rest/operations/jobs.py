"""Job queries. Source: OpenAPI `job_info`, `job_state`, `node_resource_layout`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any

from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.notation import jobid
from spritz.notation.ranges import format_ids
from spritz.presentation.json.jobs import state_list
from spritz.presentation.json.values import moment
from spritz.rest.answers import Answer, Refused, matches
from spritz.rest.operations import Ask, Listing, Result, Unchanged, operation
from spritz.rest.records import JobWriter

if TYPE_CHECKING:
    from spritz.model.job.record import Job


def target_of(word: str) -> JobTarget:
    """Parse a job id: `12`, `12_3`, `12_[1-5]`, `12+1`. Raises Refused."""
    targets = targets_of([word])
    if len(targets) != 1 or targets[0].step_id is not None:
        raise Refused("ESLURM_INVALID_JOB_ID", f"Invalid job id specified: {word[:80]}", word[:80])
    return targets[0]


def targets_of(words: list[str]) -> tuple[JobTarget, ...]:
    """Parse words with a job id, or a comma-separated list of ids, each. Raises Refused."""
    targets = []
    for word in words:
        try:
            references = jobid.parse_list(word.removesuffix("_"))
        except jobid.JobIdError as error:
            raise Refused("ESLURM_INVALID_JOB_ID", f"Invalid job id specified: {word[:80]}", word[:80]) from error
        for reference in references:
            tasks = "" if reference.task_ids is None else format(reference.task_ids, "x")
            targets.append(JobTarget(reference.job_id, tasks, reference.step, reference.component))
    return tuple(targets)


async def jobs_of(ask: Ask, job_filter: JobFilter) -> tuple[float, list[Job]]:
    """(controller's time, whole records of the matching jobs)."""
    now, jobs = 0.0, []
    async for piece in ask.controller.stream(ListJobs(filter=job_filter, all=True), Jobs):
        now = piece.now
        jobs += piece.jobs
    return now, jobs


@operation("GET /slurm/jobs")
async def get_jobs(ask: Ask) -> Result:
    """All jobs that the caller may see, streamed as the controller sends them."""
    known = _version_in(ask.unless)
    pieces = ask.controller.stream(ListJobs(all=True, unless_version=known), Jobs)
    first = await anext(pieces, None)
    if first is None:
        await pieces.aclose()
        raise Refused("SLURM_UNEXPECTED_MSG_ERROR")
    tag = _tag(ask, first.version)
    if ask.unless and matches(ask.unless, tag):
        await pieces.aclose()
        return Unchanged(tag)
    if known and known == first.version:
        # The controller left the jobs out, but the tag is of another version or caller: ask again.
        await pieces.aclose()
        pieces = ask.controller.stream(ListJobs(all=True), Jobs)
        first = await anext(pieces)
    writer = JobWriter(ask.daemons.cluster, ask.record("jobs"))
    other_fields = {"last_backfill": moment(0), "last_update": moment(first.now)}
    return Listing(name="jobs", pieces=_encoded(first, pieces, writer), rest=other_fields, tag=tag)


async def _encoded(first: Jobs, pieces: AsyncGenerator[Jobs, None], writer: JobWriter) -> AsyncIterator[list[bytes]]:
    try:
        yield [writer.record(job, first.now, first.exempt_of(job)) for job in first.jobs]
        async for piece in pieces:
            yield [writer.record(job, piece.now, piece.exempt_of(job)) for job in piece.jobs]
    finally:
        await pieces.aclose()


def _tag(ask: Ask, version: int) -> str:
    """ETag of the controller's version of the jobs, for this caller: others may see other jobs."""
    whose = f"{ask.operation.version} {ask.caller.user} {ask.caller.token or ask.caller.uid}"
    return f'W/"{version:x}-{hashlib.sha256(whose.encode("utf-8", "replace")).hexdigest()[:16]}"'


def _version_in(header: str) -> int:
    """The controller's version in the tag of an If-None-Match with one tag; 0 for any other."""
    word = header.strip().removeprefix("W/").strip('"').partition("-")[0]
    try:
        return int(word, 16) if len(word) <= 16 else 0
    except ValueError:
        return 0


@operation("GET /slurm/job/{job_id}")
async def get_job(ask: Ask) -> Result:
    """A job, all tasks of an array, or all components of a heterogeneous job."""
    target = target_of(ask.path["job_id"])
    writer = JobWriter(ask.daemons.cluster, ask.record("jobs"))
    now, records = 0.0, list[Any]()
    async for piece in ask.controller.stream(ListJobs(filter=JobFilter(targets=(target,)), all=True), Jobs):
        now = piece.now
        records += [writer.shaped(job, piece.now, piece.exempt_of(job)) for job in piece.jobs]
    if not records:
        raise Refused("ESLURM_INVALID_JOB_ID", f"Unable to find JobId={ask.path['job_id']}", "slurm_load_job")
    return Answer(body={"jobs": records, "last_backfill": moment(0), "last_update": moment(now)})


@operation("GET /slurm/jobs/state")
async def get_states(ask: Ask) -> Result:
    """Ids and states of the jobs that match."""
    job_filter = JobFilter(targets=targets_of([ask.query["job_id"]])) if ask.query.get("job_id") else JobFilter()
    now, jobs = await jobs_of(ask, job_filter)
    writer = JobWriter(ask.daemons.cluster, ask.record("jobs"))
    records = [{**writer.loose(job, now), "state": state_list(job)} for job in jobs]
    return Answer(body={"jobs": records, "last_backfill": moment(0), "last_update": moment(now)})


@operation("GET /slurm/resources/{job_id}")
async def get_resources(ask: Ask) -> Result:
    """A running job's resources on each node."""
    target = target_of(ask.path["job_id"])
    _, jobs = await jobs_of(ask, JobFilter(targets=(target,)))
    running = [job for job in jobs if job.allocation is not None and job.state.active]
    if not running:
        code = "ESLURM_JOB_NOT_RUNNING" if jobs else "ESLURM_INVALID_JOB_ID"
        raise Refused(code, source="slurm_get_resource_layout")

    names = tuple(node.node for job in running if job.allocation is not None for node in job.allocation.nodes)
    views = (await ask.controller.call(ListNodes(names=tuple(dict.fromkeys(names)), all=True), Nodes)).nodes
    shapes = {view.node.name: view.node.config.capacity for view in views}
    records = []
    for job in running:
        assert job.allocation is not None
        for node in job.allocation.nodes:
            shape = shapes.get(node.node)
            gres = [
                {"name": gres.name, "type": gres.type, "count": gres.count, "index": format_ids(int(gres.indexes, 16))}
                for gres in node.gres
            ]
            records.append(
                {
                    "node": node.node,
                    "sockets_per_node": shape.sockets if shape is not None else 0,
                    "cores_per_socket": shape.cores_per_socket if shape is not None else 0,
                    "mem_alloc": node.memory_mib,
                    "core_bitmap": _cores(node.cpus, shape.threads_per_core if shape is not None else 1),
                    "gres": gres,
                }
            )
    return Answer(body={"nodes": records})


def _cores(mask: str, threads: int) -> str:
    """Cores, as `0-3`, with at least a CPU in the mask."""
    cpus = int(mask, 16)
    cores = {place // max(1, threads) for place in range(cpus.bit_length()) if cpus >> place & 1}
    return format_ids(sum(1 << core for core in cores))
