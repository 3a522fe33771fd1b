"""`spritz top` in Textual's own pilot: what is on the screen after keys and clicks, at 80 columns and at 140."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("textual")

from textual.pilot import Pilot

from spritz.cli.call.context import Context
from spritz.live import commands
from spritz.live.choice import Choice
from spritz.live.picture import Update
from spritz.tui.app import Mail, Top
from spritz.tui.command import paint_first_frame
from tests.unit.live.rows import job, node, running

JOBS = (
    running(1, ("n1", 0b1111), name="train"),
    running(2, ("n1", 0b110000), user="bob", name="eval"),
    job(3, name="big", gpu_count=8),
    job(4, user="bob", name="\x1b[31mred\u202e"),
)
WHOLE = Update(now=1200.0, cluster="c", whole=True, jobs=JOBS, nodes=(node("n1", used=6), node("n2")), nodes_whole=True)


class SilentFeed:
    """In place of a feed: nothing comes by itself."""

    samples = False

    def stop(self) -> None:
        """Nothing to stop."""


def screen(top: Top) -> list[str]:
    """The lines that are seen."""
    width, height = top.size
    return ["".join(segment.text for segment in line) for line in top.screen._compositor.render_strips()][:height] or [
        " " * width
    ]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that were run; none is."""
    found: list[list[str]] = []

    def run(words: list[str], **options: Any) -> commands.Done:
        found.append(words)
        return commands.Done(words=tuple(words), status=0, out=f"page of {' '.join(words)}\n", err="")

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr("spritz.tui.details._path_of", lambda conf, number: ("", "no output in this test"))
    return found


def piloted(
    work: Callable[[Pilot[int], Top, Mail], Coroutine[Any, Any, None]], *, size: tuple[int, int] = (140, 30)
) -> None:
    """Run `work` on an application that has had the first mail."""

    async def main() -> None:
        mail = Mail()
        mail.put(WHOLE)
        top = Top(SilentFeed(), mail, None)  # type: ignore[arg-type]  # a feed that says nothing
        async with top.run_test(size=size) as pilot:
            await _until(pilot, lambda: top.picture.is_known and bool(top.table.rows))
            await work(pilot, top, mail)

    asyncio.run(main())


async def _until(pilot: Pilot[int], condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await pilot.pause(0.01)
    assert isinstance(pilot.app, Top)
    raise AssertionError("it did not come true:\n" + "\n".join(screen(pilot.app)))


def shows(top: Top, text: str) -> bool:
    """Whether a line has this text."""
    return any(text in line for line in screen(top))


def test_the_queue_at_80_columns(ran: list[list[str]]) -> None:
    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        await _until(pilot, lambda: shows(top, "no output in this test"))
        lines = screen(top)
        assert lines[0].startswith(" c  2 nodes  CPU 1/16  GPU 6/16  2 running, 2 waiting")
        assert all(len(line) == 80 for line in lines)
        assert any("train" in line and "n1" in line for line in lines)
        assert any("(Resources)" in line for line in lines)
        assert not any("\x1b" in line or "\u202e" in line for line in lines)

    piloted(work, size=(80, 24))


def test_changes_come_in_and_the_cursor_stays_with_its_job(ran: list[list[str]]) -> None:
    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        await pilot.press("G")
        assert top.table.current == top.picture.jobs[4]
        mail.put(Update(now=1300.0, jobs=(running(3, ("n2", 255), name="big"),), touched=frozenset((2, 3))))
        await _until(pilot, lambda: len(top.table.rows) == 3)
        assert top.table.current == top.picture.jobs[4]
        assert shows(top, "2 running, 1 waiting")

    piloted(work)


def test_a_controller_that_goes_away_is_said_and_forgotten(ran: list[list[str]]) -> None:
    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        mail.put(Update(problem="Unable to contact slurm controller (connect failure)"))
        await _until(pilot, lambda: shows(top, "slurmctld does not answer since"))
        assert len(top.table.rows) == 4
        mail.put(Update(now=1300.0))
        await _until(pilot, lambda: shows(top, "2 running"))

    piloted(work)


def test_an_internal_error_of_the_feed_ends_the_program(ran: list[list[str]]) -> None:
    """It would otherwise go on with a picture that no longer moves."""

    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        mail.put(Update(problem="internal error", failure=KeyError("nodes")))
        await _until(pilot, lambda: top.return_code == 1)

    with pytest.raises(KeyError, match="nodes"):
        piloted(work)


def test_an_internal_error_behind_a_page_ends_the_program(
    ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(conf: str | None, number: int) -> tuple[str, str]:
        raise ZeroDivisionError("of this program")

    monkeypatch.setattr("spritz.tui.details._path_of", broken)

    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        await _until(pilot, lambda: top.return_code == 1)

    with pytest.raises(Exception, match="of this program"):
        piloted(work)


def test_cancel_asks_first_and_marks_are_taken_together(ran: list[list[str]]) -> None:
    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        await pilot.press("c")
        assert shows(top, "cancel? scancel 1  y: yes")
        await pilot.press("n")
        assert shows(top, "nothing was done")
        await pilot.press("space", "space", "c", "y")
        await _until(pilot, lambda: ["scancel", "1", "2"] in ran)
        await _until(pilot, lambda: shows(top, "done: scancel 1 2"))
        assert not top.queue.marked
        assert not any(words == ["scancel", "1"] for words in ran)

    piloted(work)


def test_values_are_asked_for(ran: list[list[str]]) -> None:
    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        await pilot.press("T", *"9x", "backspace", "0")
        assert shows(top, "(minutes, h:m:s, +30 for 30 minutes more): 90_")
        await pilot.press("enter")
        await _until(pilot, lambda: ["scontrol", "update", "JobId=1", "TimeLimit=90"] in ran)
        await pilot.press("2", "D", *"bad fan", "enter")
        drained = ["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=bad fan"]
        await _until(pilot, lambda: drained in ran)
        await pilot.press("D", "escape")
        assert ran.count(drained) == 1

    piloted(work)


def test_what_a_command_refuses_is_said(ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(words: list[str], **options: Any) -> commands.Done:
        return commands.Done(words=tuple(words), status=1, out="", err="Access/permission denied for job 1\n")

    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        monkeypatch.setattr(commands, "run", refused)
        await pilot.press("H")
        await _until(pilot, lambda: shows(top, "Access/permission denied for job 1"))

    piloted(work)


def test_filter_sort_and_views(ran: list[list[str]]) -> None:
    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        await pilot.press("/", *"user:bob", "enter")
        assert [row.id for row in top.table.rows] == [2, 4]
        assert shows(top, "filter: user:bob  2 shown")
        await pilot.press("/", "ctrl+u", *"colour:x", "enter")
        assert shows(top, "colour: id, user")
        await pilot.press("escape", "escape")
        assert len(top.table.rows) == 4
        await pilot.click("Table", offset=(4, 0))
        assert top.queue.order == "id"
        await pilot.press("3")
        await _until(pilot, lambda: shows(top, "AAAABB··"))
        await _until(pilot, lambda: shows(top, "page of scontrol show node n1"))
        assert shows(top, "GPU 4 h100  2 bob eval")
        await pilot.press("w")  # of nodes there is one page
        await pilot.press("2")
        assert shows(top, "n2")
        await pilot.press("4")
        await _until(pilot, lambda: any(words[0] == "sacct" for words in ran))

    piloted(work)


def test_pages_of_a_job(ran: list[list[str]]) -> None:
    async def work(pilot: Pilot[int], top: Top, mail: Mail) -> None:
        for key, words in (("w", "scontrol explain 1"), ("i", "scontrol show job 1"), ("h", "spritz history 1")):
            await pilot.press(key)
            await _until(pilot, lambda words=words: shows(top, f"page of {words}"))  # type: ignore[misc]  # a default
        await pilot.press("enter")
        assert top.main.has_class("page")
        await pilot.press("escape", "?")
        await _until(pilot, lambda: shows(top, "c cancel   H hold"))
        await pilot.press("escape", "G")
        await _until(pilot, lambda: shows(top, "page of spritz history 4"))

    piloted(work)


def test_the_first_frame_has_the_jobs_as_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "7")
    terminal = io.StringIO()
    context = Context("spritz", {}, "/", io.StringIO(), terminal, io.StringIO())
    assert paint_first_frame(context, WHOLE, Choice("user:bob"), "queue")
    lines = terminal.getvalue().removeprefix("\x1b[?1049h\x1b[H").split("\n")
    assert [line.split()[:4] for line in lines[-2:]] == [["2", "bob", "R", "eval"], ["4", "bob", "PD", "red\ufffd"]]
    assert len(lines) == 6
    assert "\x1b" not in "".join(lines)
    assert not paint_first_frame(context, Update(problem="no answer"), Choice(), "queue")
