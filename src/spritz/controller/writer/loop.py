"""The single writer: runs commands one after the other, and releases nothing before it is durable.

A command changes the state in memory at once (`Machine.handle`, without an `await`). Its events, reply and effects join
the current group; then the listeners get the events. At the end of each turn of the loop the hooks run (a scheduling
pass, parked requests). Then the group goes to the committer, unless an earlier group is still being written: in that
case the group collects further commands. A single command therefore waits for one sync, and a thousand concurrent
commands share one.

Groups are released in order: the replies and effects of a group leave when the group is on disk and all earlier groups
have been released. See docs/decisions/0152.

Where slurmctld may be killed, and what the next start then finds:

    decided, group gathering    nothing of it on disk; nobody was told; the client repeats its request by its key
    group on its way            all of the group or nothing; nobody was told; the key tells the repeated request which
    on disk, not yet released   the job is there; its client asks again; its nodes get effects derived from the state
    half of it released         as before: a repeated reply or effect is one that its receiver knows already

Must not do I/O itself. Source: the caller's duties of a replicated log, in the same order: persist, then send
(docs/explanation/duties-of-the-shell.md).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, json

from spritz.controller.journal.blobs import BlobStore
from spritz.controller.journal.contract import Group, Journal
from spritz.controller.writer.commit import Committer
from spritz.controller.writer.listeners import Listeners
from spritz.core.decision import Fault, Torn
from spritz.model.cluster.settings import SYSTEM, Caller
from spritz.model.commands.cluster import ApplyPlan, SetAside
from spritz.model.events.codec import encode_events

if TYPE_CHECKING:
    from spritz.core.effects import Effect
    from spritz.model.events import Changes, Event
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

#: Job ids that are reserved at once: each time costs a sync.
RESERVED_IDS = 1_000

#: How often a command is decided, each time without the job or part that the last fault was about. What is left of a
#: Tick or plan comes with the next.
ATTEMPTS_MAX = 5

#: Of each record and event in the story of a fault, in the log.
STORY_CHARACTERS_MAX = 4_000

#: The answer to a command: a Struct (possibly a Rejection), or None.
Reply = Struct | None


class OutcomeLike(Protocol):
    """The part of `core.Machine.handle`'s result that the writer needs."""

    @property
    def reply(self) -> Reply: ...

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def changes(self) -> Changes: ...

    @property
    def effects(self) -> Sequence[Effect]: ...


class StateLike(Protocol):
    """The part of the machine's state that the writer uses."""

    @property
    def version(self) -> int: ...

    @property
    def next_job_id(self) -> int: ...


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

    `listeners` get the events and changes of each command at once, before they are durable: they are projections of the
    same state.
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
        #: Groups not yet released, oldest first. Only the last may still be on its way to the disk: a second one there
        #: could be durable without the first, and a crash would leave a journal with a gap.
        self._unreleased: deque[_Group] = deque()
        self._syncing = False
        self._turn_due = False
        self._stopped = False
        self._drains: set[asyncio.Future[None]] = set()
        self.hooks: list[Callable[[], None]] = []
        #: Number of the last event in memory, and of the last one on disk. What a crash must not undo (a script that is
        #: removed, an image that becomes visible) goes by the second.
        self.last_sequence = journal.last_sequence
        self.durable_sequence = journal.last_sequence
        #: `Journal.ids_below` when all work handed to the committer is done. A copy, since the journal's own belongs to
        #: the thread: read here while a reservation is under way, it would be the old one, and be made again.
        self._ids_below = journal.ids_below
        #: Counters for `Statistics`.
        self.commands = 0
        self.groups = 0
        #: contained failures by place: "listener.NAME", "hook", "reply", "effects", "tick", "core"
        self.failures: dict[str, int] = {}
        self.listeners = Listeners(clock, log, self.failures, on_stop=self._break)

    def handle(self, command: Struct, caller: Caller, then: Callable[[Reply], None] | None = None) -> Reply:
        """Decide a command now. `then(reply)` is called when everything that the reply reveals is durable.

        The returned reply is for the controller's own commands, which need not wait for durability.
        """
        # A command from within a listener would reach the later listeners before the events that they are still to get:
        # the scheduler's projection would see a job start that it has not seen queued. A hook does what a listener
        # wants.
        assert not self.listeners.informing, f"a listener has handed in {type(command).__name__}"
        outcome = self._decide(command, caller)
        self.commands += 1
        group = self._gathering
        events = outcome.events
        reply = outcome.reply
        # No `await` from here to the end: another command between the decision and its place in the group would take
        # the number of its first event. The group is complete before any listener runs: even if listeners fail, the
        # events are journaled and the reply and the effects leave. Memory has these events already; a group without
        # them would be followed by one that does not fit its state.
        group.events.extend(events)
        group.effects.extend(outcome.effects)
        if then is not None:
            # Also for a refusal or a read, which has no events: it may tell of a job that is still on its way to the
            # disk. `sbatch` that repeats its request is answered with the id of the first one, say.
            group.on_release.append(lambda: then(reply))
        self.last_sequence += len(events)
        self.turn()
        if events:
            self.listeners.inform(events, outcome.changes)
        return reply

    def _decide(self, command: Struct, caller: Caller) -> OutcomeLike:
        machine = self._machine
        attempts, faults = ATTEMPTS_MAX, Counter[int | str]()
        while True:
            try:
                return machine.handle(command, self._clock.now(), caller)
            except Fault as fault:
                attempts -= 1
                self._contain(fault, command)
                # A fault that names no subject would only be met again. One in SetAside goes up to `_contain`, which
                # logs it: the core has counted it, and ignores the subject after the second.
                if not attempts or not fault.subject or isinstance(command, SetAside) or self._stopped:
                    raise
                faults[fault.subject] += 1
                if faults[fault.subject] > 2:
                    raise  # it is ignored, and met all the same: what this turn has recorded must be committed first
                # What the fault was about is out of the way now: the rest of a Tick, plan or registration can go on.
            except Torn as error:
                # Memory is not what the journal says, and no answer could be right: the next start reads the journal.
                self._log.fatal("core.torn", exception=error.__cause__ or error, command=type(command).__name__)
                self._break(error)
                raise

    def _contain(self, fault: Fault, command: Struct) -> None:
        """Set aside what a failed decision, which was taken back, was about."""
        cause, kind = fault.__cause__ or fault, type(command).__name__
        self.count_failure("core")
        self._log.error("core.failed", exception=cause, command=kind, subject=fault.subject)
        for told in fault.story:
            fields = json.encode(told).decode()[:STORY_CHARACTERS_MAX]
            self._log.error("core.story", subject=fault.subject, kind=type(told).__name__, fields=fields)
        if fault.subject and not isinstance(command, SetAside):
            self._log.error("core.set_aside", command=kind, subject=fault.subject)
            try:
                self.handle(SetAside(subject=fault.subject, hold=isinstance(command, ApplyPlan)), SYSTEM)
            except Exception as error:
                # Undone as well, and counted: soon it is ignored.
                self._log.error("core.not_set_aside", subject=fault.subject, error=repr(error))

    def handle_own(self, command: Struct) -> Reply:
        """Decide a command of the controller itself."""
        return self.handle(command, SYSTEM)

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back when everything that is in memory now is on disk; at once if it already is."""
        # Three cases. Memory holds events that are not even on their way to the disk: wait for their group. The last
        # group is on its way: wait for it. Else all is on disk. A read that skipped this could show a job that a crash
        # then undoes. The group that is gathered comes first: it holds the newer events, and is released later.
        if self._gathering.events:
            self._gathering.on_release.append(callback)
        elif self._syncing:
            self._unreleased[-1].on_release.append(callback)
        else:
            callback()

    def maintain(self, work: Callable[[], None]) -> None:
        """Run maintenance of the journal in its thread, after the groups in progress."""
        # Not in a thread of its own: pruning or a checkpoint next to an append would make that wait for a lock, or
        # fail.
        self._committer.put(work, lambda: None)

    def raise_term(self, above: int, done: Callable[[], None]) -> None:
        """Raise the journal's term above this number; then call back. Groups that are being written keep their term."""
        # In the journal's thread, in turn. From here the store could have the new term and `journal.term` not yet, just
        # when a group is appended: the fence would take it for that of a deposed controller, and end this one.
        self._committer.put(lambda: self._journal.raise_term(above), done)

    async def remove_unnamed_blobs(self, sequence: int) -> bool:
        """Remove some blobs that only events up to `sequence`, which is durable, may name; False if there are none.

        The journal's thread writes in the order in which this class hands things over, so which blobs to remove is
        settled at the same moment: what is put later is stored later. With an `await` between the two steps a
        submission could bring such a script back, be committed with it, and then lose it to this removal.
        """
        keys = self._blobs.take_unnamed(sequence)
        if not keys or self._stopped:
            return False
        removed: asyncio.Future[None] = self._loop.create_future()
        self._committer.put(
            lambda: self._journal.remove_blobs(keys), lambda: None if removed.done() else removed.set_result(None)
        )
        await removed
        return True

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
            # Commands that hooks hand in belong to this turn, and so to this group. `_turn_due` is still set, so they
            # call for no further turn: each plan would otherwise be followed by one more round of all hooks.
            for hook in self.hooks:
                self._contained("hook", hook)
        self._turn_due = False
        if not self._syncing and not self._stopped:
            self._commit()

    def _commit(self) -> None:
        """Send the current group to the disk; a group without events needs no write."""
        group, self._gathering = self._gathering, _Group()
        self._unreleased.append(group)
        # It queues up behind groups that are durable and not released yet, and takes no blobs: those of a submission
        # that was refused stay unsent until a group with events carries them. Taken here they would count as stored and
        # be nowhere, and the next job with the same script would have none after a restart.
        if not group.events:
            group.durable = True
            self._release_durable()
            return
        try:
            payload = encode_events(group.events)
        except Exception as error:  # such as a number of more than 64 bits
            kinds = ",".join(sorted({type(event).__name__ for event in group.events}))
            # Nothing can take these events back: listeners and later decisions have built on them. A journal that goes
            # on without them would be that of another state.
            self._log.fatal("events.unwritable", exception=error, events=kinds)
            self._break(error)
            return
        self._syncing = True
        ids_below = self._ids_to_reserve()
        blobs = self._blobs.take_unsent()
        record = Group(
            first=self.last_sequence - len(group.events) + 1,
            last=self.last_sequence,
            at=self._clock.now(),
            payload=payload,
        )

        def write() -> None:
            # The reservation first. Killed between the two, the controller has reserved ids that it never gave. The
            # other way round it has given ids that a damaged end of the journal (`slurmctld -i`) would give again.
            if ids_below:
                self._journal.reserve_ids(ids_below)
            self._journal.append(record, blobs)

        self._committer.put(write, lambda: self._committed(group, record.last))

    def _ids_to_reserve(self) -> int:
        """The next reservation, if the current group gives job ids beyond the last one; else 0. After MaxJobId ids
        begin again.
        """
        following = self._machine.state.next_job_id
        # The lower bound notices that ids began again at FirstJobId: a mark that stays above all of them would protect
        # none of those that are given from now on.
        if self._ids_below - 2 * RESERVED_IDS <= following <= self._ids_below:
            return 0
        self._ids_below = following + RESERVED_IDS
        return self._ids_below

    def _committed(self, group: _Group, last: int) -> None:
        # `last` was noted when the group left: by now `last_sequence` counts events that were decided while it was
        # written, which a crash would still undo.
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
        # What came meanwhile without events (a refusal, a read) had its turn while the disk was busy, and that turn
        # committed nothing. Without another one it would wait for the next command of any user.
        if self._gathering.on_release:
            self.turn()

    def _release_durable(self) -> None:
        """Release groups, oldest first, up to the first that is not durable."""
        # A disk may be so quick that the next group is durable before this one is released. Out of order a node would
        # get the launch of the second group before the registration in the first has opened its link.
        while self._unreleased and self._unreleased[0].durable and not self._stopped:
            self._release(self._unreleased.popleft())

    def _release(self, group: _Group) -> None:
        """Replies first: the reply to a registration opens the link for the effects that it caused."""
        # Effects that came before the link would be dropped as those of a node that is away. Most are derived again
        # when it links. The order to end a step that the state does not have follows from no record: that step would
        # run on.
        for callback in group.on_release:
            self._contained("reply", callback)
        if group.effects:
            self._contained("effects", lambda: self._on_effects(group.effects))

    # Failures

    def count_failure(self, where: str) -> None:
        """Count a failure that was contained, for sdiag."""
        self.failures[where] = self.failures.get(where, 0) + 1

    def _contained(self, where: str, callback: Callable[[], None]) -> None:
        """Run a callback; its failure must not stop the others."""
        try:
            callback()
        except Exception as error:
            self.count_failure(where)
            self._log.error("release.failed", exception=error, where=where, error=repr(error))

    def _break(self, error: Exception) -> None:
        """The state in memory differs from the journal, or a necessary listener is lost: end the daemon."""
        # Before the daemon hears of it, which may take turns of the loop: until then nothing of that state may leave.
        self.stop()
        self._on_broken(error)
