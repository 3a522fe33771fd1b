"""A table of any number of rows, which renders only the visible ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from textual import events

    from spritz.tui.views import Column, View

#: Parsed styles, by their text.
_styles: dict[str, Style] = {}


def style(words: str) -> Style:
    """Rich's style for a text such as `bold red`; cached."""
    parsed = _styles.get(words)
    if parsed is None:
        parsed = _styles[words] = Style.parse(words)
    return parsed


class Table(ScrollView):
    """Shows a view. The cursor stays with its row while rows are added, removed and reordered."""

    can_focus = True
    DEFAULT_CSS = """
    Table { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    class Moved(Message):
        """The cursor moved to another row."""

    class Chosen(Message):
        """The user chose a row by Enter or a second click."""

    class SortBy(Message):
        """The user clicked a column's title."""

        def __init__(self, order: str) -> None:
            super().__init__()
            self.order = order

    def __init__(self, view: View, **options: Any) -> None:
        super().__init__(**options)
        self.view = view
        self._rows: Sequence[Any] = ()
        self._place = 0
        self._key: Hashable = None
        self._columns: list[tuple[Column, int]] = []

    @property
    def current(self) -> Any | None:
        """The row under the cursor; None if the table is empty."""
        return self._rows[self._place] if self._place < len(self._rows) else None

    @property
    def rows(self) -> Sequence[Any]:
        return self._rows

    def show(self, view: View) -> None:
        """Show another view, with the cursor where that view had it."""
        self.view.kept_place = (self._key, self._place)
        self.view = view
        self._key, self._place = view.kept_place
        self._lay_out()
        self.renew()
        self.post_message(self.Moved())

    def renew(self) -> None:
        """Draw again after a change of the view's rows."""
        before, was = self._key, self._place
        self._rows = self.view.rows()
        if before is not None:
            place = self.view.place_of(before, was)
            self._place = min(was, max(0, len(self._rows) - 1)) if place is None else place
        else:
            self._place = 0
        self._key = self.view.key(self._rows[self._place]) if self._rows else None
        self.virtual_size = Size(self.size.width, len(self._rows) + 1)
        if self._place != was or self._key != before:
            self._show_cursor()
        if self._key != before:
            self.post_message(self.Moved())
        self.refresh()

    def move_to(self, place: int) -> None:
        """Move the cursor to the row at `place`, or the nearest."""
        place = max(0, min(place, len(self._rows) - 1))
        if not self._rows:
            return
        key = self.view.key(self._rows[place])
        moved = key != self._key
        self._place, self._key = place, key
        self._show_cursor()
        self.refresh()
        if moved:
            self.post_message(self.Moved())

    def move(self, lines: int) -> None:
        """Move the cursor down, or up if `lines` is negative."""
        self.move_to(self._place + lines)

    @property
    def page_rows(self) -> int:
        """Rows that fit below the heading, at least 1."""
        return max(1, self.size.height - 1)

    def _show_cursor(self) -> None:
        top = int(self.scroll_offset.y)
        if self._place < top:
            self.scroll_to(y=self._place, animate=False, immediate=True)
        elif self._place >= top + self.page_rows:
            self.scroll_to(y=self._place - self.page_rows + 1, animate=False, immediate=True)

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()
        self.virtual_size = Size(self.size.width, len(self._rows) + 1)
        self.call_after_refresh(self._show_cursor)

    def _lay_out(self) -> None:
        """Drop columns that do not fit, and distribute the remaining width among the columns that grow."""
        width = self.size.width - 1
        columns = [column for column in self.view.columns if column.rank >= 0]

        def least(some: list[Column]) -> int:
            return sum(column.width + 1 for column in some) - 1

        while len(columns) > 1 and least(columns) > width:
            columns.remove(max(columns, key=lambda column: column.rank))
        spare = max(0, width - least(columns))
        shares = sum(column.grows for column in columns)
        widths = []
        for column in columns:
            more = spare * column.grows // shares if shares and column.grows else 0
            widths.append((column, column.width + (min(more, column.most - column.width) if column.most else more)))
        self._columns = widths

    def render_line(self, y: int) -> Strip:
        """Line 0: the titles; other lines: a row each."""
        width = self.size.width
        if not self._columns:
            self._lay_out()
        if y == 0:
            return self._titles(width)
        place = int(self.scroll_offset.y) + y - 1
        if place >= len(self._rows):
            if y == 1 and not self._rows:
                return Strip([Segment(set_cell_size(f" {self.view.empty()}", width), style("dim"))], width)
            return Strip.blank(width)
        row = self._rows[place]
        cells = self.view.cells(row)
        line = "reverse" if place == self._place else ""
        segments = []
        for column, cell_width in self._columns:
            text, words = cells[column.place]
            segments.append(Segment(_fitted(text, cell_width, column.right) + " ", style(line or words)))
        return Strip(segments).adjust_cell_length(width, style(line) if line else None)

    def _titles(self, width: int) -> Strip:
        segments = []
        for column, cell_width in self._columns:
            title = column.title
            if column.order and column.order == self.view.order:
                title += "↑" if self.view.backwards else "↓"
            segments.append(Segment(_fitted(title, cell_width, column.right) + " ", style("bold underline")))
        return Strip(segments).adjust_cell_length(width, style("bold underline"))

    def on_click(self, event: events.Click) -> None:
        if event.y == 0:
            left = 0
            for column, cell_width in self._columns:
                if left <= event.x <= left + cell_width and column.order:
                    self.post_message(self.SortBy(column.order))
                left += cell_width + 1
            return
        place = int(self.scroll_offset.y) + event.y - 1
        if place < len(self._rows):
            again = place == self._place
            self.move_to(place)
            if again and event.chain > 1:
                self.post_message(self.Chosen())


def _fitted(text: str, width: int, right: bool) -> str:
    """The text cut (marked by an ellipsis) or padded to the column's width."""
    if not text.isascii():
        size = cell_len(text[: 4 * width + 4])
    else:
        size = len(text)
    if size > width:
        return set_cell_size(text[: 4 * width], width - 1) + "…" if width > 1 else text[:width]
    return " " * (width - size) + text if right else text + " " * (width - size)
