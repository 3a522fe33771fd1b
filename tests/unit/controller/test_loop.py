"""The single writer: order, and nothing released before it is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from msgspec import Struct

from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.contract import Group, JournalError, JournalFailed
from spritz.controller.journal.events import decode_group
from spritz.controller.writer.commit import CommitThread, InlineCommitter
from spritz.controller.writer.listeners import Loss
from spritz.controller.writer.loop import RESERVED_IDS, Reply, SingleWriter
from spritz.core.decision import Torn
from spritz.core.effects import Effect, ReloadNode
from spritz.model.cluster.settings import SYSTEM, Caller
from spritz.model.commands.job import Done
from spritz.model.events import NO_CHANGES, Event
from spritz.model.events.job import JobsPurged
from spritz.model.job.record import JobSpec
from spritz.model.rejection import Rejection
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz_testing.memory_journal import MemoryJournal, MemoryStore


class Add(Struct, frozen=True):
    """A command of this test's machine, which records a number of events."""

    events: int
    effect: str = ""


class Outcome:
    def __init__(self, reply: Reply, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        self.reply = reply
        self.events = events
        self.effects = effects
        self.changes = NO_CHANGES


class Counter:
    """A machine whose events are numbered: no more is needed to see order."""

    def __init__(self) -> None:
        self.count = 0
        self.state = self

    @property
    def version(self) -> int:
        return self.count

    @property
    def next_job_id(self) -> int:
        return self.count + 1

    def handle(self, command: Struct, now: float, caller: Caller) -> Outcome:
        assert isinstance(command, Add)
        if command.effect == "torn":
            raise Torn("a decision could not be taken back")
        if command.effect == "fault":
            self.count += command.events
            raise KeyError("a fault of the core")
        if command.events == 0:
            return Outcome(Rejection(code="ESLURM_NODES_BUSY"), (), ())
        if command.effect == "large":
            self.count += 1
            return Outcome(Done(), [JobsPurged(at=now, job_ids=(2**64,))], ())
        events = [JobsPurged(at=now, job_ids=(self.count + n + 1,)) for n in range(command.events)]
        self.count += command.events
        effects = [ReloadNode(node=command.effect)] if command.effect else []
        return Outcome(Done(messages=(str(self.count),)), events, effects)


class SlowCommitter:
    """Does nothing until told: the moment between memory and disk, held still."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def put(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.waiting.append((work, done))

    def finish(self) -> None:
        work, done = self.waiting.pop(0)
        work()
        done()

    def close(self) -> None:
        pass


class QuickeningCommitter(SlowCommitter):
    """Holds the first group until told; every later one is on disk as soon as it is handed over."""

    def put(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        super().put(work, done)
        if len(self.waiting) == 1 and self.first_done:
            self.finish()

    first_done = False

    def finish(self) -> None:
        self.first_done = True
        super().finish()


class Bench:
    def __init__(self, committer: SlowCommitter | InlineCommitter | CommitThread) -> None:
        self.store = MemoryStore()
        self.journal = MemoryJournal(self.store)
        self.blobs = BlobStore(self.journal)
        self.effects: list[str] = []
        self.broken: list[Exception] = []
        self.writer = SingleWriter(
            Counter(),
            self.journal,
            self.blobs,
            committer,
            SystemClock(),
            get_logger("test"),
            on_effects=lambda effects: self.effects.extend(effect.node for effect in effects),
            on_broken=self.broken.append,
        )
        self.replies: list[str] = []

    def send(self, command: Add) -> None:
        self.writer.handle(command, SYSTEM, lambda reply: self.replies.append(str(reply)))

    def groups(self) -> list[tuple[int, int]]:
        return [(group.first, group.last) for group in self.store.groups]


async def turns(count: int = 4) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_replies_and_effects_wait_for_the_commit_that_holds_their_events() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        bench.send(Add(1, effect="n1"))
        await turns()
        assert (bench.replies, bench.effects, bench.groups()) == ([], [], [])
        slow.finish()
        assert len(bench.replies) == 1
        assert bench.effects == ["n1"]
        assert bench.groups() == [(1, 1)]

    asyncio.run(main())


def test_commands_of_one_turn_share_a_group_and_those_that_come_while_it_syncs_share_the_next() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        for _ in range(3):
            bench.send(Add(2))
        await turns()
        for _ in range(5):
            bench.send(Add(1))
            await turns()
        assert len(slow.waiting) == 1
        slow.finish()
        await turns()
        slow.finish()
        assert bench.groups() == [(1, 6), (7, 11)]
        assert len(bench.replies) == 8

    asyncio.run(main())


def test_groups_are_released_oldest_first_even_if_the_next_is_on_disk_before_that() -> None:
    """A node registers in the first group and something is sent to it in the second: the other way round the message
    would find no connection.
    """

    async def main() -> None:
        committer = QuickeningCommitter()
        bench = Bench(committer)
        released: list[str] = []
        bench.writer.handle(Add(1), SYSTEM, lambda reply: released.append("first"))
        await turns()
        bench.writer.handle(Add(1), SYSTEM, lambda reply: released.append("second"))
        await turns()
        committer.finish()
        await turns()
        assert bench.groups() == [(1, 1), (2, 2)]
        assert released == ["first", "second"]

    asyncio.run(main())


def test_a_refusal_or_a_read_waits_for_the_events_it_could_have_seen() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        seen: list[str] = []
        bench.send(Add(1))
        bench.writer.when_durable(lambda: seen.append("with the group that is gathered"))
        await turns()
        bench.writer.when_durable(lambda: seen.append("with the group on its way"))
        bench.send(Add(0))
        await turns()
        assert (seen, bench.replies) == ([], [])
        slow.finish()
        await turns()
        assert seen == ["with the group that is gathered", "with the group on its way"]
        assert len(bench.replies) == 2
        bench.writer.when_durable(lambda: seen.append("at once"))
        assert seen[-1] == "at once"

    asyncio.run(main())


def test_hooks_run_once_a_turn_and_what_they_hand_in_joins_the_same_group() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        calls: list[int] = []

        def plan() -> None:
            calls.append(1)
            bench.writer.handle_own(Add(1))

        bench.writer.hooks.append(plan)
        bench.send(Add(1))
        bench.send(Add(1))
        await turns()
        slow.finish()
        assert len(calls) == 1
        assert bench.groups() == [(1, 3)]

    asyncio.run(main())


def test_after_a_failed_write_nothing_is_released_any_more() -> None:
    async def main() -> None:
        failures: list[JournalError] = []
        failed = asyncio.Event()

        def on_failure(error: JournalError) -> None:
            failures.append(error)
            failed.set()

        committer = CommitThread(on_failure)
        bench = Bench(committer)

        def refuse(group: Group, blobs: object) -> None:
            raise JournalFailed("no space left on device")

        bench.journal.append = refuse  # type: ignore[method-assign]  # a full disk
        bench.send(Add(1, effect="n1"))
        bench.send(Add(1))
        async with asyncio.timeout(100):
            await failed.wait()
        bench.send(Add(1))
        await turns()
        committer.close()
        assert [error.message for error in failures] == ["no space left on device"]
        assert (bench.replies, bench.effects) == ([], [])

    asyncio.run(main())


def test_a_thousand_commands_through_the_thread_are_each_answered_once_in_contiguous_groups() -> None:
    async def main() -> None:
        committer = CommitThread(lambda error: pytest.fail(str(error)))
        bench = Bench(committer)
        for number in range(1000):
            bench.send(Add(1 + number % 3))
            if number % 7 == 0:
                await asyncio.sleep(0)
        async with asyncio.timeout(100):
            await bench.writer.drain()
        committer.close()
        assert len(bench.replies) == 1000
        stored = [event for group in bench.journal.groups(0) for event in decode_group(group)]
        assert [event.job_ids for event in stored if isinstance(event, JobsPurged)] == [
            (number + 1,) for number in range(len(stored))
        ]
        assert bench.groups()[0][0] == 1
        assert bench.writer.durable_sequence == bench.writer.last_sequence == len(stored)

    asyncio.run(main())


def test_blobs_travel_with_the_group_of_the_command_that_names_them_and_only_once() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        key = bench.blobs.put(b"#!/bin/sh\n")
        bench.send(Add(1))
        await turns()
        assert bench.store.blobs == {}
        assert await bench.blobs.get(key) == b"#!/bin/sh\n"
        slow.finish()
        assert bench.store.blobs == {key: b"#!/bin/sh\n"}
        assert bench.blobs.put(b"#!/bin/sh\n") == key
        assert bench.blobs.take_unsent() == {}

    asyncio.run(main())


def test_a_script_of_a_refused_submission_is_stored_with_the_next_events() -> None:
    """The next job with this script finds it known, and must not lose it at the next restart."""

    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        key = bench.blobs.put(b"#!/bin/sh\n")
        bench.send(Add(0))
        await turns()
        assert (len(bench.replies), bench.store.blobs) == (1, {})
        assert bench.blobs.put(b"#!/bin/sh\n") == key
        bench.send(Add(1))
        await turns()
        slow.finish()
        assert bench.store.blobs == {key: b"#!/bin/sh\n"}

    asyncio.run(main())


def test_job_ids_are_reserved_before_the_first_of_them_is_given_and_anew_when_they_begin_again() -> None:
    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: pytest.fail(str(error))))
        work: list[str] = []
        reserve, append = bench.journal.reserve_ids, bench.journal.append
        bench.journal.reserve_ids = lambda below: (work.append(f"ids below {below}"), reserve(below))[1]  # type: ignore[method-assign,func-returns-value]
        bench.journal.append = lambda group, blobs: (work.append("group"), append(group, blobs))[1]  # type: ignore[method-assign,func-returns-value]
        bench.send(Add(1))
        await turns()
        bench.send(Add(1))
        await turns()
        assert work == [f"ids below {2 + RESERVED_IDS}", "group", "group"]
        work.clear()
        counter = bench.writer._machine
        assert isinstance(counter, Counter)
        counter.count = 9 * RESERVED_IDS
        bench.send(Add(1))
        await turns()
        counter.count = 0  # MaxJobId was reached
        bench.send(Add(1))
        await turns()
        assert work == [f"ids below {10 * RESERVED_IDS + 2}", "group", f"ids below {2 + RESERVED_IDS}", "group"]

    asyncio.run(main())


def test_the_answers_of_a_group_leave_before_its_effects() -> None:
    """A reply to a registration opens the link over which its effects are sent."""

    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        sent: list[str] = []
        bench.writer._on_effects = lambda effects: sent.extend(effect.node for effect in effects)
        bench.writer.handle(Add(1, effect="n1"), SYSTEM, lambda reply: sent.append("reply"))
        bench.writer.handle(Add(1, effect="n2"), SYSTEM, lambda reply: sent.append("reply"))
        await turns()
        slow.finish()
        assert sent == ["reply", "reply", "n1", "n2"]

    asyncio.run(main())


def test_what_is_decided_while_a_group_is_written_is_not_durable_with_it() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        bench.send(Add(1))
        await turns()
        bench.send(Add(2))
        slow.finish()
        assert (bench.writer.durable_sequence, bench.writer.last_sequence) == (1, 3)
        assert not bench.writer.is_durable
        await turns()
        slow.finish()
        assert (bench.writer.durable_sequence, bench.writer.is_durable) == (3, True)

    asyncio.run(main())


def test_a_writer_that_was_stopped_writes_and_releases_nothing_more() -> None:
    """As when memory is no longer what the journal says: the group on its way was sound, what follows may not be."""

    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        bench.send(Add(1, effect="n1"))
        await turns()
        bench.send(Add(1))
        await turns()
        bench.writer.stop()
        slow.finish()
        await turns()
        assert (slow.waiting, bench.replies, bench.effects) == ([], [], [])
        assert bench.groups() == [(1, 1)]

    asyncio.run(main())


def test_the_term_is_raised_in_turn_with_the_groups() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        raised: list[int] = []
        bench.send(Add(1))
        await turns()
        bench.writer.raise_term(6, lambda: raised.append(bench.journal.term))
        assert bench.journal.term == 1
        slow.finish()
        assert (bench.journal.term, raised) == (1, [])
        slow.finish()
        assert raised == [7]

    asyncio.run(main())


def test_garbage_is_what_no_job_names_and_comes_back_when_it_is_named_again() -> None:
    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: None))
        kept, dropped = bench.blobs.put(b"kept"), bench.blobs.put(b"dropped")
        bench.send(Add(1))
        await turns()
        await bench.blobs.find_unnamed([SimpleNamespace(spec=JobSpec(script_key=kept))], 1)  # type: ignore[list-item]
        assert await bench.writer.remove_unnamed_blobs(1)
        assert not await bench.writer.remove_unnamed_blobs(1)
        assert bench.store.blobs == {kept: b"kept"}
        bench.blobs.put(b"dropped")
        bench.send(Add(1))
        await turns()
        assert bench.store.blobs == {kept: b"kept", dropped: b"dropped"}

    asyncio.run(main())


def test_events_that_cannot_be_written_down_end_the_daemon() -> None:
    """They are in memory, and the journal will never have them."""

    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: None))
        bench.send(Add(1, effect="large"))
        await turns()
        assert [type(error) for error in bench.broken] == [OverflowError]
        assert (bench.replies, bench.groups()) == ([], [])

    asyncio.run(main())


def test_a_listener_that_fails_takes_neither_the_reply_nor_the_effects_nor_the_events_of_others() -> None:
    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: None))
        heard: list[int] = []

        def fail(events: Sequence[Event]) -> None:
            raise ValueError("a fault of the metrics")

        bench.writer.listeners.add("failing", fail, Loss.IGNORE)
        bench.writer.listeners.add("following", lambda events: heard.append(len(events)), Loss.IGNORE)
        bench.send(Add(2, effect="n1"))
        await turns()
        assert (len(bench.replies), bench.effects, heard) == (1, ["n1"], [2])
        assert bench.groups() == [(1, 2)]
        assert bench.writer.failures == {"listener.failing": 1}

    asyncio.run(main())


def test_a_listener_that_must_not_be_lost_ends_the_daemon() -> None:
    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: None))

        def fail(events: Sequence[Event]) -> None:
            raise ValueError("a fault")

        bench.writer.listeners.add("failing", fail, Loss.STOP)
        bench.send(Add(1))
        await turns()
        assert [type(error) for error in bench.broken] == [ValueError]
        assert (bench.replies, bench.groups()) == ([], [])

    asyncio.run(main())


def test_a_listener_must_not_hand_in_commands() -> None:
    """Those behind it would get the events of its command before the ones that it got."""

    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: None))
        bench.writer.listeners.add("eager", lambda events: bench.send(Add(1)), Loss.IGNORE)
        bench.send(Add(1))
        await turns()
        assert bench.groups() == [(1, 1)]
        assert bench.writer.failures == {"listener.eager": 1}

    asyncio.run(main())


def test_failures_of_hooks_and_answers_are_counted() -> None:
    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: None))

        def fail(reply: Reply = None) -> None:
            raise ValueError("a fault")

        bench.writer.hooks.append(fail)
        bench.writer.handle(Add(1), SYSTEM, fail)
        bench.send(Add(1))
        await turns()
        assert len(bench.replies) == 1
        assert bench.writer.failures == {"hook": 1, "reply": 1}

    asyncio.run(main())


def test_a_fault_of_the_core_that_changed_nothing_is_that_requests_alone() -> None:
    async def main() -> None:
        bench = Bench(InlineCommitter(lambda error: None))
        with pytest.raises(KeyError):
            bench.send(Add(0, effect="fault"))
        bench.send(Add(1))
        await turns()
        assert (len(bench.replies), bench.broken) == (1, [])

    asyncio.run(main())


def test_a_decision_that_cannot_be_taken_back_ends_the_daemon_before_anything_is_built_on_it() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        bench.send(Add(1))
        with pytest.raises(Torn):
            bench.send(Add(1, effect="torn"))
        await turns()
        assert len(bench.broken) == 1
        assert (slow.waiting, bench.replies) == ([], [])

    asyncio.run(main())


def test_a_daemon_that_drains_its_writer_goes_on_when_the_journal_fails_meanwhile() -> None:
    async def main() -> None:
        slow = SlowCommitter()
        bench = Bench(slow)
        bench.send(Add(1))
        drained = asyncio.create_task(bench.writer.drain())
        await turns()
        bench.writer.stop()
        async with asyncio.timeout(100):
            await drained
        assert bench.replies == []

    asyncio.run(main())
