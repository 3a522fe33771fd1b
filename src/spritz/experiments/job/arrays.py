"""Several runs as a job array. Each run has a directory and a script; the array's script starts that of its task."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spritz.experiments.cluster import slurm
from spritz.experiments.home import home
from spritz.experiments.job import submission
from spritz.experiments.job.submission import Request
from spritz.experiments.records import record
from spritz.experiments.records.record import Run
from spritz.experiments.records.store import Store

#: Most tasks of an array: MaxArraySize is 1001 unless a site raises it.
TASKS_MAX = 1000


@dataclass
class PreparedArray:
    """Runs on disk that are not queued yet, by their index in the array."""

    runs: dict[int, Run]
    script: Path
    environment: Mapping[str, str]
    #: further arguments for sbatch
    words: tuple[str, ...] = ()


def prepare(
    requests: Mapping[int, Request], store: Store, script: Path, *, name: str, parallel: int = 0
) -> PreparedArray:
    """Write the runs and the array's script; `parallel` limits the tasks that run at once (0: no limit).

    The requests have reserved names, and the same options. Raises ExperimentError.
    """
    environments: list[Mapping[str, str]] = []
    shared = script.with_suffix(".shared")
    record.write_json(shared, submission.shared_values(next(iter(requests.values()))))

    def keep(_: Path, environment: Mapping[str, str]) -> str:
        environments.append(environment)
        return ""

    runs: dict[int, Run] = {}
    try:
        for index, request in requests.items():
            runs[index] = submission.launch(replace(request, queue=keep, shared=str(shared)), store)
    except BaseException:
        forget(runs.values(), store)
        shared.unlink()
        raise
    first = _directory(next(iter(runs.values())))
    directives = [
        line
        for line in (first / "job.sh").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        if line.startswith("#SBATCH ") and not line.startswith(("#SBATCH --job-name=", "#SBATCH --output="))
    ]
    tasks = "".join(f"    {index}) run={shlex.quote(run.name)} ;;\n" for index, run in runs.items())
    lines = "\n".join([f"#SBATCH --job-name={name}", "#SBATCH --output=/dev/null", *directives])
    script.write_text(
        f"""#!/bin/bash
{lines}
# An array of runs; each has a script of its own.
case $SLURM_ARRAY_TASK_ID in
{tasks}esac
directory={shlex.quote(str(first.parent))}/$run
exec bash "$directory/job.sh" >> "$directory/log/job.log" 2>&1
""",
        encoding="utf-8",
    )
    limit = f"%{parallel}" if parallel else ""
    return PreparedArray(runs, script, environments[0], (f"--array={ranges(runs)}{limit}",))


def queued(prepared: PreparedArray, job_id: str, store: Store) -> None:
    """Record that the array is queued as job `job_id`."""
    for index, run in prepared.runs.items():
        run.job_id = f"{job_id}_{index}"
        record.write(_directory(run), run, durable=False)
    store.queued(*prepared.runs.values())


def launch(requests: Mapping[int, Request], store: Store, script: Path, *, name: str, parallel: int = 0) -> list[Run]:
    """Queue the array. Raises ExperimentError, and leaves no files then."""
    prepared = prepare(requests, store, script, name=name, parallel=parallel)
    try:
        job_id = slurm.submit(str(prepared.script), prepared.words, environment=prepared.environment)
    except BaseException:
        forget(prepared.runs.values(), store)
        raise
    queued(prepared, job_id, store)
    return list(prepared.runs.values())


def forget(runs: Iterable[Run], store: Store) -> None:
    """Remove runs that were not queued."""
    for run in runs:
        store.remove(run.name, run.user)
        shutil.rmtree(_directory(run), ignore_errors=True)


def ranges(indices: Iterable[int]) -> str:
    """Indexes as ranges: `0-3,7` for 0, 1, 2, 3, 7."""
    parts: list[list[int]] = []
    for index in sorted(indices):
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def _directory(run: Run) -> Path:
    return record.directory_of(home(), run.name)
