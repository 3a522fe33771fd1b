"""Cancels jobs, with scancel's messages: none about jobs that are gone, except with -v.

Source: scancel(1); wording and status of 22.05.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.call import clusters
from spritz.cli.jobs.cancel import conditions
from spritz.client.command.sync import connect_controller
from spritz.client.errors import RemoteError
from spritz.model.commands.job import CancelJobs, CancelResult
from spritz.model.errors import ESLURM, SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.notation.jobid import JobReference
from spritz.notation.jobid import format as format_reference
from spritz.presentation.job.job_text import job_label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.call.options import Row
    from spritz.client.command.sync import Connection
    from spritz.client.locate import ControllerConfig
    from spritz.model.commands.job import CancelOutcome

#: errors for whole jobs that are only shown with -v, and count as success
_GONE = ("ESLURM_INVALID_JOB_ID", "ESLURM_ALREADY_DONE")

SIGKILL = 9

_LIVE = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING")
_FIELDS = ("id", "array_job_id", "array_task_id", "array", "spec.name", "partition", "het_job_id")


#: options that choose jobs, and what Slurm calls them where none matches
_FILTER_NAMES = (
    ("account", "account"),
    ("name", "job_name"),
    ("nodelist", "nodelist"),
    ("partition", "partition"),
    ("qos", "qos"),
    ("reservation", "reservation"),
    ("state", "state"),
    ("user", "user_name"),
    ("wckey", "wckey"),
)


def run(parsed: Sequence[tuple[str, str | None]], words: Sequence[str], rows: Sequence[Row], context: Context) -> int:
    """Cancel the selected jobs and print scancel's messages. Returns the exit status."""
    options = conditions.merge(parsed, rows, context)
    signal = conditions.signal_of(options, context)
    job_filter = conditions.build_filter(options, words, context)
    filtered = any(option in options for option in conditions.FILTERS)
    if not job_filter.targets and not filtered:
        raise SpritzError("No job identification provided")

    def cancelled() -> int:
        with connect_controller() as controller:
            return _Cancelling(options, signal, job_filter, context, controller).run(filtered)

    if "sibling" in options:
        return _sibling_cancelled(options["sibling"], job_filter, cancelled)
    if "clusters" not in options:
        return _where_they_are(options, signal, job_filter, filtered, context)
    several = clusters.chosen(options["clusters"], context)  # as 22.05: "--cluster", wherever the name comes from
    return clusters.each(several, lambda cluster: cancelled())


def _where_they_are(
    options: Mapping[str, str], signal: int, job_filter: JobFilter, filtered: bool, context: Context
) -> int:
    """Jobs of a federation are cancelled on the cluster that runs them, or at their origin."""
    from msgspec.structs import replace

    from spritz.client.command.sync import connect_controller
    from spritz.model.federation import origin_number

    def cancelled(some: JobFilter) -> int:
        with connect_controller() as controller:
            return _Cancelling(options, signal, some, context, controller).run(filtered)

    if not any(origin_number(target.job_id) for target in job_filter.targets):
        return cancelled(job_filter)
    from spritz.client.locate import locate_controller

    this_cluster = locate_controller()
    places = [clusters.of_job(target.job_id) or this_cluster for target in job_filter.targets]

    def there(cluster: ControllerConfig) -> int:
        targets = (target for target, place in zip(job_filter.targets, places, strict=True) if place == cluster)
        return cancelled(replace(job_filter, targets=tuple(targets)))

    return clusters.each(list(dict.fromkeys(places)), there)


def _sibling_cancelled(name: str, job_filter: JobFilter, cancel: Callable[[], int]) -> int:
    """--sibling: the copy on one cluster alone."""
    from spritz.client.locate import locate_controller

    if not job_filter.targets or any(target.step_id is not None for target in job_filter.targets):
        raise SpritzError("--sibling needs the numbers of jobs")
    members = {config.cluster_name: config for config in clusters.federated()}
    chosen = members.get(name.lower())
    for target in job_filter.targets:
        origin = clusters.origin_of(target.job_id)
        if not origin:
            raise _not_cancelled(target.job_id, "ESLURM_JOB_NOT_FEDERATED")
        if chosen is None:
            raise _not_cancelled(target.job_id, "ESLURM_INVALID_CLUSTER_NAME")
        if chosen.cluster_name == origin:
            raise SpritzError(f"{name} is the origin of job {target.job_id}: scancel without --sibling ends the job")
    if chosen is not None and chosen != locate_controller():
        clusters.use(chosen)
    return cancel()


def _not_cancelled(job_id: int, code: str) -> SpritzError:
    """In Slurm's words, and with its status: the low byte of the error's number."""
    number, text = ESLURM[code]
    return SpritzError(f"Kill job error on job id {job_id}: {text}", exit_code=number & 0xFF)


class _Cancelling:
    """One call of scancel."""

    def __init__(
        self, options: Mapping[str, str], signal: int, job_filter: JobFilter, context: Context, controller: Connection
    ) -> None:
        self._given = options
        self._signal = signal
        self._wanted = job_filter
        self._context = context
        self._controller = controller
        self._verbose = "verbose" in options and "quiet" not in options
        self._status = 0

    def run(self, filtered: bool) -> int:
        job_filter = self._wanted
        if "interactive" in self._given:
            if job_filter.targets and not filtered:
                job_filter = self._those_there(drop=True)
                if not job_filter.targets:
                    return self._status
            job_filter = self._confirmed(job_filter)
        elif job_filter.targets and (filtered or self._looks_first()):
            job_filter = self._those_there(drop=not filtered)
        elif job_filter.users and not self._is_me(job_filter.users):
            # One by one, so that each refusal is shown.
            job_filter = self._listed(job_filter)
        if "interactive" in self._given and not job_filter.targets:
            return self._status
        if not job_filter.targets and job_filter is not self._wanted:
            return self._status
        self._cancel(job_filter)
        return self._status

    def _looks_first(self) -> bool:
        """With these, as with filters, Slurm's scancel looks for the jobs first."""
        has_signal_option = "signal" in self._given or "batch" in self._given
        return has_signal_option or any(target.step_id is not None for target in self._wanted.targets)

    @staticmethod
    def _is_me(users: tuple[int, ...]) -> bool:
        return users == (os.getuid(),)

    def _cancel(self, job_filter: JobFilter) -> None:
        if self._verbose:
            for target in job_filter.targets:
                self._announce(_label(target), target.step_id is not None)
        steps = tuple(target for target in job_filter.targets if target.step_id is not None)
        if not steps:
            self._send(job_filter, self._signal)
            return

        jobs = tuple(target for target in job_filter.targets if target.step_id is None)
        if jobs:
            self._send(replace(job_filter, targets=jobs), self._signal)
        # As in Slurm's scancel, a step is killed at once, while a job gets time to end.
        self._send(replace(job_filter, targets=steps), self._signal or SIGKILL)

    def _send(self, job_filter: JobFilter, signal: int) -> None:
        request = CancelJobs(
            filter=job_filter,
            signal=signal,
            batch="batch" in self._given,
            full="full" in self._given,
            hurry="hurry" in self._given,
            comment=self._given.get("admin-comment", ""),
            cron="cron" in self._given,
        )
        result = self._controller.call(request, CancelResult)
        if self._verbose and not job_filter.targets and not result.outcomes:
            filters = "".join(f"{name}={value} " for name, value in self._filters())
            self._context.error(f"No active jobs match ALL job filters, including: {filters}")
        for outcome in result.outcomes:
            if self._verbose and not job_filter.targets:
                self._announce(outcome.label, False)
            if outcome.code:
                self._tell(outcome, job_filter)

    def _filters(self) -> list[tuple[str, str]]:
        """Filters of the command line, by Slurm's names and in its order."""
        options = {**self._given, "state": " ".join(self._wanted.states)}
        return [(name, options[option]) for option, name in _FILTER_NAMES if options.get(option)]

    def _announce(self, label: str, step: bool) -> None:
        what = "step" if step else "batch job" if "batch" in self._given else "job"
        if self._signal:
            self._context.info(f"Signal {self._signal} to {what} {label}")
        else:
            self._context.info(f"Terminating {'step' if step else 'job'} {label}")

    def _tell(self, outcome: CancelOutcome, job_filter: JobFilter) -> None:
        number, text = ESLURM.get(outcome.code, (1, outcome.message or outcome.code))
        whole = outcome.step_id is None
        if whole and outcome.code in _GONE:
            if self._verbose:
                label = _asked_label(outcome, job_filter)
                self._context.error(f"Kill job error on job id {label}: {text}")
            return
        if not whole and outcome.code == "ESLURM_ALREADY_DONE" and not self._verbose:
            return
        if not whole and outcome.code == "ESLURM_JOB_PENDING":
            return  # it has no step yet
        what = f"job id {outcome.label}" if whole else f"job step id {outcome.job_id}"
        self._context.error(f"Kill job error on {what}: {text}")
        self._status = number & 0xFF

    # Existing jobs

    def _rows(self, job_filter: JobFilter) -> list[tuple[object, ...]]:
        from spritz.model.queries.jobs import JobRows, ListJobs

        request = ListJobs(filter=replace(job_filter, states=job_filter.states or _LIVE), fields=_FIELDS, all=True)
        try:
            pieces = self._controller.stream(request, JobRows, timeout=self._controller.timeout_seconds)
            return [row for piece in pieces for row in piece.rows]
        except RemoteError as error:
            if error.code != "ESLURM_INVALID_JOB_ID":
                raise
            return []

    def _those_there(self, *, drop: bool) -> JobFilter:
        """Look for the ids among live jobs, say which are not there, and leave them out (`drop`)."""
        rows = self._rows(JobFilter(targets=self._wanted.targets))
        known = {number for row in rows for number in row[:2]}
        there = []
        for target in self._wanted.targets:
            if target.job_id in known:
                there.append(target)
                continue
            what = "job id" if target.step_id is None else "job step id"
            if self._verbose and drop:
                self._announce(_label(target), target.step_id is not None)
            self._context.error(f"Kill job error on {what} {_label(target)}: {ESLURM['ESLURM_INVALID_JOB_ID'][1]}")
            self._status = 1
        return replace(self._wanted, targets=tuple(there)) if drop else self._wanted

    def _listed(self, job_filter: JobFilter) -> JobFilter:
        return JobFilter(targets=tuple(_target(row) for row in self._rows(job_filter)))

    def _confirmed(self, job_filter: JobFilter) -> JobFilter:
        """The jobs that the user confirms."""
        chosen = []
        for row in self._rows(job_filter):
            number, array_job, task, array, name, partition, whole = row
            steps = [target for target in job_filter.targets if target.job_id == number and target.step_id is not None]
            questions = [(f"step_id={_label(step)}", step) for step in steps]
            if not questions:
                label = job_label(number, array_job, task, array, het_job_id=whole)  # type: ignore[arg-type]  # as asked
                questions = [(f"job_id={label}", _target(row))]
            for what, target in questions:
                self._context.out(f"Cancel {what} name={name} partition={partition} [y/n]? ")
                self._context.stdout.flush()
                if self._context.stdin.readline().strip().lower()[:1] == "y":
                    chosen.append(target)
        return JobFilter(targets=tuple(chosen))


def _target(row: tuple[object, ...]) -> JobTarget:
    number, array_job, task, array = row[:4]
    if isinstance(array, dict):
        return JobTarget(int(str(number)), str(array["pending"]))
    if array_job and task is not None:
        return JobTarget(int(str(array_job)), format(1 << int(str(task)), "x"))
    return JobTarget(int(str(number)))


def _label(target: JobTarget) -> str:
    tasks = int(target.tasks, 16) if target.tasks else None
    return format_reference(JobReference(target.job_id, tasks, target.component, target.step_id))


def _asked_label(outcome: CancelOutcome, job_filter: JobFilter) -> str:
    """The id as the user wrote it: for a task that never existed the core names only its array."""
    for target in job_filter.targets:
        if target.job_id + (target.component or 0) == outcome.job_id and target.step_id is None:
            return _label(target)
    return outcome.label
