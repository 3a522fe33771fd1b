"""The feed outlives every error of a connection and every message that cannot be read, and says what happened."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import DecodeError, Raw, ValidationError, msgpack

from spritz.client.errors import ClientError, ConnectionLost, RemoteError
from spritz.config.diagnostics import ConfigError
from spritz.live import feed
from spritz.live.feed import Feed
from spritz.live.picture import Update
from spritz.model.errors import SpritzError
from spritz.model.queries.events import Change, ChangeBatch
from spritz.model.queries.jobs import JobRows
from spritz.model.queries.nodes import Nodes
from spritz.wire.envelope import Failure, Response


def batch(*changes: Change) -> Response:
    return Response(id=1, more=True, body=Raw(msgpack.encode(ChangeBatch(changes=changes, sequence=1))))


class Controller:
    """slurmctld, one connection after another. `answers`: what the stream of changes says, or raises, in order."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.answers = list(answers)
        self.rows: list[Any] = []

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, request: object) -> None:
        pass

    def receive(self, timeout: float | None = None) -> Response:
        answer = self.answers.pop(0) if self.answers else ConnectionLost("gone")
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stream(self, request: object, kind: object, timeout: float) -> list[JobRows]:
        return [JobRows(now=1.0, version=1, rows=self.rows)]

    def joined(self, request: object, kind: object, field: str) -> Nodes:
        return Nodes(now=1.0, nodes=[])

    def call(self, request: object, kind: object) -> Any:
        return SimpleNamespace(now=1.0)


class Told:
    """What the feed delivered, and how long it waited, until it has made `lives` connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, connect: Callable[[], Controller], lives: int) -> None:
        self.updates: list[Update] = []
        self.waits: list[float] = []
        self.feed = Feed(None, self.updates.append)
        monkeypatch.setattr(feed, "locate_controller", lambda conf: None)
        monkeypatch.setattr(feed, "cluster_name", lambda conf: "c")
        monkeypatch.setattr(feed, "connect_controller", lambda config, wait_seconds: connect())
        monkeypatch.setattr(feed, "uniform", lambda low, high: high)

        def wait(seconds: float) -> bool:
            self.waits.append(seconds)
            return len(self.waits) >= lives

        stopped = SimpleNamespace(is_set=lambda: len(self.waits) >= lives, wait=wait)
        monkeypatch.setattr(self.feed, "_stopped", stopped)

    @property
    def problems(self) -> list[str]:
        return [update.problem for update in self.updates if update.problem]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ClientError("no", hint="try"), "no (try)"),
        (ConnectionLost("lost"), "lost"),
        (ConfigError([]), ""),
        (SpritzError("refused"), "refused"),
        (OSError(24, "Too many open files"), "Too many open files"),
        (TimeoutError(), "TimeoutError"),
        (DecodeError("odd"), "a message of slurmctld cannot be read: odd"),
        (ValidationError("of a later release"), "a message of slurmctld cannot be read: of a later release"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("place", ["connect", "first", "later"])
def test_errors_of_the_connection_lead_to_another(
    error: Exception, text: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect() -> Controller:
        if place == "connect":
            raise error
        return Controller(*([batch()] if place == "later" else []), error)

    told = Told(monkeypatch, connect, 3)
    told.feed._run()
    assert len(told.problems) == 3
    assert all(text in problem for problem in told.problems)
    assert len([update for update in told.updates if update.whole]) == (3 if place == "later" else 0)


@pytest.mark.parametrize(
    "answer",
    [
        Response(
            id=1, error=Failure(code="ESLURM_ACCESS_DENIED", message="denied", errno=2002)
        ),  # of the subscription itself
        Response(id=1),
        Response(id=1, more=True, body=Raw(b"\xc1")),
        Response(id=1, more=True, body=Raw(msgpack.encode({"changes": 7}))),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_refused_or_unreadable_stream_is_said(
    answer: Response, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch, lambda: Controller(*([] if is_first else [batch()]), answer), 2)
    told.feed._run()
    assert len(told.problems) == 2


@pytest.mark.parametrize("data", [b"{", b"[]", b"7", b'{"node": 7}', b""])
def test_an_event_that_cannot_be_read_ends_nothing(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    change = Change(sequence=2, type="node", data=data, job_ids=())
    told = Told(monkeypatch, lambda: Controller(batch(), batch(change)), 2)
    told.feed._run()
    assert len(told.problems) == 2
    assert not any(update.failure for update in told.updates)


def test_rows_of_another_shape_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect() -> Controller:
        made = Controller(batch())
        made.rows = [(1, 2)]
        return made

    told = Told(monkeypatch, connect, 2)
    told.feed._run()
    assert ["other fields" in problem for problem in told.problems] == [True, True]


def test_attempts_become_rarer_until_an_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    lives = 0

    def connect() -> Controller:
        nonlocal lives
        lives += 1
        if lives == 8:
            return Controller(batch())
        raise ConnectionLost("gone")

    told = Told(monkeypatch, connect, 9)
    told.feed._run()
    assert told.waits[:6] == [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


def test_an_answer_makes_the_next_attempt_quick_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, lambda: Controller(batch()), 4)
    told.feed._run()
    assert told.waits == [1.0] * 4


@pytest.mark.parametrize("error", [KeyError("nodes"), AssertionError(), TypeError("of this program")])
def test_an_error_of_this_program_is_delivered_and_ends_the_feed(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(monkeypatch, lambda: Controller(batch(), error), 5)
    with pytest.raises(type(error)):
        told.feed._run()
    assert told.updates[-1].failure is error
    assert "internal error" in told.updates[-1].problem


def test_a_refusal_has_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = RemoteError(Failure(code="ESLURM_ACCESS_DENIED", message="denied", errno=2002))
    told = Told(monkeypatch, lambda: Controller(refusal), 1)
    told.feed._run()
    assert told.problems == ["denied"]
