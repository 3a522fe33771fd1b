"""Users and groups: looked up off the loop, once per key, remembered, and never waited for without end."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine

import pytest

from spritz.runtime import tasks
from spritz.runtime.directory import (
    ABSENT_SECONDS,
    FRESH_SECONDS,
    LOG_SECONDS,
    Directory,
    DirectoryUnavailable,
    gid_of,
    group_name_of,
    person_of,
    uid_of,
    user_name_of,
)
from spritz.runtime.log import get_logger

#: No passwd file has it.
STRANGER = 4_000_000


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


#: For lookups that hang, so that a test need not wait for long.
SHORT_SECONDS = 0.01


class Source:
    """A directory service of the test's, which can be told to hang."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.asked: list[int] = []
        self.answers = threading.Event()
        self.answers.set()

    def __call__(self, uid: int) -> str | None:
        self.asked.append(uid)
        assert self.answers.wait(100)
        return self.names.get(uid)


Scene = Callable[[Directory, Source, Clock], Coroutine[None, None, None]]


def play(scene: Scene) -> None:
    async def main() -> None:
        clock, source = Clock(), Source()
        directory = Directory(clock, get_logger("test"))
        directory.deadline_seconds = 100.0
        try:
            await scene(directory, source, clock)
        finally:
            source.answers.set()
            directory.close()

    tasks.run(main())


async def eventually(condition: Callable[[], object]) -> None:
    """Give way to the loop until the condition is true."""
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def test_many_requests_for_one_user_are_one_lookup_which_is_remembered() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        source.names[7] = "ann"
        source.answers.clear()
        waiting = asyncio.gather(*(directory.answer(source, 7) for _ in range(50)))
        await eventually(lambda: len(source.asked) == 1)
        source.answers.set()
        assert await waiting == ["ann"] * 50
        clock.at = FRESH_SECONDS - 1
        assert await directory.answer(source, 7) == "ann"
        assert source.asked == [7]

    play(scene)


def test_an_old_answer_is_given_while_a_new_one_is_looked_up() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        source.names[7] = "ann"
        await directory.answer(source, 7)
        source.names[7] = "anna"
        source.answers.clear()
        clock.at = FRESH_SECONDS + 1
        assert directory.missing([(source, 7)]) == []
        assert directory.get(source, 7) == "ann"
        await eventually(lambda: len(source.asked) == 2)
        source.answers.set()
        await eventually(lambda: directory.get(source, 7) == "anna")

    play(scene)


def test_an_unknown_key_waits_for_its_deadline_once_and_is_answered_when_the_source_is_back() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        source.names[7] = "ann"
        source.answers.clear()
        directory.deadline_seconds = SHORT_SECONDS
        with pytest.raises(DirectoryUnavailable, match="did not answer for user 7"):
            await directory.answer(source, 7)
        await eventually(lambda: len(source.asked) == 1)
        clock.at = 1.0  # past the deadline of the lookup that still hangs
        with pytest.raises(DirectoryUnavailable):
            await directory.answer(source, 7)
        assert source.asked == [7]
        assert directory.unanswered == 2
        source.answers.set()
        await eventually(lambda: not directory.missing([(source, 7)]))
        assert directory.get(source, 7) == "ann"

    play(scene)


def test_that_the_source_does_not_answer_is_logged_once_a_minute(capfd: pytest.CaptureFixture[str]) -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        source.answers.clear()
        directory.deadline_seconds = SHORT_SECONDS
        for at in (0.0, 1.0, LOG_SECONDS - 1, LOG_SECONDS + 1):
            clock.at = at
            with pytest.raises(DirectoryUnavailable):
                await directory.answer(source, 7)

    play(scene)
    assert [line.partition("unanswered_requests=")[2] for line in capfd.readouterr().err.splitlines()] == ["1", "4"]


def test_users_that_are_known_are_served_while_the_source_hangs() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        source.names[7] = "ann"
        await directory.answer(source, 7)
        source.answers.clear()
        directory.deadline_seconds = SHORT_SECONDS
        with pytest.raises(DirectoryUnavailable):
            await directory.ask([(source, 7), (source, 8)])
        for age in (FRESH_SECONDS + 1, 100 * FRESH_SECONDS):
            clock.at = age
            assert await directory.answer(source, 7) == "ann"

    play(scene)


def test_that_there_is_no_such_user_is_remembered_for_a_short_time_and_never_given_when_old() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        assert await directory.answer(source, 9) is None
        clock.at = ABSENT_SECONDS - 1
        assert await directory.answer(source, 9) is None
        assert source.asked == [9]
        source.names[9] = "new"
        clock.at = ABSENT_SECONDS + 1
        assert await directory.answer(source, 9) == "new"

    play(scene)


def test_after_the_administrators_word_answers_are_looked_up_before_they_are_used() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        source.names[7] = "ann"
        await directory.answer(source, 7)
        source.names[7] = "anna"
        directory.expire()
        assert await directory.answer(source, 7) == "anna"
        # Unless the source hangs: then the old answer is better than none.
        directory.expire()
        source.answers.clear()
        directory.deadline_seconds = SHORT_SECONDS
        assert await directory.answer(source, 7) == "anna"

    play(scene)


def test_without_a_lookup_beforehand_there_is_no_answer_but_one_is_looked_for() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        source.names[7] = "ann"
        with pytest.raises(DirectoryUnavailable):
            directory.get(source, 7)
        assert await directory.answer(source, 7) == "ann"
        assert source.asked == [7]

    play(scene)


def test_a_lookup_that_fails_is_no_answer_and_the_next_request_tries_again() -> None:
    async def scene(directory: Directory, source: Source, clock: Clock) -> None:
        asked: list[int] = []

        def failing(uid: int) -> str:
            asked.append(uid)
            raise OSError("no memory")

        for _ in range(2):
            with pytest.raises(DirectoryUnavailable):
                await directory.answer(failing, 1)
        assert asked == [1, 1]

    play(scene)


def test_the_systems_databases_are_asked_for_users_with_their_groups() -> None:
    root = person_of(0)
    assert root is not None
    assert (root.user, root.gid, root.group, root.known) == ("root", 0, "root", True)
    assert len(root.groups) == len(root.group_names)
    assert (user_name_of(0), uid_of("root"), group_name_of(0), gid_of("root")) == ("root", 0, "root", 0)
    assert uid_of(str(os.getuid())) == os.getuid()


@pytest.mark.parametrize("number", [STRANGER, -1, -(2**63), 2**64])
def test_a_number_that_no_user_or_group_has_is_an_answer(number: int) -> None:
    assert (person_of(number), user_name_of(number), group_name_of(number)) == (None, None, None)


@pytest.mark.parametrize("name", ["no-such-name", "", "a\0b", "\udcff", "²", "9" * 5000])
def test_a_name_that_no_user_or_group_has_is_an_answer(name: str) -> None:
    assert (uid_of(name), gid_of(name)) == (None, None)
