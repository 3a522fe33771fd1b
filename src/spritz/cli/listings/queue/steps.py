"""The listing of running steps: `squeue --steps`. Source: squeue(1)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from spritz.cli.listings.queue.conditions import targets
from spritz.cli.listings.queue.sort import SortError, order_of, parse_sort
from spritz.client.errors import RemoteError
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter
from spritz.model.queries.steps import ListSteps, Steps
from spritz.presentation import columns
from spritz.presentation.job.step_fields import LETTERS, NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection
    from spritz.model.queries.steps import StepView

DEFAULT_FORMAT = "%.15i %.8j %.9P %.8u %.9M %N"
DEFAULT_SORT = "P,i"


class StepListing:
    def __init__(self, options: Mapping[str, str], job_filter: JobFilter, context: Context) -> None:
        self._given = options
        self._wanted = job_filter
        self._context = context
        self._targets = targets(options["steps"], steps=True) or job_filter.targets

        def complain(what: str) -> None:
            context.error(f"Invalid job step format specification: {what}")

        if "Format" in options:
            self._columns = columns.parse_names(options["Format"], NAMES, complain)
        elif options.get("format") == "%all":
            self._columns = columns.every_letter(LETTERS)
        else:
            self._columns = columns.parse_letters(options.get("format", DEFAULT_FORMAT), LETTERS, complain)
        try:
            self._keys = parse_sort(options.get("sort") or DEFAULT_SORT, LETTERS)
        except SortError as error:
            raise SpritzError(f"Invalid sort specification: {error}") from error
        extra = [path for key in self._keys for path in key.field.needs]
        self._lines = columns.Lines(self._columns, extra)

    def show(self, controller: Connection) -> None:
        """Query a controller and print its steps."""
        now, views = self._fetch(controller)
        context = self._context
        if "noheader" not in self._given:
            context.out(columns.header_line(self._columns) + "\n")
        needs = self._lines.needs
        getters = [attrgetter(path) for path in needs]
        rows: list[list[object]] = [[get(view) for get in getters] for view in views]
        lines = self._lines.lines(now, rows)
        context.out("".join([lines[number] for number in order_of(rows, self._keys, self._lines.index, now)]))

    def _fetch(self, controller: Connection) -> tuple[float, list[StepView]]:
        """(time of the answer, matching steps). An unknown job has no steps; as in squeue this is not an error."""
        job_filter = self._wanted
        chosen_jobs = JobFilter(
            targets=self._targets,
            users=job_filter.users,
            partitions=job_filter.partitions,
            qos=job_filter.qos,
            names=job_filter.names,
            nodes=job_filter.nodes,
        )
        try:
            answer = controller.joined(ListSteps(filter=chosen_jobs, pieces=True), Steps, "steps")
        except RemoteError as error:
            if error.code != "ESLURM_INVALID_JOB_ID":
                raise
            return 0.0, []
        if "verbose" in self._given:
            self._context.out(f"last_update_time={int(answer.now)} records={len(answer.steps)}\n")
        return answer.now, [view for view in answer.steps if self._is_meant(view)]

    def _is_meant(self, view: StepView) -> bool:
        """Whether a target selects the step. One target may name a single step, another a whole job."""
        if not self._targets:
            return True
        step = view.step
        for target in self._targets:
            if target.job_id not in (step.job_id, view.array_job_id, view.het_job_id):
                continue
            if target.component is not None and step.job_id != target.job_id + target.component:
                continue
            if target.step_id is not None and target.step_id != step.step_id:
                continue
            if target.tasks and (view.array_task_id is None or not int(target.tasks, 16) >> view.array_task_id & 1):
                continue
            return True
        return False
