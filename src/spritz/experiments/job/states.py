"""States of runs: from the events that their jobs wrote, or else from Slurm."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.interface import Terminal
from spritz.experiments.job import arrays
from spritz.experiments.records import lives, record
from spritz.experiments.records.store import Entry, Store
from spritz.experiments.results import metrics

#: Final states of runs.
ENDED = slurm.FINAL | {"LOST", "PRUNED"}

#: Seconds after which a job that neither queue nor accounting knows is lost: accounting may lag behind the queue.
_FORGOTTEN_SECONDS = 120.0
#: Events that begin and end a pause.
_TURNS = frozenset({"started", "paused", "resumed", "ended"})


def refresh_or_tell(store: Store, entries: Iterable[Entry], terminal: Terminal) -> None:
    """`refresh` for listings: without the controller, keeps the last known states and prints a message."""
    try:
        refresh(store, entries)
    except ExperimentError as error:
        if not slurm.is_transient(error.message):
            raise
        terminal.err(f"spritz: {error.message}; states are those that were known last\n")


def refresh(store: Store, entries: Iterable[Entry]) -> None:
    """Update the index for these runs, with a single query to Slurm."""
    every = list(entries)
    submitted = [entry for entry in every if entry.job_id]
    submitted += adopted(store, [entry for entry in every if not entry.job_id])
    if not submitted:
        return
    job_ids = [entry.job_id for entry in submitted]
    queue = slurm.queued(job_ids)
    gone = [job_id for job_id in job_ids if job_id not in queue or queue[job_id].state in slurm.FINAL]
    past = slurm.accounted(gone) if gone else {}
    known = metrics.latest(
        store.home,
        [(entry.name, Path(entry.directory), entry.created_at) for entry in submitted],
        whole=len(submitted) == 1 or bool(past),
    )
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in submitted:
        values = values_of(entry, queue.get(entry.job_id), past.get(entry.job_id))
        # Keep earlier values of a server that does not answer.
        measured = {**entry.metrics, **known.get(entry.name, {})}
        if any(getattr(entry, key) != value for key, value in values.items()):
            changes[entry.name, entry.owner] = values
        if measured != entry.metrics:
            changes.setdefault((entry.name, entry.owner), {})["metrics"] = json.dumps(measured)
    store.note(changes)


def adopted(store: Store, entries: list[Entry]) -> list[Entry]:
    """Runs without recorded job that have one: their submitter was killed before it recorded the id.

    The others were never queued: they are LOST, unless they may be in submission now.
    """
    unrecorded = [entry for entry in entries if (Path(entry.directory) / "job.sh").exists()]
    if not unrecorded:
        return []
    known = slurm.scripts()
    adopted_entries: list[Entry] = []
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in unrecorded:
        job_id = known.get(f"{entry.directory}/job.sh", "") or _array_task(store.home, entry.name, known)
        started = next((event for event in record.events(Path(entry.directory)) if event["event"] == "started"), {})
        if job_id := job_id or str(started.get("job", "")):
            changes[entry.name, entry.owner] = {"job_id": job_id, "state": "PENDING"}
            adopted_entries.append(replace(entry, job_id=job_id, state="PENDING"))
        elif time.time() - entry.created_at > _FORGOTTEN_SECONDS:
            changes[entry.name, entry.owner] = {"state": "LOST", "ended_at": time.time()}
    store.note(changes)
    return adopted_entries


def _array_task(home: Path, name: str, scripts: Mapping[str, str]) -> str:
    """The task of an array of runs (`arrays`) that the run NAME-INDEX is; "" if none is known."""
    base, _, index = name.rpartition("-")
    if not index.isdecimal():
        return ""
    task = int(index) % arrays.TASKS_MAX
    job_id = scripts.get(f"{home}/arrays/{base}-{int(index) - task}.sh", "")
    return f"{job_id}_{task}" if job_id else ""


def values_of(entry: Entry, queued: slurm.JobState | None, past: slurm.JobState | None) -> dict[str, Any]:
    """Columns of the index for the current state."""
    events = lives.current(record.events(Path(entry.directory)))
    values = from_events(events)
    written = "state" in values  # its end, by its own job
    known = past or queued
    if queued is not None and queued.state not in slurm.FINAL:
        begun = {key: value for key, value in values.items() if key == "started_at"}
        if written and queued.state == "RUNNING":
            # The command has ended; its job's script is about to. Only Slurm knows the final state, such as TIMEOUT.
            return {**begun, "state": "COMPLETING", "exit_code": values["exit_code"]}
        return {**begun, "state": "PAUSED" if _is_paused(events, queued) else queued.state}
    if values.get("state") == "PRUNED":
        return values
    if known is not None:
        values["state"] = known.state
        if not written:
            values["exit_code"], values["ended_at"] = _code(known), seconds(known.ended_at) or time.time()
    elif not written and time.time() - entry.created_at > _FORGOTTEN_SECONDS:
        values["state"] = "LOST"
        values["ended_at"] = time.time()
    return values


def from_events(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of the index for a run of which only its events are known; no state unless they tell its end.

    What a life says after a newer one has begun decides nothing.
    """
    events = lives.current(events)
    starts = [event for event in events if event["event"] == "started"]
    latest = starts[-1]["restart"] if starts else 0
    values: dict[str, Any] = {"started_at": starts[0]["at"]} if starts else {}
    begun = events.index(starts[-1]) if starts else 0  # an older life on another node may have ended after it
    ended = next((e for e in reversed(events[begun:]) if e["event"] == "ended" and e["restart"] >= latest), None)
    if ended is not None:
        pruned = any(event["event"] == "pruned" and event["restart"] >= latest for event in events)
        values["state"] = "PRUNED" if pruned else "FAILED" if ended["status"] else "COMPLETED"
        values["exit_code"], values["ended_at"] = ended["status"], ended["at"]
    return values


def _is_paused(events: list[dict[str, Any]], queued: slurm.JobState) -> bool:
    last: dict[str, Any] = {}
    for event in events:
        # A forced pause writes its event before the killed job can write that it has ended.
        if event["event"] in _TURNS and not (event["event"] == "ended" and last.get("forced")):
            last = event
    # Slurm's reasons: JobHeldUser, JobHeldAdmin, "job requeued in held state".
    held = queued.state in ("PENDING", "REQUEUE_HOLD") and "held" in queued.reason.lower()
    return last.get("event") == "paused" and held


def waits(job: slurm.JobState) -> str:
    """Why a pending job waits, and when it is expected to start; "" if it does not wait, or Slurm gives no reason."""
    if job.state != "PENDING" or job.reason in ("", "None"):
        return ""
    return job.reason + (f", expected to start at {job.started_at}" if job.started_at not in ("", "N/A") else "")


def _code(known: slurm.JobState) -> int:
    return 128 + known.signal if known.signal else known.exit_code


def seconds(text: str) -> float:
    """Slurm's local time as seconds since the epoch; 0.0 for Unknown and similar words."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
