"""What fails in the background of the dashboard is said, and leaves nothing that looks alive but is not."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from spritz.http.rest import RestError
from spritz.web import recorder
from spritz.web.picture import Picture
from spritz.web.recorder import Recorder
from tests.unit.web.dashboard import Dashboard, frame
from tests.unit.web.test_web_shared import met


@pytest.mark.parametrize(
    "error", [sqlite3.OperationalError("database or disk is full"), KeyError("gpus"), RestError("no")]
)
def test_a_recorder_that_cannot_store_says_so_and_goes_on(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Recorder
    dashboard = Dashboard(tmp_path, monkeypatch)
    monkeypatch.setattr(recorder, "EVERY_SECONDS", 0.0)
    fails = True
    rounds: list[bool] = []

    async def round_of(self: Recorder, *_: Any, all_of_it: bool) -> None:
        rounds.append(fails)
        if fails:
            raise error

    async def work() -> None:
        nonlocal fails
        dashboard.site.recorder = real(dashboard.site)
        monkeypatch.setattr(Recorder, "_round", round_of)
        async with asyncio.timeout(60), dashboard.serving():
            await met(lambda: dashboard.site.recorder.problem)
            fails = False
            await met(lambda: False in rounds and not dashboard.site.recorder.problem)
        assert not dashboard.site.failed

    asyncio.run(work())


def test_a_picture_that_fails_is_said_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch)

    async def work() -> None:
        async with asyncio.timeout(60), dashboard.serving():
            async with dashboard.browser(await dashboard.site.sessions.begin("vera")) as browser:
                await browser.get("/queue")
                first, task = dashboard.site._pictures["vera"]
                streaming = asyncio.create_task(browser.get("/live"))
                await met(lambda: first.viewers)
                with monkeypatch.context() as patch:
                    patch.setattr(Picture, "_mark", _broken)
                    dashboard.news.put_nowait(frame("job", b'{"job_id": 7}'))
                    await task
                assert "The dashboard failed" in (await streaming).text, "the stream says it, and ends"
                page = await browser.get("/queue")
                assert page.status_code == 200
                assert dashboard.site._pictures["vera"][0] is not first
                assert not dashboard.site._pictures["vera"][0].error
        assert not dashboard.site.failed

    asyncio.run(work())


def _broken(*_: Any) -> None:
    raise KeyError("of this program")


@pytest.mark.parametrize("data", [b"[]", b"7", b"{", b"\xff"])
def test_an_event_of_another_shape_interrupts_and_the_picture_goes_on(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch)

    async def work() -> None:
        async with asyncio.timeout(60), dashboard.serving():
            async with dashboard.browser(await dashboard.site.sessions.begin("vera")) as browser:
                await browser.get("/queue")
                picture, _ = dashboard.site._pictures["vera"]
                said: list[str] = []
                monkeypatch.setattr(picture, "_turn", said.append)
                dashboard.news.put_nowait(frame("job", data))
                await met(lambda: len(said) > 1)
                assert "cannot be read" in said[0]
                assert said[1] == "", "it has connected again"
                assert not picture.has_ended

    asyncio.run(work())


def test_a_dashboard_whose_table_is_no_longer_kept_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch)
    stopped = asyncio.Event()

    async def broken() -> None:
        raise ZeroDivisionError

    async def work() -> None:
        monkeypatch.setattr(dashboard.site.sessions, "run", broken)
        dashboard.site.stop = stopped.set
        async with asyncio.timeout(60), dashboard.serving():
            await stopped.wait()
        assert dashboard.site.failed

    asyncio.run(work())
