"""Odd bytes and numbers in every place of a request, on every route: refusals, and never an internal error."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote

import pytest

from spritz.web import commands
from tests.unit.web.dashboard import Dashboard
from tests.unit.web.test_web_routes import FORMS, TABLE, address

ODD = (
    b"", b"\xe9", b"\xff\xfe", b"\x00", b"a\x00b", b"\n", b"\r\nx: y", "\u0663".encode(), b"\xed\xa0\x80", b"%",
    b"%zz", b"9" * 25, b"9" * 5000, b"-1", b"0x7", b"1e9", b"..", b"../x", b"//x", b"a b", b"\\", b"'\"<>", b"--help",
    b"[", b"[1-", b"?x#y", b";", b"=", "\u202e\U0001f600".encode(), b"a" * 3000,
)  # fmt: skip

QUERIES = (
    "q", "page", "sort", "dir", "state", "user", "partition", "account", "reason", "node", "days", "span", "colour",
    "from", "before", "file", "path", "over", "condition", "tag", "group", "branch", "metric", "to", "run", "next",
    "link",
)  # fmt: skip

FIELDS = (
    "verb", "job", "node", "reason", "name", "users", "node_list", "node_count", "duration", "start_time", "time_limit",
    "nice", "partition", "script", "more", "directory", "id", "user", "password", "next", "link", "form_token",
)  # fmt: skip

HEADERS = (
    "cookie", "x-form-token", "hx-request", "hx-history-restore-request", "accept", "if-none-match", "referer",
    "origin", "sec-fetch-site", "x-forwarded-for", "x-remote-user", "content-type", "host",
)  # fmt: skip


async def asked(
    dashboard: Dashboard, method: str, path: str, query: bytes = b"", headers: dict[str, bytes] | None = None,
    body: bytes = b"",
) -> int:  # fmt: skip
    """The status of a request, whose bytes reach the application as uvicorn passes them on."""
    status, has_body = 0, True

    async def receive() -> dict[str, object]:
        nonlocal has_body
        if not has_body:
            await asyncio.Event().wait()
        has_body = False
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, object]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = int(str(message["status"]))
            for name, value in message["headers"]:  # type: ignore[attr-defined]
                assert b"\n" not in name + value
                assert b"\r" not in name + value

    given = {"host": b"localhost", **(headers or {})}
    scope = {
        "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "query_string": query,
        "headers": [(name.encode(), value) for name, value in given.items()], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80), "scheme": "http", "http_version": "1.1", "root_path": "", "state": {},
    }  # fmt: skip
    await dashboard.app(scope, receive, send)  # type: ignore[arg-type]
    return status


@pytest.mark.parametrize("is_in", [True, False], ids=["logged in", "stranger"])
def test_no_bytes_are_an_internal_error(is_in: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_run = commands.run
    dashboard = Dashboard(tmp_path, monkeypatch)
    # Real processes are started, so that what the kernel refuses is refused.
    monkeypatch.setattr(commands, "run", real_run)
    monkeypatch.setattr(commands, "path_of", lambda name: "/bin/true")
    monkeypatch.setattr(dashboard.site.rates, "allow", lambda caller: True)
    chance = random.Random()

    async def all_of_it() -> None:
        async with dashboard.serving():
            dashboard.site.stopping.set()
            for method, path in TABLE:
                # Each place gets some of the values; which, is drawn anew each time.
                for place, names in (("query", QUERIES), ("header", HEADERS), ("form", FIELDS), ("path", ("",))):
                    if (method == "POST") is (place == "query"):
                        continue
                    for name in names if place == "path" else chance.sample(names, 4):
                        odd = chance.choice(ODD)
                        for value in ODD if place == "path" else (odd,):
                            word = await dashboard.site.sessions.begin("ada") if is_in else ""
                            headers = {
                                "cookie": f"{dashboard.site.cookie}={word}".encode(),
                                "x-form-token": dashboard.form_token(word).encode(),
                            }
                            there, query, body = address(path, "x"), b"", b""
                            if place == "query":
                                query = f"{name}={quote_from_bytes(value)}".encode()
                            elif place == "header":
                                headers[name] = headers.get("cookie", b"") + value if name == "cookie" else value
                            elif place == "form":
                                fields = {**FORMS.get(path, {}), name: quote_from_bytes(value)}
                                body = "&".join(f"{key}={text}" for key, text in fields.items()).encode()
                            else:
                                there = path
                                for parameter in ("{job:number}", "{name}", "{word}"):
                                    there = there.replace(parameter, quote_from_bytes(value, safe=""))
                            status = await asked(dashboard, method, there, query, headers, body)
                            assert status not in (0, 500), (method, path, place, name, value)

    asyncio.run(all_of_it())


def test_a_form_with_too_many_fields_or_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch)

    async def ask() -> None:
        async with dashboard.serving():
            word = await dashboard.site.sessions.begin("ada")
            headers = {"cookie": f"{dashboard.site.cookie}={word}".encode()}
            for body in (b"a&" * 20_000, b"x" * (13 * 1024 * 1024)):
                assert await asked(dashboard, "POST", "/submit", b"", headers, body) == 413

    asyncio.run(ask())
