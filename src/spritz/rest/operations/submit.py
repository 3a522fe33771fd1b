"""Submission. Source: OpenAPI `job_submit_req`, `job_alloc_req`; sbatch(1), salloc(1)."""

from __future__ import annotations

import os
from typing import Any

from spritz.model.commands.job import JobSubmitted, SubmitHetJob, SubmitJob
from spritz.model.job.record import JobSpec
from spritz.rest.answers import Answer, Refused
from spritz.rest.operations import Ask, Result, operation
from spritz.rest.operations.job_fields import bad, fields_of
from spritz.rest.users import gid_of, uid_of


@operation("POST /slurm/job/submit")
async def submit_job(ask: Ask) -> Result:
    """Submit a batch job, or with `jobs` a heterogeneous job."""
    descriptions = ask.body.get("jobs") or ([ask.body["job"]] if ask.body.get("job") else [])
    if not descriptions:
        raise Refused("ESLURM_REST_INVALID_JOBS_DESC", source="#/job/")
    outer = ask.body.get("script") or ""
    requests = []
    for place, desc in enumerate(descriptions):
        script = desc.get("script") or (outer if not place else "")
        requests.append(await _request(ask, desc, script=script, first=not place))
    return await _submitted(ask, requests, descriptions[0])


@operation("POST /slurm/job/allocate")
async def allocate(ask: Ask) -> Result:
    """Submit an allocation without a script, which lasts until it is cancelled or reaches its time limit."""
    descriptions = ask.body.get("hetjob") or ([ask.body["job"]] if ask.body.get("job") else [])
    if not descriptions:
        raise Refused("ESLURM_REST_INVALID_JOBS_DESC", source="#/job/")
    requests = [await _request(ask, desc, script=None, first=not place) for place, desc in enumerate(descriptions)]
    return await _submitted(ask, requests, descriptions[0])


async def _request(ask: Ask, desc: dict[str, Any], *, script: str | None, first: bool) -> SubmitJob:
    fields = fields_of(desc)
    clusters = desc.get("clusters") or ""
    if clusters and clusters.lower() not in (ask.daemons.cluster, "all"):
        raise bad("clusters", f"{clusters} is not this cluster", "ESLURM_INVALID_CLUSTER_NAME")
    batch = script is not None
    if batch and first:
        if not script:
            raise Refused("ESLURM_JOB_SCRIPT_MISSING", source="script")
        if not script.startswith("#!"):
            raise Refused(
                "ESLURM_JOB_SCRIPT_MISSING", "script: its first line must say with what it runs: #!/bin/sh", "script"
            )
    environment = desc.get("environment") or []
    if batch and first and not environment:
        raise Refused("ESLURM_ENVIRONMENT_MISSING", source="environment")
    for word in environment:
        if word is None or not word.partition("=")[1]:
            raise bad("environment", f"{str(word)[:80]!r} is not NAME=value")
    if desc.get("user_id"):
        fields["uid"] = await uid_of(desc["user_id"])
    if desc.get("group_id"):
        fields["gid"] = await gid_of(desc["group_id"])
    fields.setdefault("work_dir", "/")
    if not fields["work_dir"].startswith("/"):
        raise bad("current_working_directory", "the path must be absolute")
    _sizes(fields)
    spec = JobSpec(
        **fields,
        batch=batch,
        arguments=tuple(word for word in desc.get("argv") or () if word is not None),
        submit_host=os.uname().nodename,
        submit_line="",
    )
    environ = tuple(os.fsencode(word) for word in environment) if first else ()
    return SubmitJob(
        spec=spec,
        script=os.fsencode(script) if script and first else b"",
        environment=environ,
        immediate_seconds=0 if desc.get("immediate") else None,
        submit_key=ask.submit_key if first else "",
    )


def _sizes(fields: dict[str, Any]) -> None:
    """Derive the number of nodes from named nodes, and the number of tasks from nodes and tasks per node."""
    hosts = fields.get("node_list")
    if hosts:
        fields["node_list"] = hosts = tuple(dict.fromkeys(hosts))
        if not fields.get("nodes_given") and not fields.get("tasks_given"):
            fields["nodes_min"] = max(fields.get("nodes_min", 1), len(hosts))
    nodes, per_node = fields.get("nodes_min", 1), fields.get("tasks_per_node")
    if not fields.get("tasks_given"):
        fields["tasks"] = nodes * (per_node or 1)
    elif per_node and not fields.get("nodes_given"):
        fields["nodes_min"] = -(-fields["tasks"] // per_node)


async def _submitted(ask: Ask, requests: list[SubmitJob], desc: dict[str, Any]) -> Result:
    request = requests[0] if len(requests) == 1 else SubmitHetJob(components=tuple(requests))
    reply = await ask.controller.call(request, JobSubmitted)
    message = "\n".join(reply.messages)
    body = {
        "job_id": reply.job_id,
        "step_id": "batch" if requests[0].spec.batch else "",
        "job_submit_user_msg": message,
        "result": {
            "job_id": reply.job_id,
            "step_id": "batch" if requests[0].spec.batch else "",
            "error_code": 0,
            "error": "No error",
            "job_submit_user_msg": message,
        },
    }
    return Answer(body=body)
