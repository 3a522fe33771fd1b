"""Python functions as runs: `submit`, `map`, and executors. This is the public module.

    from spritz.experiments.api import submit, map

    future = submit(train, 1e-3, gpus=1, time="2h")
    print(future.name, future.state)
    model = future.result()
    losses = [each.result() for each in map(train, [1e-2, 1e-3], gpus=1)]

Options are those of `spritz run`, with underscores; all other arguments go to the function. Each call is an ordinary
run (`spritz runs`, `spritz show`, `spritz logs`), from a snapshot of the working tree. The job needs the interpreter of
this process, at the same path, with Spritz and cloudpickle. `executors` has submitit's interface.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time as clock
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from spritz.experiments import calling
from spritz.experiments.calling import CallFailed, RemoteTraceback
from spritz.experiments.cluster import slurm
from spritz.experiments.code.snapshot import Snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home
from spritz.experiments.job import arrays, containers, run_environment, settings, states, submission
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry, Store
from spritz.experiments.results import failures, logs

__all__ = [
    "submit",
    "map",
    "future",
    "as_completed",
    "Future",
    "Executor",
    "RunFailed",
    "CallFailed",
    "RemoteTraceback",
    "ExperimentError",
]

Result = TypeVar("Result")

_OPTIONS = frozenset(item.name for item in fields(RunOptions))
#: Options that only this module has.
_EXTRA = frozenset({"snapshot", "group", "parallel"})
_LOOK_SECONDS = 0.1
#: Seconds between two queries to Slurm; a query covers all futures of the process.
_ASK_SECONDS = 3.0


class RunFailed(ExperimentError):
    """The job ended without a result: cancelled, out of time or memory, a node lost …"""


class Future(Generic[Result]):
    """A submitted run, with its `name`. A future can be pickled, and `future(name)` makes another for the same run."""

    def __init__(self, name: str, job_id: str, owner: str = "") -> None:
        self.name = name
        self.job_id = job_id
        self.owner = owner or submission.user()
        self.directory: Path = record.directory_of(home(), name)
        self._known: list[calling.Outcome] = []
        #: the last known state
        self._told = "PENDING"
        _watch.add(self)

    def __repr__(self) -> str:
        return f"<Future {self.name}, job {self.job_id}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.name, self.job_id, self.owner))

    @property
    def state(self) -> str:
        """The state as in `spritz runs`: PENDING, RUNNING, COMPLETED … Queries Slurm at most every few seconds."""
        if self._told not in states.ENDED:
            _watch.ask()
        if outcome := self._outcome():
            return "COMPLETED" if outcome.ok else self._told if self._told in states.ENDED else "FAILED"
        return self._told

    def done(self) -> bool:
        """Whether the run has ended, with or without success."""
        if self._outcome() is not None:
            return True
        _watch.ask()
        return self._told in states.ENDED

    def running(self) -> bool:
        """Whether the job was RUNNING when Slurm was last queried, which happens at most every few seconds."""
        return not self.done() and self._told == "RUNNING"

    def cancelled(self) -> bool:
        return self.done() and self._told == "CANCELLED"

    def cancel(self) -> bool:
        """Cancel the job; False if the run has ended already."""
        if self.done():
            return False
        slurm.cancel(self.job_id)
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended; False after `timeout` seconds."""
        end = None if timeout is None else clock.monotonic() + timeout
        while not self.done():
            if end is not None and clock.monotonic() >= end:
                return False
            clock.sleep(_LOOK_SECONDS)
        return True

    def result(self, timeout: float | None = None) -> Result:
        """The function's return value on rank 0. Raises the function's exception, with the job's traceback as its
        cause; RunFailed if the job ended without a result, and TimeoutError after `timeout` seconds.
        """
        value: Result = self.results(timeout)[0]
        return value

    def results(self, timeout: float | None = None) -> list[Result]:
        """The return values of all ranks; raises like `result`."""
        if not self.wait(timeout):
            raise TimeoutError(f"{self.name} has not ended after {timeout:g} s")
        outcome = self._outcome()
        if outcome is None:
            raise self._without_result()
        return (
            [task.value() for task in sorted(self._known, key=lambda task: task.ok)]
            if not outcome.ok
            else [task.value() for task in self._known]
        )

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception that `result` would raise, None without. Raises TimeoutError."""
        if not self.wait(timeout):
            raise TimeoutError(f"{self.name} has not ended after {timeout:g} s")
        try:
            self.results()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return error
        return None

    def logs(self, rank: int | None = None) -> str:
        """The output so far, of all ranks or of `rank`."""
        return "".join(f"{line.text}\n" for line in logs.Tail(self.directory, rank).read(last=True))

    def _outcome(self) -> calling.Outcome | None:
        """The outcome of the first rank that failed, else of rank 0; None while an outcome is missing."""
        if not self._known:
            first = calling.read(self.directory)
            if first is None:
                # Rank 0 may have been killed because another failed.
                if self._told in states.ENDED:
                    outcomes = [calling.read(self.directory, int(path.stem[7:])) for path in self._files()]
                    self._known = [outcome for outcome in outcomes if outcome is not None and not outcome.ok][:1]
                return self._known[0] if self._known else None
            outcomes = [first, *(calling.read(self.directory, rank) for rank in range(1, first.ranks))]
            if None in outcomes and all(outcome is None or outcome.ok for outcome in outcomes):
                return None
            self._known = [outcome for outcome in outcomes if outcome is not None]
        return next((task for task in self._known if not task.ok), self._known[0])

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob("result-*.pkl"))

    def _without_result(self) -> RunFailed:
        entry = Store(home()).get(self.name, self.owner)
        words = failures.explain(self.directory, entry.state, entry.exit_code) or "it ended without a result"
        return RunFailed(f"{self.name} {entry.state}: {words}", hint=f"spritz logs {self.name}")


class _Watch:
    """Updates the states of all futures of this process by a single query to Slurm."""

    def __init__(self) -> None:
        self._open: WeakSet[Future[Any]] = WeakSet()
        self._asked_at = clock.monotonic()
        self._lock = threading.Lock()

    def add(self, future: Future[Any]) -> None:
        with self._lock:
            self._open.add(future)

    def ask(self) -> None:
        """Update all states, unless the last update was a moment ago."""
        with self._lock:
            if clock.monotonic() - self._asked_at < _ASK_SECONDS:
                return
            waiting = {(future.name, future.owner): future for future in self._open}
            store = Store(home())
            try:
                entries: dict[tuple[str, str], Entry] = {}
                for owner in {owner for _, owner in waiting}:
                    entries |= {(entry.name, owner): entry for entry in store.open_runs(owner)}
                known_entries = [entries[key] for key in waiting if key in entries]
                states.refresh(store, known_entries)
                after: dict[tuple[str, str], Entry] = {}
                for owner in {owner for _, owner in waiting}:
                    after |= {(entry.name, owner): entry for entry in store.open_runs(owner)}
                for key, future in waiting.items():
                    future._told = (after.get(key) or store.get(*key)).state
                    if future._told in states.ENDED:
                        self._open.discard(future)
            finally:
                store.close()
                self._asked_at = clock.monotonic()


_watch = _Watch()


def submit(function: Callable[..., Result], *arguments: Any, **named: Any) -> Future[Result]:
    """Run `function(*arguments, **named)` as a job; options of `spritz run` among `named` are the job's.

    `snapshot=False` runs in this directory instead of a snapshot of it; `group` names runs that belong together.
    Raises ExperimentError.
    """
    options, named_arguments = _split(function, named)
    return _submit(function, arguments, named_arguments, options)


def _frozen(directory: Path, project_settings: settings.Settings) -> Snapshot:
    """A snapshot of the code; what it lacks is a warning."""
    code = submission.freeze(directory, project_settings)
    for line in code.unfrozen:
        warnings.warn(f"not in the snapshot: {line}", stacklevel=4)
    return code


def _submit(
    function: Callable[..., Result], arguments: Sequence[Any], named: Mapping[str, Any], options: dict[str, Any]
) -> Future[Result]:
    directory = Path.cwd()
    project_settings = settings.read(directory)
    code = _frozen(directory, project_settings) if options.pop("snapshot", True) else None
    group = str(options.pop("group", ""))
    options.pop("parallel", None)
    content = calling.written(function, arguments, named, root=code.root if code else "")
    store = Store(home())
    try:
        run = submission.launch(
            submission.Request(
                command=command(function),
                shown=shown(function),
                directory=directory,
                options=run_options(options, project_settings, calling.name_of(function)),
                settings=project_settings,
                take_snapshot=False,
                code=code,
                group=group,
                files={calling.CALL: content},
            ),
            store,
        )
    finally:
        store.close()
    return Future(run.name, run.job_id, run.user)


def map(function: Callable[..., Result], items: Iterable[Any], **options: Any) -> list[Future[Result]]:
    """Submit a job array that calls `function(item)` for each item; return a future for each, in order.

    `parallel` limits the number of calls that run at the same time. Other options as for `submit`. Raises
    ExperimentError.
    """
    given, unknown = _split(function, options, checked=False)
    if unknown:
        raise ExperimentError(f"map has no option {next(iter(unknown))}", hint="functools.partial binds arguments")
    return submit_array([((item,), {}) for item in items], [function], given)


def submit_array(
    calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
    functions: Sequence[Callable[..., Any]],
    options: dict[str, Any],
) -> list[Future[Any]]:
    """Submit a job array for calls, each of its own function or all of the same; several beyond Slurm's limit."""
    if not calls:
        return []
    directory = Path.cwd()
    project_settings = settings.read(directory)
    code = _frozen(directory, project_settings) if options.pop("snapshot", True) else None
    group, parallel = str(options.pop("group", "")), int(options.pop("parallel", 0))
    functions_of_tasks = list(functions) * len(calls) if len(functions) == 1 else list(functions)
    base = home()
    given = run_options(options, project_settings, calling.name_of(functions_of_tasks[0]))
    root = code.root if code else ""
    contents = [
        calling.written(function, *call, root=root) for function, call in zip(functions_of_tasks, calls, strict=True)
    ]
    environment = submission.Request(command=(), directory=directory, options=given).environment
    around = run_environment.collect(base, directory, environment)
    store = Store(base)
    futures: list[Future[Any]] = []
    try:
        label = given.name or calling.name_of(functions_of_tasks[0])
        commands = [shown(function) for function in functions_of_tasks]
        name = store.reserve_array(label, submission.user(), clock.time(), base / "runs", commands)
        (base / "arrays").mkdir(exist_ok=True)
        requests = [
            submission.Request(
                command=command(function),
                shown=line,
                directory=directory,
                options=given,
                settings=project_settings,
                take_snapshot=False,
                code=code,
                group=group or name,
                environment=environment,
                reserved=f"{name}-{index}",
                files={calling.CALL: content},
                surroundings=around,
            )
            for index, (function, line, content) in enumerate(zip(functions_of_tasks, commands, contents, strict=True))
        ]
        for first in range(0, len(requests), arrays.TASKS_MAX):
            part = dict(enumerate(requests[first : first + arrays.TASKS_MAX]))
            script = base / "arrays" / f"{name}-{first}.sh"
            try:
                runs = arrays.launch(part, store, script, name=name, parallel=parallel)
            except BaseException:
                for request in requests[first:]:
                    store.remove(request.reserved, submission.user())
                raise
            futures += [Future(run.name, run.job_id, run.user) for run in runs]
    finally:
        store.close()
    return futures


def command(function: Callable[..., Any]) -> tuple[str, ...]:
    """The job's command; its last word is only informative."""
    module = getattr(function, "__module__", "") or ""
    label = calling.name_of(function)
    return (sys.executable, "-m", "spritz.experiments.calling", f"{module}:{label}" if module else label)


def shown(function: Callable[..., Any]) -> str:
    """The call as text for listings."""
    return f"{command(function)[-1].removeprefix('__main__:').replace(':', '.')}(…)"


def future(name: str) -> Future[Any]:
    """The future of a run that was submitted earlier, by name or job number. Raises ExperimentError."""
    store = Store(home())
    try:
        entry = store.get(name, submission.user())
    finally:
        store.close()
    return Future(entry.name, entry.job_id, entry.owner)


def as_completed(futures: Iterable[Future[Result]], timeout: float | None = None) -> Iterator[Future[Result]]:
    """The futures as they end. Raises TimeoutError."""
    running = list(futures)
    end = None if timeout is None else clock.monotonic() + timeout
    while running:
        ended = [future for future in running if future.done()]
        running = [future for future in running if future not in ended]
        yield from ended
        if running and not ended:
            if end is not None and clock.monotonic() >= end:
                raise TimeoutError(f"{len(running)} of the runs have not ended")
            clock.sleep(_LOOK_SECONDS)


class Executor:
    """Submits calls with common options, by the methods of `concurrent.futures.Executor`.

    with Executor(gpus=1, time="1h") as executor:
        losses = list(executor.map(train, [1e-2, 1e-3]))
    """

    def __init__(self, **options: Any) -> None:
        self._options, unknown = _split(None, options)
        if unknown:
            raise ExperimentError(f"no option {next(iter(unknown))}")
        self._futures: list[Future[Any]] = []

    def submit(self, function: Callable[..., Result], /, *arguments: Any, **named: Any) -> Future[Result]:
        """Like the function `submit`, but all of `named` goes to the function."""
        submitted = _submit(function, arguments, named, dict(self._options))
        self._futures.append(submitted)
        return submitted

    def map(
        self, function: Callable[..., Result], *iterables: Iterable[Any], timeout: float | None = None
    ) -> Iterator[Result]:
        """The results in order, from a single job array."""
        calls: list[tuple[Sequence[Any], Mapping[str, Any]]] = [
            (arguments, {}) for arguments in zip(*iterables, strict=False)
        ]
        futures = submit_array(calls, [function], dict(self._options))
        self._futures += futures
        end = None if timeout is None else clock.monotonic() + timeout
        return (future.result(None if end is None else max(0.0, end - clock.monotonic())) for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for submitted runs, or cancel unfinished ones."""
        if cancel_futures:
            for future in self._futures:
                future.cancel()
        if wait:
            for future in self._futures:
                future.wait()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.shutdown(wait=kind is None)


def _split(
    function: Callable[..., Any] | None, named: Mapping[str, Any], *, checked: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options of the run, arguments of the function). Raises ExperimentError for a name that could be either."""
    options = {name: value for name, value in named.items() if name in _OPTIONS or name in _EXTRA}
    if function is not None and checked:
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            parameters = {}  # type: ignore[assignment]  # a builtin says nothing
        for name in options:
            if name in parameters:
                raise ExperimentError(
                    f"{name} is an option of the run, and {calling.name_of(function)} has a parameter of that name",
                    hint="functools.partial binds the parameter; or Executor(option=…).submit, which divides them",
                )
    return options, {name: value for name, value in named.items() if name not in options}


def run_options(options: Mapping[str, Any], defaults: settings.Settings, name: str) -> RunOptions:
    """The options, which override those of spritz.yaml. Raises ExperimentError."""
    checked: dict[str, Any] = {}
    for key, value in options.items():
        if key == "env":
            checked[key] = {str(variable): str(text) for variable, text in value.items()}
        elif isinstance(value, list | tuple):
            checked[key] = tuple(str(text) for text in value)
        else:
            checked[key] = value if value in (None, "", False) else str(value)
    if "name" not in defaults.run:
        checked.setdefault("name", name)
    merged = settings.merged(defaults, checked)
    containers.need_none(merged, "functions and the steps of pipelines")
    return merged
