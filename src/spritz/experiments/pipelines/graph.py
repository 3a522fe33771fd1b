"""The progress of a pipeline: each step's state and units, as a graph for the terminal and as plain data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spritz.experiments.job import states
from spritz.experiments.pipelines.definition import references
from spritz.experiments.pipelines.state import Pipeline, Unit
from spritz.experiments.records.store import Entry, Query, Store
from spritz.experiments.results import codes, failures

_OPEN = frozenset({"CREATED", "PENDING", "RUNNING", "PAUSED", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED"})
#: failures that are shown in full
_FAILED_MAX = 3
_SIGNS = {"COMPLETED": "✓", "CACHED": "✓", "RUNNING": "▶", "PENDING": "…", "WAITING": "·", "BLOCKED": "-"}


@dataclass
class Fare:
    """One step. States of units: COMPLETED, CACHED, PENDING, RUNNING, WAITING (not submitted yet), BLOCKED (a step that
    it needs failed), or how the job ended: FAILED, TIMEOUT …
    """

    name: str
    sources: list[str]
    mapped: bool
    state: str
    #: None while it is open how many there are
    units: int | None
    counts: dict[str, int] = field(default_factory=dict)
    #: newest run of each unit that has one
    latest: list[Entry] = field(default_factory=list)
    #: those of them that ended without a value
    failed: list[Entry] = field(default_factory=list)

    @property
    def runs(self) -> list[str]:
        """Names of the newest runs."""
        return [entry.name for entry in self.latest]


def fares(pipeline: Pipeline, store: Store) -> tuple[str, list[Fare]]:
    """The pipeline's state and its steps'. Asks Slurm once.

    A pipeline is RUNNING or PENDING while a job of it is in the queue; then COMPLETED, FAILED, CANCELLED (stopped), or
    INCOMPLETE: nothing failed, but the process that was to submit the remaining steps was killed.
    """
    entries = store.find(Query(owner=pipeline.user, group=pipeline.name))
    states.refresh(store, [entry for entry in entries if entry.state in _OPEN])
    busy = pipeline.busy()
    by_name = {entry.name: entry for entry in store.find(Query(owner=pipeline.user, group=pipeline.name))}
    batches = pipeline.batches()
    newest: dict[tuple[str, Unit], Entry] = {}
    for batch in batches:
        for unit in batch.units:
            if entry := by_name.get(batch.run_of(unit)):
                newest[batch.step, unit] = entry
    fares_by_step: dict[str, Fare] = {}
    for step in pipeline.definition.steps:
        units = pipeline.units(step.name)
        missing = any(fares_by_step[source].state not in ("COMPLETED", *_SIGNS) for source in step.sources)
        blocked = missing or any(fares_by_step[source].state == "BLOCKED" for source in step.sources)
        counts: Counter[str] = Counter()
        for unit in units or []:
            counts[_unit(pipeline, step.name, unit, newest.get((step.name, unit)), blocked)] += 1
        latest = {unit: newest[step.name, unit] for unit in units or [] if (step.name, unit) in newest}
        failed = [
            entry for unit, entry in latest.items() if entry.state in states.ENDED
            and _unit(pipeline, step.name, unit, entry, blocked) not in _SIGNS
        ]  # fmt: skip
        fares_by_step[step.name] = Fare(
            step.name,
            step.sources,
            step.over is not None,
            _state(counts, units, blocked),
            None if units is None else len(units),
            dict(counts),
            list(latest.values()),
            failed,
        )
    # A step that has its value may still be submitting what follows it.
    alive = busy or any(entry.state in _OPEN and entry.job_id for entry in by_name.values())
    return _whole(pipeline, list(fares_by_step.values()), alive), list(fares_by_step.values())


def _unit(pipeline: Pipeline, step: str, unit: Unit, entry: Entry | None, blocked: bool) -> str:
    about = pipeline.about(step, unit)
    if about is not None:
        return "CACHED" if about.get("cached") else "COMPLETED"
    if entry is None:
        return "BLOCKED" if blocked else "WAITING"
    if entry.state == "CANCELLED" and entry.started_at is None and blocked:
        return "BLOCKED"  # by Slurm, as its dependency can never be fulfilled
    if entry.state == "COMPLETED":
        return "FAILED"  # without a value
    return "WAITING" if entry.state == "CREATED" else entry.state


def _state(counts: Counter[str], units: list[Unit] | None, blocked: bool) -> str:
    if units is None:
        return "BLOCKED" if blocked else "WAITING"
    bad = [state for state in counts if state not in _SIGNS]
    for state in ("RUNNING", *bad, "PENDING", "WAITING", "BLOCKED"):
        if counts[state]:
            return state
    return "COMPLETED"


def _whole(pipeline: Pipeline, steps: list[Fare], alive: bool) -> str:
    named = [step.state for step in steps]
    if all(state == "COMPLETED" for state in named):
        return "COMPLETED"
    if alive:
        begun = any(
            state != "PENDING" for step in steps for state in step.counts if state not in ("WAITING", "BLOCKED")
        )
        return "RUNNING" if begun else "PENDING"
    if pipeline.stopped():
        return "CANCELLED"
    return "FAILED" if any(state not in _SIGNS for state in named) else "INCOMPLETE"


def drawn(pipeline: Pipeline, state: str, steps: list[Fare]) -> str:
    """The graph: a step a line, below those that it needs."""
    done = sum(step.state == "COMPLETED" for step in steps)
    lines = [f"{pipeline.name}  {state}  {done} of {len(steps)} steps done  ({pipeline.definition.file})", ""]
    depth: dict[str, int] = {}
    for step in steps:
        depth[step.name] = max((depth[source] + 1 for source in step.sources), default=0)
    labels = {}
    for step in steps:
        branch = "  " * depth[step.name] + ("└ " if depth[step.name] else "")
        times = f" ×{'?' if step.units is None else step.units}" if step.mapped else ""
        labels[step.name] = f"{branch}{_SIGNS.get(step.state, '✗')} {step.name}{times}"
    width = max(map(len, labels.values()))
    differences = codes.differences((entry for step in steps for entry in step.latest), "run")
    for step in steps:
        over = next(references(pipeline.definition.step(step.name).over), "")
        needs = ", ".join(f"each of {source}" if source == over else source for source in step.sources)
        counts = ", ".join(f"{count} {name.lower()}" for name, count in sorted(step.counts.items()))
        remark = counts if step.mapped and step.units else "from cache" if step.counts.get("CACHED") else ""
        words = [labels[step.name].ljust(width), step.state.ljust(10), remark]
        words += [f"← {needs}"] if needs else []
        words += [step.runs[0]] if len(step.runs) == 1 and not step.mapped else []
        words += [f"({', '.join(code.label for code in codes.counts(step.latest))})"] if differences else []
        lines.append("  ".join(part for part in words if part.strip()).rstrip())
    if differences:
        lines += ["", f"the code differs: {differences}"]
    failed = [entry for step in steps for entry in step.failed]
    if failed:
        lines.append("")
    for entry in failed[:_FAILED_MAX]:
        reason = failures.explain(Path(entry.directory), entry.state, entry.exit_code) or "it ended without a value"
        lines.append(f"{entry.name} {entry.state}: {reason}")
    if len(failed) > _FAILED_MAX:
        lines.append(f"… and {len(failed) - _FAILED_MAX} more: `spritz runs --group {pipeline.name} --state failed`")
    if state in ("FAILED", "CANCELLED", "INCOMPLETE"):
        lines += ["", f"`spritz pipeline retry {pipeline.name}` goes on from here, with the same code;",
                  "--new-code takes that of the directory for what has no result yet."]  # fmt: skip
    return "\n".join(lines) + "\n"


def plain(pipeline: Pipeline, state: str, steps: list[Fare]) -> dict[str, Any]:
    """The pipeline as the record that --json prints."""
    return {
        "name": pipeline.name,
        "state": state,
        "file": pipeline.definition.file,
        "parameters": pipeline.definition.parameters,
        "created_at": pipeline.created_at,
        "codes": codes.as_json(entry for step in steps for entry in step.latest),
        "steps": [
            {
                "name": step.name,
                "state": step.state,
                "needs": step.sources,
                "mapped": step.mapped,
                "units": step.units,
                "counts": step.counts,
                "runs": step.runs,
                "failed": [entry.name for entry in step.failed],
            }
            for step in steps
        ],
    }
