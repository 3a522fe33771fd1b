"""The certificate of a port is read again outside the loop, and a faulty one changes nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from spritz.client.channel import aio
from spritz.model.errors import SpritzError
from spritz.runtime import log, tls
from spritz.runtime.authority import Authority, own_keys


def keys(seed: int = 0) -> tls.Keys:
    return own_keys([Authority(bytes([seed]) * 32)], tls.Machine("c", tls.CONTROLLER, "h"), time.time())


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that load a key: OpenSSL reads it from a file."""
    threads: list[int] = []
    load = tls._load

    def noted(*arguments: Any) -> None:
        threads.append(threading.get_ident())
        load(*arguments)

    monkeypatch.setattr(tls, "_load", noted)
    return threads


def test_a_certificate_is_renewed_in_a_thread(loading: list[int]) -> None:
    read = [keys()]
    certificate = tls.PortCertificate(lambda: read[0], log.get_logger("test"))
    first = certificate.context()
    loading.clear()
    read[0] = keys()
    assert asyncio.run(certificate.renew()) == ""
    assert certificate.context() is not first
    assert loading
    assert threading.get_ident() not in loading


def test_a_certificate_that_cannot_be_used_leaves_the_one_before() -> None:
    read: list[tls.Keys | SpritzError] = [keys()]

    def reading() -> tls.Keys:
        if isinstance(read[0], SpritzError):
            raise read[0]
        return read[0]

    certificate = tls.PortCertificate(reading, log.get_logger("test"))
    first, own = certificate.context(), keys()
    for wrong in (SpritzError("it is not there"), tls.Keys(own.certificate, keys().key, own.authorities)):
        read[0] = wrong
        assert "the certificate was not renewed" in asyncio.run(certificate.renew())
        assert certificate.context() is first


def test_a_connection_makes_its_context_in_a_thread(loading: list[int]) -> None:
    secure = aio.Secure(lambda: tls.client_context(keys()), "c", tls.CONTROLLER)
    asyncio.run(aio._context_of(secure, 60.0))
    assert loading
    assert threading.get_ident() not in loading


def test_a_disk_that_does_not_answer_delays_a_connection_no_longer_than_its_peer() -> None:
    answered = threading.Event()

    def reading() -> Any:
        answered.wait()

    with pytest.raises(TimeoutError):
        asyncio.run(aio._context_of(aio.Secure(reading, "c", tls.CONTROLLER), 0.01))
    answered.set()
