"""Fills the page with what there is to say of the row under the cursor: output, explanation, details, history.

Commands and files are read in threads. An answer that arrives after the cursor has moved on is dropped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from msgspec import DecodeError

from spritz.client.command.sync import connect_controller
from spritz.client.locate import locate_controller
from spritz.live.logs import Tail, output_path, plain
from spritz.live.picture import indexes
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.timer import Timer
    from textual.widget import Widget

    from spritz.live import commands
    from spritz.live.jobs import Job
    from spritz.live.nodes import Node
    from spritz.live.picture import Picture
    from spritz.tui.pages import Page
    from spritz.tui.table import Table
    from spritz.tui.views import Past, View

#: Seconds after a move of the cursor until its row is queried.
_SETTLE_SECONDS = 0.12


class Screen(Protocol):
    """What is shown at present, and how a page is filled later (`app.Top`)."""

    @property
    def picture(self) -> Picture: ...

    @property
    def view(self) -> View: ...

    @property
    def queue(self) -> View: ...

    @property
    def history(self) -> View: ...

    @property
    def table(self) -> Table: ...

    @property
    def page(self) -> Page: ...

    @property
    def page_head(self) -> Widget: ...

    @property
    def is_helping(self) -> bool: ...

    def run_command(self, words: list[str], then: Callable[[commands.Done], None], *, columns: int = 0) -> None: ...

    def run_worker(self, work: Awaitable[None]) -> object: ...

    def set_timer(self, delay: float, callback: Callable[[], None]) -> Timer: ...


class Details:
    """The contents of the page. `mode` is a key of `lines.MODES`, `title` names the subject."""

    def __init__(self, top: Screen, conf: str | None) -> None:
        self.mode = "o"
        self.title = ""
        self._top, self._conf = top, conf
        self._tail: Tail | None = None
        self._tail_job: int | None = None
        self._reading = False
        #: counts the pages, so that a late answer is recognized
        self._asked = 0
        self._timer: Timer | None = None

    def show_soon(self) -> None:
        """Fill the page once the cursor rests."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._top.set_timer(_SETTLE_SECONDS, self.show)

    def show(self) -> None:
        """Fill the page for the row under the cursor."""
        top = self._top
        self._timer = None
        if top.is_helping:
            return
        self._asked += 1
        row = top.table.current
        if top.view is not top.queue or self.mode != "o":
            self._tail = self._tail_job = None
        if row is None:
            self._tail = self._tail_job = None
            self._name("")
            top.page.show([])
        elif top.view is top.history:
            self._show_past(row)
        elif top.view is top.queue:
            self._show_job(row)
        else:
            self._show_node(row)

    def show_text(self, title: str, lines: list[str]) -> None:
        """Show a text that belongs to no row."""
        self._tail = self._tail_job = None
        self._name(title)
        self._top.page.show(lines)

    def _name(self, title: str) -> None:
        self.title = plain(title)
        self._top.page_head.refresh()

    # -- rows --------------------------------------------------------------------------------------------------------

    def _show_job(self, job: Job) -> None:
        self._name(f"{job.label} {job.name}")
        label = str(job.id) if job.array else job.label
        width = max(40, self._top.page.size.width - 1)
        if self.mode == "o":
            self._open_log(job)
        elif self.mode == "w":
            self._show_command(["scontrol", "explain", label], width)
        elif self.mode == "i":
            self._show_command(["scontrol", "show", "job", label])
        elif self.mode == "h":
            self._show_command(["spritz", "history", label], width)
        else:
            self._show_command(["spritz", "eff", label], width)

    def _show_past(self, past: Past) -> None:
        self._name(f"{past.name} {past.job_name}")
        if self.mode == "e":
            self._show_command(["spritz", "eff", past.name])
        elif self.mode == "i":
            self._show_command(["sacct", "-j", past.name, "-o", "JobID,State,ExitCode,Elapsed,MaxRSS,NodeList"])
        elif self.mode == "o":
            self._open_past_log(past)
        else:
            self._show_command(["spritz", "history", past.name])

    def _show_node(self, node: Node) -> None:
        self._name(node.name)
        jobs = self._top.picture.jobs
        holders = self._top.picture.holders().get(node.name, {})
        lines = []
        if node.gpus:
            for kind, mask in node.gpus:
                for index in indexes(mask):
                    job = holders.get(index)
                    use = f" {node.gpu_use[index]:3d}% busy" if index in node.gpu_use else ""
                    what = f"{job.label} {plain(job.user)} {plain(job.name)}" if job is not None else "-"
                    lines.append(f"GPU {index} {kind}{use}  {what}")
            lines.append("")
        for job in (jobs[number] for number in node.jobs if number in jobs):
            lines.append(f"{job.state_code:2} {job.label} {plain(job.user)} {plain(job.name)}  {job.cpu_count} CPUs")
        lines.append("")
        self._show_command(["scontrol", "show", "node", node.name], before=lines)

    def _show_command(self, words: list[str], columns: int = 0, before: list[str] | None = None) -> None:
        """Show the output of a command, if the cursor is still on the same row then. `before`: lines to show above."""
        asked, page = self._asked, self._top.page

        def show(done: commands.Done) -> None:
            if asked == self._asked:
                output = (done.out or done.complaint or "no information").splitlines()
                page.show([*(before or ()), *map(plain, output)])

        if before:
            page.show(before)
        self._top.run_command(words, show, columns=columns)

    # -- the log -----------------------------------------------------------------------------------------------------

    def _open_log(self, job: Job) -> None:
        if self._tail_job == job.id and self._tail is not None:
            return
        self._tail, self._tail_job = None, job.id
        asked, page = self._asked, self._top.page

        async def work() -> None:
            path, problem = await asyncio.to_thread(_path_of, self._conf, job.id)
            if asked == self._asked:
                if path:
                    self._follow(path, f"{job.label} {path}")
                else:
                    page.show([problem], words="dim")

        if job.state == "PENDING" and not job.started_at:
            page.show(["no output: it has not started", "", f"it waits: {plain(job.why)}" if job.why else "",
                       "w explains why, and shows the expected start"], words="dim")  # fmt: skip
            return
        self._top.run_worker(work())

    def _open_past_log(self, past: Past) -> None:
        self._tail_job = None
        asked = self._asked

        def show(done: commands.Done) -> None:
            if asked == self._asked:
                path = done.out.strip().splitlines()[0] if done.out.strip() else ""
                self._follow(path, f"{self.title}  {path}")

        self._top.run_command(["sacct", "-nPX", "--expand-patterns", "-j", past.name, "-o", "StdOut"], show)

    def _follow(self, path: str, title: str) -> None:
        self._tail = Tail(path)
        self._top.page.show([], follow=True)
        self._name(title)
        self.read_log(first=True)

    def read_log(self, first: bool = False) -> None:
        """Show what was written to the log since the last call, if the page shows a log."""
        tail = self._tail
        if tail is None or self._reading or self.mode != "o":
            return
        self._reading = True

        async def work() -> None:
            try:
                changed = await asyncio.to_thread(tail.read)
            finally:
                self._reading = False
            if tail is self._tail and (changed or first):
                self._show_log(tail)

        self._top.run_worker(work())

    def _show_log(self, tail: Tail) -> None:
        page = self._top.page
        if tail.problem:
            page.show([f"{plain(tail.path)}: {tail.problem}"], words="dim")
        elif not tail.lines:
            page.show(["no output yet"], words="dim")
        elif page.shows(tail.lines):
            page.renew()
        else:
            page.show(tail.lines, follow=True)


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
    except SpritzError as error:
        return "", error.message
    except (OSError, DecodeError) as error:
        return "", f"slurmctld's answer cannot be read: {error}"
    return "", "the job does not exist any more"
