"""Slurm's public commands as functions, in the formats that 22.05 and newer share."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spritz.experiments.errors import ExperimentError
from spritz.notation import ranges

#: Final states of a job.
FINAL = frozenset(
    ["BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"]
) | {"REVOKED", "TIMEOUT"}
_SECONDS = 60.0
#: Messages of sbatch if the controller is busy or restarting; the submission was not queued then.
_TRANSIENT = ("Unable to contact slurm controller", "temporarily unable to accept job")


@dataclass(frozen=True)
class JobState:
    """A job's state by squeue or sacct. `state`: Slurm's long name, such as RUNNING."""

    job_id: str
    state: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    nodes: str = ""
    restarts: int = 0
    started_at: str = ""
    ended_at: str = ""


class Unanswered(ExperimentError):
    """A command took too long: its request may have been executed, or may still be."""


def call(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of Slurm's commands. Raises ExperimentError if it is missing, or does not answer in a minute."""
    try:
        return subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_SECONDS,
            cwd=cwd,
            env=None if environment is None else dict(environment),
        )
    except FileNotFoundError as error:
        raise ExperimentError(
            f"{command[0]}: not found", hint="put Slurm's commands on PATH, or start a cluster with `spritz up`"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Unanswered(f"{command[0]} did not answer in {_SECONDS:g} s") from error


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The command's error message, without its name."""
    lines = [line.partition(": ")[2] or line for line in done.stderr.strip().splitlines()]
    return "; ".join(line.removeprefix("error: ") for line in lines if line) or f"exit status {done.returncode}"


def submit(script: str, options: Iterable[str] = (), *, environment: Mapping[str, str] | None = None) -> str:
    """The id of the job that `sbatch` queued for the file `script`. Raises ExperimentError."""
    for patience in (0.5, 1.0, 2.0, 0.0):
        done = call(["sbatch", "--parsable", *options, script], environment=environment)
        if done.returncode == 0:
            return done.stdout.strip().splitlines()[-1].partition(";")[0]
        if not patience or not any(words in done.stderr for words in _TRANSIENT):
            break
        time.sleep(patience)
    from spritz.experiments.cluster import refusals

    raise ExperimentError(f"sbatch: {said(done)}", hint=refusals.hint(done.stderr, script, call))


def is_transient(message: str) -> bool:
    """Whether an error of these commands is temporary: the controller is busy or does not answer."""
    return any(words in message for words in (*_TRANSIENT, "did not answer", "timed out", "Connection refused"))


def cancel(*job_ids: str, signal: str = "") -> None:
    """Cancel or signal jobs; ignores jobs that have ended already. Raises ExperimentError."""
    if not job_ids:
        return
    options = ["--signal", signal] if signal else []
    done = call(["scancel", *options, *job_ids])
    if done.returncode and "already completing or completed" not in done.stderr and "Invalid job id" not in done.stderr:
        raise ExperimentError(f"scancel: {said(done)}")


def cancel_pending(*job_ids: str) -> set[str]:
    """Cancel those of the jobs that have not started. Returns those that will not run. Raises ExperimentError."""
    done = call(["scancel", "--state=PENDING", *job_ids])
    if done.returncode and "already completing or completed" not in done.stderr and "Invalid job id" not in done.stderr:
        raise ExperimentError(f"scancel: {said(done)}")
    # The queue forgets tasks of an array that never began.
    states = queued(job_ids)
    return {job_id for job_id in job_ids if job_id not in states or states[job_id].state in FINAL}


def hold(job_id: str, *, requeue: bool = False) -> None:
    """Hold a pending job, or requeue a running one held. Raises ExperimentError."""
    done = call(["scontrol", "requeuehold" if requeue else "hold", job_id])
    if done.returncode:
        raise ExperimentError(f"scontrol: {said(done)}")


def release(job_id: str, *, in_seconds: int = 0) -> None:
    """Release a held job. For a requeued job this also shortens its delay of two minutes. Raises ExperimentError."""
    done = call(["scontrol", "release", job_id])
    if done.returncode:
        raise ExperimentError(f"scontrol: {said(done)}")
    call(["scontrol", "update", f"JobId={job_id}", f"StartTime=now+{in_seconds}" if in_seconds else "StartTime=now"])


def queued(job_ids: Iterable[str]) -> dict[str, JobState]:
    """Jobs that the controller knows, by id; array tasks by `ID_INDEX`. For an array's task, returns all its tasks."""
    ids = _whole(job_ids)
    states: dict[str, JobState] = {}
    for at in range(0, len(ids), 500):
        done = call(["squeue", "-h", "-r", "-t", "all", "-j", ",".join(ids[at : at + 500]), "-o", "%i|%T|%r|%N|%S|%e"])
        if done.returncode and "Invalid job id" not in done.stderr:
            raise ExperimentError(f"squeue: {said(done)}")
        for line in done.stdout.splitlines():
            job_id, state, reason, nodes, start, end = line.split("|", 5)
            states[job_id] = JobState(job_id, state, reason, nodes=nodes, started_at=start, ended_at=end)
    return states


def accounted(job_ids: Iterable[str]) -> dict[str, JobState]:
    """Jobs in accounting, by id; array tasks by `ID_INDEX`; empty without accounting."""
    ids = _whole(job_ids)
    states: dict[str, JobState] = {}
    for at in range(0, len(ids), 500):
        fields = "JobID,State,ExitCode,NodeList,Restarts,Start,End"
        # Tasks that were cancelled before they began may share a row: 7_[3-5].
        done = call(
            ["sacct", "-nPX", "-j", ",".join(ids[at : at + 500]), "-o", fields],
            environment={**os.environ, "SLURM_BITSTR_LEN": "0"},
        )
        if done.returncode:
            return states
        for line in done.stdout.splitlines():
            job_id, state, code, nodes, restarts, start, end = line.split("|")
            status, _, signal = code.partition(":")
            row = JobState(
                job_id,
                state.split()[0],
                exit_code=int(status or 0),
                signal=int(signal or 0),
                nodes=nodes,
                restarts=int(restarts or 0),
                started_at=start,
                ended_at=end,
            )
            for task in _tasks(job_id):
                # A task's own row has more to say.
                if task == job_id or task not in states:
                    states[task] = replace(row, job_id=task)
    return states


def _tasks(job_id: str) -> list[str]:
    """`7_3`, `7_4` for `7_[3-4%2]`; the id itself for others, and where the list was cut."""
    array, bracket, text = job_id.partition("_[")
    if not bracket:
        return [job_id]
    try:
        return [f"{array}_{index}" for index in ranges.parse_array(f"[{text}").task_ids]
    except ranges.RangeError:
        return [job_id]


def _whole(job_ids: Iterable[str]) -> list[str]:
    """The ids without index: a single query covers all tasks of an array."""
    return list(dict.fromkeys(job_id.partition("_")[0] for job_id in job_ids))


def of_script(name: str, *paths: str) -> set[str]:
    """Ids, without index, of the user's jobs of this name, with one of these scripts, that the controller knows."""
    done = call(["squeue", "-h", "-t", "all", "--me", "-n", name, "-o", "%F %o"])
    if done.returncode:
        raise ExperimentError(f"squeue: {said(done)}")
    rows = (line.partition(" ") for line in done.stdout.splitlines())
    return {job_id for job_id, _, script in rows if script.strip() in paths}


def scripts() -> dict[str, str]:
    """Batch script -> id, without index, of the user's newest job with it that the controller knows."""
    done = call(["squeue", "-h", "-t", "all", "--me", "-o", "%F %o"])
    if done.returncode:
        raise ExperimentError(f"squeue: {said(done)}")
    rows = (
        (script.strip(), job_id) for job_id, _, script in (line.partition(" ") for line in done.stdout.splitlines())
    )
    return dict(sorted(rows, key=lambda item: int(item[1])))


def shown(job_id: str) -> dict[str, str]:
    """`scontrol show job` as a mapping; empty if the controller has forgotten the job."""
    done = call(["scontrol", "-o", "show", "job", job_id])
    if done.returncode:
        return {}
    fields: dict[str, str] = {}
    for word in done.stdout.split():
        key, equals, value = word.partition("=")
        if equals and key not in fields:
            fields[key] = value
    return fields


def setting(name: str) -> str:
    """A line of `scontrol show config`; "" if it is missing, or the controller does not answer."""
    for line in call(["scontrol", "show", "config"]).stdout.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() == name:
            return value.strip()
    return ""


def in_job() -> bool:
    """Whether this process is part of a job."""
    return "SLURM_JOB_ID" in os.environ
