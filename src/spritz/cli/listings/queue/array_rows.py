"""Merge pending array tasks with records of their own into the row of the array's other pending tasks.

A task gets a record of its own when it is changed, held or requeued alone. The merged row lists the reasons of all
tasks. Tasks with another name or other partitions keep their rows. Source: squeue(1) --array-unique turns this off; the
choice of the row, its reasons and the missing %limit are those of 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.job.job_text import reason_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    #: values as msgpack decodes them
    Row = list[Any]

#: Fields that must be equal for a merge; reasons only if they are shown.
NEEDS = ("id", "array", "array_job_id", "array_task_id", "state", "partition", "spec.partitions", "spec.name")


def joined(rows: Sequence[Row], index: Mapping[str, int]) -> tuple[dict[int, Row], set[int]]:
    """(merged rows by the index of the row that they replace, indexes of the rows merged into them)."""
    number, array, array_id = index["id"], index["array"], index["array_job_id"]
    alike = [index[path] for path in ("state", "partition", "spec.partitions", "spec.name")]
    rests = {row[number]: place for place, row in enumerate(rows) if row[array]}
    tasks: dict[int, list[int]] = {}
    if rests:
        for place, row in _pending_tasks(rows, index):
            remainder = rests.get(row[array_id])
            if remainder is not None and all(row[at] == rows[remainder][at] for at in alike):
                tasks.setdefault(remainder, []).append(place)
    changed = {
        remainder: _with_tasks(rows[remainder], [rows[place] for place in places], index)
        for remainder, places in tasks.items()
    }
    return changed, {place for places in tasks.values() for place in places}


def _pending_tasks(rows: Sequence[Row], index: Mapping[str, int]) -> Iterator[tuple[int, Row]]:
    state, task = index["state"], index["array_task_id"]
    return ((place, row) for place, row in enumerate(rows) if row[task] is not None and row[state] == "PENDING")


def _with_tasks(remainder: Row, tasks: Sequence[Row], index: Mapping[str, int]) -> Row:
    array, task = index["array"], index["array_task_id"]
    pending = int(remainder[array]["pending"], 16)
    for row in tasks:
        pending |= 1 << row[task]
    row = list(remainder)
    row[array] = {"pending": format(pending, "x")}
    if "reason" in index:
        reason, detail = index["reason"], index["reason_detail"]
        texts = dict.fromkeys(reason_text(part[reason], part[detail]) for part in (remainder, *tasks))
        row[reason], row[detail] = ",".join(texts), ""
    return row
