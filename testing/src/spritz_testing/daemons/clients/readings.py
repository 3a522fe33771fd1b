"""What users look at: squeue, sinfo, scontrol show job, scontrol explain, scontrol write batch_script."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spritz.client.command.sync import Connection, connect_controller
from spritz.client.errors import RemoteError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.explanations import ExplainJob, Explanations
from spritz.model.queries.jobs import GetScript, JobRows, ListJobs, Script
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.presentation.job.job_states import DEFAULT_STATES
from spritz_testing.daemons.history import Reading

if TYPE_CHECKING:
    from spritz_testing.daemons.clients.command import Command, Data

#: Fields of JobSpec that scontrol show job is asked for.
_SPEC_FIELDS = ("name", "comment", "time_limit_minutes", "nice", "licenses")


#: squeue's: what has not ended, or is COMPLETING.
_LIVE = JobFilter(states=DEFAULT_STATES)


def _read(command: Command, kind: str, read: Callable[[Connection], Any]) -> None:
    """Enter what was shown; nothing if the controller does not answer. Raises ClientError."""
    called_at = command.world.now
    command.world.count(f"asked {kind}")
    with connect_controller() as controller:
        rows = read(controller)
    reading = Reading(client=command.user, kind=kind, called_at=called_at, answered_at=command.world.now, rows=rows)
    command.users.history.add(reading)


def _rows(controller: Connection, fields: tuple[str, ...], job_filter: JobFilter) -> list[Any]:
    """Values of these fields of each job that matches."""
    request = ListJobs(fields=fields, filter=job_filter, all=True)
    return [row for piece in controller.stream(request, JobRows, timeout=30.0) for row in piece.rows]


def squeue(command: Command, data: Data) -> None:
    """(job id, state, reason) of every job that is not over."""
    _read(command, "squeue", lambda controller: _rows(controller, ("id", "state", "reason"), _LIVE))


def expected_starts(command: Command, data: Data) -> None:
    """squeue --start: (job id, planned start) of waiting jobs, highest priority first."""

    def read(controller: Connection) -> Any:
        rows = _rows(controller, ("id", "expected_start_at", "priority", "reason"), JobFilter(states=("PENDING",)))
        blocked = [row for row in rows if row[1] and row[3] in ("Resources", "Priority")]
        return [(row[0], row[1]) for row in sorted(blocked, key=lambda row: (-row[2], row[0]))]

    _read(command, "expected_starts", read)


def show_job(command: Command, data: Data) -> None:
    """scontrol show job: (job id, state, reason, fields) of its records; none if the controller does not know it."""
    target = JobTarget(command.users.job_id(data["tag"]))
    paths = ("id", "state", "reason", *(f"spec.{name}" for name in _SPEC_FIELDS))

    def read(controller: Connection) -> Any:
        try:
            rows = _rows(controller, paths, JobFilter(targets=(target,)))
        except RemoteError:
            return []
        return [(*row[:3], dict(zip(_SPEC_FIELDS, row[3:], strict=True))) for row in rows]

    _read(command, "job", read)


def show_script(command: Command, data: Data) -> None:
    """scontrol write batch_script: (job id, script), or (job id, None) if the controller does not know the job."""
    job_id = command.users.job_id(data["tag"])

    def read(controller: Connection) -> Any:
        try:
            return job_id, controller.call(GetScript(job_id=job_id), Script).script.decode()
        except RemoteError as error:
            if error.code != "ESLURM_INVALID_JOB_ID":
                return job_id, error.code
            return job_id, None

    _read(command, "show_script", read)


def explain(command: Command, data: Data) -> None:
    """scontrol explain: (job id, verdict, how sure, expected start) of each record."""
    target = JobTarget(command.users.job_id(data["tag"]))

    def read(controller: Connection) -> Any:
        try:
            found = controller.call(ExplainJob(target=target, others=False), Explanations, timeout=60.0)
        except RemoteError as error:
            return error.code
        return [
            (one.job_id, one.verdict, one.expected.sure, one.expected.start_at)
            for one in found.explanations
            if one.expected is not None
        ]

    _read(command, "explain", read)


def sinfo(command: Command, data: Data) -> None:
    """Nodes: (name, states, CPUs and memory in use, jobs)."""

    def read(controller: Connection) -> Any:
        nodes = controller.call(ListNodes(all=True), Nodes).nodes
        return [
            (view.node.config.name, view.state_names, view.cpus_allocated, view.memory_allocated_mib, view.jobs)
            for view in nodes
        ]

    _read(command, "sinfo", read)


READINGS = {
    "squeue": squeue,
    "expected_starts": expected_starts,
    "show_job": show_job,
    "show_script": show_script,
    "explain": explain,
    "sinfo": sinfo,
}
