"""The application: a table, a page, two lines above and a line below.

Textual runs the loop; operations that may block (slurmctld, commands, files) run in threads. Queries slurmctld only
through the feed, and for the page about the row under the cursor.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller
from spritz.client.sync import connect_controller
from spritz.live import commands
from spritz.live.choice import ORDERS, Choice
from spritz.live.logs import Tail, output_path, plain
from spritz.live.picture import Picture, indexes
from spritz.model.commands.job import JobFilter, JobTarget
from spritz.model.queries.jobs import Jobs, ListJobs
from spritz.notation.times import format_time
from spritz.runtime.clock import SystemClock
from spritz.tui.actions import BY_KEY, HELP
from spritz.tui.pages import Page
from spritz.tui.table import Table, style
from spritz.tui.views import PAST_FIELDS, GpusView, HistoryView, NodesView, Past, QueueView, View, bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual import events

    from spritz.live.feed import Feed
    from spritz.live.jobs import Job
    from spritz.live.nodes import Node
    from spritz.live.picture import Update
    from spritz.tui.actions import Action

#: Width of the terminal, in columns, from which the page is to the right of the table instead of below.
BESIDE_COLUMNS = 110
#: Seconds after a move of the cursor until its row is queried; between reads of a log; between clock ticks.
_SETTLE_SECONDS, _LOG_SECONDS, _TICK_SECONDS = 0.12, 0.5, 1.0

MODES = {"o": "Output", "w": "Why", "i": "Details", "h": "History", "e": "Efficiency"}


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


class Entry:
    """A line that the user is typing; `does` gets the finished text."""

    def __init__(self, title: str, text: str, does: Callable[[str], None]) -> None:
        self.title = title
        self.text = text
        self.does = does


class Head(Widget):
    """The two lines at the top: totals of the cluster, and the names of the views."""

    DEFAULT_CSS = "Head { height: 2; dock: top; }"

    def __init__(self, top: Top) -> None:
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

    def __init__(self, top: Top) -> None:
        super().__init__()
        self._top = top

    def _modes(self) -> list[tuple[str, str]]:
        return list(MODES.items()) if self._top.about_jobs else [("i", "Details")]

    def render_line(self, y: int) -> Strip:
        """The names of the modes, the present mode in reverse video."""
        segments = []
        for key, title in self._modes():
            words = "reverse bold" if key == self._top.mode else ""
            segments.append(Segment(f" {key} {title} ", style(words)))
        segments.append(Segment(f" {self._top.page_title}", style("dim")))
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

    def __init__(self, top: Top) -> None:
        super().__init__()
        self._top = top

    def render_line(self, y: int) -> Strip:
        """The text of `Top.foot_text`, cut to the width."""
        text, words = self._top.foot_text()
        return Strip([Segment(text, style(words))]).adjust_cell_length(self.size.width)


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

    class Arrived(Message):
        """Updates of the feed have arrived."""

    def __init__(self, feed: Feed, mail: Mail, conf: str | None, *, filter_text: str = "", order: str = "") -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.animation_level = "none"
        self.picture = Picture()
        self.sums = self.picture.sums()
        self.mode = "o"
        self.page_title = ""
        self.painted_at = 0.0
        self._feed, self._mail, self._conf = feed, mail, conf
        self._clock = SystemClock()
        self._ahead = 0.0
        self.queue = QueueView(self.picture, self.now)
        self.nodes = NodesView(self.picture)
        self.gpus = GpusView(self.picture)
        self.history = HistoryView()
        self.views: tuple[View, ...] = (self.queue, self.nodes, self.gpus, self.history)
        self.view: View = self.queue
        self._said: tuple[str, str, float] = ("", "", 0.0)
        self._question: tuple[Action, list[str]] | None = None
        self._entry: Entry | None = None
        self._tail: Tail | None = None
        self._tail_job: int | None = None
        self._reading = False
        self._asked = 0
        self._settle: Any = None
        self._helping = False
        if order in ORDERS:
            self.queue.order = order
        if filter_text:
            self.queue.choice = Choice(filter_text)

    # -- layout ------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Table and page, between the lines at the top and at the bottom."""
        self.head, self.foot, self.page_head = Head(self), Foot(self), PageHead(self)
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
        self.set_interval(_LOG_SECONDS, self._look_at_log)

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
            self.picture.apply(update)
            if update.now:
                self._ahead = update.now - self._clock.now()
        self.sums = self.picture.sums()
        if self.view is not self.history:
            self.table.renew()
        self.head.refresh()
        current = self._job()
        if current is not None and self.mode != "o" and any(current.id in update.touched for update in updates):
            self._settle_soon()
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
        self._helping = False
        view = self.views[number]
        self._feed.samples = view in (self.nodes, self.gpus)
        if view is self.view:
            return
        if view is self.history:
            self._ask_history()
            if self.mode in "ow":
                self.mode = "h"
        elif view is self.queue and self.view is self.history:
            self.mode = "o"
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

        self._run(words, show)

    def show_mode(self, key: str) -> None:
        """Show the page of the mode with this key."""
        self._helping = False
        if self.about_jobs:
            self.mode = key
        self._settle_now()

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
        self._settle_soon()

    def on_table_chosen(self, message: Table.Chosen) -> None:
        """Give the page the whole screen."""
        self.action_zoom()

    def on_table_sort_by(self, message: Table.SortBy) -> None:
        """Order by the clicked column; a second click on it reverses the order."""
        if message.order == self.queue.order:
            self.queue.backwards = not self.queue.backwards
        self.queue.order = message.order
        self.table.renew()

    def _settle_soon(self) -> None:
        if self._settle is not None:
            self._settle.stop()
        self._settle = self.set_timer(_SETTLE_SECONDS, self._settle_now)

    def _settle_now(self) -> None:
        """Fill the page for the row under the cursor."""
        self._settle = None
        if self._helping:
            return
        self._asked += 1
        row = self.table.current
        if self.view is not self.queue or self.mode != "o":
            self._tail = self._tail_job = None
        if row is None:
            self._tail = self._tail_job = None
            self._title("")
            self.page.show([])
        elif self.view is self.history:
            self._past_page(row)
        elif self.view is self.queue:
            self._job_page(row)
        else:
            self._node_page(row)

    def _title(self, text: str) -> None:
        self.page_title = plain(text)
        self.page_head.refresh()

    def _job_page(self, job: Job) -> None:
        self._title(f"{job.label} {job.name}")
        width = str(max(40, self.page.size.width - 1))
        if self.mode == "o":
            self._open_log(job)
        elif self.mode == "w":
            self._command_page(["scontrol", "explain", job.label if not job.array else str(job.id)], int(width))
        elif self.mode == "i":
            self._command_page(["scontrol", "show", "job", job.label if not job.array else str(job.id)])
        elif self.mode == "h":
            self._command_page(["spritz", "history", job.label if not job.array else str(job.id)], int(width))
        else:
            self._command_page(["spritz", "eff", job.label if not job.array else str(job.id)], int(width))

    def _past_page(self, past: Past) -> None:
        self._title(f"{past.name} {past.job_name}")
        if self.mode == "e":
            self._command_page(["spritz", "eff", past.name])
        elif self.mode == "i":
            self._command_page(["sacct", "-j", past.name, "-o", "JobID,State,ExitCode,Elapsed,MaxRSS,NodeList"])
        elif self.mode == "o":
            self._past_log(past)
        else:
            self._command_page(["spritz", "history", past.name])

    def _past_log(self, past: Past) -> None:
        self._tail_job = None

        def show(done: commands.Done) -> None:
            path = done.out.strip().splitlines()[0] if done.out.strip() else ""
            self._follow(path)

        words = ["sacct", "-nPX", "--expand-patterns", "-j", past.name, "-o", "StdOut"]
        self._run(words, show, asked=self._asked)

    def _node_page(self, node: Node) -> None:
        self._title(node.name)
        lines = []
        holders = self.gpus._picture.holders().get(node.name, {})
        if node.gpus:
            for kind, mask in node.gpus:
                for index in indexes(mask):
                    job = holders.get(index)
                    use = f" {node.gpu_use[index]:3d}% busy" if index in node.gpu_use else ""
                    what = f"{job.label} {plain(job.user)} {plain(job.name)}" if job is not None else "-"
                    lines.append(f"GPU {index} {kind}{use}  {what}")
            lines.append("")
        for number in node.jobs:
            job = self.picture.jobs.get(number)
            if job is not None:
                lines.append(
                    f"{job.state_code:2} {job.label} {plain(job.user)} {plain(job.name)}  {job.cpu_count} CPUs"
                )
        lines.append("")
        self._command_page(["scontrol", "show", "node", node.name], before=lines)

    def _command_page(self, words: list[str], columns: int = 0, before: list[str] | None = None) -> None:
        """Show the output of a command, if the cursor is still on the same row then. `before`: lines to show above."""

        def show(done: commands.Done) -> None:
            lines = [*(before or ()), *map(plain, (done.out or done.complaint or "no information").splitlines())]
            self.page.show(lines)

        if before:
            self.page.show(before)
        self._run(words, show, asked=self._asked, columns=columns)

    def _run(
        self, words: list[str], then: Callable[[commands.Done], None], *, asked: int | None = None, columns: int = 0
    ) -> None:
        """Run a command in a thread, then call `then`, unless the page shows something else by then (`asked`)."""

        async def work() -> None:
            done = await asyncio.to_thread(commands.run, words, conf=self._conf, columns=columns)
            if asked is None or asked == self._asked:
                then(done)

        self.run_worker(work(), exit_on_error=False)

    # -- the log -----------------------------------------------------------------------------------------------------

    def _open_log(self, job: Job) -> None:
        if self._tail_job == job.id and self._tail is not None:
            return
        self._tail, self._tail_job = None, job.id
        asked = self._asked

        async def work() -> None:
            path, problem = await asyncio.to_thread(_path_of, self._conf, job.id)
            if asked == self._asked:
                if path:
                    self._follow(path, job)
                else:
                    self.page.show([problem], words="dim")

        if job.state == "PENDING" and not job.started_at:
            self.page.show(["no output: it has not started", "", f"it waits: {plain(job.why)}" if job.why else "",
                            "w explains why, and shows the expected start"], words="dim")  # fmt: skip
            return
        self.run_worker(work(), exit_on_error=False)

    def _follow(self, path: str, job: Job | None = None) -> None:
        self._tail = Tail(path)
        self.page.show([], follow=True)
        self._title(f"{self.page_title}  {path}" if job is None else f"{job.label} {path}")
        self._look_at_log(first=True)

    def _look_at_log(self, first: bool = False) -> None:
        tail = self._tail
        if tail is None or self._reading or self.mode != "o":
            return
        self._reading = True

        async def work() -> None:
            try:
                changed = await asyncio.to_thread(tail.read)
            finally:
                self._reading = False
            if tail is not self._tail or not (changed or first):
                return
            if tail.problem:
                self.page.show([f"{plain(tail.path)}: {tail.problem}"], words="dim")
            elif not tail.lines:
                self.page.show(["no output yet"], words="dim")
            elif self.page._given is tail.lines:
                self.page.renew()
            else:
                self.page.show(tail.lines, follow=True)

        self.run_worker(work(), exit_on_error=False)

    # -- keys --------------------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Handle a key: for the question, for the line being typed, or an action."""
        if self._entry is not None:
            event.stop()
            event.prevent_default()
            self._type(event)
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
        self._helping = True
        self._tail = self._tail_job = None
        self.main.add_class("page")
        self._title("Help (Esc: back)")
        self.page.show(HELP.splitlines())
        self.page.focus()

    def _escape(self) -> None:
        if self.main.has_class("page"):
            self.main.remove_class("page")
            self.table.focus()
            if self._helping:
                self._helping = False
                self._settle_now()
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

        def told(done: commands.Done) -> None:
            if done.status or done.err.strip():
                self.say(done.complaint, "bold red", seconds=20.0)
            else:
                self.say(f"done: {line}")
                self.queue.marked.clear()
                self.table.refresh()

        self._run(words, told)

    def _ask(self, title: str, text: str, does: Callable[[str], None]) -> None:
        """Let the user type a line at the bottom, after the prompt `title`."""
        self._entry = Entry(title, text, does)
        self.foot.refresh()

    def _type(self, event: events.Key) -> None:
        """Handle a key for the line being typed."""
        entry = self._entry
        if entry is None:
            return
        if event.key == "enter":
            self._entry = None
            entry.does(entry.text.strip())
        elif event.key == "escape":
            self._entry = None
        elif event.key in ("backspace", "ctrl+h"):
            entry.text = entry.text[:-1]
        elif event.key in ("ctrl+u", "ctrl+w"):
            entry.text = "" if event.key == "ctrl+u" else entry.text.rstrip().rpartition(" ")[0]
        elif event.is_printable and event.character:
            entry.text += event.character
        self.foot.refresh()

    def on_paste(self, event: events.Paste) -> None:
        """Add the first line of the pasted text."""
        if self._entry is not None:
            self._entry.text += plain(event.text.partition("\n")[0])
            self.foot.refresh()


def _path_of(conf: str | None, job_id: int) -> tuple[str, str]:
    """(path of a job's output or "", reason without a path). Queries slurmctld."""
    query = ListJobs(filter=JobFilter(targets=(JobTarget(job_id),)), all=True)
    try:
        with connect_controller(locate_controller(conf), wait_seconds=0.0) as controller:
            for piece in controller.stream(query, Jobs, timeout=30.0):
                for job in piece.jobs:
                    if job.id == job_id:
                        path = output_path(job)
                        return path, "" if path else "its output goes to the terminal of its srun or salloc"
    except ClientError as error:
        return "", error.message
    return "", "the job does not exist any more"
