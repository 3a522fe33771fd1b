"""Worlds for the database of the simulation in tests: real threads, or one thread whose waits move a clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from spritz.controller.journal import postgresql as journal_postgresql
from spritz_testing.daemons.database import Database, FakePsycopg, Signal, installed


class Threads:
    """Real threads and time. A thread's host is that of the innermost `on` block."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self._hosts = threading.local()

    def now(self) -> float:
        return time.monotonic()

    def pause(self, seconds_low: float, seconds_high: float) -> None:
        if seconds_high:
            time.sleep(self.random.uniform(seconds_low, seconds_high))

    def signal(self) -> Signal:
        return threading.Event()

    def host(self) -> str:
        return getattr(self._hosts, "name", "here")

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        """What this thread does in the block, it does on this machine."""
        before, self._hosts.name = self.host(), host
        try:
            yield
        finally:
            self._hosts.name = before


class Stuck(AssertionError):
    """The only thread waits, and nothing will happen by itself."""


class _Stepped:
    """A signal whose wait moves the clock to its end."""

    def __init__(self, world: Clockwork) -> None:
        self._world = world
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else self._world.now() + timeout
        while not self._is_set and self._world.step(end):
            pass
        return self._is_set


class Clockwork:
    """One thread, whose waits pass at once; at given moments, something happens meanwhile."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.name = "here"
        self._now = 1000.0
        self._later: list[tuple[float, Callable[[], object]]] = []
        self.database = Database(self)

    def now(self) -> float:
        return self._now

    def pause(self, seconds_low: float, seconds_high: float) -> None:
        self.advance(self.random.uniform(seconds_low, seconds_high))

    def signal(self) -> Signal:
        return _Stepped(self)

    def host(self) -> str:
        return self.name

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do this while a wait passes that moment."""
        self._later.append((self._now + seconds, action))
        self._later.sort(key=lambda entry: entry[0])

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        end = self._now + seconds
        while self.step(end):
            pass

    def step(self, end: float | None) -> bool:
        """Move the clock to the next thing that happens, and do it; False if it is at the end before."""
        if self._later and (end is None or self._later[0][0] <= end):
            moment, action = self._later.pop(0)
            self._now = max(self._now, moment)
            action()
            return True
        if end is None:
            raise Stuck
        self._now = max(self._now, end)
        return False

    @contextmanager
    def on(self, host: str) -> Iterator[None]:
        """What is done in the block is done on this machine."""
        before, self.name = self.name, host
        try:
            yield
        finally:
            self.name = before


@contextmanager
def clockwork(monkeypatch: pytest.MonkeyPatch, seed: int = 1) -> Iterator[Clockwork]:
    """One database under the name `db`, whose clients' waits pass at once. Without the thread that cuts connections."""
    world = Clockwork(seed)
    monkeypatch.setattr(journal_postgresql, "monotonic", world.now)
    monkeypatch.setattr(journal_postgresql, "sleep", world.advance)
    monkeypatch.setattr(journal_postgresql._guard, "watch", lambda store: None)
    with installed(FakePsycopg({"db": world.database})):
        yield world
    assert not world.database.server.unknown
