"""Processes of jobs on this machine: listpids, listjobs, liststeps, pidinfo.

A job's processes are known by the SLURM_JOB_ID in their environment, of which one sees one's own (root: all). The
supervisors themselves are not listed. Source: scontrol(1).
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from spritz.client.locate import locate_controller
from spritz.model.ids import step_name
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.presentation.record import moment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.cli.administration.control.session import Session


class Process:
    """One process and its place in a job. `step` is `batch` for the script and what it starts itself."""

    __slots__ = ("cluster", "global_id", "job", "local_id", "node", "pid", "step")

    def __init__(self, pid: int, environment: dict[str, str]) -> None:
        self.pid = pid
        self.job = environment["SLURM_JOB_ID"]
        step = environment.get("SLURM_STEP_ID", "")
        self.step = step_name(int(step)) if step.isdecimal() else "batch"
        self.local_id = environment.get("SLURM_LOCALID", "-")
        self.global_id = environment.get("SLURM_PROCID", "-")
        self.node = environment.get("SLURMD_NODENAME", "")
        self.cluster = environment.get("SLURM_CLUSTER_NAME", "")

    def as_json(self) -> dict[str, object]:
        """Its record in a JSON answer. Source: `LISTPIDS_INFO` of Slurm's data_parser."""
        from spritz.presentation.json.values import number

        return {
            "global_task_id": number(int(self.global_id) if self.global_id.isdecimal() else None),
            "local_task_id": number(int(self.local_id) if self.local_id.isdecimal() else None),
            "job_id": int(self.job),
            "pid": self.pid,
            "step_id": self.step,
        }


def processes() -> Iterator[Process]:
    """All of this cluster's that can be seen, by number."""
    cluster = locate_controller().cluster_name
    for entry in sorted((name for name in os.listdir("/proc") if name.isdecimal()), key=int):
        process = _process(int(entry))
        if process is not None and process.pid != os.getpid() and process.cluster in ("", cluster):
            yield process


def _process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return None
    environment = {}
    for item in content.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals and name.startswith(b"SLURM"):
            environment[name.decode("ascii", "replace")] = value.decode("utf-8", "replace")
    # A shell with a job's variables that runs elsewhere (salloc's) is on no node.
    if not environment.get("SLURM_JOB_ID", "").isdecimal() or "SLURMD_NODENAME" not in environment:
        return None
    return Process(pid, environment)


def list_pids(session: Session, words: list[str]) -> int:
    """`listpids [JOB[.STEP]] [NODE]`: print the processes of jobs on this machine. Returns the exit status."""
    target = words[0] if words and not words[0].startswith("*") else ""
    node = words[1] if len(words) > 1 else ""
    here = list(_on_node(node))
    job, _, step = target.partition(".")
    chosen = [process for process in here if job in ("", process.job) and step in ("", process.step)]
    if not chosen and (target or session.json is None):
        return _no_pids(session, target, node, anything=bool(here))
    if session.json is not None:
        _show_json(session, "pids", [process.as_json() for process in chosen])
        return 0 if chosen else 1
    session.out(f"{'PID':<8} {'JOBID':<8} {'STEPID':<8} {'LOCALID':<7} {'GLOBALID':<8}\n")
    for process in chosen:
        session.out(
            f"{process.pid:<8} {process.job:<8} {process.step:<8} {process.local_id:<7} {process.global_id:<8}\n"
        )
    return 0


def _no_pids(session: Session, target: str, node: str, *, anything: bool) -> int:
    """Say that there are no such processes. `anything`: the node has some of other jobs."""
    if not target:
        session.context.err("No job steps exist on this node.\n")
    elif anything and "." not in target:
        session.context.err(f"There are no steps for job {target} on node {node or '(null)'}.\n")
    else:
        name = "StepId" if "." in target else "JobId"
        session.context.err(f"{name}={target} does not exist on node {node or '(null)'}.\n")
    if not anything and session.json is not None:
        _show_json(session, "pids", [])
    return 1


def list_jobs(session: Session, words: list[str]) -> int:
    """`listjobs [NODE]`: print the ids of jobs with a supervisor on this machine. Returns the exit status."""
    jobs = sorted({int(process.job) for process in _on_node(*words)})
    if session.json is not None:
        _show_json(session, "jobs", [{"job_id": job} for job in jobs])
        return 0
    if not jobs:
        session.context.err("No slurmstepd's found on this node\n")
        return 1
    session.out("JOBID\n" + "".join([f"{job:<8}\n" for job in jobs]))
    return 0


def list_steps(session: Session, words: list[str]) -> int:
    """`liststeps [NODE]`: print the ids of steps with a supervisor on this machine. Returns the exit status."""
    steps = sorted({(int(process.job), process.step) for process in _on_node(*words)})
    if session.json is not None:
        _show_json(session, "steps", [{"job_id": job, "step_id": step} for job, step in steps])
        return 0
    if not steps:
        session.context.err("No slurmstepd's found on this node\n")
        return 1
    session.out(f"{'JOBID':<8} {'STEPID':<8}\n" + "".join([f"{job:<8} {step:<8}\n" for job, step in steps]))
    return 0


def _on_node(node: str = "") -> Iterator[Process]:
    """Processes on this machine, of one of its nodes if it is named."""
    return (process for process in processes() if node in ("", process.node))


def _show_json(session: Session, name: str, records: list[dict[str, object]]) -> None:
    from spritz.presentation.json.envelope import show

    assert session.json is not None
    show(session.context, session.json, {name: records})


def pid_info(session: Session, words: list[str]) -> int:
    """pidinfo PID: its job, and when that ends."""
    word = words[0]
    process = _process(int(word)) if word.isascii() and word.isdigit() and len(word) < 10 else None
    if process is None:
        session.say("Failed to locate job for requested pid")
        return 1

    query = ListJobs(filter=JobFilter(targets=(JobTarget(int(process.job)),)), fields=("ends_at",), all=True)
    pieces = list(session.controller().stream(query, JobRows))
    rows = [row for piece in pieces for row in piece.rows]
    now = pieces[-1].now if pieces else 0.0
    ends = float(str(rows[0][0])) if rows else 0.0
    if not ends:
        session.out(f"Slurm JobId={process.job} StepId={process.step} ends at {moment(ends, 'UNLIMITED')}\n")
        return 0
    session.out(f"Slurm JobId={process.job} ends at {time.ctime(ends)}\n")
    session.out(f"Job remaining time is {max(0, int(ends - now))} seconds\n")
    return 0
