"""Links, sessions and form tokens: what is good, and what is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from spritz.web.sessions import BURST, LOGINS_A_MINUTE, SESSION_SECONDS, Rates, Secret


@pytest.fixture
def secret() -> Secret:
    return Secret(b"k" * 32)


def test_a_link_logs_in_once(secret: Secret) -> None:
    link = secret.link()
    assert secret.use_link(link)
    assert not secret.use_link(link)
    assert not secret.use_link(link + "0")
    assert not Secret(b"other" * 8).use_link(secret.link())


def test_a_session_is_what_its_cookie_says_until_it_ends(secret: Secret) -> None:
    session = secret.begin("alice")
    assert secret.session(secret.cookie(session)) == session
    assert session.may_act
    assert secret.session("") is None
    assert secret.session("nonsense") is None
    data, _, signature = secret.cookie(session).partition(".")
    assert secret.session(f"{data[:-2]}xx.{signature}") is None
    assert secret.session(secret.share("/", "alice")) is None, "signed for another purpose"
    secret.end(session)
    assert secret.session(secret.cookie(session)) is None


def test_an_expired_session_is_none_and_one_in_use_is_renewed(secret: Secret, monkeypatch: pytest.MonkeyPatch) -> None:
    session = secret.begin()
    assert secret.renewed(session) is None
    later = time.time() + SESSION_SECONDS * 0.6
    monkeypatch.setattr(time, "time", lambda: later)
    renewed = secret.renewed(session)
    assert renewed is not None
    assert renewed.id == session.id
    monkeypatch.setattr(time, "time", lambda: later + SESSION_SECONDS * 0.6)
    assert secret.session(secret.cookie(session)) is None
    assert secret.session(secret.cookie(renewed)) == renewed


def test_a_form_token_belongs_to_its_session(secret: Secret) -> None:
    mine, theirs = secret.begin(), secret.begin()
    assert secret.is_form_token(mine, secret.form_token(mine))
    assert not secret.is_form_token(mine, secret.form_token(theirs))
    assert not secret.is_form_token(mine, "")
    assert not secret.is_form_token(mine, "ä")


def test_a_shared_session_only_looks(secret: Secret) -> None:
    values = secret.open("share", secret.share("/jobs/7", "alice"))
    assert values is not None
    session = secret.begin(values["user"], (values["path"],), 60)
    assert not session.may_act
    assert secret.renewed(session) is None


def test_the_secret_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = Secret.of_file(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert Secret.of_file(path).session(first.cookie(first.begin())) is not None


def test_callers_that_ask_too_often_are_told_to_wait() -> None:
    rates = Rates()
    assert sum(rates.allow("one") for _ in range(int(BURST) * 2)) < BURST * 1.5
    assert rates.allow("other")
    assert [rates.allow_login("here") for _ in range(LOGINS_A_MINUTE + 1)] == [True] * LOGINS_A_MINUTE + [False]
