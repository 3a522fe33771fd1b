"""The listing of jobs: queries the values that its columns need, and prints them in one pass.

An array's pending tasks are a single record. `--array`, and `--jobs` with single tasks, split it into a row for each
task; otherwise tasks with records of their own are merged into its row (`array_rows`). Source: squeue(1).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.listings.queue import array_rows
from spritz.cli.listings.queue.sort import SortError, SortKey, order_of, parse_sort
from spritz.model.errors import SpritzError
from spritz.model.queries.jobs import JobRows, ListJobs
from spritz.model.resources import mask_ids
from spritz.notation.duration import DurationError, parse_seconds
from spritz.presentation import columns
from spritz.presentation.job.job_fields import LETTERS, NAMES, unconverted, with_patterns_expanded
from spritz.presentation.job.job_text import used_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection
    from spritz.model.job.job_filter import JobFilter
    from spritz.presentation.columns import Column

    #: values as msgpack decodes them
    Row = list[Any]

DEFAULT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG_FORMAT = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
DEFAULT_SORT = "P,t,-p"
#: Order of jobs that compare equal.
_NEWEST = SortKey(LETTERS["A"], True)

RUN_TIME = ("state", "started_at", "ended_at", "suspended_seconds", "suspended_at")


def columns_of(options: Mapping[str, str], context: Context) -> list[Column]:
    """The columns of `-o`, `-O`, `-l`, `--start` or the default. Reports unknown fields and leaves them out."""

    def complain(what: str) -> None:
        context.error(f"Invalid job format specification: {what}")

    if "Format" in options:
        names = with_patterns_expanded(NAMES) if "expand-patterns" in options else NAMES
        return columns.parse_names(options["Format"], unconverted(names) if "noconvert" in options else names, complain)
    letters = unconverted(LETTERS) if "noconvert" in options else LETTERS
    if "format" in options:
        if options["format"] == "%all":
            return columns.every_letter(letters)
        return columns.parse_letters(options["format"], letters, complain)
    text = LONG_FORMAT if "long" in options else START_FORMAT if "start" in options else DEFAULT_FORMAT
    chosen = columns.parse_letters(text, LETTERS, complain)
    # Clusters that no heading names: Slurm puts the name before each job then, but for --start.
    if "name-clusters" in options and text != START_FORMAT:
        chosen = [*columns.parse_names("cluster:11", NAMES, complain), *chosen]
    return chosen


def _seconds(options: Mapping[str, str], option: str) -> int | None:
    """Seconds of --running-over or --running-under; None if it is not given. Raises SpritzError."""
    if option not in options:
        return None

    try:
        return parse_seconds(options[option])
    except DurationError as error:
        raise SpritzError(f"Invalid --{option} specification: {error}") from error


class JobListing:
    """A prepared listing; `show` may be called repeatedly (--iterate)."""

    def __init__(self, options: Mapping[str, str], job_filter: JobFilter, context: Context) -> None:
        self._given = options
        self._wanted = job_filter
        self._context = context
        self._not_uid = os.getuid() if "notme" in options else None
        self._over, self._under = _seconds(options, "running-over"), _seconds(options, "running-under")
        self._columns = columns_of(options, context)
        self._split_arrays = "array" in options
        self._split_partitions = "priority" in options
        self._merge_targets()
        text = options.get("sort") or ("S" if "start" in options else DEFAULT_SORT)
        self._sort_error = ""
        try:
            self._keys = parse_sort(text, LETTERS)
        except SortError as error:
            self._sort_error, self._keys = str(error), []
        extra = ["id", *(path for key in self._keys for path in key.field.needs)]
        if self._splits:
            extra += ["array", "array_job_id", "array_task_id"]
        elif self._joins:
            extra += array_rows.NEEDS
        if self._split_partitions:
            extra += ["state", "partition", "spec.partitions"]
        if self._over is not None or self._under is not None:
            extra += RUN_TIME
        if self._not_uid is not None:
            extra.append("spec.uid")
        #: show a federated job once: the copy with the most information
        self._one_copy = "federation" in options and "sibling" not in options
        if self._one_copy:
            extra += ["state", "federation.elsewhere"]
        self._lines = columns.Lines(self._columns, extra)

    def _merge_targets(self) -> None:
        """Collect the requested tasks of each array; an array that was requested as a whole is not reduced."""
        merged: dict[int, int] = {}
        for target in self._wanted.targets:
            if target.tasks:
                merged[target.job_id] = merged.get(target.job_id, 0) | int(target.tasks, 16)
        for target in self._wanted.targets:
            if not target.tasks:
                merged.pop(target.job_id, None)
        self._cut = merged

    @property
    def _splits(self) -> bool:
        return self._split_arrays or bool(self._cut)

    @property
    def _joins(self) -> bool:
        return not self._splits and "array-unique" not in self._given

    def show(self, controller: Connection) -> None:
        """Query a controller and print its jobs."""
        self.show_all((controller,))

    def show_all(self, controllers: Iterable[Connection]) -> None:
        """Query the controllers one after the other, and print all jobs as a single listing."""
        context = self._context
        now = 0.0
        rows: list[Row] = []
        lines: list[str] = []
        within: set[int] = set()
        for controller in controllers:
            first = len(rows)
            # Format this piece while the controller prepares the next.
            for now, piece in self._pieces(controller):
                chosen = self._chosen(now, piece)
                rows += chosen
                lines += self._lines.lines(now, chosen)
            if self._joins:
                # Job ids are unique only within a cluster, so merge each cluster's arrays separately.
                changed, joined = array_rows.joined(rows[first:] if first else rows, self._lines.index)
                within.update(first + place for place in joined)
                for place, row in changed.items():
                    rows[first + place], lines[first + place] = row, self._lines.line(now, row) + "\n"
        if "verbose" in self._given:
            context.out(f"last_update_time={int(now)} records={len(rows)}\n")
        if "noheader" not in self._given:
            context.out(columns.header_line(self._columns) + "\n")
        if self._sort_error:
            raise SpritzError(f"Invalid sort specification: {self._sort_error}")
        order = order_of(rows, [_NEWEST, *self._keys], self._lines.index, now)
        context.out("".join([lines[number] for number in order if number not in within]))

    def _pieces(self, controller: Connection) -> Iterator[tuple[float, list[Row]]]:
        request = ListJobs(
            filter=self._wanted, fields=self._lines.needs, all=bool(self._given.keys() & {"all", "sibling"})
        )
        if self._given.get("verbose", "0") > "1":
            self._context.info(f"asking for {len(request.fields)} values of each job: {', '.join(request.fields)}")
        for piece in controller.stream(request, JobRows, timeout=controller.timeout_seconds):
            yield piece.now, piece.rows  # type: ignore[misc]  # rows are only read, parts of arrays are copies

    def _chosen(self, now: float, rows: list[Row]) -> list[Row]:
        """The rows that match the options which the controller does not evaluate."""
        if self._not_uid is not None:
            place = self._lines.index["spec.uid"]
            rows = [row for row in rows if row[place] != self._not_uid]
        if self._over is not None or self._under is not None:
            rows = self._by_run_time(now, rows)
        if self._one_copy:
            rows = self._without_copies(rows)
        if self._splits:
            rows = self._parts(rows)
        if self._split_partitions:
            rows = self._partition_parts(rows)
        return rows

    def _without_copies(self, rows: list[Row]) -> list[Row]:
        """The rows without copies of jobs that another cluster holds or lists."""
        state, elsewhere = self._lines.index["state"], self._lines.index["federation.elsewhere"]
        return [row for row in rows if row[state] not in ("PENDING", "REVOKED") or not row[elsewhere]]

    def _by_run_time(self, now: float, rows: Sequence[Row]) -> list[Row]:
        """The rows that match --running-over and --running-under: only jobs that have started."""
        places = [self._lines.index[path] for path in RUN_TIME]
        kept = []
        for row in rows:
            state, started, ended, suspended, suspended_at = (row[place] for place in places)
            if state not in ("RUNNING", "SUSPENDED"):
                continue
            used = used_seconds(now, state, started, ended, suspended, suspended_at)
            if (self._over is None or used > self._over) and (self._under is None or used < self._under):
                kept.append(row)
        return kept

    def _parts(self, rows: Sequence[Row]) -> list[Row]:
        """The rows, with a row for each task in place of an array's record of pending tasks."""
        index = self._lines.index
        number, array, array_id, task = (index[path] for path in ("id", "array", "array_job_id", "array_task_id"))
        parts: list[Row] = []
        for row in rows:
            record = row[array]
            cut = self._cut.get(row[array_id] or row[number])
            if not isinstance(record, dict):
                parts.append(row)
                continue
            if cut is None and not self._split_arrays:
                parts.append(row)
                continue
            mask = int(record["pending"], 16)
            for task_id in mask_ids(mask if cut is None else mask & cut):
                single = list(row)
                single[array], single[task], single[array_id] = None, task_id, row[number]
                parts.append(single)
        return parts

    def _partition_parts(self, rows: Sequence[Row]) -> list[Row]:
        """--priority: the rows, with a row for each requested partition of a pending job."""
        index = self._lines.index
        state, chosen, requested = (index[path] for path in ("state", "partition", "spec.partitions"))
        parts: list[Row] = []
        for row in rows:
            names = row[requested]
            if row[state] != "PENDING" or not isinstance(names, list) or len(names) < 2:
                parts.append(row)
                continue
            for name in names:
                single = list(row)
                single[chosen], single[requested] = name, [name]
                parts.append(single)
        return parts
