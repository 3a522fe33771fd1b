"""Whose process works for a viewer, and why none does."""

from __future__ import annotations

import asyncio
import os
import pwd
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.http.rest import RestError
from spritz.web import reading, users

NAME = pwd.getpwuid(os.geteuid()).pw_name


def view(user: str, *, own_files: bool = False) -> Any:
    settings = SimpleNamespace(own_files=own_files)
    site = SimpleNamespace(settings=settings, readers=users.Readers())
    return SimpleNamespace(site=site, session=SimpleNamespace(user=user))


def why_not(user: str) -> str:
    with pytest.raises(RestError) as caught:
        asyncio.run(users.account(view(user)))
    return caught.value.message


def test_the_dashboard_acts_for_its_own_user_but_not_for_users_unknown_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(users.account(view("", own_files=True))) is None
    assert asyncio.run(users.account(view(NAME))) is None
    assert "There is no user no-such-user" in why_not("no-such-user")
    monkeypatch.setattr(os, "geteuid", lambda: 54_321)
    assert why_not("daemon").startswith("This dashboard runs as 54321, neither as root nor as daemon")


def test_a_reader_answers_as_its_user_and_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    entry = pwd.getpwnam(NAME)
    mine = users.Account(name=NAME, uid=entry.pw_uid, gid=entry.pw_gid, groups=(), home="/")

    class Mine(users.Account, frozen=True):
        """Ourselves: who is not root may not even name its own groups."""

        @property
        def process(self) -> dict[str, Any]:
            return {}

    me = Mine(name=mine.name, uid=mine.uid, gid=mine.gid, groups=(), home="/")

    async def ask() -> None:
        readers = users.Readers()
        assert (await readers.ask(me, ["read", str(path)]))["text"] == "one\ntwo\n"
        both = await asyncio.gather(*(readers.ask(me, ["search", str(path), word]) for word in ("one", "two")))
        assert [[line for _, line in one["lines"]] for one in both] == [["one"], ["two"]]
        with pytest.raises(RestError, match="its process ended"):
            await readers.ask(me, ["no such question"])
        assert (await readers.ask(me, ["read", str(path)]))["text"] == "one\ntwo\n", "another process answers"
        await readers.end()

    asyncio.run(ask())
    assert reading.ranks(str(tmp_path / "none")) == []
