"""The interface of submitit's AutoExecutor and Job over runs, so that a program only changes its import.

What differs from submitit: docs/how-to/pipelines.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from spritz.experiments import api, calling
from spritz.experiments.cluster import slurm
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job.settings import SLURM_OPTIONS
from spritz.experiments.records import record
from spritz.notation.names import nearest

Result = TypeVar("Result")

#: Parameter of submitit -> option of a run.
_SAME = {
    "name": "name",
    "nodes": "nodes",
    "gpus_per_node": "gpus_per_node",
    "tasks_per_node": "tasks_per_node",
    "cpus_per_task": "cpus_per_task",
    "slurm_job_name": "name",
    "slurm_ntasks_per_node": "tasks_per_node",
    **{f"slurm_{name}": name for name in SLURM_OPTIONS},
}
#: Options of sbatch without a corresponding option of a run.
_PASSED = (
    *("slurm_comment", "slurm_gres", "slurm_exclude", "slurm_exclusive", "slurm_nodelist", "slurm_dependency"),
    *("slurm_gpus_per_task", "slurm_cpus_per_gpu", "slurm_mem_per_gpu", "slurm_mem_per_cpu", "slurm_mail_type"),
    *("slurm_mail_user", "slurm_signal", "slurm_licenses", "slurm_begin", "slurm_deadline", "slurm_hint"),
)
_OTHER = (
    *("timeout_min", "mem_gb", "stderr_to_stdout", "slurm_array_parallelism", "slurm_additional_parameters"),
    *("slurm_setup", "slurm_max_num_timeout", "slurm_stderr_to_stdout"),
)


class Job(Generic[Result]):
    """A submitted call, with the interface of submitit's Job; in a batch it has no id until the batch is submitted."""

    def __init__(self, executor: AutoExecutor) -> None:
        self._folder = executor.folder
        self._future: api.Future[Result] | None = None

    def __repr__(self) -> str:
        return f"<Job {self.job_id}>" if self._future is not None else "<Job in a batch that is not submitted yet>"

    @property
    def future(self) -> api.Future[Result]:
        """The run. Raises ExperimentError inside the `batch()` that it was submitted in."""
        if self._future is None:
            raise ExperimentError("the job is part of a batch that is not submitted yet")
        return self._future

    @property
    def job_id(self) -> str:
        """Slurm's number; ID_INDEX in an array."""
        return self.future.job_id

    @property
    def state(self) -> str:
        """The state as in `spritz runs`."""
        return self.future.state

    @property
    def num_tasks(self) -> int:
        """Number of the job's processes; 1 until the first has ended."""
        outcome = calling.read(self.future.directory)
        return outcome.ranks if outcome else 1

    def done(self, force_check: bool = False) -> bool:
        """Whether the job has ended. `force_check` is submitit's and has no effect."""
        return self.future.done()

    def wait(self) -> None:
        """Wait until the job has ended."""
        self.future.wait()

    def result(self) -> Result:
        """The function's return value. Raises the function's exception."""
        return self.future.result()

    def results(self) -> list[Result]:
        """The return values of all tasks."""
        return self.future.results()

    def exception(self) -> BaseException | None:
        """The exception that `result` would raise."""
        return self.future.exception()

    def cancel(self, check: bool = True) -> None:
        """Cancel the job with scancel. `check` is submitit's and has no effect."""
        slurm.cancel(self.job_id)

    def stdout(self) -> str | None:
        """The output of all tasks, standard error in it; None if it has not started."""
        return self.future.logs() if record.events(self.future.directory) else None

    def stderr(self) -> str | None:
        """ "" as it is part of `stdout`; None if the job has not started."""
        return "" if self.stdout() is not None else None

    def awaitable(self) -> _Awaitable[Result]:
        """An object with coroutines, so that a program can write `await job.awaitable().result()`."""
        return _Awaitable(self)

    def _is(self, future: api.Future[Result]) -> None:
        self._future = future
        # Link logs and results under the job's id, as submitit names them in its folder.
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / future.job_id).symlink_to(future.directory)


class _Awaitable(Generic[Result]):
    def __init__(self, job: Job[Result]) -> None:
        self._job = job

    async def wait(self, poll_interval: float = 1) -> None:
        while not self._job.done():  # noqa: ASYNC110  # the job ends in another process
            await asyncio.sleep(poll_interval)

    async def result(self, poll_interval: float = 1) -> Result:
        await self.wait(poll_interval)
        return self._job.result()


class AutoExecutor:
    """`folder` gets a link to each run, by its job's number."""

    def __init__(self, folder: str | Path, cluster: str | None = None, **_: Any) -> None:
        if cluster not in (None, "slurm"):
            raise ExperimentError(f"cluster={cluster!r}: runs are jobs of Slurm only")
        self.folder = Path(folder).expanduser().absolute()
        self._parameters: dict[str, Any] = {}
        self._batch: list[tuple[Job[Any], Callable[..., Any], Sequence[Any], Mapping[str, Any]]] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of `update_parameters`, under the names that the caller gave."""
        return dict(self._parameters)

    def update_parameters(self, **given: Any) -> None:
        """Set parameters by submitit's names. Raises ExperimentError for an unknown name."""
        names = (*_SAME, *_PASSED, *_OTHER)
        for name in given:
            if name not in names:
                near = nearest(name, names)
                raise ExperimentError(f"no parameter {name}" + (f" (did you mean {near}?)" if near else ""))
        self._parameters.update(given)

    def submit(self, fn: Callable[..., Result], *args: Any, **kwargs: Any) -> Job[Result]:
        """Submit a job; inside `batch()`, a task of the batch's array."""
        job: Job[Result] = Job(self)
        if self._batch is not None:
            self._batch.append((job, fn, args, kwargs))
        else:
            job._is(api._submit(fn, args, kwargs, options_of(self._parameters)))
        return job

    def map_array(self, fn: Callable[..., Result], *iterable: Iterable[Any]) -> list[Job[Result]]:
        """Submit an array with a task for each item."""
        return self._array([fn], [(arguments, {}) for arguments in zip(*iterable, strict=False)])

    def submit_array(self, fns: Sequence[Callable[[], Result]]) -> list[Job[Result]]:
        """Submit an array with a task for each function."""
        return self._array(fns, [((), {}) for _ in fns])

    def _array(self, functions: Sequence[Callable[..., Any]], calls: list[Any]) -> list[Job[Any]]:
        jobs: list[Job[Any]] = [Job(self) for _ in calls]
        futures = api.submit_array(calls, functions, options_of(self._parameters)) if calls else []
        for job, future in zip(jobs, futures, strict=True):
            job._is(future)
        return jobs

    @contextmanager
    def batch(self, allow_implicit_submissions: bool = False) -> Iterator[None]:
        """Submit all calls of the block as a single array at its end; none if the block raises an exception."""
        if self._batch is not None:
            raise ExperimentError("batches cannot be inside one another")
        self._batch = []
        try:
            yield
            batch = self._batch
        finally:
            self._batch = None
        if batch:
            calls = [(args, kwargs) for _, _, args, kwargs in batch]
            futures = api.submit_array(calls, [function for _, function, _, _ in batch], options_of(self._parameters))
            for (job, *_), future in zip(batch, futures, strict=True):
                job._is(future)


def options_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a run by submitit's parameters."""
    options: dict[str, Any] = {}
    words: list[str] = []
    for name, value in parameters.items():
        if value is None:
            continue
        if name in _SAME:
            options[_SAME[name]] = value
        elif name == "timeout_min":
            options["time"] = f"{value}"
        elif name == "mem_gb":
            options["mem"] = f"{round(float(value) * 1024)}M"
        elif name == "slurm_array_parallelism":
            options["parallel"] = value
        elif name == "slurm_setup":
            options["setup"] = tuple(value)
        elif name in _PASSED:
            words.append(_word(name.removeprefix("slurm_"), value))
        elif name == "slurm_additional_parameters":
            words += [_word(key, item) for key, item in value.items()]
    if words:
        options["slurm"] = tuple(word for word in words if word)
    return options


def _word(name: str, value: Any) -> str:
    option = f"--{name.replace('_', '-')}"
    return option if value is True else "" if value is False else f"{option}={value}"
