"""GET and HEAD change nothing, except for two GETs that Slurm's documents have: their HEAD is refused."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote_from_bytes, unquote

import pytest
from msgspec import Struct
from starlette.applications import Starlette
from starlette.routing import Route

from spritz.model.errors import SpritzError
from spritz.presentation.json.documents import VERSIONS
from spritz.presentation.json.documents import operations as operations_of
from spritz.rest import daemons
from spritz.rest.app import Settings, application
from spritz.rest.daemons import Daemons
from spritz.rest.events import Events, event_routes
from spritz.rest.external import external_routes
from spritz.rest.joining import joining_routes
from spritz.rest.operations import CHANGING_GETS, TABLE
from spritz.rest.picture import picture_routes
from spritz.runtime.clock import SystemClock

#: Instances of cloud providers: there are none.
_ASKS_NONE = ("GET /slurmdb/instances", "GET /slurmdb/instance")

_AUTHENTICATION = ("rest_auth/local", "rest_auth/jwt")


class _Log:
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def error(self, name: str, *, exception: Exception, **_: Any) -> None:
        self.errors.append(exception)


class _Daemons(Daemons):
    """Notes which requests are sent, and answers none."""

    def __init__(self) -> None:
        super().__init__("slurm.conf", log=None, tasks=None, clock=None)  # type: ignore[arg-type]
        self.sent: list[Struct] = []

    cluster = "c"
    accounting_type = "slurmdbd"

    async def channel(self, daemon: str, caller: object) -> Any:
        return self

    connect = channel

    async def call(self, request: Struct, reply: object, timeout: float = 0.0) -> Any:
        self.sent.append(request)
        raise SpritzError("none answers", code="ESLURM_INTERNAL")

    async def stream(self, request: Struct, item: object) -> AsyncGenerator[Any, None]:
        yield await self.call(request, item)

    def close(self) -> None:
        pass


class Served:
    """slurmrestd with all its routes, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.daemons, self.log = _Daemons(), _Log()
        log: Any = self.log
        monkeypatch.setattr(
            "spritz.rest.operations.cluster.locate_controller",
            lambda path: SimpleNamespace(has_standby=False, hosts=("h",), names=("h",), cluster_name="c"),
        )
        monkeypatch.setattr(
            "spritz.rest.operations.cluster.locate_database", lambda path: SimpleNamespace(host="h", kind="slurmdbd")
        )
        clock = SystemClock()
        self.events = Events(self.daemons, clock, log, tasks=None)  # type: ignore[arg-type]
        self.own_routes: list[Any] = [
            *event_routes(self.events, _AUTHENTICATION),
            *external_routes(self.daemons, _AUTHENTICATION),
            *joining_routes(self.daemons, _AUTHENTICATION),
            *picture_routes(self.daemons, _AUTHENTICATION, log),
        ]
        settings = Settings(authentication=_AUTHENTICATION)
        self.app: Starlette = application(self.daemons, settings, clock, log, routes=self.own_routes)

    async def ask(
        self, method: str, path: str, *headers: tuple[bytes, bytes], query: bytes = b"", body: bytes = b""
    ) -> int:
        """The status of a request of slurmrestd's own user."""
        status = 0

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)

        peer = SimpleNamespace(uid=os.geteuid(), pid=1)
        scope = {
            "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(),
            "query_string": query, "headers": list(headers), "client": ("h", 1), "server": ("h", 80), "scheme": "http",
            "http_version": "1.1", "root_path": "", "state": {"peer": peer},
        }  # fmt: skip
        await self.app(scope, receive, send)  # type: ignore[arg-type]
        return status


def filled(path: str) -> str:
    return "/".join("7" if word.startswith("{") else word for word in path.split("/"))


def documented_gets() -> list[tuple[str, str]]:
    """(key, path) of every GET of every version."""
    return [
        (operation.key, operation.path)
        for version in VERSIONS
        for operation in operations_of(version)
        if operation.method == "GET"
    ]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    return Served(monkeypatch)


def test_the_gets_that_change_something_are_those_of_the_documents_that_are_listed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each GET runs without the check of what it sends: what it sends says whether it changes something."""
    monkeypatch.setattr(daemons.Daemon, "_check_kind", lambda self, request: None)

    async def ask() -> None:
        for key, path in documented_gets():
            served.daemons.sent.clear()
            await served.ask("GET", filled(path))
            sent = served.daemons.sent
            assert sent or key in _ASKS_NONE, f"{key} asks no daemon: this test does not see what it does"
            assert all(map(daemons.only_reads, sent)) is (key not in CHANGING_GETS), (key, sent)

    asyncio.run(ask())
    assert {key for key, _ in documented_gets()} >= CHANGING_GETS
    assert set(TABLE) >= CHANGING_GETS


def test_a_head_of_every_path_sends_nothing_that_changes(served: Served) -> None:
    async def ask() -> None:
        for key, path in documented_gets():
            served.daemons.sent.clear()
            status = await served.ask("HEAD", filled(path))
            assert (status == 405) is (key in CHANGING_GETS), key
            assert not served.daemons.sent or key not in CHANGING_GETS
            assert all(map(daemons.only_reads, served.daemons.sent)), key

    asyncio.run(ask())


def test_the_own_routes_that_answer_get_and_head_change_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons.Daemon, "_check_kind", lambda self, request: None)
    opened: list[object] = []

    async def no_feed(self: Events, caller: object) -> Any:
        opened.append(caller)
        raise SpritzError("none answers", code="ESLURM_INTERNAL")

    monkeypatch.setattr(Events, "open", no_feed)

    async def ask() -> None:
        for route in served.own_routes:
            assert isinstance(route, Route)
            assert "GET" not in (route.methods or ()) or route.methods == {"GET", "HEAD"}, "no GET beside a change"
            for method in ("GET", "HEAD"):
                await served.ask(method, filled(route.path))
        assert served.daemons.sent
        assert all(map(daemons.only_reads, served.daemons.sent)), served.daemons.sent
        assert len(opened) == 1, "a HEAD opens no stream"

    asyncio.run(ask())


def test_a_get_that_would_send_a_change_is_stopped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def changing(ask: Any) -> Any:
        return await TABLE["GET /slurm/reconfigure"](ask)

    monkeypatch.setitem(TABLE, "GET /slurm/licenses", changing)

    async def ask() -> None:
        assert await served.ask("GET", "/slurm/v0.0.45/licenses") == 500
        assert await served.ask("GET", "/slurm/v0.0.45/reconfigure") == 500

    asyncio.run(ask())
    assert [type(request).__name__ for request in served.daemons.sent] == ["Reconfigure"], "the one that may"
    assert [type(error) for error in served.log.errors] == [daemons.Changes]


_ODD = (
    b"\xe9", b"\xff\xfe", b"\x00", b"a\x00b", b"\n", "\u0663".encode(), b"\xed\xa0\x80", b"%", b"%zz", b"9" * 25,
    b"9" * 5000, b"-1", b"1e9", b"..", b"[", b"[1-", b"7_[", b"7_[0-99999999999]", b",", b"{", b"W/\"zz\"", b"a" * 3000,
)  # fmt: skip

_HEADERS = (
    b"x-slurm-user-token", b"x-slurm-user-name", b"authorization", b"if-none-match", b"idempotency-key", b"accept",
    b"content-type", b"content-length", b"last-event-id", b"cookie",
)  # fmt: skip

_QUERIES = (
    b"ids", b"fields", b"states", b"names", b"since", b"types", b"job_id", b"heartbeat", b"others", b"update_time",
    b"start_time", b"users", b"step", b"node", b"account", b"flags",
)  # fmt: skip


def test_no_bytes_are_an_internal_error(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a header, a query, a path or a body; which of them get which is drawn anew each time."""
    chance = random.Random()

    async def no_feed(self: Events, caller: object) -> Any:
        raise SpritzError("none answers", code="ESLURM_INVALID_JOB_ID")

    monkeypatch.setattr(Events, "open", no_feed)
    paths = [(operation.method, operation.path) for version in VERSIONS for operation in operations_of(version)]
    paths += [(method, route.path) for route in served.own_routes for method in route.methods if method != "HEAD"]

    async def ask() -> None:
        for method, path in paths:
            there, odd = filled(path), chance.choice(_ODD)
            in_path = "/".join(
                quote_from_bytes(odd, safe="") if word.startswith("{") else word for word in path.split("/")
            )
            name, value = chance.choice(_HEADERS), chance.choice(_ODD).replace(b"\n", b"")
            query = chance.choice(_QUERIES) + b"=" + quote_from_bytes(chance.choice(_ODD)).encode()
            for status in (
                await served.ask(method, there, (name, value)),
                await served.ask(method, there, query=query),
                await served.ask(method, in_path),
                await served.ask(method, there, body=chance.choice(_ODD)),
            ):
                assert status, (method, path, odd, name, value, query)
            assert not served.log.errors, (method, path, odd, name, value, query, served.log.errors)

    asyncio.run(ask())
