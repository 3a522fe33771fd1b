"""The lines around the table and the page: totals, names of the views, modes of the page, keys; and typed text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from spritz.live.logs import plain
from spritz.notation.times import format_time
from spritz.tui.table import style
from spritz.tui.views import bar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual import events

    from spritz.live.picture import Picture, Sums
    from spritz.tui.details import Details
    from spritz.tui.views import View

MODES = {"o": "Output", "w": "Why", "i": "Details", "h": "History", "e": "Efficiency"}


class Viewed(Protocol):
    """The cluster, and the view that is shown of it (`app.Top`)."""

    @property
    def picture(self) -> Picture: ...

    @property
    def sums(self) -> Sums: ...

    @property
    def views(self) -> Sequence[View]: ...

    @property
    def view(self) -> View: ...

    def now(self) -> float: ...

    def chosen_text(self) -> str: ...

    def show_view(self, number: int) -> None: ...


class Paged(Protocol):
    """The mode of the page, and whether its subject is a job (`app.Top`)."""

    @property
    def about_jobs(self) -> bool: ...

    @property
    def details(self) -> Details: ...

    def show_mode(self, key: str) -> None: ...


class Head(Widget):
    """The two lines at the top: totals of the cluster, and the names of the views."""

    DEFAULT_CSS = "Head { height: 2; dock: top; }"

    def __init__(self, top: Viewed) -> None:
        super().__init__()
        self._top = top

    def render_line(self, y: int) -> Strip:
        """Line 0: totals; line 1: names of the views."""
        width = self.size.width
        segments = self._figures(width) if y == 0 else self._views()
        return Strip(segments).adjust_cell_length(width)

    def _figures(self, width: int) -> list[Segment]:
        top, picture = self._top, self._top.picture
        name = plain(picture.cluster) or "spritz"
        if picture.problem:
            away = f" since {format_time(picture.now)[11:]}" if picture.is_known else ""
            words = f"slurmctld does not answer{away}: {plain(picture.problem)} (trying again)"
            return [Segment(f" {name} ", style("bold reverse")), Segment(f" {words}", style("bold red"))]
        if not picture.is_known:
            return [Segment(f" {name} ", style("bold reverse")), Segment(" asking slurmctld …", style("dim"))]
        sums = top.sums
        running, pending = sums.jobs.get("RUNNING", 0), sums.jobs.get("PENDING", 0)
        parts = [f"{sums.nodes} nodes" + (f" ({sums.nodes_closed} closed)" if sums.nodes_closed else "")]
        size = 10 if width >= 100 else 0
        for title, used, all_of_it in (("CPU", sums.cpus_used, sums.cpus), ("GPU", sums.gpus_used, sums.gpus)):
            if all_of_it:
                drawn = f" {bar(used / all_of_it, size)}" if size else ""
                parts.append(f"{title}{drawn} {used}/{all_of_it}")
        parts.append(f"{running} running, {pending} waiting")
        clock = format_time(top.now())[11:]
        text = "  ".join(parts)
        return [Segment(f" {name} ", style("bold reverse")), Segment(f" {text}  "), Segment(clock, style("dim"))]

    def _views(self) -> list[Segment]:
        segments = []
        for number, view in enumerate(self._top.views, 1):
            words = "reverse bold" if view is self._top.view else ""
            segments.append(Segment(f" {number} {view.title} ", style(words)))
        segments.append(Segment(self._top.chosen_text(), style("dim")))
        return segments

    def on_click(self, event: events.Click) -> None:
        """Show the view whose name was clicked."""
        left = 0
        for number, view in enumerate(self._top.views):
            left += len(view.title) + 4
            if event.y == 1 and event.x < left:
                self._top.show_view(number)
                return


class PageHead(Widget):
    """The line above the page: its modes, and its subject."""

    DEFAULT_CSS = "PageHead { height: 1; }"

    def __init__(self, top: Paged) -> None:
        super().__init__()
        self._top = top

    def _modes(self) -> list[tuple[str, str]]:
        return list(MODES.items()) if self._top.about_jobs else [("i", "Details")]

    def render_line(self, y: int) -> Strip:
        """The names of the modes, the present mode in reverse video."""
        segments = []
        for key, title in self._modes():
            words = "reverse bold" if key == self._top.details.mode else ""
            segments.append(Segment(f" {key} {title} ", style(words)))
        segments.append(Segment(f" {self._top.details.title}", style("dim")))
        return Strip(segments).adjust_cell_length(self.size.width)

    def on_click(self, event: events.Click) -> None:
        """Show the mode whose name was clicked."""
        left = 0
        for key, title in self._modes():
            left += len(title) + 4
            if event.x < left:
                self._top.show_mode(key)
                return


class Foot(Widget):
    """The line at the bottom: keys, the result of an action, or a question."""

    DEFAULT_CSS = "Foot { height: 1; dock: bottom; }"

    def __init__(self, text: Callable[[], tuple[str, str]]) -> None:
        """`text` gives the words and their style."""
        super().__init__()
        self._text = text

    def render_line(self, y: int) -> Strip:
        """The text, cut to the width."""
        text, words = self._text()
        return Strip([Segment(text, style(words))]).adjust_cell_length(self.size.width)


class Entry:
    """A line that the user is typing; `does` gets the finished text."""

    def __init__(self, title: str, text: str, does: Callable[[str], None]) -> None:
        self.title = title
        self.text = text
        self.does = does

    def edit(self, event: events.Key) -> None:
        """Change the text by a key."""
        if event.key in ("backspace", "ctrl+h"):
            self.text = self.text[:-1]
        elif event.key in ("ctrl+u", "ctrl+w"):
            self.text = "" if event.key == "ctrl+u" else self.text.rstrip().rpartition(" ")[0]
        elif event.is_printable and event.character:
            self.text += event.character
