"""The application: a table, a page, two lines above and a line below.

Textual runs the loop; operations that may block (slurmctld, commands, files) run in threads. Queries slurmctld only
through the feed, and in `details` for the page about the row under the cursor.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message

from spritz.live import commands
from spritz.live.choice import ORDERS, Choice
from spritz.live.logs import plain
from spritz.live.picture import Picture
from spritz.runtime.clock import SystemClock
from spritz.tui.actions import BY_KEY, HELP
from spritz.tui.details import Details
from spritz.tui.lines import MODES, Entry, Foot, Head, PageHead
from spritz.tui.pages import Page
from spritz.tui.table import Table
from spritz.tui.views import PAST_FIELDS, GpusView, HistoryView, NodesView, QueueView, View

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from spritz.live.feed import Feed
    from spritz.live.jobs import Job
    from spritz.live.picture import Update
    from spritz.tui.actions import Action

#: Width of the terminal, in columns, from which the page is to the right of the table instead of below.
BESIDE_COLUMNS = 110
#: Seconds between reads of a log; between clock ticks.
_LOG_SECONDS, _TICK_SECONDS = 0.5, 1.0


class Mail:
    """A queue of the feed's updates: the feed starts before Textual is imported."""

    def __init__(self) -> None:
        self._waiting: deque[Update] = deque()
        self._wake: Callable[[], object] | None = None

    def put(self, update: Update) -> None:
        """Add an update; called in the feed's thread."""
        self._waiting.append(update)
        if (wake := self._wake) is not None:
            wake()

    def open(self, wake: Callable[[], object]) -> None:
        """From now on, call `wake` whenever an update arrives."""
        self._wake = wake
        if self._waiting:
            wake()

    def take(self) -> list[Update]:
        """Remove and return all updates, oldest first."""
        updates = []
        while self._waiting:
            updates.append(self._waiting.popleft())
        return updates


class Top(App[int]):
    """The application of `spritz top`; its result is the exit code."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; overflow: hidden; }
    Table, Page, Head, Foot, PageHead, Container { background: ansi_default; color: ansi_default; }
    #main { layout: horizontal; height: 1fr; }
    #right { layout: vertical; width: 2fr; border-left: solid ansi_bright_black; }
    Table { width: 3fr; }
    Page { height: 1fr; }
    #main.over { layout: vertical; }
    #main.over #right { width: 100%; height: 1fr; border-left: none; border-top: solid ansi_bright_black; }
    #main.over Table { width: 100%; height: 1fr; }
    #main.page Table { display: none; }
    #main.page #right { border: none; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("ctrl+c", "leave", priority=True),
        Binding("ctrl+q", "leave", priority=True),
    ]

    #: made by `compose`
    table: Table
    page: Page

    class Arrived(Message):
        """Updates of the feed have arrived."""

    def __init__(self, feed: Feed, mail: Mail, conf: str | None, *, filter_text: str = "", order: str = "") -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.picture = Picture()
        self.sums = self.picture.sums()
        self.painted_at = 0.0
        self._feed, self._mail, self._conf = feed, mail, conf
        self.details = Details(self, conf)
        self._clock = SystemClock()
        self._ahead = 0.0
        self.queue: QueueView = QueueView(self.picture, self.now)
        self.nodes = NodesView(self.picture)
        self.gpus = GpusView(self.picture)
        self.history: HistoryView = HistoryView()
        self.views: tuple[View, ...] = (self.queue, self.nodes, self.gpus, self.history)
        self.view: View = self.queue
        self._said: tuple[str, str, float] = ("", "", 0.0)
        self._question: tuple[Action, list[str]] | None = None
        self._entry: Entry | None = None
        self.is_helping = False
        if order in ORDERS:
            self.queue.order = order
        if filter_text:
            self.queue.choice = Choice(filter_text)

    # -- layout ------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Table and page, between the lines at the top and at the bottom."""
        self.head, self.foot, self.page_head = Head(self), Foot(self.foot_text), PageHead(self)
        self.table, self.page = Table(self.view), Page()
        yield self.head
        with Container(id="main"):
            yield self.table
            with Container(id="right"):
                yield self.page_head
                yield self.page
        yield self.foot

    def on_mount(self) -> None:
        """Start to take updates, and start the clock."""
        self.main = self.query_one("#main")
        self._arrange()
        self.table.focus()
        self._mail.open(lambda: self.post_message(self.Arrived()))
        self.set_interval(_TICK_SECONDS, self._tick)
        self.set_interval(_LOG_SECONDS, self.details.read_log)

    def on_resize(self, event: events.Resize) -> None:
        """Place the page to the right of the table if the terminal is wide enough."""
        self._arrange()

    def _arrange(self) -> None:
        if hasattr(self, "main"):
            self.main.set_class(self.size.width < BESIDE_COLUMNS, "over")

    def now(self) -> float:
        """slurmctld's time, in seconds since the epoch."""
        return self._clock.now() + self._ahead

    # -- updates -----------------------------------------------------------------------------------------------------

    def on_top_arrived(self, message: Arrived) -> None:
        """Apply the updates that have arrived, and show them."""
        updates = self._mail.take()
        if not updates:
            return
        for update in updates:
            if update.failure is not None:
                raise update.failure  # a picture that no longer moves would look like a quiet cluster
            self.picture.apply(update)
            if update.now:
                self._ahead = update.now - self._clock.now()
        self.sums = self.picture.sums()
        if self.view is not self.history:
            self.table.renew()
        self.head.refresh()
        current = self._job()
        if current is not None and self.details.mode != "o" and any(current.id in update.touched for update in updates):
            self.details.show_soon()
        if not self.painted_at and not updates[-1].problem:
            self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        self.painted_at = monotonic()

    def _tick(self) -> None:
        self.head.refresh()
        if self._said[0] and monotonic() > self._said[2]:
            self._said = ("", "", 0.0)
            self.foot.refresh()
        if self.view is self.queue and self.sums.jobs.get("RUNNING"):
            self.table.refresh()

    # -- views -------------------------------------------------------------------------------------------------------

    @property
    def about_jobs(self) -> bool:
        """Whether the table's rows are jobs (not nodes)."""
        return self.view in (self.queue, self.history)

    def _job(self) -> Job | None:
        row = self.table.current
        return row if row is not None and self.view is self.queue else None

    def show_view(self, number: int) -> None:
        """Show the view with this index."""
        self.is_helping = False
        view = self.views[number]
        self._feed.samples = view in (self.nodes, self.gpus)
        if view is self.view:
            return
        if view is self.history:
            self._ask_history()
            if self.details.mode in "ow":
                self.details.mode = "h"
        elif view is self.queue and self.view is self.history:
            self.details.mode = "o"
        self.view = view
        self.table.show(view)
        self.head.refresh()
        self.foot.refresh()

    def _ask_history(self) -> None:
        words = ["sacct", "-nPX", "-S", "now-1days", "-o", PAST_FIELDS, *(["-a"] if os.geteuid() == 0 else [])]

        def show(done: commands.Done) -> None:
            self.history.take(done.out)
            if done.status:
                self.history.said = done.complaint
            if self.view is self.history:
                self.table.renew()

        self.run_command(words, show)

    def show_mode(self, key: str) -> None:
        """Show the page of the mode with this key."""
        self.is_helping = False
        if self.about_jobs:
            self.details.mode = key
        self.details.show()

    def chosen_text(self) -> str:
        """Filter, order and marks, for the line at the top."""
        parts = []
        if self.view is self.queue:
            if self.queue.choice.text:
                parts.append(f"filter: {self.queue.choice.text}")
            if self.queue.choice.ended:
                parts.append("ended too")
            parts.append(f"{len(self.table.rows) if self.is_mounted_table else 0} shown")
            if self.queue.marked:
                parts.append(f"{len(self.queue.marked)} marked")
        elif text := getattr(self.view, "choice_text", ""):
            parts.append(f"filter: {text}")
        return "  " + "  ".join(parts)

    @property
    def is_mounted_table(self) -> bool:
        return hasattr(self, "table")

    def foot_text(self) -> tuple[str, str]:
        """Text and style of the line at the bottom."""
        if self._entry is not None:
            line = f" {self._entry.title}{self._entry.text}"
            # Show the end, where the user is typing.
            return line[-max(10, self.size.width - 2) :] + "_", "bold"
        if self._question is not None:
            action, targets = self._question
            line = plain(" ".join(action.words(targets, "")))
            room = max(20, self.size.width - 30)
            shown = line if len(line) <= room else f"{line[: room - 14]}… ({len(targets)} of them)"
            return f" {action.name}? {shown}  y: yes, any other key: no", "bold reverse"
        if self._said[0]:
            return f" {self._said[0]}", self._said[1]
        keys = "? help  / filter  s sort  "
        if self.view is self.queue:
            keys += "c cancel  H hold  R release  Q requeue  Space mark  "
        elif self.view is not self.history:
            keys += "D drain  X resume  "
        return f" {keys}q quit", "dim"

    def say(self, text: str, words: str = "", seconds: float = 8.0) -> None:
        """Show a text in the line at the bottom for a while. `words`: its style."""
        self._said = (plain(text), words, monotonic() + seconds)
        self.foot.refresh()

    # -- the page ----------------------------------------------------------------------------------------------------

    def on_table_moved(self, message: Table.Moved) -> None:
        """Fill the page once the cursor rests on a row."""
        self.details.show_soon()

    def on_table_chosen(self, message: Table.Chosen) -> None:
        """Give the page the whole screen."""
        self.action_zoom()

    def on_table_sort_by(self, message: Table.SortBy) -> None:
        """Order by the clicked column; a second click on it reverses the order."""
        if message.order == self.queue.order:
            self.queue.backwards = not self.queue.backwards
        self.queue.order = message.order
        self.table.renew()

    def run_command(self, words: list[str], then: Callable[[commands.Done], None], *, columns: int = 0) -> None:
        """Run a command in a thread, then call `then`."""

        async def work() -> None:
            then(await asyncio.to_thread(commands.run, words, conf=self._conf, columns=columns))

        self.run_worker(work())

    # -- keys --------------------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Handle a key: for the question, for the line being typed, or an action."""
        if self._entry is not None:
            event.stop()
            event.prevent_default()
            self._type(self._entry, event)
            return
        character = event.character or ""
        if self._question is not None:
            event.stop()
            event.prevent_default()
            action, targets = self._question
            self._question = None
            if character == "y":
                self._do(action, targets, "")
            else:
                self.say("nothing was done")
            return
        does = self._KEYS.get(event.key) or self._KEYS.get(character)
        if does is not None:
            event.stop()
            event.prevent_default()
            does(self)
            return
        action_here = self._action_of(character)
        if action_here is not None:
            event.stop()
            event.prevent_default()
            self._begin(action_here)

    def action_leave(self) -> None:
        self._feed.stop()
        self.exit(0)

    def action_zoom(self) -> None:
        """Toggle between the page alone and both halves."""
        self.main.toggle_class("page")
        if not self.main.has_class("page"):
            self.table.focus()
        else:
            self.page.focus()

    def _other_half(self) -> None:
        (self.page if self.focused is self.table and not self.main.has_class("page") else self.table).focus()

    def _move(self, lines: int) -> None:
        if self.focused is self.page:
            self.page.scroll_lines(lines)
        else:
            self.table.move(lines)

    def _page_by(self, pages: float) -> None:
        if self.focused is self.page:
            self.page.scroll_lines(int(self.page.size.height * pages))
        else:
            self.table.move(int(self.table.page_rows * pages))

    def _to_end(self) -> None:
        if self.focused is self.page:
            self.page.to_end()
        else:
            self.table.move_to(len(self.table.rows) - 1)

    def _to_begin(self) -> None:
        if self.focused is self.page:
            self.page.scroll_lines(-(1 << 30))
        else:
            self.table.move_to(0)

    def _help(self) -> None:
        self.is_helping = True
        self.main.add_class("page")
        self.details.show_text("Help (Esc: back)", HELP.splitlines())
        self.page.focus()

    def _escape(self) -> None:
        if self.main.has_class("page"):
            self.main.remove_class("page")
            self.table.focus()
            if self.is_helping:
                self.is_helping = False
                self.details.show()
            return
        self.queue.marked.clear()
        self._filter("")

    def _filter(self, text: str) -> None:
        if self.view is self.queue:
            try:
                self.queue.choice = Choice(text, ended=self.queue.choice.ended)
            except ValueError as error:
                self.say(str(error), "bold red")
                return
        else:
            self.view.choice_text = text  # type: ignore[attr-defined]  # every other view has one
        self.table.renew()
        self.head.refresh()

    def _mine(self) -> None:
        user = getpass.getuser()
        text = self.queue.choice.text
        user_filter = f"user:{user}"
        words = [word for word in text.split() if word != user_filter]
        self._filter(" ".join(words if user_filter in text.split() else [user_filter, *words]))

    def _ended(self) -> None:
        self.queue.choice = Choice(self.queue.choice.text, ended=not self.queue.choice.ended)
        self.table.renew()
        self.head.refresh()

    def _sort(self) -> None:
        if self.view is self.queue:
            names = list(ORDERS)
            self.queue.order = names[(names.index(self.queue.order) + 1) % len(names)]
            self.say(f"order: {self.queue.order}", seconds=2.0)
            self.table.renew()

    def _turn(self) -> None:
        if self.view is self.queue:
            self.queue.backwards = not self.queue.backwards
            self.table.renew()

    def _mark(self) -> None:
        job = self._job()
        if job is not None:
            self.queue.marked ^= {job.id}
            self.table.move(1)
            self.table.refresh()
            self.head.refresh()

    def _mark_all(self) -> None:
        if self.view is self.queue:
            shown = {job.id for job in self.table.rows}
            self.queue.marked = set() if shown <= self.queue.marked else shown
            self.table.refresh()
            self.head.refresh()

    def _ask_filter(self) -> None:
        text = self.queue.choice.text if self.view is self.queue else getattr(self.view, "choice_text", "")
        self._ask("filter: ", text, self._filter)

    _KEYS: ClassVar[dict[str, Callable[[Top], None]]] = {
        "q": action_leave,
        "j": lambda self: self._move(1),
        "down": lambda self: self._move(1),
        "k": lambda self: self._move(-1),
        "up": lambda self: self._move(-1),
        "ctrl+d": lambda self: self._page_by(0.5),
        "ctrl+u": lambda self: self._page_by(-0.5),
        "pagedown": lambda self: self._page_by(1),
        "pageup": lambda self: self._page_by(-1),
        "g": _to_begin,
        "home": _to_begin,
        "G": _to_end,
        "end": _to_end,
        "J": lambda self: self.page.scroll_lines(3),
        "K": lambda self: self.page.scroll_lines(-3),
        "f": lambda self: self.page.to_end(),
        "enter": action_zoom,
        "z": action_zoom,
        "tab": _other_half,
        "shift+tab": _other_half,
        "?": _help,
        "escape": _escape,
        "/": _ask_filter,
        "u": _mine,
        "E": _ended,
        "s": _sort,
        "S": _turn,
        "space": _mark,
        "A": _mark_all,
        **{str(number + 1): lambda self, number=number: self.show_view(number) for number in range(4)},  # type: ignore[misc]  # mypy has no type for a lambda with a default
        **{key: lambda self, key=key: self.show_mode(key) for key in MODES},  # type: ignore[misc]  # as above
    }

    # -- actions -----------------------------------------------------------------------------------------------------

    def _action_of(self, key: str) -> Action | None:
        if self.view is self.history:
            return None
        return BY_KEY.get(("job" if self.view is self.queue else "node", key))

    def _begin(self, action: Action) -> None:
        """Ask for the value or the confirmation that an action needs, or run the action."""
        if action.of == "job":
            jobs = [self.picture.jobs[number] for number in sorted(self.queue.marked)]
            current = self._job()
            jobs = jobs or ([current] if current is not None else [])
            targets = [job.target for job in jobs]
        else:
            targets = [self.table.current.name] if self.table.current is not None else []
        if not targets:
            self.say(f"{action.name}: no {action.of} is selected")
        elif action.asks:
            what = targets[0] if len(targets) == 1 else f"{len(targets)} {action.of}s"

            def typed(value: str) -> None:
                if value:
                    self._do(action, targets, value)
                else:
                    self.say("nothing was done")

            self._ask(f"{what}: {action.asks}: ", "", typed)
        elif action.confirms:
            self._question = (action, targets)
            self.foot.refresh()
        else:
            self._do(action, targets, "")

    def _do(self, action: Action, targets: list[str], value: str) -> None:
        words = action.words(targets, value)
        line = " ".join(words)
        self.say(line, "dim", seconds=60.0)

        def report(done: commands.Done) -> None:
            if done.status or done.err.strip():
                self.say(done.complaint, "bold red", seconds=20.0)
            else:
                self.say(f"done: {line}")
                self.queue.marked.clear()
                self.table.refresh()

        self.run_command(words, report)

    def _ask(self, title: str, text: str, does: Callable[[str], None]) -> None:
        """Let the user type a line at the bottom, after the prompt `title`."""
        self._entry = Entry(title, text, does)
        self.foot.refresh()

    def _type(self, entry: Entry, event: events.Key) -> None:
        """Handle a key for the line being typed."""
        if event.key in ("enter", "escape"):
            self._entry = None
        if event.key == "enter":
            entry.does(entry.text.strip())
        else:
            entry.edit(event)
        self.foot.refresh()

    def on_paste(self, event: events.Paste) -> None:
        """Add the first line of the pasted text."""
        if self._entry is not None:
            self._entry.text += plain(event.text.partition("\n")[0])
            self.foot.refresh()
