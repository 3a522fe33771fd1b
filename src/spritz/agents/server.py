"""The tools. An agent knows their descriptions alone, so these say what an answer means and what to ask next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import Field

from spritz import __version__
from spritz.agents.calling import Failed, ask, bounded, call, plain

_JOB = (
    "job_id", "array_job_id", "array_task_id", "name", "user_name", "account", "partition", "qos", "job_state",
    "state_reason", "state_description", "priority", "submit_time", "start_time", "end_time", "time_limit", "nodes",
    "node_count", "cpus", "tres_req_str", "tres_alloc_str", "dependency", "restart_cnt", "exit_code", "submit_line",
    "current_working_directory", "standard_output", "standard_error", "comment",
)  # fmt: skip
_NODE = (
    "name", "state", "reason", "partitions", "cpus", "alloc_cpus", "real_memory", "alloc_memory", "gres", "gres_used",
    "cpu_load", "free_mem", "features",
)  # fmt: skip

_READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ADD = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_END = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

JobId = Annotated[str, Field(pattern=r"^\d{1,10}(_\d{1,7}|\+\d{1,3})?$", description="12, or 12_3 of an array")]
Name = Annotated[str, Field(pattern=r"^[^\s-][^\s]*$", max_length=256)]

#: Options of sbatch that have no place in a tool's call.
_NOT_HERE = ("--wrap", "--wait", "-W")

#: Bytes of a log that are read at most: its end.
_LOG_BYTES = 200_000

_INSTRUCTIONS = (
    "A Slurm-compatible cluster (Spritz). Start with cluster_overview; ask why_pending about a job that waits, and "
    "job_log and job_history about one that failed. Times are seconds since the epoch, memory is in MiB."
)


def server(*, actions: bool) -> MCPServer:
    """The server; `actions`: with tools that change something."""
    made = MCPServer("spritz", instructions=_INSTRUCTIONS, version=__version__, log_level="CRITICAL")
    kinds = [(_READ, _READING), *([(_ADD, _CHANGING), (_END, _ENDING)] if actions else [])]
    for kind, functions in kinds:
        for function in functions:
            made.tool(annotations=kind, structured_output=False)(function)
    return made


async def cluster_overview() -> Any:
    """Daemons, nodes, CPUs, GPUs and numbers of jobs of the whole cluster, at a glance."""
    return bounded(await ask("spritz", "status", "--json"))


async def list_jobs(
    state: Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "all"] = "all",
    user: Name | None = None,
    partition: Name | None = None,
    first: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
) -> Any:
    """Jobs that wait, run, or have ended in the last minutes, by priority. `more` says how many follow `limit`."""
    words = ["-t", state, *(["-u", user] if user else []), *(["-p", partition] if partition else [])]
    jobs = (await ask("squeue", "--json", *words))["jobs"]
    shown = [_of(job, _JOB[:16]) for job in jobs[first : first + limit]]
    return bounded({"jobs": shown, "more": max(0, len(jobs) - first - limit)})


async def show_job(job_id: JobId) -> Any:
    """What is known of one job that is queued, runs, or ended lately. For older ones ask accounting."""
    jobs = (await ask("scontrol", "--json", "show", "job", job_id))["jobs"]
    return bounded([_of(job, _JOB) for job in jobs[:50]])


async def why_pending(job_id: JobId) -> Any:
    """Why a job waits, when it starts by the scheduler's plan, which jobs are in its way, and what would help."""
    return bounded(plain(await ask("scontrol", "--json", "explain", job_id)))


async def job_history(job_id: JobId) -> Any:
    """What happened to a job from its submission on, and when: starts, requeues, failures, its end."""
    return bounded(await ask("spritz", "history", "--json", job_id))


async def job_log(
    job_id: JobId,
    stream: Literal["stdout", "stderr"] = "stdout",
    lines: Annotated[int, Field(ge=1, le=2000)] = 100,
    containing: Annotated[str, Field(max_length=200)] = "",
) -> Any:
    """The last lines of a job's output file, or those of its end that contain a text."""
    name = {"stdout": "stdout_expanded", "stderr": "stderr_expanded"}[stream]
    job = (await ask("scontrol", "--json", "show", "job", job_id))["jobs"][0]
    path = job.get(name) or job.get({"stdout": "standard_output", "stderr": "standard_error"}[stream]) or ""
    if not path:
        raise Failed(f"job {job_id} has no file for {stream}")
    try:
        size, found = await asyncio.to_thread(_end_of, path)
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from error
    kept = [line[:2000] for line in found if containing in line][-lines:]
    return bounded({"file": path, "bytes": size, "lines": kept})


async def job_efficiency(job_id: JobId) -> Any:
    """What a job used of the CPUs, memory, GPUs and time that it asked for, and what to ask for next time."""
    return bounded(await ask("spritz", "eff", "--json", job_id))


async def list_nodes(
    names: Annotated[str, Field(max_length=1000, description="a hostlist such as gpu[1-8]; empty: all")] = "",
    first: Annotated[int, Field(ge=0)] = 0,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
) -> Any:
    """Nodes: state, why one is drained or down, what is free and what is allocated."""
    nodes = (await ask("scontrol", "--json", "show", "node", *([names] if names else [])))["nodes"]
    shown = [_of(node, _NODE) for node in nodes[first : first + limit]]
    return bounded({"nodes": shown, "more": max(0, len(nodes) - first - limit)})


async def free_gpus() -> Any:
    """Which GPUs are free, of which type, on which nodes, and when the next come free."""
    return bounded(await ask("spritz", "gpus", "--json"))


async def accounting(
    since: Annotated[str, Field(pattern=r"^[\w:+.-]{1,40}$", description="now-7days, 2026-11-01 …")] = "now-1days",
    user: Name | None = None,
    state: Literal["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY", "NODE_FAIL", "any"] = "any",
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
) -> Any:
    """Jobs that ended or ran since a time, also those that slurmctld has forgotten. The newest are last."""
    names = "JobID,JobName,User,Account,Partition,State,ExitCode,Submit,Start,End,Elapsed,AllocTRES,NodeList"
    words = ["-X", "-n", "-P", "-S", since, "-o", names, *(["-u", user] if user else ["-a"])]
    words += ["-s", state, "-E", "now"] if state != "any" else []
    lines = (await call("sacct", *words)).splitlines()
    rows = [dict(zip(names.split(","), line.split("|"), strict=False)) for line in lines]
    return bounded({"jobs": rows[-limit:], "earlier": max(0, len(rows) - limit)})


async def shares() -> Any:
    """What each account is guaranteed, uses, borrows and lends, and who goes first."""
    return bounded(await ask("spritz", "shares", "--json"))


async def list_runs(
    text: Annotated[str, Field(max_length=200, pattern=r"^[^-].*$|^$", description="words to search for")] = "",
    limit: Annotated[int, Field(ge=1, le=200)] = 20,
) -> Any:
    """Your experiments (`spritz run`): command, state, tags, results; the newest first."""
    return bounded(await ask("spritz", "runs", "--json", "-n", str(limit), *([text] if text else [])))


async def show_run(run: Name) -> Any:
    """One experiment: code snapshot, environment, parameters, lives, result and metrics."""
    return bounded(await ask("spritz", "show", "--json", run))


async def diff_runs(first: Name, second: Name) -> Any:
    """How two experiments differ: command, code, environment, result."""
    return bounded(await call("spritz", "diff", first, second))


async def submit_job(
    script: Annotated[str, Field(max_length=1_000_000, description="a batch script, which begins with #!/bin/sh")],
    options: Annotated[list[str] | None, Field(description='of sbatch: ["--gpus=2", "--time=1:00:00"]')] = None,
    test_only: Annotated[bool, Field(description="say when and where it would start, and submit nothing")] = False,
) -> Any:
    """Submit a batch job, with the user's rights. Try test_only first."""
    given = options or []
    if wrong := [word for word in given if not word.startswith("-") or word.split("=")[0] in _NOT_HERE]:
        raise Failed(f"{wrong[0]}: options of sbatch are wanted, as --NAME=VALUE, without --wrap and --wait")
    said = await call("sbatch", *given, "--test-only" if test_only else "--parsable", stdin=script)
    return said.strip() or "it could start now"


async def cancel_job(job_id: JobId) -> Any:
    """End a job. Its processes are killed; it is not started again."""
    await call("scancel", "-v", job_id)
    return f"job {job_id} was told to end"


async def hold_job(job_id: JobId) -> Any:
    """Keep a waiting job from starting until it is released."""
    return await call("scontrol", "hold", job_id) or f"job {job_id} is held"


async def release_job(job_id: JobId) -> Any:
    """Let a held job wait for its start again."""
    return await call("scontrol", "release", job_id) or f"job {job_id} is released"


async def requeue_job(job_id: JobId) -> Any:
    """End a running batch job and queue it again from its beginning."""
    return await call("scontrol", "requeue", job_id) or f"job {job_id} is queued again"


async def update_job(
    job_id: JobId,
    changes: Annotated[dict[str, str], Field(description='as of scontrol: {"TimeLimit": "2:00:00"}', max_length=20)],
) -> Any:
    """Change a job: TimeLimit, Partition, Priority, Comment, Nice, NumNodes and others of `scontrol update`."""
    if wrong := [name for name in changes if not name.isalnum() or name.lower() == "jobid"]:
        raise Failed(f"{wrong[0]!r} is no field of a job")
    words = [f"{name}={value}" for name, value in changes.items()]
    return await call("scontrol", "update", f"JobId={job_id}", *words) or f"job {job_id} is changed"


def _of(record: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = plain({name: record.get(name) for name in names})
    return found


def _end_of(path: str) -> tuple[int, list[str]]:
    """The file's size, and the lines of its end."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _LOG_BYTES))
        return size, file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines()


_READING: tuple[Callable[..., Any], ...] = (
    cluster_overview, list_jobs, show_job, why_pending, job_history, job_log, job_efficiency, list_nodes, free_gpus,
    accounting, shares, list_runs, show_run, diff_runs,
)  # fmt: skip
_CHANGING: tuple[Callable[..., Any], ...] = (submit_job, hold_job, release_job, update_job)
_ENDING: tuple[Callable[..., Any], ...] = (cancel_job, requeue_job)
