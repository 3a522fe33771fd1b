"""When a machine that has joined asks for its next certificate."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from spritz.client.errors import ConnectionLost
from spritz.client.joining import member
from spritz.client.joining.member import Member
from spritz.client.trust.membership import Joined
from spritz.model.node.machines import AuthorityCertificate, FetchAuthority, MachineJoined
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger


class Clock(SystemClock):
    """Sleeping takes no time; ends the test after a number of looks."""

    def __init__(self, looks: int) -> None:
        self.at, self.left = 0.0, looks

    def monotonic(self) -> float:
        return self.at

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.left -= seconds == member._LOOK_SECONDS
        if not self.left:
            raise asyncio.CancelledError


class Link:
    """A connection to a controller that trusts these authorities; it has broken where that is None."""

    def __init__(self, authorities: str | None) -> None:
        self.connections, self.is_connected, self.authorities = 1, True, authorities
        self.asked = 0

    async def call(self, request: Struct, reply: type) -> AuthorityCertificate:
        assert isinstance(request, FetchAuthority)
        self.asked += 1
        if self.authorities is None:
            raise ConnectionLost("gone")
        return AuthorityCertificate(cluster="c", certificate="", authorities=self.authorities)


def renewals(link: Link, *, looks: int, due: bool = False, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which a machine that trusts the authority `old` has renewed its certificate."""
    clock, times = Clock(looks), list[float]()
    joined = SimpleNamespace(controllers=(), authorities="old")
    membership: Any = SimpleNamespace(joined=joined, site=None, renewal_due=lambda now: due)
    made = Member(membership, "c", "node", (), 1, clock)

    async def renew(link: Any, log: Any) -> bool:
        times.append(clock.at)
        joined.authorities = link.authorities or "old"
        return True

    monkeypatch.setattr(made, "renew", renew)
    stand_in: Any = link
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(made.keep_certified(stand_in, get_logger("test")))
    return times


def test_a_machine_follows_the_keys_of_a_controller_that_has_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for authorities in ("old new", "new old", "new"):
        link = Link(authorities)
        (at,) = renewals(link, looks=400, monkeypatch=monkeypatch)
        assert at <= member.SPREAD_SECONDS
        assert link.asked == 1, "once for each connection"


@pytest.mark.parametrize("authorities", ["old", "", None])
def test_the_same_keys_an_earlier_controller_and_a_broken_connection_change_nothing(
    authorities: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert renewals(Link(authorities), looks=400, monkeypatch=monkeypatch) == []


def test_an_old_certificate_is_looked_for_each_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = int(3 * 3600 / member._LOOK_SECONDS)
    assert len(renewals(Link("old"), looks=looks, due=True, monkeypatch=monkeypatch)) == 3


def test_a_disk_that_refuses_a_new_certificate_ends_no_daemon(capfd: pytest.CaptureFixture[str]) -> None:
    """It is logged, and tried again."""

    def refuse(_joined: Any) -> None:
        raise OSError(28, "No space left on device")

    async def run() -> bool:
        given = MachineJoined(cluster="c", role="node", certificate="c", authorities="a", user_key=b"k", launch_keys=())
        joined = Joined(
            cluster="c", host="h", role="node", certificate="", key="", authorities="", user_key=b"", launch_keys=(),
            controllers=(),
        )  # fmt: skip
        membership: Any = SimpleNamespace(joined=joined, site=None, replace=refuse)
        link: Any = SimpleNamespace(call=_answering(given))
        return await Member(membership, "c", "node", (), 1, Clock(1)).renew(link, get_logger("test"))

    assert asyncio.run(run()) is False
    assert "certificate.not_renewed" in capfd.readouterr().err


def _answering(reply: Any) -> Any:
    async def call(*_: Any, **_more: Any) -> Any:
        return reply

    return call
