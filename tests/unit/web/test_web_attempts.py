"""Limits of log-ins: who guesses is stopped, and nobody else."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.requests import Request

from spritz.web import attempts
from spritz.web.attempts import ADDRESS_MAX, BURST, COUNTERS_MAX, PAIR_MAX, Attempts, Rates, address_of
from tests.unit.web.dashboard import Dashboard


def test_callers_that_ask_too_often_are_told_to_wait() -> None:
    rates = Rates()
    assert sum(rates.allow("one") for _ in range(int(BURST) * 2)) < BURST * 1.5
    assert rates.allow("other")


def test_a_pair_that_guesses_waits_and_others_behind_the_same_proxy_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: clock.now))
    known = Attempts()
    assert [known.begin("alice", "proxy") for _ in range(PAIR_MAX + 1)] == [True] * PAIR_MAX + [False]
    assert known.begin("bob", "proxy")
    assert known.begin("alice", "elsewhere"), "who guesses alice's password does not lock her out elsewhere"
    clock.now += 61
    assert known.begin("alice", "proxy")


def test_passwords_tried_on_many_users_stop_at_the_address_but_not_those_who_logged_in_from_there() -> None:
    known = Attempts()
    assert known.begin("alice", "proxy")
    known.succeeded("alice", "proxy")
    assert sum(known.begin(f"user{number}", "proxy") for number in range(2 * ADDRESS_MAX)) == ADDRESS_MAX
    assert not known.begin("bob", "proxy")
    assert known.begin("alice", "proxy")
    assert known.begin("bob", "elsewhere")


def test_good_passwords_never_add_up() -> None:
    known = Attempts()
    for number in range(10 * ADDRESS_MAX):
        user = f"user{number % 50}"
        assert known.begin(user, "proxy")
        known.succeeded(user, "proxy")


def test_counters_are_bounded_and_a_flood_of_names_does_not_reset_the_one_that_guesses() -> None:
    known = Attempts()
    for number in range(COUNTERS_MAX + 100):
        if number % 1000 == 0:
            for _ in range(2):
                known.begin("alice", "here")
        known.begin(f"user{number}", f"host{number}")
    assert len(known._pairs._times) <= COUNTERS_MAX
    assert not known.begin("alice", "here")


def request(client: str, forwarded: Sequence[str]) -> Request:
    headers = [(b"x-forwarded-for", line.encode("latin-1")) for line in forwarded]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "client": (client, 1)})


@pytest.mark.parametrize(
    ("client", "forwarded", "address"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.9"], "192.0.2.1"),  # not a proxy: it may not name another
        ("10.0.0.1", ["198.51.100.9"], "198.51.100.9"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.9"], "198.51.100.9"),  # clients choose what stands before
        ("10.0.0.1", ["1.1.1.1", "198.51.100.9, 10.0.0.2"], "198.51.100.9"),
        ("10.0.0.1", ["nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["\xe9"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("::ffff:10.0.0.1", ["198.51.100.9"], "198.51.100.9"),
        ("2001:db8:1:2:3:4:5:6", [], "2001:db8:1:2::/64"),
        ("fe80::1%eth0", [], "fe80::/64"),
    ],
)
def test_the_client_of_a_proxy_is_the_last_that_is_not_a_proxy(client: str, forwarded: list[str], address: str) -> None:
    assert address_of(request(client, forwarded), (ipaddress.ip_network("10.0.0.0/8"),)) == address


def test_a_right_password_gets_in_while_another_guesses_at_the_same_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard = Dashboard(tmp_path, monkeypatch)

    async def enter() -> None:
        async with dashboard.serving(), dashboard.browser() as browser:
            for _ in range(PAIR_MAX):
                wrong = await browser.post("/login", data={"user": "vera", "password": "wrong"})
                assert wrong.status_code == 403
            assert (await browser.post("/login", data={"user": "vera", "password": "of vera"})).status_code == 429
            assert (await browser.post("/login", data={"user": "ada", "password": "of ada"})).status_code == 303

    asyncio.run(enter())
