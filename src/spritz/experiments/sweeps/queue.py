"""Submit a sweep as a job array, submit unfinished trials again, and stop it.

The order makes each step safe to repeat: sweep.json, then the trials' directories, their rows in the index, then the
array. `resume` completes a command that was killed in between: it finds the array by the sweep's name in Slurm. New
code is a further version: its files, sweep.json, the records and rows of the trials that get it, then their array. A
trial's record says its version, so that each command queues a trial by the script of the code that it records.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
            submission.shared_values(replace(prepared.request, code=prepared.recorded_code)),
        )
        prepared.write_files(sweep.directory)
        (sweep.directory / "ended").mkdir()
        _write_script(plan, prepared, sweep, version=1)
        with sweep.locked():
            sweep.write()
            prepare(sweep, store)
            _submit(sweep, store, sweep.indices, prepared.environment)
    except BaseException:
        remove(sweep, store)
        raise
    return sweep


def code_of(sweep: Sweep) -> dict[str, Any]:
    """The newest code of the trials (`record.Run.code`)."""
    code: dict[str, Any] = _shared(sweep, sweep.versions)["code"]
    return code


def _created(plan: Plan, prepared: PreparedRequest, size: int) -> Sweep:
    stem = re.sub(r"[^\w-]+", "-", plan.name or f"{default_name(plan.command)}-sweep").strip("-") or "sweep"
    recorded = replace(
        plan, command=tuple(prepared.written), arguments="none", run={}, python=plan.python or sys.executable
    )
    return sweeps.create(prepared.base, stem, time.time(), submission.user(), recorded, size)


def _write_script(plan: Plan, prepared: PreparedRequest, sweep: Sweep, *, version: int) -> None:
    """Write the script of the arrays of this version, and what it tells a tracking server."""
    request = prepared.request
    whole = Run(
        name=sweep.name,
        user=sweep.user,
        created_at=sweep.created_at,
        command=prepared.written,
        code=submission.code_mapping(prepared.recorded_code),
        group=sweep.name,
        tags=list(request.options.tags),
    )
    directory = record.directory_of(prepared.base, sweep.name)
    if prepared.tracked is not None:
        # Trials find it by the sweep's name (`inside`).
        record.make(prepared.base, sweep.name)
        submission.write_track(directory, whole, prepared.tracked, request)
    text = prepared.script_text(
        whole,
        directory,
        options=_requeued(request.options),
        command=plan.words(),
        guarded=bool(request.settings.guard),
        trials=script.Trials(
            sweep=sweep.directory,
            shared=sweep.folder(version),
            version=version,
            variables={parameter.name: spaces.variable(parameter.name) for parameter in plan.parameters},
            python=sweep.plan.python,
            asks=plan.points() is None,
            watched=plan.watched,
            retries=plan.retries,
            size=sweep.size,
        ),
    )
    (sweep.folder(version) / "job.sh").write_text(text, encoding="utf-8", errors="surrogateescape")


def prepare(sweep: Sweep, store: Store) -> None:
    """Create missing directories and rows of the trials."""
    points = sweep.plan.points()
    entries = {entry.name for entry in store.find(Query(owner=sweep.user, group=sweep.name))}
    shared: dict[str, dict[str, Any]] = {}
    first = _shared(sweep, 1)
    missing: list[tuple[Run, str]] = []
    for index in sweep.indices:
        name = trials.name_of(sweep.name, index)
        directory = record.directory_of(sweep.home, name)
        if name in entries and (directory / "run.json").exists():
            continue
        try:
            run = record.read(directory, shared)  # of an index that was lost: it says which code the trial has
        except ExperimentError:
            run = replace(
                _new_trial(sweep, index, {} if points is None else points[index - 1]),
                code=first["code"],
                tags=first["tags"],
            )
            record.make(sweep.home, name)
            if points is not None:
                trials.write_parameters(directory, run.parameters, sweeps.assignments(sweep.plan, run.parameters))
            record.write(directory, run, durable=False)
        if name not in entries:
            missing.append((run, str(directory)))
    if missing:
        store.add(missing)


def _new_trial(sweep: Sweep, index: int, point: Mapping[str, Any]) -> Run:
    return Run(
        name=trials.name_of(sweep.name, index),
        user=sweep.user,
        created_at=sweep.created_at + index * 1e-6,
        command=sweep.plan.command_of(point),
        group=sweep.name,
        parameters=dict(point),
        shared=str(sweep.directory / "shared.json"),
    )


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
    waiting = slurm.of_script(sweep.name, *sweep.scripts)
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


@dataclass(frozen=True)
class Queued:
    """Trials that were queued again, as one job."""

    job_id: str
    indices: list[int]


def resume(sweep: Sweep, store: Store, *, new_code: bool = False) -> list[Queued]:
    """Queue failed and stopped trials again, with their parameters, those of each version of the code as one job.

    With `new_code` they, and those that wait in the queue, get the code as it is in the directory now. Raises
    ExperimentError.
    """
    if any(secrets.MASK in word for word in sweep.plan.command):
        raise ExperimentError(
            f"{sweep.name} had secrets in its arguments, which are not kept", hint="pass them in a variable"
        )
    prepared = _with_present_code(sweep) if new_code else None
    with sweep.locked():
        sweep.reload()
        prepare(sweep, store)
        adopt(sweep, store)
        entries = entries_of(sweep, store)
        waiting = [entry.job_id for entry in entries if entry.state == "PENDING" and entry.job_id]
        cancelled: set[str] = set()
        if prepared is not None and waiting:
            # Tasks that start meanwhile keep the earlier code.
            cancelled = slurm.cancel_pending(*waiting)
            entries = entries_of(sweep, store)
        indices = [
            index_of(entry.name) for entry in entries
            if entry.state not in _DONE and (entry.job_id in cancelled or not (entry.job_id and entry.state in _OPEN))
            and not _is_finished(Path(entry.directory))
        ]  # fmt: skip
        if not indices:
            return []
        if prepared is None:
            environment = _environment(sweep)
            return [_requeue(sweep, store, version, group, environment)
                    for version, group in _by_version(sweep, indices).items()]  # fmt: skip
        version = _version(sweep, prepared)
        before, arrays = _by_version(sweep, indices), len(sweep.arrays)
        try:
            _give(sweep, store, version, indices)
            return [_requeue(sweep, store, version, indices, prepared.environment)]
        except BaseException:
            if len(sweep.arrays) == arrays:
                _take_back(sweep, store, version, before)
            raise


def _with_present_code(sweep: Sweep) -> PreparedRequest:
    """The request of the sweep with the code that is in this directory now. Raises ExperimentError."""
    first = record.read(record.directory_of(sweep.home, trials.name_of(sweep.name, 1)))
    if first.runs_in_place:
        raise ExperimentError(f"--new-code: {sweep.name} runs in place, without a snapshot of its code")
    values: dict[str, Any] = {
        name: tuple(given) if isinstance(given, list) else given for name, given in first.options.items()
    }
    values["env"] = {**first.options.get("env", {}), **_secret_values(sweep, first)}
    request = Request(
        command=sweep.plan.command,
        directory=Path.cwd(),
        options=RunOptions(**{name: values[name] for name in RunOptions.__dataclass_fields__ if name in values}),
        settings=settings.read(Path.cwd()),
    )
    return submission.prepare(request, split=_split(sweep.plan, request))


def _environment(sweep: Sweep) -> dict[str, str]:
    """The environment of sbatch, with the secrets of the options and of the notifications' addresses."""
    first = record.read(record.directory_of(sweep.home, trials.name_of(sweep.name, 1)))
    options = RunOptions(env=_secret_values(sweep, first))
    request = Request(command=sweep.plan.command, directory=Path.cwd(), options=options)
    environment = submission.environment_of(request, {})[0]
    if urls := notify.addresses(settings.read(Path.cwd()).notify, os.environ):
        environment[notify.VARIABLE] = " ".join(urls)
    return environment


def _secret_values(sweep: Sweep, first: Run) -> dict[str, str]:
    """The values of secret variables of the options, which no file has: from our environment, or spritz.yaml here.
    Raises ExperimentError if one is in neither: trials would run without it.
    """
    given = {**settings.read(Path.cwd()).run.get("env", {}), **os.environ}
    names = [name for name, text in first.options.get("env", {}).items() if not secrets.is_kept(text)]
    return secrets.required(names, given, sweep.name)


def _by_version(sweep: Sweep, indices: Iterable[int]) -> dict[int, list[int]]:
    """Trials by the version of the code that their records name."""
    groups: dict[int, list[int]] = {}
    for index in indices:
        run = record.read(record.directory_of(sweep.home, trials.name_of(sweep.name, index)))
        groups.setdefault(sweep.version_of(run.shared), []).append(index)
    return groups


def _version(sweep: Sweep, prepared: PreparedRequest) -> int:
    """The newest version if it has this code, else a further one."""
    code = json.loads(record.dumps(submission.code_mapping(prepared.code)))
    if _shared(sweep, sweep.versions)["code"] == code:
        return sweep.versions
    version = sweep.versions + 1
    folder = sweep.folder(version)
    shutil.rmtree(folder, ignore_errors=True)  # of a command that was killed before it had recorded the version
    folder.mkdir()
    shared = submission.shared_values(replace(prepared.request, code=prepared.code))
    record.write_json(folder / "shared.json", shared)
    prepared.write_files(folder)
    _write_script(sweep.plan, prepared, sweep, version=version)
    sweep.versions = version
    sweep.write()
    return version


def _shared(sweep: Sweep, version: int) -> dict[str, Any]:
    path = sweep.folder(version) / "shared.json"
    try:
        shared: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExperimentError(f"{path}: {error}") from error
    return shared


def _give(sweep: Sweep, store: Store, version: int, indices: Iterable[int]) -> None:
    """Record that the trials have this version of the code."""
    code = _shared(sweep, version)["code"]
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for index in indices:
        name = trials.name_of(sweep.name, index)
        directory = record.directory_of(sweep.home, name)
        run = record.read(directory)
        run.shared = str(sweep.folder(version) / "shared.json")
        record.write(directory, run, durable=False)
        changes[name, sweep.user] = {
            "branch": code.get("branch", ""), "commit_id": code.get("commit", ""), "tree": code.get("tree", ""),
            "changed": int(code.get("dirty", False)),
        }  # fmt: skip
    store.change_all(changes)


def _take_back(sweep: Sweep, store: Store, version: int, before: Mapping[int, list[int]]) -> None:
    """Undo a submission of trials with new code that was cut short; they have their earlier code again.

    Where Slurm does not say what it has queued, they keep the new one: the next command finds the job by its script.
    """
    try:
        slurm.cancel(*(slurm.of_script(sweep.name, sweep.scripts[version - 1]) - set(sweep.arrays)))
    except ExperimentError:
        return
    for earlier, indices in before.items():
        _give(sweep, store, earlier, indices)


def _requeue(sweep: Sweep, store: Store, version: int, indices: list[int], environment: dict[str, str]) -> Queued:
    for place in (sweep.directory / "told", *(sweep.directory / "ended" / str(index) for index in indices)):
        place.unlink(missing_ok=True)
    for index in indices:
        (record.directory_of(sweep.home, trials.name_of(sweep.name, index)) / "claim").unlink(missing_ok=True)
    _submit(sweep, store, indices, environment, version=version)
    return Queued(sweep.arrays[-1], indices)


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


def _submit(
    sweep: Sweep, store: Store, indices: Iterable[int], environment: dict[str, str], *, version: int = 1
) -> None:
    remaining = list(indices)
    limit = f"%{sweep.plan.concurrency}" if sweep.plan.concurrency else ""
    job_id = slurm.submit(
        str(sweep.folder(version) / "job.sh"), [f"--array={ranges(remaining)}{limit}"], environment=environment
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
