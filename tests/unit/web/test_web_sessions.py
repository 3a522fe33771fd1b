"""The table of sessions and shared links: what is good, what is not, and what a failing disk or clock does to it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spritz.web import sessions
from spritz.web.sessions import IDLE_SECONDS, LINK_SECONDS, SESSION_SECONDS, SESSIONS_MAX, SHARES_MAX, Secret, Sessions

HOUR = 3600.0


class Clocks:
    """The machine's clock, which anyone may set, and the monotonic clock, which only passes."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_795_000_000.0, 1000.0

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(sessions, "time", made)
    return made


@asynccontextmanager
async def table(path: Path, login: str = "password") -> AsyncIterator[Sessions]:
    """The table of a dashboard that runs: leaving is the end of its process."""
    made = Sessions(path, login)
    running = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


def test_a_session_is_good_until_its_log_out_also_after_a_restart(tmp_path: Path, clocks: Clocks) -> None:
    async def work() -> None:
        path = tmp_path / "sessions.json"
        async with table(path) as first:
            word, other = await first.begin("alice"), await first.begin("alice")
            session = first.find(word)
            assert session is not None
            assert session.user == "alice"
            assert session.may_act
            assert first.find("") is first.find("nonsense") is first.find(word + "é") is None
            # A request under way still has the session when the log-out arrives, and uses it afterwards.
            assert await first.end(session) == ""
            assert first.find(word) is None
            assert not first.is_live(session)
        async with table(path) as second:
            assert second.find(word) is None
            assert second.find(other) is not None
            assert path.stat().st_mode & 0o777 == 0o600
            stolen = path.read_text()
            assert other not in stolen
            assert all(second.find(text) is None for text in json.loads(stolen)["sessions"]), "a hash opens nothing"

    run(work)


def test_log_out_everywhere_ends_the_users_sessions_and_no_others(tmp_path: Path) -> None:
    async def work() -> None:
        async with table(tmp_path / "s") as known:
            words = [await known.begin(user) for user in ("alice", "alice", "bob")]
            session = known.find(words[0])
            assert session is not None
            await known.end(session, everywhere=True)
            assert [known.find(word) is not None for word in words] == [False, False, True]

    run(work)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_session_ends_when_unused_and_at_last_in_any_case(tmp_path: Path, clocks: Clocks, restarts: bool) -> None:
    async def work() -> None:
        async with table(tmp_path / "s") as known:
            word = await known.begin("alice")
            clocks.passes(IDLE_SECONDS - 60)
            assert known.find(word) is not None
            clocks.passes(IDLE_SECONDS + 1)
            assert known.find(word) is None
            used, began = await known.begin("alice"), clocks.wall
            while clocks.wall < began + SESSION_SECONDS - IDLE_SECONDS:
                clocks.passes(IDLE_SECONDS / 2)
                assert known.find(used) is not None
                await known._save()
            if restarts:
                async with table(tmp_path / "s") as later:
                    assert later.find(used) is not None
                    clocks.passes(IDLE_SECONDS + 1)
                    assert later.find(used) is None
            for _ in range(2):
                clocks.passes(IDLE_SECONDS - 1)
                known.find(used)
            clocks.passes(2)
            assert known.find(used) is None, "at the latest a week after the log-in"

    run(work)


def test_no_step_of_the_clock_makes_a_session_longer(tmp_path: Path, clocks: Clocks) -> None:
    async def work() -> None:
        async with table(tmp_path / "s") as known:
            word = await known.begin("alice")
            share = await known.share("alice", 7, owner="alice", submitted_at=0.0, seconds=HOUR)
            assert share is not None
            clocks.wall -= 30 * 86_400
            assert known.find(word) is not None, "set back: it goes on"
            clocks.steady += HOUR + 1
            assert known.open(share) is None, "but not beyond its time by the monotonic clock"
            clocks.steady += IDLE_SECONDS
            assert known.find(word) is None
            clocks.wall += 30 * 86_400
            fresh = await known.begin("alice")
            clocks.wall += SESSION_SECONDS
            assert known.find(fresh) is None, "set forward: it is over"
        async with table(tmp_path / "s") as known:
            ahead = await known.begin("bob")
        clocks.wall -= 86_400
        async with table(tmp_path / "s") as known:
            assert known.find(ahead) is None, "of the future: how old it is cannot be known"

    run(work)


def test_a_disk_that_cannot_be_written_brings_no_ended_session_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call that writes fails once: the log-out holds at once, and after a restart."""

    async def work(name: str) -> None:
        path = tmp_path / f"{name}.json"
        async with table(path) as known:
            word = await known.begin("alice")
            session = known.find(word)
            assert session is not None
            with monkeypatch.context() as patch:

                def full(*_: object, **__: object) -> None:
                    raise OSError(28, "No space left on device")

                owner, call = (os, name) if hasattr(os, name) and name != "replace" else (Path, name)
                patch.setattr(owner, call, full)
                problem = await known.end(session)
            assert "No space left on device" in problem
            assert "logs in again" in problem
            assert known.find(word) is None
        async with table(path) as known:
            assert known.find(word) is None
            assert known.find(await known.begin("alice")) is not None, "and it goes on when there is space again"
        async with table(path) as known:
            assert len(known._sessions) == 1

    for call in ("open", "fdopen", "fsync", "replace"):
        run(lambda call=call: work(call))  # type: ignore[misc]  # the default binds the loop's variable


def test_a_disk_that_hangs_delays_a_log_out_by_a_bounded_time_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        released = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hang(path: Path, data: bytes) -> str:
            asyncio.run_coroutine_threadsafe(released.wait(), loop).result()
            return ""

        async with table(tmp_path / "s") as known:
            word = await known.begin("alice")
            session = known.find(word)
            assert session is not None
            monkeypatch.setattr(sessions, "_written", hang)
            monkeypatch.setattr(sessions, "WRITE_SECONDS", 0.05)
            assert "is not written within" in await known.end(session)
            assert known.find(word) is None
            released.set()
            monkeypatch.setattr(sessions, "WRITE_SECONDS", 50.0)
            assert await known._save() == ""

    run(work)


def test_a_read_only_directory_is_said_to_bring_sessions_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    assert "come back" in sessions._written(tmp_path / "s", b"")


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 99, "login": "password"}', '{"format": 1, "login": "local"}', "[]"]
)
def test_a_damaged_table_or_one_of_another_log_in_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)

    async def work() -> None:
        async with table(tmp_path / "s") as known:
            assert not known._sessions
            assert known.find(await known.begin("alice")) is not None

    run(work)


def test_a_user_has_a_bounded_number_of_sessions_and_links(tmp_path: Path, clocks: Clocks) -> None:
    async def work() -> None:
        async with table(tmp_path / "s") as known:
            first, bob = await known.begin("alice"), await known.begin("bob")
            for _ in range(SESSIONS_MAX):
                clocks.passes(1)
                last = await known.begin("alice")
            assert known.find(first) is None, "the one that was unused for longest has ended"
            assert known.find(last) is not None
            assert known.find(bob) is not None

            async def share() -> str | None:
                return await known.share("alice", 7, owner="alice", submitted_at=0.0, seconds=HOUR)

            made = [await share() for _ in range(SHARES_MAX + 1)]
            assert made[-1] is None
            assert None not in made[:-1]
            clocks.passes(HOUR)
            assert await share() is not None

    run(work)


def test_a_shared_link_looks_until_it_is_revoked_or_expires_also_after_a_restart(
    tmp_path: Path, clocks: Clocks
) -> None:
    async def work() -> None:
        path = tmp_path / "s"
        async with table(path) as known:
            words = [await known.share("alice", job, owner="bob", submitted_at=5.0, seconds=HOUR) for job in (7, 8, 9)]
            opened = known.open(words[0] or "")
            assert opened is not None
            assert opened.share is not None
            assert (opened.user, opened.share.job, opened.may_act) == ("alice", 7, False)
            assert known.find(words[0] or "") is None, "it is no session"
            assert sorted(share.job for share in known.shares_of("alice")) == [7, 8, 9]
            assert known.shares_of("bob") == []
            assert await known.revoke("bob", opened.share.id) == (0, "")
            assert await known.revoke("alice", opened.share.id) == (1, "")
            assert not known.is_live(opened)
        async with table(path) as known:
            assert [known.open(word or "") is not None for word in words] == [False, True, True]
            clocks.passes(HOUR)
            assert [known.open(word or "") is not None for word in words] == [False, False, False]

    run(work)


def test_a_login_link_works_once_also_after_a_restart(tmp_path: Path, clocks: Clocks) -> None:
    async def work() -> None:
        secret = Secret(b"k" * 32)
        link = secret.link()
        ends_at = secret.link_end(link)
        assert ends_at == clocks.wall + LINK_SECONDS
        assert secret.link_end(link + "0") is secret.link_end("é") is Secret(b"other" * 8).link_end(link) is None
        async with table(tmp_path / "s", "local") as known:
            assert await known.use_once(link, ends_at)
        async with table(tmp_path / "s", "local") as known:
            assert not await known.use_once(link, ends_at)
            clocks.passes(LINK_SECONDS)
            assert secret.link_end(link) is None
            await known.begin()
            known._prune()
            assert not known._links

    run(work)


def test_a_form_token_belongs_to_its_session() -> None:
    secret = Secret(b"k" * 32)
    mine, other = sessions.Session(id="1"), sessions.Session(id="2")
    assert secret.is_form_token(mine, secret.form_token(mine))
    assert not secret.is_form_token(mine, secret.form_token(other))
    assert not secret.is_form_token(mine, "")
    assert not secret.is_form_token(mine, "ä\ud800")


def test_a_sealed_text_is_good_for_its_purpose_until_it_ends() -> None:
    secret = Secret(b"k" * 32)
    text = secret.seal("oidc", nonce="n", ends_at=time.time() + 60)
    assert (secret.open("oidc", text) or {})["nonce"] == "n"
    for bad in (text[:-2], text.replace(".", ".é"), f"é{text}", "", ".", "\ud800."):
        assert secret.open("oidc", bad) is None
    assert secret.open("session", text) is None
    assert secret.open("oidc", secret.seal("oidc", ends_at=time.time() - 1)) is None


def test_two_dashboards_of_one_host_have_cookies_of_different_names() -> None:
    one, other = Secret(b"1" * 32), Secret(b"2" * 32)
    assert one.cookie_name("session", secure=False) != other.cookie_name("session", secure=False)
    assert one.cookie_name("session", secure=False) != one.cookie_name("login", secure=False)
    assert one.cookie_name("session", secure=True).startswith("__Host-"), "no neighbour in the domain can set it"


def test_the_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = Secret.of_file(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert Secret.of_file(path).link_end(first.link()) is not None


@pytest.mark.parametrize("left", [b"", b"short"])
def test_a_key_whose_writing_was_cut_short_is_replaced(tmp_path: Path, left: bytes) -> None:
    """Anybody could sign with an empty key."""
    path = tmp_path / "secret"
    path.write_bytes(left)
    secret = Secret.of_file(path)
    assert secret.link_end(Secret(left).link()) is None
    assert len(path.read_bytes()) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
    assert Secret.of_file(path).link_end(secret.link()) is not None
