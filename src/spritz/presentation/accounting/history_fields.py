"""The catalogues of sacctmgr's node events, reservations and runaway jobs.

A row is a dict: `e` an event, `r` a reservation, `job` a job's record, and plain values by name. Source: sacctmgr(1);
headings and widths as 22.05 prints them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.states import NodeFlag
from spritz.notation.duration import format_duration
from spritz.notation.times import format_time
from spritz.presentation.node.node_states import state_word
from spritz.presentation.table import TableField
from spritz.presentation.users import name_of

if TYPE_CHECKING:
    from spritz.model.accounting.records import NodeEventRecord, ReservationRecord
    from spritz.presentation.accounting.association_fields import Row

#: Slurm's numbers of base states, and of flags (slurm.h, NODE_STATE_*).
BASE_STATES = {"DOWN": 1, "IDLE": 2, "ALLOCATED": 3, "ERROR": 4, "MIXED": 5, "FUTURE": 6}
_FLAGS = {"DRAIN": 0x200, "COMPLETING": 0x400, "NOT_RESPONDING": 0x800, "POWERED_DOWN": 0x1000, "FAIL": 0x2000}
_FLAGS |= {"POWERING_UP": 0x4000, "MAINTENANCE": 0x8000, "REBOOT_REQUESTED": 0x10000}


def _time(epoch: float) -> str:
    return format_time(epoch) if epoch else "Unknown"


def _event(row: Row) -> NodeEventRecord:
    event: NodeEventRecord = row["e"]
    return event


def _state(row: Row) -> str:
    event = _event(row)
    return (
        state_word([event.state, *_flag_names(event)], compact=True).rstrip("*$^@#%!~-").upper() if event.node else ""
    )


def _flag_names(record: NodeEventRecord) -> list[str]:
    return [flag.name for flag in NodeFlag if flag.name and record.flags & flag.value]


def _state_raw(row: Row) -> int:
    event = _event(row)
    return BASE_STATES.get(event.state, 0) + sum(_FLAGS.get(name, 0) for name in _flag_names(event))


def _reason(row: Row) -> str:
    event = _event(row)
    return event.reason if event.node else "Cluster Registered TRES"


def _user(row: Row) -> str:
    event = _event(row)
    return f"{name_of(event.reason_uid)}({event.reason_uid})" if event.node else ""


def _duration(row: Row) -> str:
    event = _event(row)
    return format_duration(max(0, int((event.ended_at or row["now"]) - event.started_at)))


#: `show event`
EVENT_FIELDS: dict[str, TableField] = {
    "cluster": TableField("Cluster", 10, lambda row: row["cluster"]),
    "clusternodes": TableField("Cluster Nodes", 20, lambda row: _event(row).nodes),
    "duration": TableField("Duration", 13, _duration),
    "end": TableField("TimeEnd", 19, lambda row: _time(_event(row).ended_at)),
    "timeend": TableField("TimeEnd", 19, lambda row: _time(_event(row).ended_at)),
    "event": TableField("Event", 7, lambda row: "Node" if _event(row).node else "Cluster"),
    "eventraw": TableField("EventRaw", 8, lambda row: 2 if _event(row).node else 1),
    "nodename": TableField("NodeName", -15, lambda row: _event(row).node),
    "nodenames": TableField("NodeName", -15, lambda row: _event(row).node),
    "reason": TableField("Reason", 30, _reason),
    "start": TableField("TimeStart", 19, lambda row: _time(_event(row).started_at)),
    "timestart": TableField("TimeStart", 19, lambda row: _time(_event(row).started_at)),
    "state": TableField("State", 6, _state),
    "stateraw": TableField("StateRaw", 8, _state_raw),
    "tres": TableField("TRES", 20, lambda row: _event(row).tres),
    "user": TableField("User", 10, _user),
}


def _reservation(row: Row) -> ReservationRecord:
    reservation: ReservationRecord = row["r"]
    return reservation


_START = TableField("TimeStart", 19, lambda row: _time(_reservation(row).started_at))
_END = TableField("TimeEnd", 19, lambda row: _time(_reservation(row).ended_at))
#: `show reservation`
RESERVATION_FIELDS: dict[str, TableField] = {
    "associations": TableField("Assocs", 10, lambda row: row["associations"]),
    "cluster": TableField("Cluster", 10, lambda row: row["cluster"]),
    "end": _END,
    "flags": TableField("Flags", 20, lambda row: _reservation(row).flags),
    "id": TableField("ID", 6, lambda row: _reservation(row).reservation_id),
    "name": TableField("Name", 10, lambda row: _reservation(row).name),
    "nodenames": TableField("NodeName", -15, lambda row: _reservation(row).nodes),
    "start": _START,
    "timestart": _START,
    "timeend": _END,
    "tres": TableField("TRES", 20, lambda row: _reservation(row).tres),
    "unusedwall": TableField("UnusedWall", 10, lambda row: row["unused"]),
}


def _job(header: str, width: int, name: str) -> TableField:
    return TableField(header, width, lambda row: getattr(row["job"], name))


def _job_time(header: str, name: str) -> TableField:
    return TableField(header, 19, lambda row: _time(getattr(row["job"], name)))


#: `show runawayjobs`
RUNAWAY_FIELDS: dict[str, TableField] = {
    "cluster": _job("Cluster", 10, "cluster"),
    "id": _job("ID", 12, "job_id"),
    "name": _job("Name", 10, "name"),
    "partition": _job("Partition", 10, "partition"),
    "state": _job("State", 10, "state"),
    "timestart": _job_time("TimeStart", "started_at"),
    "timeend": _job_time("TimeEnd", "ended_at"),
    "timesubmit": _job_time("TimeSubmit", "submitted_at"),
}
