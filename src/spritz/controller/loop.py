"""The single writer: runs commands one after the other, and releases nothing before it is durable.

A command changes the state in memory at once (`Machine.handle`, without an `await`). Its events, reply and effects join
the current group; then the listeners get the events. At the end of each turn of the loop the hooks run (a scheduling
pass, parked requests). Then the group goes to the committer, unless an earlier group is still being written: in that
case the group collects further commands. A single command therefore waits for one sync, and a thousand concurrent
commands share one.

Groups are released in order: the replies and effects of a group leave when the group is on disk and all earlier groups
have been released. See docs/decisions/0152.

Must not do I/O itself. Source: the caller's duties of a replicated log, in the same order: persist, then send.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from spritz.controller.blobs import BlobStore
from spritz.controller.commit import Committer
from spritz.controller.journal import Group, Journal
from spritz.controller.listeners import Listeners
from spritz.model.cluster import SYSTEM, Caller
from spritz.model.events.codec import encode_events

if TYPE_CHECKING:
    from spritz.core.effects import Effect
    from spritz.model.events import Event
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

#: The answer to a command: a Struct (possibly a Rejection), or None.
Reply = Struct | None


class OutcomeLike(Protocol):
    """The part of `core.Machine.handle`'s result that the writer needs."""

    @property
    def reply(self) -> Reply: ...

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def effects(self) -> Sequence[Effect]: ...


class StateLike(Protocol):
    """The part of the machine's state that the writer uses."""

    @property
    def version(self) -> int: ...


class MachineLike(Protocol):
    """The part of `core.Machine` that the writer uses."""

    @property
    def state(self) -> StateLike: ...

    def handle(self, command: Struct, now: float, caller: Caller) -> OutcomeLike: ...


class _Group:
    """Events that are journaled together, and the callbacks that wait for the group's release."""

    __slots__ = ("durable", "effects", "events", "on_release")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.on_release: list[Callable[[], None]] = []
        self.durable = False


class SingleWriter:
    """Hands commands to the machine and events to the journal. Everything here runs in the loop's thread.

    `listeners` get the events of each command at once, before they are durable: they are projections of the same state.
    `hooks` run at the end of every turn in which something happened, and may hand in commands themselves. `on_effects`
    gets effects once durable. `on_broken` is called when the daemon must end and recover from the journal: the state in
    memory can no longer be trusted, or a necessary listener is lost.
    """

    def __init__(
        self,
        machine: MachineLike,
        journal: Journal,
        blobs: BlobStore,
        committer: Committer,
        clock: Clock,
        log: Logger,
        *,
        on_effects: Callable[[list[Effect]], None],
        on_broken: Callable[[Exception], None],
    ) -> None:
        self._machine = machine
        self._journal = journal
        self._blobs = blobs
        self._committer = committer
        self._clock = clock
        self._log = log
        self._on_effects = on_effects
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._gathering = _Group()
        #: Groups not yet released, oldest first. Only the last may still be on its way to the disk.
        self._unreleased: deque[_Group] = deque()
        self._syncing = False
        self._turn_due = False
        self._stopped = False
        self._drains: set[asyncio.Future[None]] = set()
        self.hooks: list[Callable[[], None]] = []
        #: Number of the last event in memory, and of the last one on disk.
        self.last_sequence = journal.last_sequence
        self.durable_sequence = journal.last_sequence
        #: Counters for `Statistics`.
        self.commands = 0
        self.groups = 0
        #: contained failures by place: "listener.NAME", "hook", "reply", "effects"
        self.failures: dict[str, int] = {}
        self.listeners = Listeners(clock, log, self.failures, on_stop=self._break)

    def handle(self, command: Struct, caller: Caller, then: Callable[[Reply], None] | None = None) -> Reply:
        """Decide a command now. `then(reply)` is called when everything that the reply reveals is durable.

        The returned reply is for the controller's own commands, which need not wait for durability.
        """
        # A command from within a listener would reach the later listeners before the events that they are still to get.
        assert not self.listeners.informing, f"a listener has handed in {type(command).__name__}"
        outcome = self._decide(command, caller)
        self.commands += 1
        group = self._gathering
        events = outcome.events
        reply = outcome.reply
        # The group is complete before any listener runs: even if listeners fail, the reply and the effects leave.
        group.events.extend(events)
        group.effects.extend(outcome.effects)
        if then is not None:
            group.on_release.append(lambda: then(reply))
        self.last_sequence += len(events)
        self.turn()
        if events:
            self.listeners.inform(events)
        return reply

    def _decide(self, command: Struct, caller: Caller) -> OutcomeLike:
        machine = self._machine
        before = machine.state.version
        try:
            return machine.handle(command, self._clock.now(), caller)
        except Exception as error:
            # A fault of the core that changed nothing fails this request alone. If it left events in memory that will
            # never be journaled, the daemon must end.
            if machine.state.version != before:
                self._log.fatal("core.failed", exception=error, command=type(command).__name__)
                self._break(error)
            raise

    def handle_own(self, command: Struct) -> Reply:
        """Decide a command of the controller itself."""
        return self.handle(command, SYSTEM)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back when everything that is in memory now is on disk; at once if it already is."""
        # Three cases. Memory holds events that are not even on their way to the disk: wait for their group. The last
        # group is on its way: wait for it. Else all is on disk. A read that skipped this could show a job that a crash
        # then undoes.
        if self._gathering.events:
            self._gathering.on_release.append(callback)
        elif self._syncing:
            self._unreleased[-1].on_release.append(callback)
        else:
            callback()

    def maintain(self, work: Callable[[], None]) -> None:
        """Run maintenance of the journal in its thread, after the groups in progress."""
        self._committer.put(work, lambda: None)

    def turn(self) -> None:
        """At the end of this turn of the loop, run the hooks and commit the current group."""
        if not self._turn_due and not self._stopped:
            self._turn_due = True
            self._loop.call_soon(self._end_turn)

    @property
    def idle(self) -> bool:
        """Whether no group is open, being written or waiting to be released."""
        return not self._unreleased and not self._gathering.events and not self._turn_due

    @property
    def is_durable(self) -> bool:
        """Whether everything in memory now is on disk."""
        return not self._gathering.events and not self._syncing

    async def durable(self) -> None:
        """Return when everything in memory now is on disk; without yielding if it already is."""
        if not self.is_durable:
            reached: asyncio.Future[None] = self._loop.create_future()
            self.when_durable(lambda: None if reached.done() else reached.set_result(None))
            await reached

    async def drain(self) -> None:
        """Return when everything handed in so far is durable and released, or, after `stop`, never will be."""
        while not self.idle and not self._stopped:
            reached: asyncio.Future[None] = self._loop.create_future()
            # A group without events commits as well, so this callback is reached even if nothing else is handed in.
            self._drains.add(reached)
            self._gathering.on_release.append(lambda future=reached: future.done() or future.set_result(None))  # type: ignore[misc]
            self.turn()
            try:
                await reached
            finally:
                self._drains.discard(reached)

    def stop(self) -> None:
        """Release nothing any more: the journal has failed, or the daemon ends."""
        self._stopped = True
        for reached in self._drains:
            if not reached.done():
                reached.set_result(None)

    # Groups

    def _end_turn(self) -> None:
        if not self._stopped:
            # Commands that hooks hand in belong to this turn, and so to this group.
            for hook in self.hooks:
                self._contained("hook", hook)
        self._turn_due = False
        if not self._syncing and not self._stopped:
            self._commit()

    def _commit(self) -> None:
        """Send the current group to the disk; a group without events needs no write."""
        group, self._gathering = self._gathering, _Group()
        self._unreleased.append(group)
        if not group.events:
            group.durable = True
            self._release_durable()
            return
        try:
            payload = encode_events(group.events)
        except Exception as error:  # such as a number of more than 64 bits
            kinds = ",".join(sorted({type(event).__name__ for event in group.events}))
            self._log.fatal("events.unwritable", exception=error, events=kinds)
            self._break(error)
            return
        self._syncing = True
        blobs = self._blobs.take_unsent()
        record = Group(
            first=self.last_sequence - len(group.events) + 1,
            last=self.last_sequence,
            at=self._clock.now(),
            payload=payload,
        )
        self._committer.put(lambda: self._journal.append(record, blobs), lambda: self._committed(group, record.last))

    def _committed(self, group: _Group, last: int) -> None:
        self._syncing = False
        group.durable = True
        self.durable_sequence = last
        self.groups += 1
        self._blobs.committed()
        if self._stopped:
            return
        if self._journal.wants_tidying:
            self.maintain(self._journal.tidy)
        # The next group is sent first: the disk works while this group's answers leave.
        if self._gathering.events and not self._turn_due:
            self._commit()
        self._release_durable()
        if self._gathering.on_release:
            self.turn()

    def _release_durable(self) -> None:
        """Release groups, oldest first, up to the first that is not durable."""
        while self._unreleased and self._unreleased[0].durable and not self._stopped:
            self._release(self._unreleased.popleft())

    def _release(self, group: _Group) -> None:
        """Replies first: the reply to a registration opens the link for the effects that it caused."""
        for callback in group.on_release:
            self._contained("reply", callback)
        if group.effects:
            self._contained("effects", lambda: self._on_effects(group.effects))

    # Failures

    def _contained(self, where: str, callback: Callable[[], None]) -> None:
        """Run a callback; its failure must not stop the others."""
        try:
            callback()
        except Exception as error:
            self.failures[where] = self.failures.get(where, 0) + 1
            self._log.error("release.failed", exception=error, where=where, error=repr(error))

    def _break(self, error: Exception) -> None:
        """The state in memory differs from the journal, or a necessary listener is lost: end the daemon."""
        self.stop()
        self._on_broken(error)
