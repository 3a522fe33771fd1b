"""Submits all steps that can be submitted. Idempotent: it may be killed and called again at any time, on any host.

A step can be submitted once its number of units is known and all jobs that it waits for have ids. The user's process
submits all steps up to the first fan-out; the job of a step that is mapped over calls `advance` at its end, for its
successors. A batch is recorded before its job is queued, and a job claims its batch before it does any work. So no step
is lost if the submitter is killed, and a step whose job was queued twice runs once (state.Pipeline.claim).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spritz.experiments import api
from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import arrays, run_environment, script, settings, submission
from spritz.experiments.job.submission import Request
from spritz.experiments.pipelines import cache, renewing
from spritz.experiments.pipelines.definition import StepRecord, references
from spritz.experiments.pipelines.state import Batch, Pipeline, Unit, label
from spritz.experiments.records import record
from spritz.experiments.records.store import Store


@dataclass
class _Jobs:
    """The state of the queue, while the lock is held."""

    batches: list[Batch]
    #: batch -> job
    job_ids: dict[str, str]
    #: jobs and array tasks that have not ended, and those of them that have not started
    alive: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    def batch_of(self, step: str, unit: Unit) -> Batch | None:
        """The batch in whose job the unit still waits or runs."""
        for batch in reversed(self.batches):
            if batch.step == step and unit in batch.units and self.task(batch, unit) in self.alive:
                return batch
        return None

    def task(self, batch: Batch, unit: Unit) -> str:
        job_id = self.job_ids.get(batch.name, "")
        return job_id if unit is None else f"{job_id}_{unit % arrays.TASKS_MAX}"

    def count(self, step: str, unit: Unit) -> int:
        """Number of submissions of the unit."""
        return sum(1 for batch in self.batches if batch.step == step and unit in batch.units)


def advance(
    pipeline: Pipeline, store: Store, *, retry: bool = False, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Submit all steps that can be submitted; with `retry` also units whose jobs ended without a value.

    Returns names of the steps that jobs were submitted for. Raises ExperimentError.
    """
    variables = dict(os.environ if environment is None else environment)
    with pipeline.locked():
        pipeline = Pipeline.load(pipeline.directory)  # another command may have given it new code
        if pipeline.stopped() and not retry:
            return []
        jobs = _jobs(pipeline, store, variables)
        submitted = []
        for step in pipeline.definition.steps:
            groups = _groups(pipeline, jobs, step, retry)
            for units, dependency in groups:
                numbers = [batch.number for batch in jobs.batches if batch.step == step.name]
                batch = Batch(
                    step=step.name,
                    number=max(numbers, default=0) + 1,
                    units=units,
                    runs={label(unit): _run_name(pipeline, jobs, step, unit) for unit in units},
                    dependency=dependency,
                    version=pipeline.version,
                )
                pipeline.write_batch(batch)
                jobs.batches.append(batch)
                _queue(pipeline, batch, store, variables)
                jobs.job_ids[batch.name] = pipeline.claimed(batch.name)
                jobs.alive |= {jobs.task(batch, unit) for unit in units}
            if groups:
                submitted.append(step.name)
        return submitted


def _run_name(pipeline: Pipeline, jobs: _Jobs, step: StepRecord, unit: Unit) -> str:
    before = jobs.count(step.name, unit)
    item = "" if unit is None else f"-{unit}"
    return f"{pipeline.name}-{step.name}{item}" + (f".{before + 1}" if before else "")


def _jobs(pipeline: Pipeline, store: Store, environment: Mapping[str, str]) -> _Jobs:
    """The batches and their living jobs. Repairs batches that a killed submitter left without a job."""
    batches = pipeline.batches()
    job_ids = {}
    for batch in batches:
        job_id = pipeline.claimed(batch.name)
        if not job_id:
            if named := _named(batch, pipeline):
                pipeline.claim(batch.name, named)
            else:
                _queue(pipeline, batch, store, environment)
            job_id = pipeline.claimed(batch.name)
        if not batch.recorded:
            _record(pipeline, batch, job_id, store)
        job_ids[batch.name] = job_id
    jobs = _Jobs(batches, job_ids)
    open_ids = [
        job_ids[batch.name]
        for batch in batches
        if any(pipeline.about(batch.step, unit) is None for unit in batch.units)
    ]
    if open_ids:
        queued = slurm.queued(open_ids)
        jobs.alive = {task for task, job in queued.items() if job.state not in slurm.FINAL}
        jobs.waiting = {task for task, job in queued.items() if job.state == "PENDING"}
    return jobs


def _named(batch: Batch, pipeline: Pipeline) -> str:
    """The job that was queued for the batch by a process that was killed before it recorded the id; "" if none."""
    done = slurm.call(["squeue", "-h", "-t", "all", "-n", _job_name(pipeline, batch), "-o", "%F|%k"])
    if done.returncode:
        raise ExperimentError(f"squeue: {slurm.said(done)}")
    for line in done.stdout.splitlines():
        job_id, _, comment = line.partition("|")
        if comment == pipeline.mark:
            return job_id
    return ""


def _job_name(pipeline: Pipeline, batch: Batch) -> str:
    return f"{pipeline.name}-{batch.name}"


def _groups(pipeline: Pipeline, jobs: _Jobs, step: StepRecord, retry: bool) -> list[tuple[list[Unit], str]]:
    """Units to submit now, by the jobs that they wait for."""
    units = pipeline.units(step.name)
    if units is None:
        return []
    ready: list[Unit] = []
    for unit in units:
        if pipeline.about(step.name, unit) is not None or jobs.batch_of(step.name, unit) is not None:
            continue
        if jobs.count(step.name, unit) and not retry:
            continue  # it failed
        ready.append(unit)
    if not ready:
        return []
    over = next(references(step.over), "")
    mapped = bool(over) and pipeline.definition.step(over).over is not None
    whole = [*references(step.arguments), *references(step.named), *step.after]
    waits: dict[str, list[str]] = {}
    for source in dict.fromkeys(whole):
        dependencies = _waits(pipeline, jobs, source)
        if dependencies is None:
            return []
        waits[source] = dependencies
    ids = list(dict.fromkeys(job_id for dependencies in waits.values() for job_id in dependencies))
    first = f"afterok:{':'.join(ids)}" if ids else ""
    groups: dict[tuple[int, str], list[Unit]] = {}
    for unit in ready:
        parts = [first] if first else []
        if mapped and pipeline.about(over, unit) is None:
            batch = jobs.batch_of(over, unit)
            if batch is None:
                continue  # its item failed
            parts.append(f"aftercorr:{jobs.job_ids[batch.name]}")
        elif not parts and cache.take(pipeline, step, unit):
            continue
        groups.setdefault(((unit or 0) // arrays.TASKS_MAX, ",".join(parts)), []).append(unit)
    return [(job_id, dependency) for (_, dependency), job_id in groups.items()]


def _waits(pipeline: Pipeline, jobs: _Jobs, source: str) -> list[str] | None:
    """Jobs to wait for, for all of a step's values; None if they are not known, or one of them failed."""
    units = pipeline.units(source)
    if units is None:
        return None
    if not units:  # a map over nothing
        return []
    missing = [unit for unit in units if pipeline.about(source, unit) is None]
    by_batch: dict[str, tuple[Batch, list[Unit]]] = {}
    for unit in missing:
        batch = jobs.batch_of(source, unit)
        if batch is None:
            return None if pipeline.about(source, unit) is None else _waits(pipeline, jobs, source)
        by_batch.setdefault(batch.name, (batch, []))[1].append(unit)
    dependencies = []
    for batch, waiting in by_batch.values():
        # The whole array, unless some of its tasks have failed.
        failed = [unit for unit in batch.units if unit not in waiting and pipeline.about(source, unit) is None]
        if failed:
            dependencies += [jobs.task(batch, unit) for unit in waiting]
        else:
            dependencies.append(jobs.job_ids[batch.name])
    return dependencies


def _queue(pipeline: Pipeline, batch: Batch, store: Store, environment: Mapping[str, str]) -> None:
    """Queue the batch's job, and record its id."""
    pipeline = pipeline.at(batch.version)
    requests = _requests(pipeline, batch, store, environment)
    words = [f"--job-name={_job_name(pipeline, batch)}", f"--comment={pipeline.mark}", "--kill-on-invalid-dep=yes"]
    if batch.dependency:
        words.append(f"--dependency={batch.dependency}")
    if batch.units == [None]:
        job_id = _submit_one(requests[0], store, words)
    else:
        path = pipeline.directory / "batches" / f"{batch.name}.sh"
        prepared = arrays.prepare(requests, store, path, name=batch.name)
        job_id = slurm.submit(str(path), [*prepared.words, *words], environment=prepared.environment)
    if pipeline.claim(batch.name, job_id) != job_id:
        slurm.cancel(job_id)  # an earlier job, of a killed submitter, has started meanwhile
    _record(pipeline, batch, pipeline.claimed(batch.name), store)


def _submit_one(request: Request, store: Store, words: list[str]) -> str:
    queued: list[str] = []

    def submit(path: Path, environment: Mapping[str, str]) -> str:
        queued.append(slurm.submit(str(path), words, environment=environment))
        return ""  # the claim records the id

    submission.launch(replace(request, queue=submit), store)
    return queued[0]


def _requests(pipeline: Pipeline, batch: Batch, store: Store, environment: Mapping[str, str]) -> dict[int, Request]:
    """The runs by task of the array. Reserves their names, and removes what a killed submitter left under them."""
    step = pipeline.definition.step(batch.step)
    base = pipeline.directory.parent.parent
    project_settings = settings.Settings(run=_options(pipeline.defaults))
    options = api.run_options(_options(step.options), project_settings, "")
    if options.template in script.LAUNCHERS:
        # What the job runs once on each node is `stepping`, which starts the launcher.
        options = replace(options, template="")
    directory = Path(pipeline.work_directory)
    around = run_environment.collect(base, directory, environment)
    requests = {}
    for unit in batch.units:
        name = batch.run_of(unit)
        command: tuple[str, ...] = (
            run_environment.our_python(),
            "-m",
            "spritz.experiments.pipelines.stepping",
            str(pipeline.directory),
            batch.name,
        )
        command += () if unit is None else (str(unit),)
        item = "" if unit is None else f"[{unit}]"
        shown = f"{step.name}{item} of {pipeline.definition.file}"
        shutil.rmtree(record.directory_of(base, name), ignore_errors=True)
        store.hold(name, pipeline.user, time.time(), base / "runs", shown)
        requests[(unit or 0) % arrays.TASKS_MAX] = Request(
            command=command,
            shown=shown,
            directory=directory,
            options=options,
            settings=project_settings,
            take_snapshot=False,
            code=pipeline.code,
            group=pipeline.name,
            environment=environment,
            reserved=name,
            claim=pipeline.claim_file(batch.name),
            surroundings=around,
        )
    return requests


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options from JSON, with lists as tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in given.items() if key != "name"}


def _record(pipeline: Pipeline, batch: Batch, job_id: str, store: Store) -> None:
    runs = []
    for unit in batch.units:
        directory = record.directory_of(pipeline.directory.parent.parent, batch.run_of(unit))
        with suppress(ExperimentError):  # a submitter that was killed before it had written them
            run = record.read(directory)
            run.job_id = job_id if unit is None else f"{job_id}_{unit % arrays.TASKS_MAX}"
            record.write(directory, run)
            runs.append(run)
    store.queued(*runs)
    batch.recorded = True
    pipeline.write_batch(batch)


def stop(pipeline: Pipeline) -> list[str]:
    """Stop the pipeline: submit no more jobs, and cancel those that wait or run. Returns their ids."""
    (pipeline.directory / "stopped").touch()
    with pipeline.locked():
        ids = []
        for batch in pipeline.batches():
            job_id = pipeline.claimed(batch.name) or _named(batch, pipeline)
            if job_id and any(pipeline.about(batch.step, unit) is None for unit in batch.units):
                ids.append(job_id)
        if ids:
            slurm.cancel(*ids)
    return ids


def retry(
    pipeline: Pipeline, store: Store, *, fresh: Pipeline | None = None, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Continue from steps that failed, were stopped, or were never submitted. Returns names of steps.

    With `fresh`, the pipeline as it is in the directory now, they and those that wait in the queue get its code. Raises
    ExperimentError.
    """
    if fresh is not None:
        variables = dict(os.environ if environment is None else environment)
        with pipeline.locked():
            pipeline = Pipeline.load(pipeline.directory)
            _renew(pipeline, fresh, store, variables)
    (pipeline.directory / "stopped").unlink(missing_ok=True)
    return advance(pipeline, store, retry=True, environment=environment)


def _renew(pipeline: Pipeline, fresh: Pipeline, store: Store, environment: Mapping[str, str]) -> None:
    """Cancel what waits with earlier code, and record the new. What starts meanwhile keeps the code of its batch."""
    if renewing.same(pipeline, fresh):
        return
    jobs = _jobs(pipeline, store, environment)
    alive = [batch for batch in jobs.batches if any(jobs.task(batch, unit) in jobs.alive for unit in batch.units)]
    running = {
        batch.step for batch in alive
        if any(jobs.task(batch, unit) in jobs.alive - jobs.waiting for unit in batch.units)
    }  # fmt: skip
    renewing.check(pipeline, fresh.definition, running)
    if alive:
        slurm.cancel_pending(*(jobs.job_ids[batch.name] for batch in alive))
    renewing.write(pipeline, fresh)
