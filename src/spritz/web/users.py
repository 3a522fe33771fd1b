"""Viewers as users of this machine: access to their files and commands with their own privileges.

On a user's own cluster the viewer is the dashboard's user. On a site, a dashboard that runs as root starts processes as
the viewer (with the machine's user, groups and home, and without our environment). So the kernel decides which logs,
runs and files of `sbatch` options are readable. Any other dashboard refuses, with the reason.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import pwd
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from spritz.http.rest import RestError
from spritz.timeouts import within
from spritz.web import reading

if TYPE_CHECKING:
    from spritz.web.sessions import Session

#: Most reader processes at a time; seconds without a question after which a reader ends; time limit of an answer.
READERS_MAX, READER_IDLE_SECONDS, READER_SECONDS = 64, 60.0, 20.0

#: Most bytes of an answer: `reading.PIECE_BYTES` of control characters take this many as JSON.
_ANSWER_BYTES = 4 * 1024 * 1024

#: Environment variables that a viewer's process inherits from the dashboard.
_KEPT = ("PATH", "SLURM_CONF", "LANG", "LC_ALL", "TZ")


class Account(Struct, frozen=True, kw_only=True):
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the user's processes."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {**kept, "HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/sh"}

    @property
    def process(self) -> dict[str, Any]:
        """Arguments of `create_subprocess_exec` that set user, groups and environment."""
        return {"user": self.uid, "group": self.gid, "extra_groups": list(self.groups)}


class Settings(Protocol):
    @property
    def own_files(self) -> bool: ...


class Site(Protocol):
    """What all viewers share (`app.Site`)."""

    @property
    def settings(self) -> Settings: ...

    @property
    def readers(self) -> Readers: ...


class Viewer(Protocol):
    """Whose files or commands are asked for (`app.View`)."""

    @property
    def site(self) -> Site: ...

    @property
    def session(self) -> Session: ...


async def account(view: Viewer) -> Account | None:
    """The account for the viewer's processes; None if the dashboard's own user is the viewer. Raises RestError."""
    settings, name = view.site.settings, view.session.user
    if settings.own_files:
        return None
    viewer = await asyncio.to_thread(_account, name)
    if viewer is None:
        raise RestError(
            f"There is no user {name} on the dashboard's machine, so it cannot run commands as {name}.", 403
        )
    if viewer.uid == os.geteuid():
        return None
    if os.geteuid():
        our_name = await asyncio.to_thread(name_of, os.geteuid())
        raise RestError(
            f"This dashboard runs as {our_name}, neither as root nor as {name}, so it cannot act as {name}.", 403
        )
    return viewer


@functools.lru_cache(maxsize=1024)
def name_of(uid: int) -> str:
    """The user's name; its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = os.getgrouplist(name, entry.pw_gid)
    return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, groups=tuple(groups), home=entry.pw_dir or "/")


async def call(view: Viewer, work: Callable[..., Any], *words: Any) -> Any:
    """Call a function of `reading` with the viewer's privileges. Raises RestError."""
    user = await account(view)
    if user is None:
        return await asyncio.to_thread(work, *words)
    return await view.site.readers.ask(user, [work.__name__, *words])


class Readers:
    """Reader processes by user; idle ones are ended."""

    def __init__(self) -> None:
        self._known: dict[Account, Reader] = {}

    async def ask(self, user: Account, question: list[Any]) -> Any:
        """Ask the user's reader, which is started if necessary. Raises RestError."""
        now = time.monotonic()
        for other, idle in list(self._known.items()):
            if not idle.busy and now - idle.used_at > READER_IDLE_SECONDS:
                del self._known[other]
                await idle.end()
        reader = self._known.get(user)
        if reader is None:
            if len(self._known) >= READERS_MAX:
                raise RestError("Too many users are reading logs; try again in a minute.", 503)
            reader = self._known[user] = Reader(user)
        try:
            return await reader.ask(question)
        except RestError:
            if self._known.get(user) is reader:
                del self._known[user]
            await reader.end()
            raise

    async def end(self) -> None:
        for reader in self._known.values():
            await reader.end()
        self._known.clear()


class Reader:
    """A process that reads files as a user."""

    def __init__(self, user: Account) -> None:
        self._user = user
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.used_at = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether a question is being answered."""
        return self._turn.locked()

    async def ask(self, question: list[Any]) -> Any:
        """Ask a question, after earlier ones are answered. Raises RestError."""
        async with self._turn:
            self.used_at = time.monotonic()
            try:
                async with within(READER_SECONDS):
                    return await self._answer(question)
            except TimeoutError as error:
                raise RestError(f"The file cannot be read within {READER_SECONDS:.0f} s.", 504) from error
            except asyncio.CancelledError:
                await self.end()  # a late answer would be taken for that of the next question
                raise
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or "its process ended"
                raise RestError(f"Nothing can be read as {self._user.name}: {reason}.", 502) from error

    async def _answer(self, question: list[Any]) -> Any:
        process = self._process
        if process is None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", reading.__file__, env=self._user.environment, cwd="/",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                limit=_ANSWER_BYTES, start_new_session=True, **self._user.process,
            )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question).encode() + b"\n")
        await process.stdin.drain()
        return json.loads(await process.stdout.readline())

    async def end(self) -> None:
        """Kill the reader's process and wait for its end."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def may_have_files(site: Site) -> bool:
    """Whether the dashboard can read users' files, which pages of runs need."""
    return site.settings.own_files or not os.geteuid()
