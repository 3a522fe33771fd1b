"""A sweep on disk: `sweeps/NAME` in the home directory.

sweep.json    its plan, and the arrays that were queued for it
shared.json   values that the records of all trials share: code, environment, options
job.sh        the script of the arrays
code-N/       shared.json, job.sh and what it reads, for trials that `--new-code` gave the code of version N
lock          held while a command changes the sweep
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import lock_refused
from spritz.experiments.records import record
from spritz.experiments.sweeps import plan as plans
from spritz.experiments.sweeps import space, trials
from spritz.experiments.sweeps.plan import Plan

#: Version of sweep.json; a newer version is refused.
FORMAT = 2


@dataclass(kw_only=True)
class Sweep:
    """A named sweep. `plan` has no secrets; `size`: number of trials."""

    name: str
    user: str
    created_at: float
    home: Path
    plan: Plan
    size: int
    arrays: list[str] = field(default_factory=list)
    #: number of versions of the code that trials have; the first is that of the start
    versions: int = 1

    @property
    def directory(self) -> Path:
        return self.home / "sweeps" / self.name

    def folder(self, version: int) -> Path:
        """The directory of the script of the trials with this version of the code, and of what they share."""
        return self.directory if version == 1 else self.directory / f"code-{version}"

    @property
    def scripts(self) -> list[str]:
        """The script of each version, from the first."""
        return [str(self.folder(version) / "job.sh") for version in range(1, self.versions + 1)]

    def version_of(self, shared: str) -> int:
        """The version of the code of a trial whose record names this shared file."""
        folder = Path(shared).parent
        number = folder.name.removeprefix("code-")
        return int(number) if folder.parent.name == self.name and number.isdecimal() else 1

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def indices(self) -> range:
        return range(1, self.size + 1)

    def read_trials(self) -> list[trials.Trial]:
        """All trials in order of index, read from their runs' files at each call."""
        return [trials.read(self.runs, self.name, index, self.plan.metric) for index in self.indices]

    def write(self) -> None:
        values = {
            # An earlier release reads sweeps of a single version, and would run the first one's code.
            "format": FORMAT if self.versions > 1 else 1, "name": self.name, "user": self.user,
            "created_at": self.created_at, "size": self.size, "arrays": self.arrays, "versions": self.versions,
            "plan": plans.as_mapping(self.plan),
        }  # fmt: skip
        record.write_json(self.directory / "sweep.json", values)

    def reload(self) -> None:
        """Read again what another command may have changed before this one had the lock. Raises ExperimentError."""
        written = read(self.home, self.name)
        self.arrays, self.versions = written.arrays, written.versions

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises ExperimentError while another command changes the sweep. A dead process holds no lock."""
        descriptor = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ExperimentError(f"another command is changing the sweep {self.name}; try again") from None
            except OSError as error:
                raise lock_refused(self.directory / "lock", error) from error
            yield
        finally:
            os.close(descriptor)


def read(home: Path, name: str) -> Sweep:
    """The sweep. Raises ExperimentError if there is none, or its file is damaged or of a later release."""
    path = home / "sweeps" / name / "sweep.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("format", 0) > FORMAT:
            raise ExperimentError(f"{path} was written by a later release of spritz", hint="use that release")
        return Sweep(
            name=name,
            user=data["user"],
            created_at=data["created_at"],
            home=home,
            plan=plans.from_mapping(data["plan"]),
            size=data["size"],
            arrays=data["arrays"],
            versions=data.get("versions", 1),
        )
    except (FileNotFoundError, NotADirectoryError):
        raise ExperimentError(f"{name}: no such sweep", hint="`spritz sweeps` lists them") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExperimentError(
            f"{path} is damaged: {error}", hint=f"its trials are not: `spritz runs --group {name}` lists them"
        ) from error


def names(home: Path) -> list[str]:
    return sorted(path.parent.name for path in (home / "sweeps").glob("*/sweep.json"))


def create(home: Path, base: str, at: float, user: str, plan: Plan, size: int) -> Sweep:
    """A sweep with a free name BASE-1, BASE-2 …; creates its directory, but not yet sweep.json."""
    folder = home / "sweeps"
    folder.mkdir(exist_ok=True)
    numbers = [path.name.removeprefix(f"{base}-") for path in folder.glob(f"{base}-*")]
    number = max((int(text) for text in numbers if text.isdecimal()), default=0) + 1
    while True:
        sweep = Sweep(name=f"{base}-{number}", user=user, created_at=at, home=home, plan=plan, size=size)
        try:
            if (home / "runs" / f"{sweep.name}.1").exists():
                raise FileExistsError
            sweep.directory.mkdir()
        except FileExistsError:
            number += 1
            continue
        return sweep


def assignments(plan: Plan, point: Mapping[str, Any]) -> str:
    """The parameters of a trial as a shell line."""
    words = [f"{space.variable(name)}={shlex.quote(space.written(value))}" for name, value in point.items()]
    return f"export {' '.join(words)}\n"
