"""Who is logged in: a table of sessions, shared links and used login links, in a file of the dashboard's directory.

A cookie and a shared link are random texts that mean nothing by themselves. The table has only their hashes, so a copy
of the file opens no session. What is not in the table does not exist: log-out and revocation hold at once, for requests
under way, and after a restart.

A session ends some time after its last use, and at the latest some time after its log-in. Both are measured with two
clocks, and the one that has gone further decides: no step of the clock makes a session longer.

A table that cannot be written is removed, because an old one would bring ended sessions back at the next start. Users
then log in again after a restart.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import logging
import os
import secrets
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from spritz.timeouts import within

_log = logging.getLogger("spritz.web")

#: Lifetimes in seconds: of a login link; of a session after its last use, and after its log-in.
LINK_SECONDS, IDLE_SECONDS, SESSION_SECONDS = 600, 12 * 3600, 7 * 86_400

#: Lifetime of a shared link in seconds, unless the site sets another.
SHARE_SECONDS = 86_400.0

#: Most sessions and shared links of a user: a further session ends the one that was unused for longest.
SESSIONS_MAX, SHARES_MAX = 50, 100

#: Seconds by which the use of a session in the file may be behind, and between two looks at the table.
USE_SECONDS, LOOK_SECONDS = 300.0, 60.0

#: Seconds for which a request waits until the file is written.
WRITE_SECONDS = 5.0

#: Seconds by which a stored time may be ahead of the clock: it may have been set back a little.
AHEAD_SECONDS = 120.0

#: Format of the file.
FORMAT = 1


#: Least bytes of a key.
_KEY_BYTES = 32


class Share(Struct, frozen=True, kw_only=True):
    """A shared link: anyone who has it may look at one job, with the rights of `user`."""

    #: names the link in lists; it does not open it
    id: str
    user: str
    job: int
    #: owner and submission of the job, since a later job may have the same number
    owner: str
    submitted_at: float
    made_at: float
    ends_at: float


class Session(Struct, frozen=True, kw_only=True):
    """A viewer. `user`: "" means the user that started the dashboard. `share`: the link by which the viewer came."""

    id: str
    user: str = ""
    share: Share | None = None

    @property
    def may_act(self) -> bool:
        """Whether the session may make changes; shared links may not."""
        return self.share is None


class Secret:
    """Signs values with a key, and verifies them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of_file(cls, path: Path) -> Secret:
        """The secret of a file, which is created if necessary. Raises OSError.

        Anybody could sign with an empty key, so a file whose writing was cut short is replaced.
        """
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            key = b""
        if len(key) >= _KEY_BYTES:
            return cls(key)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            if key or path.exists():
                new.replace(path)
            else:
                with contextlib.suppress(FileExistsError):  # of two that make it at once, the first one's stays
                    os.link(new, path)
        finally:
            new.unlink(missing_ok=True)
        return cls(path.read_bytes())

    def _sign(self, purpose: str, data: bytes) -> str:
        return hmac.new(self._key, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest()

    def seal(self, purpose: str, **values: Any) -> str:
        """Signed text for a cookie or address; `open` reads it."""
        data = base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).rstrip(b"=")
        return f"{data.decode()}.{self._sign(purpose, data)}"

    def open(self, purpose: str, text: str) -> dict[str, Any] | None:
        """The values of a sealed text; None if it is forged, for another purpose, or expired."""
        data, _, signature = text.partition(".")
        if not _same(self._sign(purpose, _bytes(data)), signature):
            return None
        values: dict[str, Any] = json.loads(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)))
        return values if values.get("ends_at", 0) > time.time() else None

    def link(self) -> str:
        """The secret part of a login link; short, because terminals break long addresses."""
        data = f"{int(time.time()) + LINK_SECONDS:x}-{secrets.token_hex(8)}"
        return f"{data}-{self.name_of('link', data)}"

    def link_end(self, text: str) -> float | None:
        """When the login link expires; None if it is forged or has expired."""
        data, _, signature = text.rpartition("-")
        if not _same(self.name_of("link", data), signature):
            return None
        ends_at = int(data.partition("-")[0], 16)
        return ends_at if ends_at > time.time() else None

    def form_token(self, session: Session) -> str:
        """The token that the session's forms must contain, so that forms of other sites are refused (CSRF)."""
        return self._sign("form", session.id.encode())

    def is_form_token(self, session: Session, text: str) -> bool:
        """Whether the text is the session's form token."""
        return _same(self.form_token(session), text)

    def name_of(self, purpose: str, text: str) -> str:
        """A keyed hash of `text`, which does not reveal it."""
        return self._sign(purpose, _bytes(text))[:32]

    def cookie_name(self, purpose: str, *, secure: bool) -> str:
        """The name of a cookie of this dashboard. Cookies ignore ports, so each dashboard of a host needs its own.

        Browsers take a name with `__Host-` only over HTTPS and from this very host, not from a neighbour in its domain.
        """
        return f"{'__Host-' if secure else ''}spritz-{purpose}-{self.name_of('cookie', purpose)[:8]}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _same(expected: str, given: str) -> bool:
    """Compare in constant time, whatever characters were given."""
    return hmac.compare_digest(expected.encode(), _bytes(given))


def _hash(word: str) -> str:
    return hashlib.sha256(_bytes(word)).hexdigest()


class _Entry(Struct):
    """A session in the file: seconds since the epoch."""

    user: str
    began_at: float
    used_at: float


class _Stored(Struct):
    """The file. `login`: the kind of log-in by which the sessions began. `links`: used login links with their ends."""

    format: int
    login: str
    sessions: dict[str, _Entry] = {}
    shares: dict[str, Share] = {}
    links: dict[str, float] = {}


class _Age:
    """The age of something in seconds, by the clock and by the monotonic clock: the larger of both."""

    def __init__(self, at: float) -> None:
        self._at = at
        self._monotonic = time.monotonic() - max(0.0, time.time() - at)

    def __call__(self) -> float:
        return max(time.time() - self._at, time.monotonic() - self._monotonic)


class _Live:
    """A session of the table."""

    def __init__(self, entry: _Entry) -> None:
        self.entry = entry
        self.age, self.idle = _Age(entry.began_at), _Age(entry.used_at)
        self.stored_use = entry.used_at

    def use(self) -> None:
        self.entry.used_at = time.time()
        self.idle = _Age(self.entry.used_at)

    @property
    def is_over(self) -> bool:
        return self.age() >= SESSION_SECONDS or self.idle() >= IDLE_SECONDS


class Sessions:
    """The table, in memory and in the file `path`. `run` must be running: it writes the file."""

    def __init__(self, path: Path, login: str) -> None:
        """Reads the file. One that is damaged, of another format or of another kind of log-in counts as empty."""
        self._path = path
        self._login = login
        self._sessions: dict[str, _Live] = {}
        self._shares: dict[str, tuple[Share, _Age]] = {}
        self._links: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._version = self._written = 0
        self._done = asyncio.Event()
        #: why the file cannot be written; "" while it can
        self.problem = ""
        self._load()

    def _load(self) -> None:
        try:
            stored = msgspec.json.decode(self._path.read_bytes(), type=_Stored)
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("sessions.unreadable %s: %s; everyone logs in again", self._path, error)
            return
        if stored.format != FORMAT or stored.login != self._login:
            _log.warning("sessions.dropped %s is of another format or kind of log-in", self._path)
            return
        latest = time.time() + AHEAD_SECONDS
        for name, entry in stored.sessions.items():
            # A time that is still to come says that the clock was set back: the session's age is not known.
            if entry.began_at <= entry.used_at + AHEAD_SECONDS and entry.used_at <= latest:
                self._sessions[name] = _Live(entry)
        for name, share in stored.shares.items():
            if share.made_at <= latest:
                self._shares[name] = share, _Age(share.made_at)
        self._links = stored.links
        self._prune()

    # -- the file

    async def run(self) -> None:
        """Write the file after changes, and drop what has ended, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with within(LOOK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            behind = any(live.entry.used_at - live.stored_use > USE_SECONDS for live in self._sessions.values())
            if self._prune() or behind or self._version != self._written:
                version = self._version
                for live in self._sessions.values():
                    live.stored_use = live.entry.used_at
                self._turn(await asyncio.to_thread(_written, self._path, self._encoded()))
                self._written = version
                done, self._done = self._done, asyncio.Event()
                done.set()

    async def _save(self) -> str:
        """Wait until the file has all changes; the problem if it cannot be written, else ""."""
        self._version += 1
        version = self._version
        self._changed.set()
        try:
            async with within(WRITE_SECONDS):
                while self._written < version:
                    await self._done.wait()
        except TimeoutError:
            self._turn(f"{self._path} is not written within {WRITE_SECONDS:.0f} s")
        return self.problem

    def _turn(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.error("sessions.unwritten %s", problem)
        self.problem = problem

    def _encoded(self) -> bytes:
        stored = _Stored(
            format=FORMAT,
            login=self._login,
            sessions={name: live.entry for name, live in self._sessions.items()},
            shares={name: share for name, (share, _) in self._shares.items()},
            links=self._links,
        )
        return msgspec.json.encode(stored)

    def _prune(self) -> bool:
        """Drop what has ended; whether there was any."""
        before = len(self._sessions) + len(self._shares) + len(self._links)
        self._sessions = {name: live for name, live in self._sessions.items() if not live.is_over}
        self._shares = {name: known for name, known in self._shares.items() if not _is_over(*known)}
        self._links = {name: ends_at for name, ends_at in self._links.items() if ends_at > time.time()}
        return before != len(self._sessions) + len(self._shares) + len(self._links)

    # -- sessions

    async def begin(self, user: str = "") -> str:
        """Begin a session; returns the value of its cookie."""
        word = secrets.token_urlsafe(32)
        own = [(live.idle(), name) for name, live in self._sessions.items() if live.entry.user == user]
        if len(own) >= SESSIONS_MAX:
            del self._sessions[max(own)[1]]
        now = time.time()
        self._sessions[_hash(word)] = _Live(_Entry(user=user, began_at=now, used_at=now))
        await self._save()
        return word

    def find(self, word: str) -> Session | None:
        """The session of a cookie's value, which counts as its use; None if there is none or it has ended."""
        name = _hash(word) if word else ""
        live = self._sessions.get(name)
        if live is None or live.is_over:
            return None
        live.use()
        return Session(id=name, user=live.entry.user)

    def is_live(self, session: Session) -> bool:
        """Whether a session, found before, still exists. Sessions by a proxy's header are not in the table."""
        if session.share is not None:
            known = self._shares.get(session.id)
            return known is not None and not _is_over(*known)
        live = self._sessions.get(session.id)
        return self._login == "proxy" or (live is not None and not live.is_over)

    async def end(self, session: Session, *, everywhere: bool = False) -> str:
        """End a session, or all of its user's. Returns why this may not survive a restart; "" if it does."""
        for name, live in list(self._sessions.items()):
            if name == session.id or (everywhere and live.entry.user == session.user):
                del self._sessions[name]
        return await self._save()

    # -- shared links

    async def share(self, user: str, job: int, *, owner: str, submitted_at: float, seconds: float) -> str | None:
        """Make a link to a job; returns its secret part, or None if the user has too many."""
        self._prune()
        if len(self.shares_of(user)) >= SHARES_MAX:
            return None
        word, now = secrets.token_urlsafe(32), time.time()
        share = Share(
            id=secrets.token_hex(6), user=user, job=job, owner=owner, submitted_at=submitted_at, made_at=now,
            ends_at=now + seconds,
        )  # fmt: skip
        self._shares[_hash(word)] = share, _Age(now)
        await self._save()
        return word

    def open(self, word: str) -> Session | None:
        """The session of someone with a shared link; None if the link has expired or was revoked."""
        name = _hash(word)
        known = self._shares.get(name)
        return None if known is None or _is_over(*known) else Session(id=name, user=known[0].user, share=known[0])

    def shares_of(self, user: str) -> list[Share]:
        """The user's links that still work, the newest first."""
        shares = [share for share, age in self._shares.values() if share.user == user and not _is_over(share, age)]
        return sorted(shares, key=lambda share: -share.made_at)

    async def revoke(self, user: str, share_id: str = "") -> tuple[int, str]:
        """Revoke a link of the user, or all: (number of links, why this may not survive a restart)."""
        chosen = [
            name for name, (share, _) in self._shares.items() if share.user == user and share_id in ("", share.id)
        ]
        for name in chosen:
            del self._shares[name]
        return len(chosen), await self._save()

    # -- one-time links

    async def use_once(self, word: str, ends_at: float) -> bool:
        """Use up a text that is good once, until `ends_at`; False if it was used before."""
        name = _hash(word)
        if name in self._links:
            return False
        self._links[name] = ends_at
        await self._save()
        return True


def _is_over(share: Share, age: _Age) -> bool:
    return age() >= share.ends_at - share.made_at


def _written(path: Path, data: bytes) -> str:
    """Replace the file atomically. If that fails, remove it. Returns the problem, "" for none."""
    new = path.with_name(f"{path.name}.new")
    try:
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        problem = f"{path}: {error.strerror or error}"
        try:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                new.unlink()
        except OSError:
            return f"{problem}; sessions that have ended since come back if the dashboard restarts"
        return f"{problem}; everyone logs in again if the dashboard restarts"
    return ""
