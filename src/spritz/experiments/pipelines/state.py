"""One pipeline on disk. Many jobs write here; each file has one writer, or the first of several wins.

    pipelines/NAME/
        pipeline.json          what runs: definition, snapshot, defaults
        pipeline-N.json        an earlier version of it, before `retry --new-code`
        lock                   held while jobs are submitted
        stopped                no more is submitted
        values/STEP/UNIT.pkl   a value, and UNIT.json about it; UNIT is the item's number, or `all`
        batches/STEP.N.json    jobs that are or will be in the queue: written before they are
        claims/STEP.N          the number of the job that may run the batch

A unit is a step, or one item of a step that maps.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spritz.experiments import calling
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import is_held, lock_refused
from spritz.experiments.pipelines.definition import Definition, StepRecord, filled, references

#: format of pipeline.json; a newer one is refused. A pipeline of a single version is written in the first.
FORMAT = 2

#: None: the step is one unit
Unit = int | None


@dataclass
class Batch:
    """Units of a step that are one job or job array. An array's task is the unit modulo arrays.TASKS_MAX."""

    step: str
    number: int
    units: list[Unit]
    #: unit (as text) -> name of its run
    runs: dict[str, str]
    dependency: str = ""
    #: whether the runs' records have the job's number
    recorded: bool = False
    #: of the pipeline's definition and code
    version: int = 1

    @property
    def name(self) -> str:
        """`STEP.NUMBER`, the stem of the batch's files."""
        return f"{self.step}.{self.number}"

    def run_of(self, unit: Unit) -> str:
        return self.runs[label(unit)]


def label(unit: Unit) -> str:
    """The unit in names of files."""
    return "all" if unit is None else str(unit)


@dataclass
class Pipeline:
    """A started pipeline. The state of its steps is in files of its directory, which its jobs write too."""

    directory: Path
    name: str
    user: str
    created_at: float
    definition: Definition
    #: None if it runs in place
    code: Snapshot | None
    work_directory: str
    #: options of spritz.yaml
    defaults: dict[str, Any] = field(default_factory=dict)
    #: step -> digest of the files that it depends on; empty without a snapshot
    files: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    #: counts `retry --new-code`
    version: int = 1
    #: variables of spritz.yaml whose values are secret: jobs get them from who submits, and no file has them
    secret_names: list[str] = field(default_factory=list)

    def save(self) -> None:
        data = {
            "format": 1 if self.version == 1 else FORMAT,
            "name": self.name,
            "user": self.user,
            "created_at": self.created_at,
            "definition": self.definition.to_json(),
            "code": None if self.code is None else asdict(self.code),
            "work_directory": self.work_directory,
            "defaults": self.defaults,
            "files": self.files,
            "digest": self.digest,
            **_unless_first(self.version),
            **({"secret_names": self.secret_names} if self.secret_names else {}),
        }
        _write(self.directory / "pipeline.json", data)

    def keep_version(self) -> None:
        """Keep pipeline.json as that of an earlier version, before `save` replaces it."""
        path = self.directory / "pipeline.json"
        calling.write_whole(self.directory / f"pipeline-{self.version}.json", path.read_bytes())

    def at(self, version: int) -> Pipeline:
        """The pipeline as it was in that version. Raises ExperimentError."""
        if version == self.version:
            return self
        # The newest is not kept beside pipeline.json.
        newest = Pipeline.load(self.directory)
        return newest if version == newest.version else Pipeline.load(self.directory, f"pipeline-{version}.json")

    @staticmethod
    def load(directory: Path, file: str = "pipeline.json") -> Pipeline:
        """Read pipeline.json of this directory. Raises ExperimentError if it is missing or damaged."""
        try:
            data = json.loads((directory / file).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ExperimentError(
                f"{directory.name}: no such pipeline", hint="`spritz pipeline list` lists them"
            ) from None
        except (OSError, ValueError) as error:
            raise ExperimentError(f"{directory}/{file}: {error}") from error
        if not isinstance(data, dict):
            raise ExperimentError(f"{directory}/{file} is damaged: a JSON object is expected")
        if data.pop("format", 0) > FORMAT:
            raise ExperimentError(f"{directory} was written by a later release of spritz", hint="use that release")
        try:
            code = data.pop("code")
            definition = Definition.from_json(data.pop("definition"))
            return Pipeline(
                directory=directory, definition=definition, code=Snapshot.of(code) if code is not None else None, **data
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ExperimentError(f"{directory}/{file} is damaged: {error}") from error

    @property
    def mark(self) -> str:
        """The comment of its jobs, which distinguishes them from jobs of another pipeline of the same name."""
        text = f"{self.user} {self.directory} {self.created_at}"
        return f"spritz:{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the pipeline's lock, one process at a time; it is released when the process ends."""
        with (self.directory / "lock").open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX)
            except OSError as error:  # a network file system without locks
                raise lock_refused(self.directory / "lock", error) from error
            yield

    def busy(self) -> bool:
        """Whether a process holds the pipeline's lock, which it does while it submits jobs."""
        with (self.directory / "lock").open("a") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if not is_held(error):
                    raise lock_refused(self.directory / "lock", error) from error
                return True
        return False

    # values

    def about(self, step: str, unit: Unit) -> dict[str, Any] | None:
        """The description of a unit's value: digest, length and items' digests of a list, run; None while
        it has none.
        """
        try:
            text = (self.directory / "values" / step / f"{label(unit)}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        known: dict[str, Any] = json.loads(text)
        return known

    def put(self, step: str, unit: Unit, data: bytes, about: dict[str, Any]) -> None:
        """Store a unit's value; its description is written last, and marks it as complete."""
        folder = self.directory / "values" / step
        folder.mkdir(parents=True, exist_ok=True)
        calling.write_whole(folder / f"{label(unit)}.pkl", data)
        _write(folder / f"{label(unit)}.json", about)

    def data(self, step: str, unit: Unit) -> bytes:
        """The pickled value that a unit of the step returned. Raises FileNotFoundError if it has none yet."""
        return (self.directory / "values" / step / f"{label(unit)}.pkl").read_bytes()

    def value(self, step: str) -> Any:
        """A step's value; of a step that maps, the list of values."""
        units = self.units(step) or []
        if units == [None]:
            return pickle.loads(self.data(step, None))
        return [pickle.loads(self.data(step, unit)) for unit in units]

    def item(self, step: StepRecord, unit: Unit) -> Any:
        """The item that the unit gets."""
        if unit is None:
            return None
        source = next(references(step.over), None) if isinstance(step.over, dict) else None
        if source is None:
            return filled(step.over, self.value)[unit]
        if self.definition.step(source).over is not None:
            return pickle.loads(self.data(source, unit))
        return self.value(source)[unit]

    def units(self, name: str) -> list[Unit] | None:
        """The step's units; None while it is open how many they are."""
        over = self.definition.step(name).over
        if over is None:
            return [None]
        if isinstance(over, list):
            return list(range(len(over)))
        source = over["$step"]
        if self.definition.step(source).over is not None:
            return self.units(source)
        about = self.about(source, None)
        return None if about is None else list(range(about["length"]))

    # jobs

    def batches(self) -> list[Batch]:
        """All, in the order of their numbers."""
        batches = []
        for path in (self.directory / "batches").glob("*.json"):
            with suppress(FileNotFoundError):
                batches.append(Batch(**json.loads(path.read_text(encoding="utf-8"))))
        return sorted(batches, key=lambda batch: (batch.step, batch.number))

    def write_batch(self, batch: Batch) -> None:
        (self.directory / "batches").mkdir(exist_ok=True)
        data = {name: given for name, given in asdict(batch).items() if name != "version"}
        _write(self.directory / "batches" / f"{batch.name}.json", {**data, **_unless_first(batch.version)})

    def of_batch(self, name: str) -> Pipeline:
        """The pipeline in the version of this batch. Raises ExperimentError."""
        try:
            text = (self.directory / "batches" / f"{name}.json").read_text(encoding="utf-8")
            return self.at(json.loads(text).get("version", 1))
        except (OSError, ValueError) as error:
            raise ExperimentError(f"{self.directory}/batches/{name}.json: {error}") from error

    def claim_file(self, batch: str) -> Path:
        """Where the job that may run the batch is named."""
        return self.directory / "claims" / batch

    def claimed(self, batch: str) -> str:
        """The job that may run the batch; "" if no job has claimed it."""
        try:
            return self.claim_file(batch).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def claim(self, batch: str, job_id: str) -> str:
        """Claim the batch for the job, unless another has. Returns the job that has it.

        The submitter writes it, and so does the job as it starts (`job.script`): a job whose submitter was killed
        before it knew the job's number is as good as any, and of two jobs for one batch the second leaves.
        """
        folder = self.directory / "claims"
        folder.mkdir(exist_ok=True)
        descriptor, scratch = tempfile.mkstemp(dir=folder, prefix=".")
        try:
            os.write(descriptor, job_id.encode())
            os.fsync(descriptor)
            os.close(descriptor)
            with suppress(FileExistsError):
                os.link(scratch, self.claim_file(batch))
        finally:
            os.unlink(scratch)
        return self.claimed(batch)

    def stopped(self) -> bool:
        """Whether `spritz pipeline stop` was called: no further jobs are submitted."""
        return (self.directory / "stopped").exists()


def _unless_first(version: int) -> dict[str, int]:
    """What an earlier release does not read."""
    return {} if version == 1 else {"version": version}


def _write(path: Path, data: Any) -> None:
    calling.write_whole(path, json.dumps(data, indent=1, ensure_ascii=False).encode())


def make(home: Path, name: str) -> tuple[str, Path]:
    """A free name NAME-N and its directory."""
    folder = home / "pipelines"
    folder.mkdir(exist_ok=True)
    number = max((n for _, n in numbered(folder, name)), default=0)
    while True:
        number += 1
        with contextlib.suppress(FileExistsError):
            (folder / f"{name}-{number}").mkdir()
            return f"{name}-{number}", folder / f"{name}-{number}"


def numbered(folder: Path, name: str) -> list[tuple[Path, int]]:
    """Pipelines of this name, and their numbers."""
    pipelines = []
    for path in folder.glob(f"{name}-*"):
        end = path.name[len(name) + 1 :]
        if end.isdecimal():
            pipelines.append((path, int(end)))
    return sorted(pipelines, key=lambda item: item[1])


def find(home: Path, name: str) -> Pipeline:
    """The pipeline of that name, or the newest whose name begins so. Raises ExperimentError."""
    exact = home / "pipelines" / name
    if "/" not in name and (exact / "pipeline.json").exists():
        return Pipeline.load(exact)
    begun = [path for path, _ in numbered(home / "pipelines", name) if (path / "pipeline.json").exists()]
    return Pipeline.load(begun[-1] if begun else exact)
