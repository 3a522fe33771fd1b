"""Shared links show one job, to look at; and what ends a session ends its streams."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from starlette.datastructures import URL

from spritz.web.app import View
from spritz.web.entry import _address, _told
from spritz.web.picture import EVERY_JOB, Change
from spritz.web.run_pages import is_of_job
from tests.unit.web.dashboard import JOB, NOW, RUN, Dashboard, form_token_of


@pytest.fixture
def dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dashboard:
    return Dashboard(tmp_path, monkeypatch)


async def made_link(browser: httpx.AsyncClient) -> str:
    """The path of a link to job 7, made as on its page."""
    token = form_token_of((await browser.get("/jobs/7")).text)
    answer = await browser.post("/jobs/7/share", data={"form_token": token})
    match = re.search(r"http://localhost(/shared/[\w-]+)<", answer.text)
    assert match, answer.text
    return match[1]


async def met(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await asyncio.sleep(0.001)


def run(dashboard: Dashboard, work: Callable[[], Awaitable[None]]) -> None:
    async def serve() -> None:
        async with asyncio.timeout(120), dashboard.serving():
            await work()

    asyncio.run(serve())


def test_a_link_shows_its_job_and_leaves_the_viewers_own_session_alone(dashboard: Dashboard) -> None:
    async def work() -> None:
        sessions = dashboard.site.sessions
        async with (
            dashboard.browser(await sessions.begin("vera")) as vera,
            dashboard.browser(await sessions.begin("oscar")) as oscar,
            dashboard.browser() as stranger,
        ):
            there = await made_link(vera)
            for viewer in (stranger, oscar):
                page = await viewer.get(there)
                assert page.status_code == 200
                assert "train-1" in page.text
                assert "set-cookie" not in page.headers
                assert not viewer.cookies or viewer is oscar
                assert "<form" not in page.text.replace('<form method="dialog"', ""), "there is nothing to do"
                links = set(re.findall(r'(?:href|action|hx-get|data-\w+)="(/[^"]*)"', page.text))
                assert {link for link in links if not link.startswith(("/static/", there))} == set()
                for part in ("/log", "/log/find?q=x", "/series.json"):
                    assert (await viewer.get(there + part)).status_code == 200
            assert (await stranger.get("/queue")).status_code == 401
            assert (await stranger.get("/jobs/7")).status_code == 401
            own = await oscar.get("/queue", headers={"accept": "text/html"})
            assert (own.status_code, "oscar" in own.text) == (200, True)
            token = form_token_of((await oscar.get("/jobs/7")).text)
            held = await oscar.post("/jobs/act", data={"verb": "hold", "job": "7", "form_token": token})
            assert held.status_code == 303, "his rights are still his"

    run(dashboard, work)


def test_the_output_of_anothers_job_is_not_shared(dashboard: Dashboard) -> None:
    """Its owner says where the output goes: the sharer's rights must open no file that another user names."""

    async def work() -> None:
        sessions = dashboard.site.sessions
        async with dashboard.browser(await sessions.begin("oscar")) as oscar, dashboard.browser() as vera:
            there = await made_link(oscar)
            for part in ("/log", "/log/find?q=x"):
                assert "by its own user only" in (await vera.get(there + part)).text

    run(dashboard, work)


def test_a_link_behind_a_proxy_with_tls_is_one_of_https(dashboard: Dashboard) -> None:
    request: Any = SimpleNamespace(url=URL("http://dash.example.org/jobs/7/share?x=1"))
    site: Any = SimpleNamespace(settings=SimpleNamespace(secure=True))
    assert _address(request, site, "/shared/w") == "https://dash.example.org/shared/w"
    site.settings.secure = False
    assert _address(request, site, "/shared/w") == "http://dash.example.org/shared/w"


def test_a_link_is_listed_and_revoked_by_its_maker(dashboard: Dashboard) -> None:
    async def work() -> None:
        sessions = dashboard.site.sessions
        async with (
            dashboard.browser(await sessions.begin("vera")) as vera,
            dashboard.browser(await sessions.begin("oscar")) as oscar,
        ):
            there = await made_link(vera)
            listed = (await vera.get("/links")).text
            assert there not in listed, "the link itself is shown once"
            match = re.search(r'name="id" value="(\w+)"', listed)
            assert match
            assert "No link works" in (await oscar.get("/links")).text
            for browser, status, works in ((oscar, 400, 200), (vera, 303, 404)):
                token = form_token_of((await browser.get("/links")).text)
                answer = await browser.post("/links/revoke", data={"id": match[1], "form_token": token})
                assert answer.status_code == status
                async with dashboard.browser() as stranger:
                    assert (await stranger.get(there)).status_code == works
            assert "No link works" in (await vera.get("/links")).text

    run(dashboard, work)


def test_a_later_job_with_the_same_number_is_not_shared(dashboard: Dashboard) -> None:
    async def work() -> None:
        async with (
            dashboard.browser(await dashboard.site.sessions.begin("vera")) as vera,
            dashboard.browser() as stranger,
        ):
            there = await made_link(vera)
            original = dict(dashboard.job)
            for change, status in (
                ({"submit_time": {"number": int(NOW)}}, 404),
                ({"submit_time": {"number": int(NOW)}, "restart_cnt": 1}, 200),  # requeued
                ({"user_name": "bob"}, 404),
                ({}, 200),
            ):
                dashboard.job.clear()
                dashboard.job.update({**original, **change})
                assert (await stranger.get(there)).status_code == status, change
                problem = (await stranger.get(f"{there}/log")).json().get("problem")
                assert (problem == "There is no job 7.") is (status == 404)
                assert (await stranger.get(f"{there}/series.json")).status_code == status

    run(dashboard, work)


def test_a_site_turns_links_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch, share_seconds=0.0)

    async def work() -> None:
        async with dashboard.browser(await dashboard.site.sessions.begin("vera")) as vera:
            page = (await vera.get("/jobs/7")).text
            assert "/share" not in page
            answer = await vera.post("/jobs/7/share", data={"form_token": form_token_of(page)})
            assert answer.status_code == 400

    run(dashboard, work)


@pytest.mark.parametrize("how", ["log-out", "revoked"])
def test_the_stream_of_what_has_ended_ends_at_once(dashboard: Dashboard, how: str) -> None:
    async def work() -> None:
        sessions = dashboard.site.sessions
        word = await sessions.begin("vera")
        async with dashboard.browser(word) as vera, dashboard.browser() as other:
            there = await made_link(vera)
            page = (await vera.get("/links")).text
            token = form_token_of(page)
            picture, _ = dashboard.site._pictures["vera"]
            streaming = asyncio.create_task((vera if how == "log-out" else other).get(
                "/live" if how == "log-out" else f"{there}/live"
            ))  # fmt: skip
            await met(lambda: picture.viewers)
            assert not streaming.done()
            if how == "log-out":
                await vera.post("/logout", data={"form_token": token})
            else:
                await vera.post("/links/revoke", data={"all": "yes", "form_token": token})
            assert "event: ended" in (await streaming).text

    run(dashboard, work)


def test_a_shared_stream_tells_of_its_job_alone(dashboard: Dashboard) -> None:
    async def work() -> None:
        word = await dashboard.site.sessions.share("vera", 7, owner="vera", submitted_at=0.0, seconds=60)
        session = dashboard.site.sessions.open(word or "")

        assert session is not None
        view = cast(View, SimpleNamespace(session=session, picture=await dashboard.site.picture(session)))
        change = Change()
        change.jobs, change.topics = {1, 2}, {"jobs", "nodes"}
        assert _told(view, change) is None
        change.jobs.add(7)
        assert (_told(view, change) or {})["jobs"] == [7]
        change.jobs, change.topics = set(), {EVERY_JOB}
        assert (_told(view, change) or {})["jobs"] == [7]

    run(dashboard, work)


@pytest.mark.parametrize(
    ("run_changes", "job_changes", "same"),
    [
        ({}, {}, True),
        ({"job_id": "8"}, {}, False),
        ({}, {"name": "another", "stdout_expanded": "/home/vera/slurm-7.out"}, False),
        ({}, {"name": "another"}, True),  # its output is in the run's directory
        ({}, {"user_name": "bob"}, False),
        ({"created_at": NOW + 7 * 86_400}, {}, False),
        ({"name": "sweep-1-3", "job_id": "7_3"}, {"name": "sweep-1", "stdout_expanded": "/dev/null"}, True),
        ({}, {"name": "train", "stdout_expanded": ""}, False),  # a job named like the first part of a run's name
    ],
)
def test_a_run_belongs_to_the_job_of_its_own_cluster(
    run_changes: dict[str, Any], job_changes: dict[str, Any], same: bool
) -> None:
    """The run store has the runs of all clusters, where other jobs have the same numbers."""
    assert is_of_job({**RUN, **run_changes}, {"now": True, **JOB, **job_changes}) is same


def test_pages_do_not_join_a_run_and_a_job_of_different_clusters(dashboard: Dashboard) -> None:
    async def work() -> None:
        async with dashboard.browser(await dashboard.site.sessions.begin("vera")) as vera:
            assert 'href="/runs/train-1"' in (await vera.get("/jobs/7")).text
            assert 'href="/jobs/7"' in (await vera.get("/runs/train-1")).text
            dashboard.job.update(name="another", stdout_expanded="/home/vera/slurm-7.out")
            dashboard.site.kept.clear()
            assert "train-1/series.json" not in (await vera.get("/jobs/7")).text
            assert 'href="/jobs/7"' not in (await vera.get("/runs/train-1")).text
            problem = (await vera.get("/jobs/7/log?file=rank 0")).json()["problem"]
            assert problem == "The job's output does not go to a file."

    run(dashboard, work)
