"""Cancelling, signalling, requeueing and changing jobs. Source: OpenAPI; scancel(1), scontrol(1)."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from spritz.client.errors import RemoteError
from spritz.model.commands.job import (
    CancelJobs,
    CancelOutcome,
    CancelResult,
    Done,
    HoldJob,
    ReleaseJob,
    RequeueJob,
    UpdateJob,
)
from spritz.model.errors import ESLURM
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.notation import signals
from spritz.notation.errors import NotationError
from spritz.notation.hostlist import expand
from spritz.rest.answers import Answer, Fault, Refused
from spritz.rest.operations import Ask, Result, operation
from spritz.rest.operations.job_fields import bad, fields_of
from spritz.rest.operations.jobs import target_of, targets_of
from spritz.rest.users import uid_of

#: Supported flags of a cancellation.
_BATCH, _FULL, _HURRY = "BATCH_JOB", ("FULL_JOB",), "HURRY"
_REFUSED_FLAGS = ("FEDERATION_REQUEUE", "CRON_JOBS", "RESERVATION_JOB", "OUT_OF_MEMORY")


@operation("DELETE /slurm/job/{job_id}")
async def delete_job(ask: Ask) -> Result:
    """Cancel a job, or send it a signal."""
    word = ask.path["job_id"]
    targets = targets_of([word])
    outcomes = await _cancel(ask, JobFilter(targets=targets), ask.query.get("signal"), ask.query.get("flags"))
    failed = [outcome for outcome in outcomes if outcome.code]
    answer = Answer(body={"status": [_status(outcome) for outcome in outcomes]})
    if failed or not outcomes:
        code = failed[0].code if failed else "ESLURM_INVALID_JOB_ID"
        answer.errors = [Fault(code=code, text=failed[0].message if failed else "", source="slurm_kill_job2")]
    return answer


@operation("DELETE /slurm/jobs")
async def delete_jobs(ask: Ask) -> Result:
    """Cancel or signal all jobs that match all conditions of the body. Refuses a body without conditions."""
    conditions = ask.body
    users: tuple[int, ...] = ()
    for name in ("user_id", "user_name"):
        if conditions.get(name):
            users = (await uid_of(conditions[name]),)
    states = tuple(conditions.get("job_state") or ())
    if set(states) - {"PENDING", "RUNNING", "SUSPENDED"}:
        raise bad("job_state", "PENDING, RUNNING and SUSPENDED are accepted", "ESLURM_REST_INVALID_QUERY")
    try:
        nodes = tuple(expand(",".join(word for word in conditions.get("nodes") or () if word)))
    except NotationError as error:
        raise bad("nodes", str(error), "ESLURM_INVALID_NODE_NAME") from error
    job_filter = JobFilter(
        targets=targets_of([word for word in conditions.get("jobs") or () if word]),
        users=users,
        accounts=_one(conditions, "account"),
        names=_one(conditions, "job_name"),
        partitions=_one(conditions, "partition"),
        qos=_one(conditions, "qos"),
        states=states,
        nodes=nodes,
        reservation=conditions.get("reservation") or "",
        wckeys=_one(conditions, "wckey"),
    )
    if job_filter == JobFilter():
        raise Refused("ESLURM_REST_INVALID_QUERY", "no jobs and no conditions are given", "#")
    outcomes = await _cancel(ask, job_filter, conditions.get("signal"), conditions.get("flags"))
    return Answer(body={"status": [_status(outcome) for outcome in outcomes]})


def _one(given: dict[str, Any], name: str) -> tuple[str, ...]:
    return (given[name],) if given.get(name) else ()


async def _cancel(
    ask: Ask, job_filter: JobFilter, signal: str | None, flags: list[str] | None
) -> tuple[CancelOutcome, ...]:
    number = 0
    if signal and signal != "0":
        try:
            number = signals.parse_signal(signal)
        except NotationError as error:
            raise Refused("ESLURM_REST_INVALID_QUERY", f"signal: {error}", "signal") from error
    words = flags or []
    for word in words:
        if word in _REFUSED_FLAGS:
            raise Refused("ESLURM_NOT_SUPPORTED", f"flags: {word} is not supported by Spritz", "flags")
    request = CancelJobs(
        filter=job_filter,
        signal=number,
        batch=_BATCH in words,
        full=any(word in words for word in _FULL),
        hurry=_HURRY in words,
    )
    return (await ask.controller.call(request, CancelResult)).outcomes


def _status(cancel_outcome: CancelOutcome) -> dict[str, Any]:
    number, text = ESLURM.get(cancel_outcome.code, (1, cancel_outcome.code)) if cancel_outcome.code else (0, "No error")
    step = "" if cancel_outcome.step_id is None else str(cancel_outcome.step_id)
    error = {"string": text, "code": number, "message": cancel_outcome.message}
    return {
        "error": error,
        "step_id": f"{cancel_outcome.label}.{step}" if step else cancel_outcome.label,
        "job_id": cancel_outcome.job_id,
    }


@operation("POST /slurm/job/{job_id}")
async def post_job(ask: Ask) -> Result:
    """Change a job. As in scontrol, `hold` and priority 0 hold the job, and an infinite priority releases it."""
    target = target_of(ask.path["job_id"])
    desc = dict(ask.body)
    hold = desc.pop("hold", None)
    changes = _changes(desc)
    if not changes and hold is None:
        raise Refused("ESLURM_REST_INVALID_QUERY", "no field of the job to change", "#")
    done = Done()
    try:
        if changes:
            done = await ask.controller.call(UpdateJob(target=target, changes=changes), Done)
        if hold is not None:
            request = HoldJob(target=target) if hold else ReleaseJob(target=target)
            await ask.controller.call(request, Done)
    except RemoteError as error:
        fault = Fault(code=error.code, text=error.message, source="slurm_update_job2")
        return Answer(body={"results": [_result(target, error.code, error.message)]}, errors=[fault])
    return Answer(
        body={"results": [_result(target, "", "\n".join(done.messages))]},
        warnings=[(text, "slurm_update_job2") for text in done.messages],
    )


#: Fields that can only be set at submission.
_FIXED = ("user_id", "group_id", "script", "environment", "argv", "rlimits", "mcs_label", "immediate", "array")


def _changes(desc: dict[str, Any]) -> dict[str, object]:
    for name in _FIXED:
        if desc.get(name):
            raise bad(name, "can only be set when the job is submitted", "ESLURM_NOT_SUPPORTED")
    changes = fields_of(desc, update=True)
    end = desc.get("end_time")
    if end:
        changes["end_at"] = float(end)
    if "nodes_min" in changes:
        changes.setdefault("node_counts", None)
    if "gres_per_node" in changes:
        changes["gpus_per_node"] = ()
    if "memory_mib_per_cpu" in changes:
        changes.update(memory_mib_per_node=None, memory_mib_per_gpu=None)
    elif "memory_mib_per_node" in changes:
        changes.update(memory_mib_per_cpu=None, memory_mib_per_gpu=None)
    plain: dict[str, object] = to_builtins(changes, builtin_types=(bytes,))
    return plain


def _result(target: JobTarget, code: str, message: str) -> dict[str, Any]:
    number, text = ESLURM.get(code, (1, message)) if code else (0, "No error")
    return {"job_id": target.job_id, "step_id": "", "error": text, "error_code": number, "why": message}


@operation("GET /slurm/job/{job_id}/requeue")
async def requeue_job(ask: Ask) -> Result:
    flags = [name for name in ("Incomplete", "Hold", "SpecialExit") if _is_set(ask.query.get(name))]
    target = target_of(ask.path["job_id"])
    result, fault = await _requeue(ask, target, flags)
    return Answer(body={"status": [result]}, errors=[fault] if fault else [])


@operation("POST /slurm/jobs/requeue")
async def requeue_jobs(ask: Ask) -> Result:
    """Requeue each named job; a job that cannot be requeued is reported in `errors`, and the others go on."""
    words = [word for word in ask.body.get("jobs") or () if word]
    if not words:
        raise Refused("ESLURM_REST_INVALID_QUERY", "no jobs are named", "jobs")
    results, faults = [], []
    for target in targets_of(words):
        result, fault = await _requeue(ask, target, ask.body.get("flags") or [])
        results.append([result])
        faults += [fault] if fault else []
    return Answer(body={"status": results}, errors=faults)


def _is_set(text: str | None) -> bool:
    return text is not None and text.lower() not in ("0", "false", "no")


async def _requeue(ask: Ask, target: JobTarget, flags: list[str]) -> tuple[dict[str, Any], Fault | None]:
    special = "SpecialExit" in flags
    request = RequeueJob(
        target=target, hold="Hold" in flags or special, special_exit=special, incomplete_only="Incomplete" in flags
    )
    try:
        await ask.controller.call(request, Done)
    except RemoteError as error:
        fault = Fault(code=error.code, text=error.message, source="slurm_requeue2")
        return _result(target, error.code, error.message), fault
    return _result(target, "", ""), None
