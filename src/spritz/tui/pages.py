"""A page of plain text. It follows its end until it is scrolled up, and again once it is scrolled down."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from spritz.tui.table import style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual import events


def _words_of(line: str, width: int) -> list[str]:
    """Lines that break between words, further in than the first."""
    indent = min(len(line) - len(line.lstrip()) + 2, width // 2)
    found = wrap(line, width, subsequent_indent=" " * indent, drop_whitespace=True, break_on_hyphens=False)
    return [piece for each in found for piece in chop_cells(each, width)] or [""]


class Page(ScrollView):
    """Lines of text, wrapped at the page's width."""

    can_focus = True
    DEFAULT_CSS = """
    Page { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1; }
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._given: Sequence[str] = ()
        self._lines: list[str] = []
        self._words = ""
        self.follows = False

    def show(self, lines: Sequence[str], *, follow: bool = False, words: str = "") -> None:
        """Other text; `words` are its style. With `follow` its end is shown, else its beginning."""
        self._given, self._words, self.follows = lines, words, follow
        self._wrap()
        if not follow:
            self.scroll_to(y=0, animate=False, immediate=True)

    def renew(self) -> None:
        """The lines have changed."""
        self._wrap()

    def _wrap(self) -> None:
        width = max(10, self.size.width - 1)
        found: list[str] = []
        for line in self._given:
            if (len(line) <= width and line.isascii()) or cell_len(line) <= width:
                found.append(line)
            elif self.follows:
                found += chop_cells(line, width)
            else:
                found += _words_of(line, width)
        self._lines = found
        self.virtual_size = Size(self.size.width, len(found))
        if self.follows:
            self.scroll_to(y=max(0, len(found) - self.size.height), animate=False, immediate=True)
        self.refresh()

    def scroll_lines(self, lines: int) -> None:
        """Down, or up."""
        end = max(0, len(self._lines) - self.size.height)
        to = max(0, min(end, int(self.scroll_offset.y) + lines))
        self.follows = to >= end and lines > 0
        self.scroll_to(y=to, animate=False, immediate=True)

    def to_end(self) -> None:
        """The last line, and go on from there."""
        self.follows = True
        self._wrap()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        event.prevent_default()
        self.scroll_lines(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        event.prevent_default()
        self.scroll_lines(3)

    def on_resize(self, event: events.Resize) -> None:
        self._wrap()

    def render_line(self, y: int) -> Strip:
        """A visible line."""
        width = self.size.width
        place = int(self.scroll_offset.y) + y
        if place >= len(self._lines):
            return Strip.blank(width)
        return Strip([Segment(set_cell_size(self._lines[place], width), style(self._words))], width)
