"""Every route of the dashboard for everyone who may ask: an answer that the table does not name fails."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from spritz.web.login import Login, OidcLogin, Provider
from spritz.web.sessions import Secret
from tests.unit.web.dashboard import Dashboard

#: Who asks: without a session; with the cookie of one that has ended; with a shared link of job 7, its secret also as a
#: cookie; and three people who are logged in.
KINDS = ("none", "ended", "shared", "viewer", "operator", "admin")

_LOGIN, _NO = "to the login", "401"


def page(own: str = "200") -> tuple[str, ...]:
    """A page for those who are logged in."""
    return _LOGIN, _LOGIN, _LOGIN, own, own, own


def act(viewer: str, operator: str = "", admin: str = "") -> tuple[str, ...]:
    """An action: by no one without a session."""
    return _NO, _NO, _NO, viewer, operator or viewer, admin or operator or viewer


def shared(answer: str = "200") -> tuple[str, ...]:
    """Part of a shared page: for those who have the link, whoever they are."""
    return "404", "404", answer, "404", "404", "404"


def all_of(answer: str) -> tuple[str, ...]:
    return (answer,) * 6


#: (method, path) -> the answer for each of KINDS.
TABLE: dict[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/healthz"): all_of("200"),
    ("GET", "/login"): ("200", "200", "200", "303 /", "303 /", "303 /"),
    ("POST", "/login"): all_of("403"),
    ("POST", "/logout"): act("303 /login"),
    ("GET", "/links"): page(),
    ("POST", "/links/revoke"): act("done", "refused"),  # the links are the viewer's
    ("POST", "/jobs/{job:number}/share"): act("200"),
    ("GET", "/shared/{word}"): shared(),
    ("GET", "/shared/{word}/log"): shared(),
    ("GET", "/shared/{word}/log/find"): shared(),
    ("GET", "/shared/{word}/series.json"): shared(),
    ("GET", "/shared/{word}/live"): shared(),
    ("GET", "/live"): page(),
    ("GET", "/"): page(),
    ("GET", "/grid.json"): page(),
    ("GET", "/queue"): page(),
    ("GET", "/history"): page(),
    ("GET", "/timeline"): page(),
    ("GET", "/jobs/{job:number}"): page(),
    ("GET", "/jobs/{job:number}/log"): page(),
    ("GET", "/jobs/{job:number}/log/find"): page(),
    ("GET", "/jobs/{job:number}/explain"): page(),
    ("GET", "/jobs/{job:number}/series.json"): page(),
    ("GET", "/jobs/{job:number}/resubmit"): page(),
    ("GET", "/nodes"): page(),
    ("GET", "/nodes/{name}"): page(),
    ("GET", "/partitions"): page(),
    ("GET", "/partitions/{name}"): page(),
    ("GET", "/reservations"): page(),
    ("GET", "/topology"): page(),
    ("GET", "/usage"): page(),
    ("GET", "/usage/past"): page(),
    ("GET", "/usage/series.json"): page(),
    ("GET", "/health"): page(),
    ("GET", "/runs"): page(),
    ("GET", "/runs/compare"): page(),
    ("GET", "/runs/compare.json"): page(),
    ("GET", "/runs/{name}"): page(),
    ("GET", "/runs/{name}/series.json"): page(),
    ("GET", "/runs/{name}/diff"): page(),
    ("GET", "/runs/{name}/files"): page(),
    ("GET", "/runs/{name}/file"): page("404"),
    ("GET", "/sweeps"): page(),
    ("GET", "/sweeps/{name}"): page(),
    ("GET", "/pipelines"): page(),
    ("GET", "/pipelines/{name}"): page(),
    ("GET", "/submit"): page(),
    ("POST", "/submit"): act("done"),
    ("POST", "/runs/{name}/act"): act("done"),
    ("POST", "/jobs/act"): act("done"),
    ("POST", "/jobs/{job:number}/update"): act("done"),
    ("POST", "/nodes/act"): act("refused", "done"),
    ("POST", "/reservations/create"): act("refused", "done"),
    ("POST", "/reservations/change"): act("refused", "done"),
    ("POST", "/reservations/delete"): act("refused", "done"),
}

#: Forms that do something.
FORMS: dict[str, dict[str, str]] = {
    "/login": {"user": "vera", "password": "wrong"},
    "/links/revoke": {"all": "yes"},
    "/jobs/act": {"verb": "cancel", "job": "7"},
    "/jobs/{job:number}/update": {"time_limit": "9"},
    "/nodes/act": {"verb": "drain", "node": "n1", "reason": "fan"},
    "/reservations/create": {"name": "r", "users": "vera"},
    "/reservations/change": {"name": "r", "duration": "9"},
    "/reservations/delete": {"name": "r"},
    "/submit": {"verb": "submit", "script": "#!/bin/sh\n"},
    "/runs/{name}/act": {"verb": "pause"},
}

_NAMES = {"/nodes": "n1", "/partitions": "main", "/runs": "train-1", "/sweeps": "s", "/pipelines": "p"}


def address(path: str, word: str) -> str:
    name = _NAMES.get("/" + path.split("/")[1], "")
    filled = path.replace("{job:number}", "7").replace("{word}", word).replace("{name}", name)
    return filled + ("?run=train-1&run=other-1" if "compare" in path else "")


def told(answer: httpx.Response) -> str:
    """An answer in the words of the table."""
    if "hx-trigger" in answer.headers:
        return "done" if json.loads(answer.headers["hx-trigger"])["notice"]["kind"] == "good" else "refused"
    if answer.status_code == 303:
        there = answer.headers["location"]
        return _LOGIN if there.startswith("/login?next=") else f"303 {there}"
    return str(answer.status_code)


class People:
    """Everyone of KINDS, for a dashboard that serves."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.words: dict[str, str] = {"none": ""}

    async def come(self) -> None:
        sessions = self.dashboard.site.sessions
        for kind, user in (("viewer", "vera"), ("operator", "oscar"), ("admin", "ada"), ("ended", "vera")):
            self.words[kind] = await sessions.begin(user)
        ended = sessions.find(self.words["ended"])
        assert ended is not None
        await sessions.end(ended)
        share = await sessions.share(
            "vera", 7, owner="vera", submitted_at=self.dashboard.job["submit_time"]["number"], seconds=60
        )
        assert share is not None
        self.words["shared"] = share

    async def ask(self, kind: str, method: str, path: str) -> httpx.Response:
        word = self.words[kind]
        there = address(path, word if kind == "shared" else "x" * 43)
        headers = {"accept": "text/html"}
        if method == "POST":
            headers |= {"hx-request": "true", "x-form-token": self.dashboard.form_token(word)}
            if path in ("/logout", "/jobs/{job:number}/share"):
                del headers["hx-request"]
        async with self.dashboard.browser(word, **headers) as browser:
            return await browser.request(method, there, data=FORMS.get(path) if method == "POST" else None)


def served(dashboard: Dashboard) -> set[tuple[str, str]]:
    """The routes as (method, path)."""
    return {(method, route.path) for route in dashboard.routes for method in (route.methods or ()) if method != "HEAD"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_route_answers_everyone_as_the_table_says(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch)
    assert served(dashboard) == set(TABLE), "a new route needs a row in the table"

    async def all_routes() -> dict[tuple[str, str], str]:
        found = {}
        async with dashboard.serving():
            people = People(dashboard)
            dashboard.site.stopping.set()  # event streams end after their first line
            await people.come()
            for method, path in TABLE:
                found[method, path] = told(await people.ask(kind, method, path))
                if method == "POST":  # it may have ended sessions
                    await people.come()
        return found

    found = asyncio.run(all_routes())
    assert found == {route: row[KINDS.index(kind)] for route, row in TABLE.items()}
    if kind in ("none", "ended", "shared"):
        assert not dashboard.acts


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_no_get_and_no_head_changes_anything(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the cluster nor the dashboard: sessions, links. (A page that is looked at is sampled more often.)"""
    dashboard = Dashboard(tmp_path, monkeypatch)

    def state() -> object:
        sessions = dashboard.site.sessions
        return sorted(sessions._sessions), sorted(sessions._shares), sorted(sessions._links), list(dashboard.acts)

    async def all_routes() -> None:
        async with dashboard.serving():
            people = People(dashboard)
            await people.come()
            dashboard.site.stopping.set()
            before = state()
            for asked, path in TABLE:
                if asked == "GET":
                    for kind in KINDS:
                        answer = await people.ask(kind, method, path)
                        assert answer.status_code < 500, (path, kind, answer.text)
                        assert "set-cookie" not in answer.headers, path
                        assert state() == before, (path, kind)
            async with dashboard.browser(people.words["viewer"]) as browser:
                link = dashboard.site.secret.link()
                await browser.request(method, f"/login?link={link}")
                assert state() == before

    asyncio.run(all_routes())
    if method == "HEAD":
        assert not dashboard.site.recorder.watched  # type: ignore[attr-defined]  # the fake's


def test_the_provider_adds_its_two_routes_and_head_leaves_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way back from the provider is the one GET with an effect: OpenID Connect makes it so."""
    login = OidcLogin("true", Provider(issuer="http://127.0.0.1:9", client_id="us"), Secret(b"k" * 32))
    dashboard = Dashboard(tmp_path, monkeypatch, login)
    assert served(dashboard) - set(TABLE) == {("GET", "/login/oidc"), ("GET", "/login/back")}

    async def ask() -> None:
        async with dashboard.serving(), dashboard.browser() as browser:
            assert (await browser.head("/login/back?state=1&code=2")).status_code == 200
            assert (await browser.get("/login/back?state=1&code=2")).status_code == 403
            assert (await browser.get("/login/oidc")).status_code == 502, "no provider answers"

    asyncio.run(ask())


def test_a_login_link_works_once_by_its_button_and_only_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch, Login())

    async def enter() -> None:
        link = dashboard.site.secret.link()
        async with dashboard.serving(), dashboard.browser() as browser, dashboard.browser() as other:
            looked_at = await other.get(f"/login?link={link}")
            assert "data-now" in looked_at.text, "a browser with a person before it presses the button itself"
            page_of_other_site = await other.get(f"/login?link={link}", headers={"sec-fetch-site": "cross-site"})
            assert "data-now" not in page_of_other_site.text, "no other site may log its visitor in"
            for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://evil.example"}, {"origin": "null"}):
                forged = await other.post("/login", data={"link": link}, headers=headers)
                assert forged.status_code == 403
            entered = await browser.post("/login", data={"link": link, "next": "/queue"})
            assert (entered.status_code, entered.headers["location"]) == (303, "/queue")
            assert (await browser.get("/queue")).status_code == 200
            assert (await browser.get(f"/login?link={dashboard.site.secret.link()}")).status_code == 303
            assert (await other.post("/login", data={"link": link})).status_code == 403
            assert (await other.post("/login", data={"link": link + "é"})).status_code == 403

    asyncio.run(enter())
