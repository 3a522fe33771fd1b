"""Pending tasks of an array that have records of their own, shown in the row of the array's rest.

A task gets its own record when it is changed, held or requeued alone. Reasons of all are listed; tasks with another
name or other partitions keep their rows. Source: squeue(1) --array-unique, which does without; the row that the tasks
join, its reasons and the missing %limit are as 22.05 has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.job_text import reason_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    #: values as msgpack has them
    Row = list[Any]

#: what is looked at of each row; reasons only where they are shown
NEEDS = ("id", "array", "array_job_id", "array_task_id", "state", "partition", "spec.partitions", "spec.name")


def joined(rows: Sequence[Row], index: Mapping[str, int]) -> tuple[dict[int, Row], set[int]]:
    """Rows that stand for more tasks now, by the place of the old one, and places of rows that are in them."""
    number, array, own = index["id"], index["array"], index["array_job_id"]
    alike = [index[path] for path in ("state", "partition", "spec.partitions", "spec.name")]
    rests = {row[number]: place for place, row in enumerate(rows) if row[array]}
    tasks: dict[int, list[int]] = {}
    if rests:
        for place, row in _pending_tasks(rows, index):
            rest = rests.get(row[own])
            if rest is not None and all(row[at] == rows[rest][at] for at in alike):
                tasks.setdefault(rest, []).append(place)
    changed = {
        rest: _with_tasks(rows[rest], [rows[place] for place in places], index) for rest, places in tasks.items()
    }
    return changed, {place for places in tasks.values() for place in places}


def _pending_tasks(rows: Sequence[Row], index: Mapping[str, int]) -> Iterator[tuple[int, Row]]:
    state, task = index["state"], index["array_task_id"]
    return ((place, row) for place, row in enumerate(rows) if row[task] is not None and row[state] == "PENDING")


def _with_tasks(rest: Row, tasks: Sequence[Row], index: Mapping[str, int]) -> Row:
    array, task = index["array"], index["array_task_id"]
    pending = int(rest[array]["pending"], 16)
    for row in tasks:
        pending |= 1 << row[task]
    row = list(rest)
    row[array] = {"pending": format(pending, "x")}
    if "reason" in index:
        reason, detail = index["reason"], index["reason_detail"]
        texts = dict.fromkeys(reason_text(each[reason], each[detail]) for each in (rest, *tasks))
        row[reason], row[detail] = ",".join(texts), ""
    return row
