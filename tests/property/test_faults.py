"""Faults of the core at any event of any decision: what they have done is undone, and nothing else is lost.

The life of `tests.property.accepted`, decided by the controller's single writer. Now and then an event cannot be
recorded: before, after or in the middle of its change of the state. Whatever that was about, the daemon goes on, memory
and events agree, and no deadline stays due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from unittest.mock import MagicMock, patch

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from tests.fuzz.guard import guard
from tests.property.accepted import NODES, SETTINGS, Life, live, records

from spritz.controller.journal.blobs import BlobStore
from spritz.controller.writer.commit import InlineCommitter
from spritz.controller.writer.listeners import Loss
from spritz.controller.writer.loop import SingleWriter
from spritz.core.decision import DecisionContext, Fault
from spritz.core.machine import Machine, Outcome
from spritz.core.undo import Undo
from spritz.model.cluster.settings import Caller
from spritz.model.events import Changes, Event
from spritz.model.rejection import Rejection
from spritz.runtime.clock import SystemClock
from spritz_testing.memory_journal import MemoryJournal, MemoryStore

#: one of so many events cannot be recorded
RARITY = 15


class Injected(Exception):
    """The fault."""


def _failing(changes: int) -> Callable[..., None]:
    """`Undo.put`, which does its work so many times and fails then."""
    left, plain = iter(range(changes)), Undo.put

    def put(undo: Undo, table: dict[object, object], key: object, value: object) -> None:
        if next(left, None) is None:
            raise Injected
        plain(undo, table, key, value)

    return put


class FaultyLife(Life):
    """Every command goes through the writer."""

    def __init__(self, random: Random, hardware: str, configuration: str) -> None:
        self.writer: SingleWriter | None = None
        #: what the listeners have heard of since the last command
        self.heard: list[Event] = []
        #: what the writer has undone would be repeated without these
        self.faults = Random(random.random())
        super().__init__(random, hardware, configuration)

    def handled(self, command: Struct, caller: Caller) -> Outcome:
        """As the daemon: a command with a fault is answered with an error."""
        if self.writer is None or self.writer._machine is not self.machine:
            self.writer = self.begin()
        self.heard = []
        with patch.object(DecisionContext, "record", self._recording()):
            try:
                reply = self.writer.handle(command, caller)
            except (Fault, Injected):
                reply = Rejection(code="SLURM_ERROR")
        assert reply is not None
        return Outcome(reply=reply, events=tuple(self.heard))

    def begin(self) -> SingleWriter:
        life, journal = self, MemoryJournal(MemoryStore())

        class Clock(SystemClock):
            def now(self) -> float:
                return life.site.now

        def broken(error: Exception) -> None:
            raise AssertionError(f"the daemon ends: {error!r}")

        writer = SingleWriter(
            self.machine,
            journal,
            BlobStore(journal),
            InlineCommitter(broken),
            Clock(),
            MagicMock(),
            on_effects=lambda effects: None,
            on_broken=broken,
        )
        writer.listeners.add("life", self._listen, Loss.STOP, follow=self._follow)
        return writer

    def _follow(self, changes: Changes) -> None:
        self.site.projection.follow(changes)

    def _listen(self, events: Sequence[Event]) -> None:
        self.heard += events

    def _recording(self) -> Callable[[DecisionContext, Event], None]:
        plain, faults, counts = DecisionContext.record, self.faults, self.counts

        def record(context: DecisionContext, event: Event) -> None:
            drawn = faults.randrange(3 * RARITY)
            if drawn > 2:
                plain(context, event)
                return
            counts["faults"] += 1
            if drawn == 1:
                plain(context, event)
            elif drawn:
                with patch.object(Undo, "put", _failing(faults.randrange(8))):
                    plain(context, event)
            raise Injected

        return record

    def check(self) -> None:
        """Memory and events agree."""
        machine = Machine.from_image(self.first)
        for event in self.events:
            machine.apply(event)  # type: ignore[arg-type]  # events
        assert records(machine) == records(self.machine)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(NODES)), st.sampled_from(sorted(SETTINGS)))
def test_a_fault_at_any_event_is_undone_and_set_aside(seed: int, hardware: str, configuration: str) -> None:
    async def main() -> None:
        live(Random(seed), hardware, configuration, kind=FaultyLife)

    with guard(60.0):
        asyncio.run(main())
