"""Spritz's own journal as a trace: the jobs submitted to a controller, and how long they ran.

May run while a controller runs: takes no lock and writes nothing. Reads the oldest image kept, then applies every later
event with the core's `apply`. Each finished run of a job is a row, so that a requeued job has several. Jobs that never
ran, or still run, are left out and counted. Times count from the first submission.

Source: `controller.journal.sqlite` (layout), `controller.journal.events` and `core.image` (codecs).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import DecodeError

from spritz.controller.journal.contract import Group, JournalError, JournalNewer
from spritz.controller.journal.events import decode_group
from spritz.controller.journal.recovery import machine_of
from spritz.controller.journal.sqlite import read_images
from spritz.core.machine import Machine
from spritz.model.events.job import JobEnded
from spritz.model.resources import mask_of
from spritz.notation.duration import INFINITE
from spritz.sim.trace.workload import ParsedTrace, TraceError, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.job.record import Job


def is_journal(path: str) -> bool:
    """Whether the path is a state directory with a journal, or the journal's database."""
    place = Path(path)
    if place.is_dir():
        return (place / "journal.db").is_file()
    try:
        with place.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def read_journal(path: str) -> ParsedTrace:
    """Read a journal. Raises TraceError for one that is damaged, of another program, or without a finished job."""
    directory = Path(path) if Path(path).is_dir() else Path(path).parent
    workload = Workload()
    parsed = ParsedTrace(workload=workload)
    try:
        images = list(read_images(directory))
        machine = machine_of(images[-1]) if images else Machine()
        after = images[-1].sequence if images else 0
        for job in machine.state.jobs.values():
            if job.ended_at:
                _take(parsed, job)
        for group in _groups(directory / "journal.db"):
            for sequence, event in enumerate(decode_group(group), group.first):
                if sequence <= after:
                    continue
                machine.apply(event)
                if isinstance(event, JobEnded):
                    _take(parsed, machine.state.jobs[event.job_id])
    except JournalNewer as error:
        raise TraceError(f"{path}: {error.message}", "replay it with that release") from error
    except (sqlite3.Error, JournalError, DecodeError, KeyError) as error:
        raise TraceError(f"{path}: the journal cannot be read: {error}") from error
    if not len(workload):
        raise TraceError(f"{path}: no job of the journal has ended", "; ".join(parsed.remarks()))
    first = min(workload.submit)
    workload.submit = [submit - first for submit in workload.submit]
    parsed.workload = workload.in_order()
    return parsed


def _groups(path: Path) -> Iterator[Group]:
    database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)
    try:
        rows = database.execute("SELECT first, last, at, payload FROM groups ORDER BY last")
        for first, last, at, payload in rows:
            yield Group(first=first, last=last, at=at, payload=payload)
    finally:
        database.close()


def _take(parsed: ParsedTrace, job: Job) -> None:
    parsed.rows += 1
    run = job.ended_at - job.started_at
    if not job.started_at or job.allocation is None:
        parsed.skip("a job that never ran", job.id)
        return
    if run < 1:
        parsed.skip("ran for less than a second", job.id)
        return
    minutes = job.time_limit_minutes
    limit = run if minutes is None or minutes >= INFINITE else max(run, 60.0 * minutes)
    if limit == run:
        parsed.adjust("no time limit; the run time stands for it", job.id)
    workload, spec = parsed.workload, job.spec
    workload.job.append(job.id)
    workload.submit.append(job.submitted_at)
    workload.run.append(run)
    workload.limit.append(limit)
    workload.processors.append(max(1, sum(mask_of(part.cpus).bit_count() for part in job.allocation.nodes)))
    workload.user.append(spec.user or str(spec.uid))
    workload.group.append(spec.account or "-1")
    workload.name.append(spec.name or "-1")
    workload.queue.append(job.partition or "-1")
