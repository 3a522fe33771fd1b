"""Identity of viewers: one-time links, sessions in signed cookies, links to share, and tokens against forged requests.

All are signed with a secret in a file that only its owner can read, so sessions outlive a restart. A one-time link is
valid once and for some minutes, a session for half a day after its last use.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
from collections import deque
from pathlib import Path
from typing import Any

from msgspec import Struct

COOKIE = "spritz-dashboard"

#: Lifetimes in seconds: of a login link, of a session, and of a link to share.
LINK_SECONDS, SESSION_SECONDS, SHARE_SECONDS = 600, 12 * 3600, 7 * 86_400

#: Token bucket of a session (or, without session, of an address): its size, and requests added per second.
BURST, RATE = 240.0, 40.0

#: Most login attempts from an address per minute.
LOGINS_A_MINUTE = 10


class Session(Struct, frozen=True, kw_only=True):
    """A viewer's session. `user`: "" means the user that started the dashboard. `only`: for a shared link, the paths
    that it may show.
    """

    id: str
    user: str = ""
    ends_at: float = 0.0
    only: tuple[str, ...] = ()

    @property
    def may_act(self) -> bool:
        """Whether the session may make changes; shared links may not."""
        return not self.only


class Secret:
    """Signs values with a key, and verifies them."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._used: dict[str, float] = {}
        self._ended: dict[str, float] = {}

    @classmethod
    def of_file(cls, path: Path) -> Secret:
        """The secret of a file, which is created if necessary. Raises OSError."""
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return cls(path.read_bytes())
        key = secrets.token_bytes(32)
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
        return cls(key)

    def _sign(self, purpose: str, data: bytes) -> str:
        return hmac.new(self._key, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest()

    def seal(self, purpose: str, **values: Any) -> str:
        """Signed text for a cookie or address; `open` reads it."""
        data = base64.urlsafe_b64encode(json.dumps(values, separators=(",", ":")).encode()).rstrip(b"=")
        return f"{data.decode()}.{self._sign(purpose, data)}"

    def open(self, purpose: str, text: str) -> dict[str, Any] | None:
        """The values of a sealed text; None if it is forged, for another purpose, or expired."""
        data, _, signature = text.partition(".")
        if not hmac.compare_digest(self._sign(purpose, data.encode("utf-8", "replace")), signature):
            return None
        values: dict[str, Any] = json.loads(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)))
        return values if values.get("ends_at", 0) > time.time() else None

    # -- one-time links

    def link(self) -> str:
        """The secret part of a login link; short, because terminals break long addresses."""
        data = f"{int(time.time()) + LINK_SECONDS:x}-{secrets.token_hex(8)}"
        return f"{data}-{self.name_of('link', data)}"

    def use_link(self, text: str) -> bool:
        """Whether the link is valid; uses it up."""
        data, _, signature = text.rpartition("-")
        if not hmac.compare_digest(self.name_of("link", data).encode(), signature.encode("utf-8", "replace")):
            return False
        now, ends_at = time.time(), int(data.partition("-")[0], 16)
        self._used = {word: until for word, until in self._used.items() if until > now}
        if ends_at <= now or data in self._used:
            return False
        self._used[data] = ends_at
        return True

    # -- sessions

    def begin(self, user: str = "", only: tuple[str, ...] = (), seconds: float = SESSION_SECONDS) -> Session:
        """A new session. `only`: paths that it may see, empty for all; `seconds`: how long it lasts."""
        return Session(id=secrets.token_urlsafe(18), user=user, only=only, ends_at=time.time() + seconds)

    def cookie(self, session: Session) -> str:
        """The value of the session's cookie."""
        return self.seal("session", id=session.id, user=session.user, only=list(session.only), ends_at=session.ends_at)

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie's value; None if it is invalid or has ended."""
        values = self.open("session", cookie) if cookie else None
        if values is None or values["id"] in self._ended:
            return None
        return Session(
            id=values["id"], user=values["user"], only=tuple(values["only"]), ends_at=float(values["ends_at"])
        )

    def renewed(self, session: Session) -> Session | None:
        """The session with a new end, once half of its time is over; else None."""
        if session.only or session.ends_at - time.time() > SESSION_SECONDS / 2:
            return None
        return Session(id=session.id, user=session.user, ends_at=time.time() + SESSION_SECONDS)

    def end(self, session: Session) -> None:
        """Refuse this session's cookie from now on (log-out), until the cookie expires by itself."""
        now = time.time()
        self._ended = {name: ends_at for name, ends_at in self._ended.items() if ends_at > now}
        self._ended[session.id] = session.ends_at

    def form_token(self, session: Session) -> str:
        """The token that the session's forms must contain, so that forms of other sites are refused (CSRF)."""
        return self._sign("form", session.id.encode())

    def is_form_token(self, session: Session, text: str) -> bool:
        """Whether the text is the session's form token."""
        return hmac.compare_digest(self.form_token(session).encode(), text.encode("utf-8", "replace"))

    def name_of(self, purpose: str, text: str) -> str:
        """A keyed hash of `text`, which does not reveal it."""
        return self._sign(purpose, text.encode())[:32]

    # -- links to share

    def share(self, path: str, user: str) -> str:
        """The secret part of a link that shows a page, and the pages below it, to anyone with the link."""
        return self.seal("share", path=path, user=user, ends_at=time.time() + SHARE_SECONDS)


class Rates:
    """Rate limits of requests and of login attempts."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        self._logins: dict[str, deque[float]] = {}

    def allow(self, caller: str) -> bool:
        """Count a request; False if the caller exceeds the rate."""
        now = time.monotonic()
        if len(self._buckets) > 10_000:
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket[1] > now - BURST / RATE}
        left, at = self._buckets.get(caller, (BURST, now))
        left = min(BURST, left + (now - at) * RATE)
        self._buckets[caller] = (max(0.0, left - 1), now)
        return left >= 1

    def allow_login(self, address: str) -> bool:
        """Count a login attempt; False if the address exceeds the limit."""
        now = time.monotonic()
        if len(self._logins) > 10_000:
            self._logins.clear()
        tries = self._logins.setdefault(address, deque())
        while tries and tries[0] < now - 60:
            tries.popleft()
        tries.append(now)
        return len(tries) <= LOGINS_A_MINUTE
