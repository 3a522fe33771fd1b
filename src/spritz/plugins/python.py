"""job_submit.py: the same hook in Python, in the directory of slurm.conf.

    def job_submit(job, partitions, submit_uid):
        if job.time_limit is None:
            raise Refused("say how long it takes: --time", code="ESLURM_MISSING_TIME_LIMIT")
        job.partition = job.partition or "short"
        message("sent to " + job.partition)

    def job_modify(job, record, partitions, submit_uid):
        ...

Both may be left out. `job` has the names of `job_desc` in job_submit.lua; what was not given is None, and None takes
a value back; `job.environment` is a mapping. `record` is the job as it is. `partitions` maps names to records. In the
module's namespace: `Refused`, `message(text)` for the user, `log(text, level="info")`, `jobs()`, `reservations()` and
the constants of the slurm table. Returning None or 0 accepts; another number refuses with that error.

The file is read again when it has changed; one that cannot be read then leaves the one before it in force.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import CodeType
from typing import TYPE_CHECKING, Any

from spritz.model.errors import ESLURM
from spritz.model.ids import NO_VAL
from spritz.plugins.answer import FieldError, LogLine, PluginAnswer, PluginError
from spritz.plugins.fields import FIELDS
from spritz.plugins.numbers import CONSTANTS, NO_VAL16, NO_VAL64, error_numbers
from spritz.plugins.records import JobView, ReservationView

if TYPE_CHECKING:
    from spritz.plugins.description import Description
    from spritz.plugins.script import ScriptContext

KIND = "job_submit/python"
_UNSET = {"shared": NO_VAL16, "oversubscribe": NO_VAL16, "pn_min_memory": NO_VAL64}


class Refused(Exception):
    """Raised by a hook to refuse the job. `code` is an ESLURM name."""

    def __init__(self, text: str = "", code: str = "SLURM_ERROR") -> None:
        super().__init__(text)
        self.text = text
        if code != "SLURM_ERROR" and code not in ESLURM:
            raise ValueError(f"{code} is not an error of Slurm")
        self.number = -1 if code == "SLURM_ERROR" else ESLURM[code][0]


class RecordView:
    """Fields of a job, partition or reservation as attributes. An unknown name raises AttributeError."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[str], Any]) -> None:
        object.__setattr__(self, "_read", read)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._read(name)


class JobDescription(RecordView):
    """A request; its attributes can be read and written. An unknown name raises AttributeError."""

    __slots__ = ("_description",)

    def __init__(self, description: Description) -> None:
        super().__init__(description.read)
        object.__setattr__(self, "_description", description)

    def __getattr__(self, name: str) -> Any:
        if name == "environment":
            return Environment(self._description)
        if name not in FIELDS:
            raise AttributeError(f'a job description has no field "{name}"')
        value = self._read(name)
        return None if value in (NO_VAL, _unset(name)) and not isinstance(value, str) else value

    def __setattr__(self, name: str, value: Any) -> None:
        if value is None:
            text = isinstance(self._description.read(name), str)
            value = "" if text or _unset(name) is None else _unset(name)
        elif isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        self._description.write(name, value)


def _unset(name: str) -> Any:
    """The value that stands for "not given" in this field."""
    from spritz.plugins.description import Description

    return _UNSET[name] if name in _UNSET else Description({}).read(name)


class Environment(MutableMapping[str, str]):
    """Variables of the batch job, which hooks may change."""

    def __init__(self, description: Description) -> None:
        self._description = description

    def __getitem__(self, name: str) -> str:
        value = self._description.variable(name)
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: str) -> None:
        self._description.set_variable(name, value)

    def __delitem__(self, name: str) -> None:
        self[name]
        self._description.unset_variable(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._description.variables())

    def __len__(self) -> int:
        return len(self._description.environment)


class PythonSubmit:
    """The Python module of the site, and the cluster data that it sees. Call `load` first."""

    def __init__(self, path: str, cluster: str = "") -> None:
        self.path = path
        self._cluster = cluster
        self._names: dict[str, Any] | None = None
        self._stamp: tuple[int, int] | None = None
        self._lines: list[str] = []
        self._log: list[LogLine] = []
        self._context: ScriptContext | None = None

    def load(self) -> None:
        """Read the file if it is new or has changed. Raises PluginError if there is no usable version."""
        try:
            status = os.stat(self.path)
            stamp = (status.st_mtime_ns, status.st_size)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            with open(self.path, "rb") as file:
                source = file.read()
        except OSError as error:
            self._trouble(f"{self.path}: {error.strerror}")
            return
        names = self._namespace()
        try:
            exec(_compiled(source, self.path), names)
        except Exception as error:
            self._trouble(_words(error, self.path))
            return
        self._names = names

    def _namespace(self) -> dict[str, Any]:
        return {
            "__name__": "job_submit",
            "__file__": self.path,
            "Refused": Refused,
            "message": lambda text: self._lines.extend(str(text).split("\n")),
            "log": lambda text, level="info": self._log.append((str(level), str(text))),
            "jobs": self._jobs,
            "reservations": self._reservations,
            "CLUSTER_NAME": self._cluster,
            **CONSTANTS,
            **error_numbers(),
        }

    def _trouble(self, what: str) -> None:
        if self._names is None:
            raise PluginError(f"{KIND}: {what}")
        self._log.append(("error", f"{KIND}: {what}, using previous script"))

    def _jobs(self) -> Mapping[int, RecordView]:
        return {job.id: RecordView(JobView(job).read) for job in (self._context.jobs() if self._context else ())}

    def _reservations(self) -> Mapping[str, RecordView]:
        reservations = self._context.reservations() if self._context else ()
        return {reservation.name: RecordView(ReservationView(reservation).read) for reservation in reservations}

    def submit(self, job: Description, context: ScriptContext) -> PluginAnswer:
        """Call job_submit for a new job."""
        return self._call("job_submit", job, context, ())

    def modify(self, job: Description, context: ScriptContext) -> PluginAnswer:
        """Call job_modify for a change of `context.job`."""
        record = None if context.job is None else RecordView(JobView(context.job).read)
        return self._call("job_modify", job, context, (record,))

    def _call(self, function: str, job: Description, context: ScriptContext, middle: tuple[Any, ...]) -> PluginAnswer:
        self._lines, self._log = [], []
        self._context = context
        partitions = {view.partition.name: RecordView(view.read) for view in context.usable()}
        try:
            self.load()
            hook = (self._names or {}).get(function)
            result = None if hook is None else hook(JobDescription(job), *middle, partitions, context.uid)
            number = int(result) if isinstance(result, int) else 0
        except Refused as refused:
            self._lines += refused.text.split("\n") if refused.text else []
            number = refused.number
        except PluginError as error:
            return self._failed(str(error))
        except Exception as error:
            return self._failed(f"{KIND}: {_words(error, self.path)}")
        finally:
            self._context = None
        return PluginAnswer(number=number, lines=tuple(self._lines), log=tuple(self._log))

    def _failed(self, what: str) -> PluginAnswer:
        return PluginAnswer(number=-1, lines=(what,), log=(*self._log, ("error", what)))


def _compiled(source: bytes, path: str) -> CodeType:
    return compile(source, path, "exec", dont_inherit=True)


def _words(error: Exception, path: str) -> str:
    """File, line and error, on one line."""
    if isinstance(error, SyntaxError):
        return f"{path}:{error.lineno}: {error.msg}"
    places = [place for place in traceback.extract_tb(error.__traceback__) if place.filename == path]
    where = f"{path}:{places[-1].lineno}" if places else path
    name = "" if isinstance(error, FieldError) else f"{type(error).__name__}: "
    return f"{where}: {name}{error}"
