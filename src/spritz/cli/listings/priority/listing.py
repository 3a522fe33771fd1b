"""One listing of sprio: its columns, order and lines.

Source: sprio(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.listings.queue.conditions import targets, users, words
from spritz.cli.listings.queue.sort import SortError, parse_sort
from spritz.model.job.job_filter import JobFilter
from spritz.presentation import columns
from spritz.presentation.priority_fields import LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from spritz.cli.call.context import Context
    from spritz.model.cluster.priority import PriorityFactors, PriorityWeights
    from spritz.model.queries.priorities import Priorities
    from spritz.presentation.columns import Field

    #: cluster, its weights, and a job's factors there
    _Row = tuple[str, PriorityWeights, PriorityFactors]

#: (letter of the weighted part, of the normalised one, name of the weight)
_PARTS = (
    ("A", "a", "age"),
    ("B", "b", "assoc"),
    ("F", "f", "fairshare"),
    ("J", "j", "job_size"),
    ("P", "p", "partition"),
    ("Q", "q", "qos"),
)


def default_format(options: Mapping[str, str], weights: PriorityWeights) -> str:
    """sprio's default: a column for each factor with a weight, with --long a column for every factor."""
    every, norm = "long" in options, "norm" in options
    text = "%.15i %9r"
    if "sibling" in options:
        text += " %.8c"
    if every or "user" in options:
        text += " %.8u"
    text += " %10y" if norm else " %.10Y %.10S"
    for weighted, normal, name in _PARTS:
        if every or getattr(weights, name):
            text += f" %10{normal}" if norm else f" %.10{weighted}"
    if every and not norm:
        text += " %.11N"
    if every or weights.tres:
        text += " %20t" if norm else " %.20T"
    return text


class PriorityListing:
    """The listing that the options describe, and its printing. Raises SpritzError for a wrong list of jobs."""

    def __init__(self, options: Mapping[str, str], context: Context) -> None:
        self._given = options
        self._context = context
        uids, _ = users(options, context)
        self.wanted = JobFilter(
            targets=targets(options["jobs"]) if options.get("jobs") else (),
            users=uids,
            partitions=words(options.get("partition", "")),
            states=("PENDING",),
        )

    def show(self, answers: Mapping[str, Sequence[Priorities]]) -> None:
        """Print headings and lines of each cluster's answer, whose parts are at least one, perhaps without jobs.

        Names of clusters are "" outside a federation. Without --sibling a federated job is shown once, with the factors
        of the first cluster that holds it. The first answer's weights decide which columns there are.
        """
        options, context = self._given, self._context
        first = next(iter(answers.values()))[0]
        weights, now = first.weights, first.now

        def complain(what: str) -> None:
            context.error(f"Invalid job format specification: {what}")

        text = options.get("format") or default_format(options, weights)
        # An unknown letter goes with the text that follows it; squeue and sinfo print both.
        chosen = [
            column
            for column in columns.parse_letters(text, LETTERS, complain)
            if column.field is not columns.LITERAL or not column.after.startswith("%")
        ]
        lines = columns.Lines(chosen)
        rows = [
            (name, piece.weights, row) for name, pieces in answers.items() for piece in pieces for row in piece.rows
        ]
        if len(answers) > 1 and "sibling" not in options:
            seen: set[tuple[int, str]] = set()
            rows = [held for held in rows if _is_first(held[2], seen)]
        if options.get("jobs") and not rows and "weights" not in options:
            context.out("Unable to find jobs matching user/id(s) specified\n")
            return
        if "noheader" not in options:
            context.out(columns.header_line(chosen) + "\n")
        if "weights" in options:
            context.out(_weights_line(chosen, weights) + "\n")
            return
        homes = words(options.get("partition", ""))
        if homes:
            rows = [held for held in rows if held[2].partition in homes]
        try:
            keys = parse_sort(options.get("sort") or "i", LETTERS)
        except SortError as error:
            context.error(f"Invalid sort specification: {error}")
            raise AlreadyReported from error
        for key in keys:
            rows.sort(key=_sort_key(key.field, now), reverse=key.descending)
        for row in rows:
            context.out(lines.line(now, _values(row, lines.needs)) + "\n")


def _is_first(row: PriorityFactors, seen: set[tuple[int, str]]) -> bool:
    """Whether no earlier row was about this job in this partition. Adds it to `seen`."""
    place = (row.job_id, row.partition)
    if place in seen:
        return False
    seen.add(place)
    return True


def _values(row: _Row, needs: Sequence[str]) -> list[object]:
    cluster, weights, factors = row
    extra: dict[str, object] = {"cluster": cluster or "(null)", "weights": weights}
    return [extra[path] if path in extra else getattr(factors, path) for path in needs]


def _sort_key(field: Field, now: float) -> Callable[[_Row], Any]:
    """Any: keys of one field are of one type."""
    if field.sort is not None:
        make = field.sort
        return lambda row: make(*_values(row, field.needs))
    return lambda row: field.render(now, *_values(row, field.needs))


def _weights_line(chosen: Sequence[columns.Column], weights: PriorityWeights) -> str:
    cells = []
    for column in chosen:
        needs = column.field.needs
        if needs == ("job_id",):
            text = "Weights"
        elif needs == ("site",):
            text = "1"
        elif needs[:1] == ("weights",):
            text = column.field.render(0.0, weights, None)
        else:
            text = ""
        cells.append(column.cell(text))
    return "".join(cells)
