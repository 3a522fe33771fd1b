"""Credentials of users on other machines: each way to misuse one is refused, by its name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from spritz.wire.credential import (
    LIFETIME_SECONDS,
    SKEW_SECONDS,
    BadCredential,
    Taken,
    UserCredential,
    derive,
    machine_key,
    seal,
    unseal,
)

CLUSTER_KEY = bytes(range(64))
KEY = machine_key(CLUSTER_KEY, "beta")
NOW = 1_800_000_000.0


def credential(**changes: Any) -> UserCredential:
    made = UserCredential(
        cluster="spritz",
        host="beta",
        uid=1000,
        gid=1000,
        issued_at=NOW,
        expires_at=NOW + LIFETIME_SECONDS,
        nonce=b"n" * 16,
    )
    return structs.replace(made, **changes)


def refused(sealed: bytes, taken: Taken | None = None, now: float = NOW) -> str:
    with pytest.raises(BadCredential) as caught:
        (taken or Taken()).check(unseal(sealed, (KEY,)), cluster="spritz", now=now)
    assert caught.value.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR"
    return caught.value.kind


def test_a_valid_credential_is_accepted_once() -> None:
    taken, sealed = Taken(), seal(credential(), KEY)
    taken.check(unseal(sealed, (KEY,)), cluster="spritz", now=NOW)
    assert refused(sealed, taken) == "replayed"


def test_keys_are_rotated() -> None:
    old = machine_key(b"o" * 64, "beta")
    assert unseal(seal(credential(), old), (KEY, old)).uid == 1000


@pytest.mark.parametrize(
    ("sealed", "kind"),
    [
        (seal(credential(), machine_key(CLUSTER_KEY, "gamma")), "forged"),  # sealed by another machine
        (seal(credential(), machine_key(b"x" * 64, "beta")), "forged"),  # by a stranger
        (seal(credential(cluster="other"), KEY), "foreign"),
        (seal(credential(issued_at=NOW - 500, expires_at=NOW - 440), KEY), "expired"),
        (seal(credential(issued_at=NOW + 500, expires_at=NOW + 560), KEY), "early"),
        (seal(credential(expires_at=NOW + 86400), KEY), "malformed"),  # lives too long
        (seal(credential(nonce=b""), KEY), "malformed"),
        (b"", "missing"),
        (b"\x00" + seal(credential(), KEY)[1:], "downgraded"),
        (b"\x02" + seal(credential(), KEY)[1:], "downgraded"),
        (b"\x01", "malformed"),
        (b"\x01" * 5000, "malformed"),
    ],
)
def test_a_bad_credential_is_refused(sealed: bytes, kind: str) -> None:
    assert refused(sealed) == kind


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (150.0, "early credential: the clock of gamma is 150 s ahead of that of alpha: set it"),
        (-150.0, "expired credential: the clock of gamma is 150 s behind that of alpha: set it"),
    ],
)
def test_a_refusal_for_a_clock_says_whose_and_by_how_much(ahead: float, said: str) -> None:
    made = credential(issued_at=NOW + ahead, expires_at=NOW + ahead + 60)
    with pytest.raises(BadCredential) as refused:
        Taken().check(made, cluster=made.cluster, now=NOW)
    assert refused.value.between("gamma", "alpha") == f"Protocol authentication error: {said}"
    assert refused.value.hint == "the clocks of the two machines differ by 150 s: set them"


def test_every_altered_byte_is_noticed() -> None:
    sealed = seal(credential(), KEY)
    for at in range(len(sealed)):
        altered = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
        assert refused(altered) in ("forged", "downgraded")


@given(st.binary(max_size=5000))
def test_bytes_of_a_stranger_are_refused_and_nothing_else(data: bytes) -> None:
    assert refused(data) in ("missing", "downgraded", "malformed", "forged")
    assert refused(b"\x01" + data) in ("malformed", "forged")


def test_a_sealed_credential_of_another_shape_is_refused() -> None:
    import hashlib
    import hmac

    content = b"\x01\x93\x01\x02\x03"
    assert refused(content + hmac.digest(KEY, content, hashlib.sha256)) == "malformed"


def test_memory_for_nonces_is_bounded_and_comes_free() -> None:
    taken = Taken(remembered_max=3)
    for number in range(3):
        taken.check(credential(nonce=bytes((number,)) * 16), cluster="spritz", now=NOW)
    with pytest.raises(BadCredential, match="too many"):
        taken.check(credential(), cluster="spritz", now=NOW)
    later = NOW + LIFETIME_SECONDS + SKEW_SECONDS + 1
    taken.check(credential(issued_at=later, expires_at=later + 60), cluster="spritz", now=later)
    assert len(taken) == 1


def test_a_short_cluster_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        derive(b"secret", "authority")
