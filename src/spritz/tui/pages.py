"""A page of plain text. It follows the text's end, except while the user has scrolled up."""

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
    """The line wrapped between words; further lines are indented."""
    indent = min(len(line) - len(line.lstrip()) + 2, width // 2)
    wrapped = wrap(line, width, subsequent_indent=" " * indent, drop_whitespace=True, break_on_hyphens=False)
    return [piece for part in wrapped for piece in chop_cells(part, width)] or [""]


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

    def shows(self, lines: Sequence[str]) -> bool:
        """Whether this very list is shown."""
        return self._given is lines

    def show(self, lines: Sequence[str], *, follow: bool = False, words: str = "") -> None:
        """Show a text, in the style `words`, from its end with `follow`, else from its beginning."""
        self._given, self._words, self.follows = lines, words, follow
        self._wrap()
        if not follow:
            self.scroll_to(y=0, animate=False, immediate=True)

    def renew(self) -> None:
        """Wrap and draw again after a change of the lines."""
        self._wrap()

    def _wrap(self) -> None:
        width = max(10, self.size.width - 1)
        wrapped: list[str] = []
        for line in self._given:
            if (len(line) <= width and line.isascii()) or cell_len(line) <= width:
                wrapped.append(line)
            elif self.follows:
                wrapped += chop_cells(line, width)
            else:
                wrapped += _words_of(line, width)
        self._lines = wrapped
        self.virtual_size = Size(self.size.width, len(wrapped))
        if self.follows:
            self.scroll_to(y=max(0, len(wrapped) - self.size.height), animate=False, immediate=True)
        self.refresh()

    def scroll_lines(self, lines: int) -> None:
        """Scroll down, or up if `lines` is negative."""
        end = max(0, len(self._lines) - self.size.height)
        to = max(0, min(end, int(self.scroll_offset.y) + lines))
        self.follows = to >= end and lines > 0
        self.scroll_to(y=to, animate=False, immediate=True)

    def to_end(self) -> None:
        """Scroll to the last line, and follow the end."""
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
        """Line `y` of the visible part."""
        width = self.size.width
        place = int(self.scroll_offset.y) + y
        if place >= len(self._lines):
            return Strip.blank(width)
        return Strip([Segment(set_cell_size(self._lines[place], width), style(self._words))], width)
