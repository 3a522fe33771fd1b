"""Authentication: the kernel's word or none at all."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import cast

import pytest

from spritz.client.handling import Call
from spritz.controller.api.identity import Identity
from spritz.model.errors import SpritzError
from spritz.runtime.clock import SystemClock
from spritz.runtime.credentials import PeerCredentials

#: No passwd file has it.
STRANGER = 4_000_000


def call_from(uid: int | None) -> Call:
    credentials = None if uid is None else PeerCredentials(pid=1, uid=uid, gid=-1)
    return cast(Call, SimpleNamespace(caller=credentials))


def test_a_peer_for_whom_nobody_vouches_is_refused() -> None:
    identity = Identity(0, SystemClock())
    with pytest.raises(SpritzError, match="Protocol authentication error") as refused:
        identity.caller(call_from(None))
    assert refused.value.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR"


def test_root_slurmuser_and_our_own_user_are_administrators_and_nobody_else() -> None:
    identity = Identity(STRANGER, SystemClock())
    assert identity.caller(call_from(0)).admin
    assert identity.caller(call_from(STRANGER)).admin
    assert identity.caller(call_from(os.getuid())).admin
    assert not identity.caller(call_from(STRANGER + 1)).admin


def test_groups_are_the_systems_and_a_user_without_an_entry_has_none() -> None:
    identity = Identity(0, SystemClock())
    own = identity.caller(call_from(os.getuid()))
    assert own.gid in own.groups
    assert len(own.groups) == len(own.group_names)
    stranger = identity.caller(call_from(STRANGER))
    assert (stranger.user, stranger.gid, stranger.groups) == (str(STRANGER), -1, ())
    contained = identity.caller_of(STRANGER + 2, 0)
    assert (contained.gid, contained.groups, contained.group_names) == (0, (0,), ("root",))


def test_a_user_is_looked_up_once_until_told_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    from spritz.controller.api import identity as module

    asked: list[int] = []
    real = module.look_up

    def counting(uid: int, gid: int) -> module.Person:
        asked.append(uid)
        return real(uid, gid)

    monkeypatch.setattr(module, "look_up", counting)
    identity = Identity(0, SystemClock())
    for _ in range(3):
        identity.caller(call_from(os.getuid()))
    assert len(asked) == 1
    identity.forget()
    identity.caller(call_from(os.getuid()))
    assert len(asked) == 2
