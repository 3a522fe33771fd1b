"""Submit a sweep as a job array, submit unfinished trials again, and stop it.

The order makes each step safe to repeat: sweep.json, then the trials' directories, their rows in the index, then the
array. `resume` completes a command that was killed in between: it finds the array by the sweep's name in Slurm.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from spritz.experiments import notify, secrets
from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import script, settings, states, submission
from spritz.experiments.job.settings import RunOptions, default_name
from spritz.experiments.job.submission import PreparedRequest, Request
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Entry, Query, Store
from spritz.experiments.sweeps import sampler, trials
from spritz.experiments.sweeps import space as spaces
from spritz.experiments.sweeps import sweep as sweeps
from spritz.experiments.sweeps.plan import Plan
from spritz.experiments.sweeps.sweep import Sweep

#: Slurm's default of MaxArraySize is 1001, the largest index plus one.
_ARRAY_SIZE = 1000
#: States of trials that have finished, or are queued or running.
_DONE = frozenset({"COMPLETED", "PRUNED"})
_OPEN = frozenset({"PENDING", "RUNNING", "PAUSED", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "STOPPED"})


def launch(plan: Plan, request: Request, store: Store) -> Sweep:
    """Queue the sweep. Raises ExperimentError, and leaves no files then."""
    points = plan.points()
    size = plan.trials if points is None else len(points)
    _need_array(size)
    if plan.method == "tpe" and not plan.python:
        sampler.need_optuna()
    if plan.retries and request.options.template == "ray":
        raise ExperimentError("retries: the template ray starts its cluster once a job; resume the sweep instead")
    prepared = submission.prepare(request, bytes_needed=size * 4096, split=_split(plan, request))
    sweep = _created(plan, prepared, size)
    try:
        record.write_json(
            sweep.directory / "shared.json",
            submission.shared_values(replace(prepared.request, code=prepared.code)),
        )
        prepared.write_files(sweep.directory)
        (sweep.directory / "ended").mkdir()
        _write_script(plan, prepared, sweep, size)
        with sweep.locked():
            sweep.write()
            prepare(sweep, store)
            _submit(sweep, store, sweep.indices, prepared.environment)
    except BaseException:
        remove(sweep, store)
        raise
    return sweep


def code_of(sweep: Sweep) -> dict[str, Any]:
    """The code that all trials have (`record.Run.code`)."""
    code: dict[str, Any] = json.loads((sweep.directory / "shared.json").read_text(encoding="utf-8"))["code"]
    return code


def _created(plan: Plan, prepared: PreparedRequest, size: int) -> Sweep:
    stem = re.sub(r"[^\w-]+", "-", plan.name or f"{default_name(plan.command)}-sweep").strip("-") or "sweep"
    recorded = replace(
        plan, command=tuple(prepared.written), arguments="none", run={}, python=plan.python or sys.executable
    )
    return sweeps.create(prepared.base, stem, time.time(), submission.user(), recorded, size)


def _write_script(plan: Plan, prepared: PreparedRequest, sweep: Sweep, size: int) -> None:
    """Write the script of the array, and what it tells a tracking server."""
    request = prepared.request
    whole = Run(
        name=sweep.name,
        user=sweep.user,
        created_at=sweep.created_at,
        command=prepared.written,
        code=submission.code_mapping(prepared.code),
        group=sweep.name,
        tags=list(request.options.tags),
    )
    directory = record.directory_of(prepared.base, sweep.name)
    if prepared.tracked is not None:
        # Trials find it by the sweep's name (`inside`).
        directory.mkdir(parents=True)
        submission.write_track(directory, whole, prepared.tracked, request)
    text = prepared.script_text(
        whole,
        directory,
        options=_requeued(request.options),
        command=plan.words(),
        guarded=bool(request.settings.guard),
        trials=script.Trials(
            sweep=sweep.directory,
            variables={parameter.name: spaces.variable(parameter.name) for parameter in plan.parameters},
            python=sweep.plan.python,
            asks=plan.points() is None,
            watched=plan.watched,
            retries=plan.retries,
            size=size,
        ),
    )
    (sweep.directory / "job.sh").write_text(text, encoding="utf-8")


def prepare(sweep: Sweep, store: Store) -> None:
    """Create missing directories and rows of the trials."""
    points = sweep.plan.points()
    entries = {entry.name for entry in store.find(Query(owner=sweep.user, group=sweep.name))}
    missing: list[tuple[Run, str]] = []
    for index in sweep.indices:
        name = trials.name_of(sweep.name, index)
        directory = record.directory_of(sweep.home, name)
        if name in entries and (directory / "run.json").exists():
            continue
        point = {} if points is None else points[index - 1]
        run = Run(
            name=name,
            user=sweep.user,
            created_at=sweep.created_at + index * 1e-6,
            command=sweep.plan.command_of(point),
            group=sweep.name,
            parameters=dict(point),
            shared=str(sweep.directory / "shared.json"),
        )
        (directory / "log").mkdir(parents=True, exist_ok=True)
        if points is not None:
            trials.write_parameters(directory, point, sweeps.assignments(sweep.plan, point))
        record.write(directory, run, durable=False)
        if name not in entries:
            missing.append((record.read(directory) if index == 1 else run, str(directory)))
    if missing:
        first = record.read(record.directory_of(sweep.home, trials.name_of(sweep.name, 1)))
        store.add([(replace(run, code=first.code, tags=first.tags), directory) for run, directory in missing])


def entries_of(sweep: Sweep, store: Store) -> list[Entry]:
    """The trials' current rows, by index. Adopts jobs that a killed command had queued."""
    query = Query(owner=sweep.user, group=sweep.name)
    entries = store.find(query)
    if any(not entry.job_id for entry in entries):
        adopt(sweep, store)
        entries = store.find(query)
    states.refresh(store, [entry for entry in entries if entry.state not in states.ENDED])
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in entries:
        values: dict[str, Any] = {}
        metrics = trials.metrics_of(Path(entry.directory))
        if metrics and metrics != entry.metrics:
            values["metrics"] = record.dumps(metrics)
        point = next(trials.lines(Path(entry.directory) / "params.json"), None)
        if point and (command := shlex.join(sweep.plan.command_of(point))) != entry.command:
            values["command"] = command
        if values:
            changes[entry.name, entry.owner] = values
    store.note(changes)
    return sorted(store.find(query), key=lambda entry: index_of(entry.name))


def index_of(name: str) -> int:
    """A trial's index, from its run's name."""
    return int(name.rpartition(".")[2])


def adopt(sweep: Sweep, store: Store) -> None:
    """Record arrays that were queued by a command that was killed before it recorded them.

    Finds waiting tasks by their script in the queue, and started tasks by their claims. The name is not sufficient: a
    sweep in another home may have the same.
    """
    claimed: dict[str, list[int]] = {}
    for index in sweep.indices:
        try:
            job_id = os.readlink(record.directory_of(sweep.home, trials.name_of(sweep.name, index)) / "claim")
        except OSError:
            continue
        claimed.setdefault(job_id, []).append(index)
    waiting = slurm.of_script(sweep.name, str(sweep.directory / "job.sh"))
    unknown = sorted({*claimed, *waiting} - set(sweep.arrays))
    queued = slurm.queued(unknown) if unknown else {}
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for job_id in unknown:
        tasks = (task.partition("_") for task in queued)
        indices = {int(index) for array, _, index in tasks if array == job_id and index.isdecimal()}
        for index in {*indices, *claimed.get(job_id, ())} & set(sweep.indices):
            changes[trials.name_of(sweep.name, index), sweep.user] = {
                "job_id": f"{job_id}_{index}", "state": "PENDING", "exit_code": None, "ended_at": None,
            }  # fmt: skip
    if unknown:
        store.change_all(changes)
        sweep.arrays.extend(unknown)
        sweep.write()


def resume(sweep: Sweep, store: Store) -> list[int]:
    """Queue failed and stopped trials again, with their parameters; return their indexes. Raises ExperimentError."""
    if any(secrets.MASK in word for word in sweep.plan.command):
        raise ExperimentError(
            f"{sweep.name} had secrets in its arguments, which are not kept", hint="pass them in a variable"
        )
    with sweep.locked():
        prepare(sweep, store)
        adopt(sweep, store)
        indices = [
            index_of(entry.name) for entry in entries_of(sweep, store)
            if entry.state not in _DONE and not (entry.job_id and entry.state in _OPEN)
            and not _is_finished(Path(entry.directory))
        ]  # fmt: skip
        if not indices:
            return []
        for place in (sweep.directory / "told", *(sweep.directory / "ended" / str(index) for index in indices)):
            place.unlink(missing_ok=True)
        for index in indices:
            (record.directory_of(sweep.home, trials.name_of(sweep.name, index)) / "claim").unlink(missing_ok=True)
        first = record.read(record.directory_of(sweep.home, trials.name_of(sweep.name, 1)))
        masked = [name for name, value in first.options.get("env", {}).items() if value == secrets.MASK]
        options = RunOptions(env={name: os.environ[name] for name in masked if name in os.environ})
        request = Request(command=sweep.plan.command, directory=Path.cwd(), options=options)
        environment = submission.environment_of(request, {})[0]
        if urls := notify.addresses(settings.read(Path.cwd()).notify, os.environ):
            environment[notify.VARIABLE] = " ".join(urls)
        _submit(sweep, store, indices, environment)
        return indices


def _is_finished(directory: Path) -> bool:
    """Whether the trial has its result, whatever the index says: it must never run again over it."""
    return states.from_events(record.events(directory)).get("state") in _DONE


def stop(sweep: Sweep, store: Store) -> None:
    """Cancel waiting and running trials; also jobs that an interrupted submission left without a record."""
    with sweep.locked():
        adopt(sweep, store)
        if sweep.arrays:
            slurm.cancel(*sweep.arrays)


def remove(sweep: Sweep, store: Store) -> None:
    """Undo a launch whose array could not be queued, or cancel an array that could not be recorded."""
    try:
        if (sweep.directory / "sweep.json").exists():
            slurm.cancel(*slurm.of_script(sweep.name, str(sweep.directory / "job.sh")))
    except ExperimentError:
        pass  # Slurm probably caused the failure that led here
    store.remove_group(sweep.name, sweep.user)
    for index in sweep.indices:
        shutil.rmtree(record.directory_of(sweep.home, trials.name_of(sweep.name, index)), ignore_errors=True)
    shutil.rmtree(record.directory_of(sweep.home, sweep.name), ignore_errors=True)
    shutil.rmtree(sweep.directory, ignore_errors=True)


def _submit(sweep: Sweep, store: Store, indices: Iterable[int], environment: dict[str, str]) -> None:
    remaining = list(indices)
    limit = f"%{sweep.plan.concurrency}" if sweep.plan.concurrency else ""
    job_id = slurm.submit(
        str(sweep.directory / "job.sh"), [f"--array={ranges(remaining)}{limit}"], environment=environment
    )
    sweep.arrays.append(job_id)
    sweep.write()
    cleared = {"state": "PENDING", "exit_code": None, "ended_at": None}
    store.change_all(
        {
            (trials.name_of(sweep.name, index), sweep.user): {"job_id": f"{job_id}_{index}", **cleared}
            for index in remaining
        }
    )


def ranges(indices: list[int]) -> str:
    """Indexes in sbatch's form: 1,2,3,7 as 1-3,7."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and index == parts[-1][-1] + 1:
            parts[-1][1:] = [index]
        else:
            parts.append([index])
    return ",".join("-".join(map(str, part)) for part in parts)


def _need_array(size: int) -> None:
    if size <= _ARRAY_SIZE:
        return
    largest = slurm.setting("MaxArraySize")
    if largest.isdecimal() and size >= int(largest):
        raise ExperimentError(
            f"{size} trials are more than this cluster's job arrays have tasks (MaxArraySize={largest})",
            hint=f"--trials {int(largest) - 1} at most",
        )


def _requeued(options: RunOptions) -> RunOptions:
    """By default a trial that is preempted or loses its node continues as the same trial."""
    if any("requeue" in word for word in options.slurm):
        return options
    return replace(options, slurm=("--requeue", *options.slurm))


def _split(plan: Plan, request: Request) -> tuple[list[str], dict[int, str]]:
    """(command with masked secrets, its secrets). Words with a parameter's place contain none."""
    words = plan.words()
    written, hidden = secrets.split_arguments(words, request.environment)
    for place, word in list(hidden.items()):
        if any("{" + parameter.name + "}" in word for parameter in plan.parameters):
            written[place] = word
            del hidden[place]
    return written, hidden
