"""An explanation as text: a sentence first, then details by label.

Pure: columns and colour are arguments. Lines are no longer than `width` unless a single word is.
"""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from spritz.notation.duration import format_span as span
from spritz.notation.times import format_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spritz.model.queries.explain import Expected, Explanation, PartitionView

#: width of the labels
LABEL = 10

#: rows of a list that are shown; `--json` has all
ROWS_MAX = 10

#: characters of a node list
NODES_MAX = 60

#: kinds of limits whose text needs no details
_PLAIN = ("Held", "BeginTime", "Dependency", "PartitionState", "NotSupported", "Reserved", "Switches")

_BOLD, _DIM, _GREEN, _YELLOW, _OFF = "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[0m"


def explanation_text(explanation: Explanation, now: float, width: int, colour: bool) -> str:
    """The whole answer for one job, ending with a newline."""
    page = _Page(now, width, colour)
    page.headline(explanation)
    if explanation.verdict in ("runs", "ended"):
        return page.text()
    page.blank()
    page.block("Asks for", ", ".join(explanation.asks))
    _starts(page, explanation)
    for view in explanation.partitions:
        _nodes(page, view, several=len(explanation.partitions) > 1)
    _limits(page, explanation)
    _blockers(page, explanation)
    _ahead(page, explanation)
    _sooner(page, explanation)
    return page.text()


class _Page:
    """The lines so far."""

    def __init__(self, now: float, width: int, colour: bool) -> None:
        self.now = now
        self.width = width
        self.colour = colour
        self.lines: list[str] = []

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def paint(self, text: str, code: str) -> str:
        return f"{code}{text}{_OFF}" if self.colour and text else text

    def blank(self) -> None:
        self.lines.append("")

    def headline(self, explanation: Explanation) -> None:
        name = f" ({explanation.name})" if explanation.name else ""
        of = f" of {explanation.user}" if explanation.user else ""
        reason = explanation.reason + (f", {explanation.reason_detail}" if explanation.reason_detail else "")
        text = {
            "starts": "starts now",
            "waits": f"waits: {reason}",
            "never": f"cannot start as things are: {reason}",
            "runs": _running(self, explanation),
            "ended": _ended(self, explanation, reason),
        }[explanation.verdict]
        for line in wrap(f"Job {explanation.job}{name}{of} {text}", self.width):
            self.lines.append(self.paint(line, _BOLD))
        if explanation.summary:
            self.lines += [f"  {line}" for line in wrap(explanation.summary, self.width - 2)]

    def block(self, label: str, text: str, indent: int = 0) -> None:
        """A label, and a text wrapped to its right."""
        room = max(20, self.width - LABEL - indent)
        plain = wrap(text, room, break_on_hyphens=False) or [""]
        for place, line in enumerate(plain):
            head = self.paint(f"{label:<{LABEL}}", _BOLD) if not place else " " * LABEL
            self.lines.append((head + " " * indent + line).rstrip())

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], right: frozenset[int] = frozenset()) -> None:
        """Columns as wide as needed; the last one takes the rest of the line."""
        cells = [header, *rows]
        widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
        for place, row in enumerate(cells):
            parts = [
                text.rjust(wide) if column in right else text.ljust(wide)
                for column, (text, wide) in enumerate(zip(row, widths, strict=True))
            ]
            line = (" " * (LABEL + 2) + "  ".join(parts)).rstrip()
            if len(line) > self.width:
                line = line[: self.width - 3] + "..."
            self.lines.append(self.paint(line, _DIM) if not place else line)

    def moment(self, at: float) -> str:
        """The time of day, with the date if it is another day."""
        text = format_time(at)
        return text.partition("T")[2] if text[:10] == format_time(self.now)[:10] else text

    def until(self, at: float) -> str:
        """`14:05:00 (in 35 min)`."""
        return f"{self.moment(at)} (in {span(at - self.now)})" if at > self.now else f"{self.moment(at)} (now due)"


def _running(page: _Page, explanation: Explanation) -> str:
    where = f" on {shortened(explanation.nodes)}" if explanation.nodes else ""
    end = (
        f", until {page.until(explanation.ends_at)} at the latest" if explanation.ends_at else ", without a time limit"
    )
    return f"{explanation.state.lower()}: since {page.moment(explanation.started_at)}{where}{end}"


def _ended(page: _Page, explanation: Explanation, reason: str) -> str:
    if not explanation.started_at:
        return f"never ran: {explanation.state}" + (f" ({reason})" if reason else "")
    where = f" on {shortened(explanation.nodes)}" if explanation.nodes else ""
    ran = f" after {span(explanation.ends_at - explanation.started_at)}" if explanation.ends_at else ""
    return f"has ended: {explanation.state} at {page.moment(explanation.ends_at)}{ran}{where}" + (
        f" ({reason})" if reason else ""
    )


def _starts(page: _Page, explanation: Explanation) -> None:
    when = explanation.expected
    if when is None:
        return
    page.block("Starts", _when(page, when))
    if explanation.once_free is not None:
        page.block("", "Were it free to start now: " + _when(page, explanation.once_free))


def _when(page: _Page, when: Expected) -> str:
    nodes = f" on {shortened(when.nodes)}" if when.nodes else ""
    if when.sure == "unknown":
        return when.text
    if when.sure == "now":
        return f"{when.text}{nodes}"
    word = "by" if when.sure == "promise" else "about"
    return f"{word} {page.until(when.start_at)}{nodes}: {when.text}"


def _nodes(page: _Page, view: PartitionView, several: bool) -> None:
    where = f" of partition {view.partition}" if several else ""
    where += f" in reservation {view.reservation}" if view.reservation else ""
    needed = "1 is needed" if view.nodes_needed == 1 else f"{view.nodes_needed} are needed"
    page.block("Nodes", f"{view.able} of {view.total}{where} can serve now, {needed}")
    wide = max((len(str(test.count)) for test in view.tests), default=1)
    for test in view.tests:
        line = f"{test.count:>{wide}}  {test.text}: {shortened(test.nodes)}"
        page.block("", line, indent=2)
        if page.colour and test.test == "able":
            page.lines[-1] = page.paint(page.lines[-1], _GREEN)


def _limits(page: _Page, explanation: Explanation) -> None:
    for place, limit in enumerate(explanation.limits):
        subject = f" {limit.subject}" if limit.kind in ("Licenses", "Reservation") else ""
        when = f", until {page.until(limit.at)}" if limit.at > page.now else ""
        when += " at the latest" if when and limit.kind == "Dependency" else ""
        mark = "holds it: " if limit.holds else ""
        line = len(page.lines)
        kind = "" if limit.kind in _PLAIN else f"{limit.kind}{subject}: "
        page.block("" if place else "Limits", f"{mark}{kind}{limit.text}{when}")
        page.lines[line] = page.lines[line].replace("holds it:", page.paint("holds it:", _YELLOW), 1)


def _blockers(page: _Page, explanation: Explanation) -> None:
    if explanation.room_is_kept:
        reserved = any(test.test == "reserved" for view in explanation.partitions for test in view.tests)
        page.block("Must end", f"no job: what it needs is free, but {'reserved' if reserved else 'kept for others'}")
    if not explanation.blockers:
        return
    some = explanation.blockers
    last = max(item.ends_at for item in some)
    ahead = ", once those ahead are served" if explanation.ahead.count else ""
    number = "1 job" if len(some) == 1 else f"{len(some)} jobs"
    page.block("Must end", f"{number}, the last by {page.until(last)}{ahead}")
    rows = [
        (
            item.job,
            item.user,
            page.moment(item.ends_at),
            span(item.ends_at - page.now) if item.ends_at > page.now else "due",
            shortened(item.nodes, 20),
            item.holds + ("" if item.state == "running" else f" ({item.state})"),
        )
        for item in some[:ROWS_MAX]
    ]
    page.table(("JOB", "USER", "BY", "IN", "NODES", "HOLDS"), rows, frozenset({0}))
    if len(some) > ROWS_MAX:
        page.block("", f"and {len(some) - ROWS_MAX} more", indent=2)


def _ahead(page: _Page, explanation: Explanation) -> None:
    ahead = explanation.ahead
    if not ahead.count:
        return
    users = ", ".join([f"{user or '(unknown)'} {number}" for user, number in ahead.users])
    number = "1 job" if ahead.count == 1 else f"{ahead.count} jobs"
    page.block("Ahead", f"{number} ({users}); this job's priority is {ahead.priority}")
    rows = [
        (
            item.job,
            item.user,
            str(item.priority),
            page.moment(item.start_at) if item.start_at > page.now else "-",
            item.because,
        )
        for item in ahead.first
    ]
    page.table(("JOB", "USER", "PRIORITY", "STARTS", "BECAUSE"), rows, frozenset({0, 2}))
    if ahead.count > len(ahead.first):
        page.block("", f"and {ahead.count - len(ahead.first)} more", indent=2)


def _sooner(page: _Page, explanation: Explanation) -> None:
    if not explanation.alternatives:
        if explanation.tried:
            page.block("Sooner", f"none of {explanation.tried} other requests that were tried would start sooner")
        return
    times = ["now" if item.now else page.moment(item.start_at) for item in explanation.alternatives]
    wide = max(map(len, times))
    for place, (item, at) in enumerate(zip(explanation.alternatives, times, strict=True)):
        page.block("" if place else "Sooner", f"{at:<{wide}}  with {item.change}")
        if item.update:
            page.block("", f"scontrol update {item.update}", indent=wide + 4)


def shortened(nodes: str, most: int = NODES_MAX) -> str:
    """A node list, shortened to `most` characters."""
    return nodes if len(nodes) <= most else nodes[: most - 3] + "..."
