"""Events for subscribers: their public fields, as JSON, if the subscriber may see the object concerned.

A change shows no more than squeue, sinfo and `scontrol show` print: no scripts, no environments. Events about the
controller alone (policy, usage, pacing) are not sent.

Visibility follows PrivateData (`controller.api.private`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.json import Encoder

from spritz.controller.api.private import hides_jobs, may_see, usable
from spritz.core.rights import operates
from spritz.model import events as kinds
from spritz.model.events import cluster, job, reservation, step
from spritz.model.ids import step_name
from spritz.model.queries.events import Change
from spritz.model.states import NodeFlag
from spritz.notation.hostlist import compress

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.events import Event
    from spritz.model.job.record import Job
    from spritz.model.job.step import Step
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation

_encode = Encoder().encode

_Body = dict[str, Any]

#: Words of PrivateData that hide changes from some users.
_PRIVATE = frozenset({"jobs", "nodes", "partitions", "reservations"})


def is_public(state: State) -> bool:
    """Whether every caller sees the same changes."""
    return not _PRIVATE & set(state.settings.private_data)


def job_fields(record: Job) -> _Body:
    """All public fields of a job."""
    spec = record.spec
    body: _Body = {
        "job_id": record.id,
        "name": spec.name,
        "user": spec.user,
        "uid": spec.uid,
        "account": spec.account,
        "partition": record.partition or ",".join(spec.partitions),
        "qos": spec.qos,
        "state": record.state.value,
        "reason": record.reason.value,
        "priority": record.priority,
        "submitted_at": record.submitted_at,
        "restart_count": record.restart_count,
    }
    if record.array_job_id:
        body["array_job_id"] = record.array_job_id
    if record.array_task_id is not None:
        body["array_task_id"] = record.array_task_id
    if record.array is not None:
        body["array_tasks"] = record.array.task_count
    if record.allocation is not None:
        body["nodes"] = compress(record.allocation.names)
    return body


def _flags(bits: int) -> list[str]:
    return [flag.name for flag in NodeFlag if bits & flag and flag.name]


def _node_fields(node: Node) -> _Body:
    return {
        "name": node.name,
        "state": node.state.value,
        "flags": _flags(node.flags),
        "reason": node.reason,
        "features": list(node.active),
        "comment": node.comment,
    }


def _partition_fields(partition: Partition) -> _Body:
    return {
        "name": partition.name,
        "state": partition.state.value,
        "nodes": compress(partition.nodes),
        "default": partition.default,
    }


def _reservation_fields(reservation: Reservation) -> _Body:
    return {
        "name": reservation.name,
        "start_at": reservation.start_at,
        "end_at": reservation.end_at,
        "nodes": compress(reservation.nodes),
        "flags": list(reservation.flags),
        "users": list(reservation.users),
        "accounts": list(reservation.accounts),
    }


def _step_fields(step: Step) -> _Body:
    return {
        "job_id": step.job_id,
        "step_id": step.step_id,
        "name": step.spec.name,
        "state": step.state.value,
        "nodes": compress(step.node_names),
        "tasks": step.tasks,
    }


def _started(event: job.JobStarted) -> _Body:
    return {
        "job_id": event.job_id,
        "state": "RUNNING",
        "partition": event.allocation.partition,
        "nodes": compress(event.allocation.names),
        "cpus": event.allocation.cpu_count,
        "ends_at": event.ends_at,
        "configuring": event.configuring or event.powering_up,
    }


def _ended(event: job.JobEnded) -> _Body:
    return {
        "job_id": event.job_id,
        "state": event.state.value,
        "reason": event.reason.value,
        "exit_status": event.exit_status,
        "completing": compress(event.completing),
        "failed_node": event.failed_node,
    }


def _node_state(event: cluster.NodeRegistered | cluster.NodeStateChanged) -> _Body:
    return {
        "name": event.name,
        "state": event.state.value,
        "flags": _flags(event.flags),
        "reason": event.reason,
    }


def _step_end(event: step.StepNodeEnded | step.StepEnded) -> _Body:
    body: _Body = {
        "job_id": event.job_id,
        "step_id": event.step_id,
        "node": event.node,
        "exit_status": event.exit_status,
        "oom": event.oom,
    }
    if isinstance(event, step.StepEnded):
        body["state"] = event.state.value
    return body


def _fields(**constant: Any) -> Callable[[Any], _Body]:
    """The event's own fields, and the kind of change."""

    def body(event: Event) -> _Body:
        fields = {name: getattr(event, name) for name in event.__struct_fields__ if name != "at"}
        return {**fields, **constant}

    return body


#: Any: each function takes its own event type, which the table pairs with it.
_SHAPES: dict[type[Event], tuple[str, Callable[[Any], _Body]]] = {
    job.JobQueued: ("job", lambda event: job_fields(event.job)),
    job.JobUpdated: ("job", lambda event: job_fields(event.job)),
    job.ArrayTaskSplit: ("job", lambda event: {
        "job_id": event.job_id, "array_job_id": event.array_job_id, "array_task_id": event.task_id,
    }),
    job.ArrayTasksCancelled: ("job", lambda event: {"job_id": event.array_job_id, "tasks": event.tasks}),
    job.JobHeld: ("job", lambda event: {"job_id": event.job_id, "reason": event.reason.value, "priority": 0}),
    job.JobReleased: ("job", _fields()),
    job.JobBecameEligible: ("job", _fields()),
    job.DependenciesChanged: ("job", lambda event: {"job_id": event.job_id, "reason": event.reason.value}),
    job.JobsNoted: ("job", lambda event: {"jobs": [
        {"job_id": note.job_id, "reason": note.reason.value, "expected_start_at": note.expected_start_at}
        for note in event.notes
    ]}),
    job.JobStarted: ("job", _started),
    job.JobPrologsBegan: ("job", _fields()),
    job.JobNodeReady: ("job", _fields()),
    job.JobNodesUp: ("job", _fields()),
    job.JobConfigured: ("job", _fields(configuring=False)),
    job.JobSuspended: ("job", _fields(state="SUSPENDED")),
    job.JobResumed: ("job", lambda event: {"job_id": event.job_id, "state": "RUNNING", "ends_at": event.ends_at}),
    job.JobPreempted: ("job", _fields()),
    job.JobNodeFailed: ("job", _fields()),
    job.JobEnded: ("job", _ended),
    job.JobNodeGone: ("job", _fields()),
    job.JobRequeued: ("job", lambda event: {
        "job_id": event.job_id, "state": "PENDING", "reason": event.reason.value, "priority": event.priority,
        "restart_count": event.restart_count, "eligible_at": event.eligible_at,
    }),
    job.JobsPurged: ("job", lambda event: {"jobs": [{"job_id": number} for number in event.job_ids]}),
    step.StepOpened: ("step", lambda event: _step_fields(event.step)),
    step.StepLaunched: ("step", _fields()),
    step.StepNodeEnded: ("step", _step_end),
    step.StepEnded: ("step", _step_end),
    step.StepCancelled: ("step", _fields()),
    cluster.ClusterConfigured: ("cluster", lambda event: {"nodes": len(event.nodes), "partitions": [
        partition.name for partition in event.partitions
    ]}),
    cluster.NodesCreated: ("node", lambda event: {"names": [node.name for node in event.nodes]}),
    cluster.NodesDeleted: ("node", _fields()),
    cluster.NodeRegistered: ("node", _node_state),
    cluster.NodeStateChanged: ("node", _node_state),
    cluster.NodesPowered: ("node", _fields()),
    cluster.NodesRebooting: ("node", _fields()),
    cluster.NodeUpdated: ("node", lambda event: _node_fields(event.node)),
    cluster.PartitionCreated: ("partition", lambda event: _partition_fields(event.partition)),
    cluster.PartitionUpdated: ("partition", lambda event: _partition_fields(event.partition)),
    cluster.PartitionDeleted: ("partition", _fields()),
    reservation.ReservationCreated: ("reservation", lambda event: _reservation_fields(event.reservation)),
    reservation.ReservationUpdated: ("reservation", lambda event: _reservation_fields(event.reservation)),
    reservation.ReservationBegan: ("reservation", _fields()),
    reservation.ReservationDeleted: ("reservation", _fields()),
}  # fmt: skip

assert set(_SHAPES) == kinds.concerning("subscribers"), "an event without a shape, or with one that is never shown"


class Shaper:
    """Turns events into changes for one caller. `unknown_owner` is set when a job's change was left out because its
    record, and so its owner, is gone.
    """

    def __init__(self, state: State, caller: Caller) -> None:
        self._state = state
        self._caller = caller
        self.unknown_owner = False

    def change(self, sequence: int, event: Event) -> Change | None:
        """The change; None if the caller gets none."""
        entry = _SHAPES.get(type(event))
        if entry is None:
            return None
        kind, shape = entry
        body = shape(event)
        if not self._allowed(kind, body, event):
            return None
        ids: tuple[int, ...] = ()
        if "job_id" in body:
            ids = (body["job_id"],)
            self._identify(body)
        elif "jobs" in body:
            ids = tuple(row["job_id"] for row in body["jobs"])
        if "step_id" in body:
            body["step"] = step_name(body.pop("step_id"))
        data = _encode({"sequence": sequence, "at": event.at, "type": kind, "kind": type(event).__name__, **body})
        return Change(sequence=sequence, type=kind, job_ids=ids, data=data)

    def _identify(self, body: _Body) -> None:
        """Add the job's owner and name, for subscribers that have not seen it queued."""
        job = self._state.jobs.get(body["job_id"])
        if job is not None and "user" not in body:
            body["user"], body["account"] = job.spec.user, job.spec.account
            body.setdefault("partition", job.partition)

    def _allowed(self, kind: str, body: _Body, event: Event) -> bool:
        state, caller = self._state, self._caller
        private = state.settings.private_data
        if not private or operates(state, caller):
            return True
        if kind in ("job", "step"):
            return self._allowed_job(body, event)
        if kind == "reservation" and "reservations" in private:
            record = getattr(event, "reservation", None) or state.reservations.get(body["name"])
            return record is not None and bool(usable(state, [record], caller))
        if kind == "cluster" and {"nodes", "partitions"} & set(private):
            body.pop("nodes", None)
            body.pop("partitions", None)
        return not ((kind == "node" and "nodes" in private) or (kind == "partition" and "partitions" in private))

    def _allowed_job(self, body: _Body, event: Event) -> bool:
        state, caller = self._state, self._caller
        if not hides_jobs(state, caller):
            return True
        others = may_see(state, caller)

        def mine(number: int) -> bool:
            record = event.job if isinstance(event, (job.JobQueued, job.JobUpdated)) else state.jobs.get(number)
            if record is None:
                self.unknown_owner = True
                return False
            return record.spec.uid == caller.uid or others(record)

        if "jobs" in body:
            # A purge names records that are gone: their owners are unknown, and their ends were sent before.
            if isinstance(event, job.JobsPurged):
                return False
            body["jobs"] = [row for row in body["jobs"] if mine(row["job_id"])]
            return bool(body["jobs"])
        return mine(body["job_id"])
