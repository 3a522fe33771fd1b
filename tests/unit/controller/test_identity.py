"""Authentication: the kernel's word or none at all. Lookups: before a handler runs, and never without end."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import Struct

from spritz.client.channel.handling import Call, Deferred
from spritz.controller.callers.identity import Identity, Lookups, identified
from spritz.model.cluster.settings import Caller
from spritz.model.errors import SpritzError
from spritz.runtime import tasks
from spritz.runtime.clock import SystemClock
from spritz.runtime.credentials import PeerCredentials
from spritz.runtime.directory import Directory, gid_of, group_name_of, person_of
from spritz.runtime.log import get_logger

#: No passwd file has it.
STRANGER = 4_000_000


class Ask(Struct):
    """The request of these tests."""


class FakeCall:
    """What a handler and `identified` use of a Call."""

    def __init__(self, uid: int | None, gid: int = -1) -> None:
        self.caller = None if uid is None else PeerCredentials(pid=1, uid=uid, gid=gid)
        self.kind = "Ask"
        self.counted = 1.0
        self.abandoned = False
        self.channel = SimpleNamespace(statistics=None, turn=partial(asyncio.sleep, 0))
        self.answers: list[object] = []
        self.answered = asyncio.Event()

    def reply(self, body: object = None) -> None:
        self.answers.append(body)
        self.answered.set()

    fail = crashed = reply


def call_from(uid: int | None) -> Call:
    return cast(Call, FakeCall(uid))


def play(scene: Callable[[Identity], Coroutine[None, None, None]], slurm_uid: int = 0) -> None:
    async def main() -> None:
        directory = Directory(SystemClock(), get_logger("test"))
        directory.deadline_seconds = 100.0
        await scene(Identity(slurm_uid, directory))
        directory.close()

    tasks.run(main())


async def asked(
    identity: Identity, call: FakeCall, *, lookups: Lookups | None = None, query: bool = False
) -> Caller | SpritzError:
    """What a handler that tells its caller answers."""

    def handler(request: Ask, call: Call) -> Any:
        return identity.caller(call)

    async with tasks.Supervisor() as group:
        run = identified(identity, group, handler, lookups=lookups, query=query)
        result = run(Ask(), cast(Call, call))
        if not isinstance(result, Deferred):
            assert isinstance(result, Caller)
            return result
        async with asyncio.timeout(100):
            await call.answered.wait()
    [answer] = call.answers
    assert isinstance(answer, Caller | SpritzError)
    return answer


async def caller_of(identity: Identity, uid: int, gid: int = -1) -> Caller:
    answer = await asked(identity, FakeCall(uid, gid))
    assert isinstance(answer, Caller)
    return answer


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], threading.Event]:
    """`hanging(uid)`: the system does not answer for that user until the event is set."""
    real = pwd.getpwuid

    def hang(uid: int) -> threading.Event:
        back = threading.Event()

        def getpwuid(asked: int) -> pwd.struct_passwd:
            assert asked != uid or back.wait(100)
            return real(asked)

        monkeypatch.setattr(pwd, "getpwuid", getpwuid)
        return back

    return hang


def test_a_peer_for_which_nothing_vouches_is_refused() -> None:
    async def scene(identity: Identity) -> None:
        for ask in (identity.caller, identity.is_admin, identity.knows):
            with pytest.raises(SpritzError, match="Protocol authentication error") as refused:
                ask(call_from(None))
            assert refused.value.code == "SLURM_PROTOCOL_AUTHENTICATION_ERROR"
        with pytest.raises(SpritzError, match="Protocol authentication error"):
            await asked(identity, FakeCall(None))

    play(scene)


def test_only_root_slurmuser_and_the_daemons_own_user_are_administrators() -> None:
    async def scene(identity: Identity) -> None:
        for uid, admin in ((0, True), (STRANGER, True), (os.getuid(), True), (STRANGER + 1, False)):
            assert (await caller_of(identity, uid)).admin == identity.is_admin(call_from(uid)) == admin

    play(scene, slurm_uid=STRANGER)


def test_groups_are_the_systems_and_a_user_without_an_entry_has_the_group_that_it_came_with() -> None:
    async def scene(identity: Identity) -> None:
        own = await caller_of(identity, os.getuid())
        assert own.gid in own.groups
        assert len(own.groups) == len(own.group_names)
        stranger = await caller_of(identity, STRANGER)
        assert (stranger.user, stranger.gid, stranger.groups) == (str(STRANGER), -1, ())
        contained = await caller_of(identity, STRANGER, 0)
        assert (contained.gid, contained.groups, contained.group_names) == (0, (0,), ("root",))

    play(scene)


def test_a_known_user_is_answered_at_once_and_by_the_same_record() -> None:
    async def scene(identity: Identity) -> None:
        first = await caller_of(identity, os.getuid())
        again = FakeCall(os.getuid())
        assert await asked(identity, again) is first
        assert again.answers == [], "the handler ran in the turn of the request"

    play(scene)


def test_while_users_are_not_looked_up_a_command_fails_and_queries_and_administrators_go_on(
    hanging: Callable[[int], threading.Event],
) -> None:
    async def scene(identity: Identity) -> None:
        back = hanging(STRANGER)
        identity.directory.deadline_seconds = 0.01
        refused = await asked(identity, FakeCall(STRANGER))
        assert isinstance(refused, SpritzError)
        assert refused.message == f"the directory of users and groups did not answer for user {STRANGER}"
        shown = await asked(identity, FakeCall(STRANGER, 7), query=True)
        assert shown == Caller(uid=STRANGER, gid=7, user=str(STRANGER), group="7", groups=(7,), group_names=("7",))
        identity._admins = frozenset({STRANGER})
        steering = await asked(identity, FakeCall(STRANGER))
        assert isinstance(steering, Caller)
        assert steering.admin
        # A command waits for what it needs besides its caller, whichever user sends it.
        submitting = await asked(identity, FakeCall(STRANGER), lookups=lambda request, caller: [(person_of, STRANGER)])
        assert isinstance(submitting, SpritzError)
        identity.directory.deadline_seconds = 100.0
        assert isinstance(await asked(identity, FakeCall(os.getuid())), Caller), "others are looked up meanwhile"
        back.set()

    play(scene)


def test_a_handler_finds_what_its_lookups_named() -> None:
    async def scene(identity: Identity) -> None:
        found = await asked(
            identity, FakeCall(0), lookups=lambda request, caller: [(gid_of, "root"), (gid_of, "no-one")]
        )
        assert isinstance(found, Caller)
        assert (identity.gid_of("root"), identity.gid_of("no-one")) == (0, None)
        await identity.directory.ask([(group_name_of, STRANGER)])
        assert identity.group_name(STRANGER) == str(STRANGER)
        assert identity.person(0).user == "root"

    play(scene)


def test_a_caller_that_has_gone_away_meanwhile_has_nothing_done_for_it(
    hanging: Callable[[int], threading.Event],
) -> None:
    async def scene(identity: Identity) -> None:
        back, ran = hanging(STRANGER), list[str]()

        def handler(request: Ask, call: Call) -> None:
            ran.append("it")

        async with tasks.Supervisor() as group:
            call = FakeCall(STRANGER)
            run = identified(identity, group, handler)
            assert isinstance(run(Ask(), cast(Call, call)), Deferred)
            call.abandoned = True
            back.set()
        assert (ran, call.answers) == ([], [])

    play(scene)
