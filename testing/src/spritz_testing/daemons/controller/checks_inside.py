"""What a controller's own objects must show: rules 4, 5 and 7, looked at from inside while it runs.

The checks of the history believe no daemon. These look where the history cannot: is the state in memory the one that
the journal gives; has each live job its script; are queues short; does a due deadline move something. Production code
runs as it is: a controller is found by a class that takes the place of its own and tells of its parts.

A violation is (rule, seconds after the beginning, text), and goes to `World.violations`.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from spritz.controller import daemon
from spritz.controller.api import table
from spritz.controller.api.deferred import DeferredRequests
from spritz.controller.journal.contract import JournalCorrupt, JournalError
from spritz.controller.journal.events import decode_group
from spritz.controller.journal.postgresql import PostgresJournal
from spritz.controller.journal.recovery import machine_of
from spritz.controller.journal.sqlite import SqliteReading
from spritz.controller.lead.lease import LeaseKeeper
from spritz.core.decide.reservations import replenish
from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model.cluster.settings import SYSTEM
from spritz.scheduling.view.changes import planned_starts
from spritz_testing.daemons.controller.standby import Stored
from spritz_testing.daemons.system import rates, threads
from spritz_testing.daemons.system.world import EPOCH
from spritz_testing.projections import held, rebuilt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

    from msgspec import Struct

    from spritz.controller.api.cluster import ClusterQueries
    from spritz.controller.context import Context
    from spritz.controller.journal.contract import Group, Image
    from spritz.controller.journal.recovery import Reading, Recovered
    from spritz.controller.writer.commit import CommitThread
    from spritz.controller.writer.loop import Reply
    from spritz.core.machine import Outcome
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.events import Event
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.records import JobRecord
    from spritz.scheduling.view.request import Request
    from spritz_testing.daemons.system.world import Process

STATE_IS_JOURNAL = "4: the state is the replay of the journal"
STATE_HOLDS = "4: the state breaks no invariant"
SCHEDULER_SEES = "4: the scheduler sees what the records say"
BLOBS_ARE_THERE = "1: a live job has its script and environment"
NOTHING_IS_EARLY = "1: nothing leaves before it is durable"
IDS_ARE_NEW = "1: no job id is given twice"
QUEUES_ARE_SHORT = "5: queues are bounded"
TURNS_ARE_SHORT = "5: no turn of a loop exceeds its budget"
DEADLINES_MOVE = "5: a due deadline moves something"
DEPOSED_END = "4: a controller that another one has deposed stops"
LEASE_ENDS = "4: a controller that cannot renew its lease has stopped when it is over"
ORDERS_ARE_FEW = "5: no order is repeated many times a second"
NOTHING_FAILS = "4: no decision fails"
ONE_START_EACH = "7: a job that starts uses up one planned start of its request"

#: Seconds between two looks at a running controller, and groups committed between two replays of its journal.
LOOK_SECONDS = 20.0
REPLAY_GROUPS = 200

#: Callbacks that may wait for one turn of a loop.
TURN_CALLS_BUDGET = 5_000
#: Groups that wait for their release, events of the group being gathered, jobs of a thread, frames of a connection.
UNRELEASED_MAX = 50
GATHERED_MAX = 50_000
WAITING_MAX = 10_000
#: Seconds that a deadline may be due, by the clock of its host, while the loop runs.
OVERDUE_SECONDS = 30.0
#: Looks at a controller that runs while another one has its lease, until it must have noticed: the longest lease, and
#: the seconds in which it stops.
DEPOSED_LOOKS = 4
#: Seconds in which a controller stops that has lost its lease; and by which it may notice the loss late.
_STOP_SECONDS, _LATE_SECONDS = 15.0, 1.0
#: Times that the same effect may leave within a second.
REPEATED_MAX = 20


#: Of the failures that the writer contains (`SingleWriter.failures`), those that no fault from outside can cause.
_DECISIONS = frozenset({"core", "tick", "hook"})

#: Parts of the state that requests depend on, and that an image may leave out.
_KEPT = ("ended_steps", "submissions", "next_job_id", "licenses_taken", "arrays_running")


class ObservedDaemon(daemon._Daemon):
    """slurmctld's own, which shows its parts to the simulation."""

    def _assemble(self, context: Context, committer: CommitThread, recovered: Recovered) -> ClusterQueries:
        cluster = super()._assemble(context, committer, recovered)
        process = threads.world().running
        process.inside = Inside(process, context, recovered.machine)
        if self._options.ignore_errors:
            _tell_salvaged(process, context, recovered.machine)
        return cluster


def names() -> list[tuple[ModuleType, str, object]]:
    """What stands where, for `seam.NAMES`."""
    return [
        (daemon, "_Daemon", ObservedDaemon),
        (daemon, "LeaseKeeper", ObservedLease),
        (table, "DeferredRequests", ObservedRequests),
        (replenish, "_replenished", _replenished),
        (planned_starts, "redeem", _redeemed),
    ]


class ObservedLease(LeaseKeeper):
    """The leader's own. A lease lasts from the beginning of the last heartbeat that the database took: after that a
    standby may lead, so this one must know that it does not.
    """

    def __init__(self, journal: PostgresJournal, on_lost: Callable[[JournalError], None]) -> None:
        super().__init__(journal, on_lost)
        process, beat = threads.world().running, journal.beat
        world = process.world
        last = [world.now]

        def look(began: float) -> None:
            is_over = self._end.is_set() or not process.is_alive or last[0] != began
            if not is_over and not process.is_stopped and process.went_on_at < began and process.inside is not None:
                process.inside._report(LEASE_ENDS, f"its last heartbeat began at {began - EPOCH:.1f}")

        def observed() -> bool:
            began = world.now
            taken = beat()
            if taken:
                last[0] = began
                due = began + self._seconds + self._pause + _LATE_SECONDS
                world.at(due, partial(look, began))
            return taken

        journal.beat = observed  # type: ignore[method-assign]


_choose_nodes = replenish._replenished


def _replenished(state: State, reservation: Reservation, now: float) -> Reservation:
    """As the core's own: it looks at all nodes, so it must not do that at each event."""
    process = threads.world().running
    # When a controller was cut off, all nodes fail and come back at once. Nodes may be chosen again after each of them.
    nodes = crc32(repr([(node.state, node.flags) for node in state.nodes.values()]).encode())
    what = f"{process} chooses nodes for reservation {reservation.name} of the same nodes ({nodes:08x})"
    rates.note(process.world, what, rates.REPLACED_MAX, seconds=60.0)
    return _choose_nodes(state, reservation, now)


_redeem = planned_starts.redeem


def _redeemed(projection: Projection, record: JobRecord, request: Request, allocation: Allocation) -> None:
    """As the scheduler's own. Of jobs with equal requests each has a planned start; who waits keeps its own."""
    before = {asked: len(items) for asked, items in projection.ledger.by_request.items()}
    _redeem(projection, record, request, allocation)
    inside = threads.world().running.inside
    for asked, count in before.items():
        lost = count - len(projection.ledger.of(asked))
        if lost > 1 and inside is not None:
            inside._report(ONE_START_EACH, f"job {record.id} has used up {lost} of {count}")


class ObservedRequests(DeferredRequests):
    """Parked requests, which are answered by calls that the writer does not see."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._writer = context.writer

    def _answer(self, answers: Iterable[Callable[[], None]]) -> None:
        process, sequence = threads.world().running, self._writer.last_sequence

        def looked(answer: Callable[[], None]) -> None:
            if process.inside is not None:
                process.inside.left(sequence, "the answer to a parked request")
            answer()

        super()._answer([partial(looked, answer) for answer in answers])


def _tell_salvaged(process: Process, context: Context, machine: Machine) -> None:
    operator = process.host.disk and process.host.disk.operator
    if operator:
        named = {key for job in machine.state.jobs.values() for key in (job.spec.script_key, job.spec.environment_key)}
        operator.salvaged(machine.state.at, named - context.blobs.known - {""})


class Inside:
    """One life of a controller, from its recovery to its end."""

    def __init__(self, process: Process, context: Context, machine: Machine) -> None:
        self.process = process
        self.world = process.world
        self.context = context
        self.machine = machine
        self._groups = 0
        #: the earliest deadline at the last look
        self._deadline: float | None = None
        #: number of the last event at the last look: without later ones the state is what it was
        self._looked_at = -1
        self._overdue_looks = 0
        self._failures: dict[str, int] = {}
        #: looks in a row at which another controller had the lease
        self._deposed_looks = 0
        #: effect as text -> times in the current second
        self._effects: dict[str, int] = {}
        self._second = 0
        #: last event that the journal has taken, by what its `append` says
        self._written = context.writer.durable_sequence
        #: effects that were decided, with the last event that they follow from
        self._decided: dict[int, tuple[object, int]] = {}
        self._count_effects()
        self._watch_journal()
        self._watch_replies()
        self.world.soon(self._recovered)
        if process.host.database is not None:
            self._expect_others_to_end()

    def _expect_others_to_end(self) -> None:
        """This one leads from now on: another one stops when its lease is over."""
        processes = [one for host in self.world.hosts.values() for one in host.processes]
        for process in processes:
            if process is not self.process and process.inside is not None and process.name == self.process.name:
                self._expect_end(process, self.world.now)

    def _expect_end(self, process: Process, since: float) -> None:
        """`since`: when it could know."""
        journal = process.inside.context.journal
        due = since + journal.lease_seconds + _STOP_SECONDS

        def look() -> None:
            if not process.is_alive or journal.term >= self.context.journal.term:
                return
            if process.is_stopped:
                self._expect_end(process, self.world.now)
            elif process.went_on_at > since:
                self._expect_end(process, process.went_on_at)
            else:
                process.inside._report(DEPOSED_END, f"{self.process} leads since {since - EPOCH:.1f}")

        self.world.at(max(due, self.world.now), look)

    def _recovered(self) -> None:
        if self.process.is_alive:
            self.compare()
            self._look()

    def compare(self) -> None:
        """The dear check, at moments that matter."""
        self._report(STATE_IS_JOURNAL, self.replay_breach())

    def _look(self) -> None:
        if not self.process.is_alive:
            return
        if self.process.is_stopped:
            # a stopped process moves nothing; after SIGCONT it has its time again
            self._deposed_looks = self._overdue_looks = 0
        elif not self.process.blocked:
            self.look()
        self.world.after(LOOK_SECONDS, self._look)

    def look(self) -> None:
        """All checks, the dear one only now and then."""
        self.world.count("look inside")
        writer = self.context.writer
        if writer.groups >= self._groups + REPLAY_GROUPS:
            self._groups = writer.groups
            self._report(STATE_IS_JOURNAL, self.replay_breach())
        for rule, found in self._cheap():
            self._report(rule, found)

    def _cheap(self) -> Iterator[tuple[str, str]]:
        if self._looked_at != self.context.writer.last_sequence:
            self._looked_at = self.context.writer.last_sequence
            yield STATE_HOLDS, "; ".join(breaches(self.machine.state)[:3])
            yield SCHEDULER_SEES, self.projection_breach()
            yield BLOBS_ARE_THERE, self.blob_breach()
            yield IDS_ARE_NEW, self.id_breach()
        yield QUEUES_ARE_SHORT, self.queue_breach()
        yield DEPOSED_END, self.deposed_breach()
        yield DEADLINES_MOVE, self.deadline_breach()
        yield NOTHING_FAILS, self.failure_breach()
        calls = self.process.loop.turn_calls_max
        yield TURNS_ARE_SHORT, f"{calls} callbacks in one turn" if calls > TURN_CALLS_BUDGET else ""

    def _report(self, rule: str, text: str) -> None:
        if text:
            self.world.violations.append((rule, self.world.now - EPOCH, f"{self.process}: {text}"))
            self.world.tell(f"VIOLATION {rule}: {text}")

    # State and journal

    def _journal_on_disk(self) -> SqliteReading | Stored | None:
        """The journal by a connection of its own; None if it is no longer this controller's, or was set back."""
        journal, database = self.context.journal, self.process.host.database
        if database is None:
            return SqliteReading(self.context.configuration.state_directory)
        stored = Stored(database)
        return stored if (stored.term, stored.checksum(journal.last_sequence)) == self._mine() else None

    def _mine(self) -> tuple[int, int | None]:
        """Term and checksum of the last group that this controller knows to be in the database."""
        journal = self.context.journal
        assert isinstance(journal, PostgresJournal), "there is a database"
        return journal.term, journal._acknowledged[1]

    def replay_breach(self) -> str:
        """How the state differs from what the journal gives, with the events that are not in it yet."""
        try:
            reading = self._journal_on_disk()
        except JournalError:
            return ""  # a disk that fails: the controller meets it by itself
        if reading is None:
            return ""
        with closing(reading):
            try:
                image = _oldest(reading)
                again = Machine(self.machine.state.settings) if image is None else machine_of(image)
                first = again.state.version
                replay(reading, again)
            except JournalError as error:
                operator = self.process.host.disk and self.process.host.disk.operator
                # A part that no start needs may have rotted: its readers are told.
                return "" if operator and operator.has_rot else f"the journal cannot be read: {error.message}"
        at = reading.last_sequence
        for number, event in self._unwritten():
            if number > at:
                again.apply(event)
                at = number
        if at != self.machine.state.version:
            return f"memory is at event {self.machine.state.version}, the journal at {at}"
        self.world.count("replay compared")
        if again.image() != self.machine.image():
            return f"replay from event {first} differs at event {at}"
        # What an image leaves out is the same in two images.
        different = [name for name in _KEPT if getattr(again.state, name) != getattr(self.machine.state, name)]
        return f"replay from event {first} differs at event {at} in {', '.join(different)}" if different else ""

    def projection_breach(self) -> str:
        """How the scheduler's projection, which follows changes, differs from one built from the records."""
        seen, wanted = held(self.context.forecasts.projection), held(rebuilt(self.machine.state))
        if seen["table"] is None:
            wanted["table"] = None  # the next pass builds it
        self.world.count("projection compared")
        different = [name for name in seen if seen[name] != wanted[name]]
        return f"the projection differs in {', '.join(different)}" if different else ""

    def _unwritten(self) -> Iterator[tuple[int, Event]]:
        """Events that may not be on disk yet, with their numbers."""
        writer = self.context.writer
        groups = [*writer._unreleased, writer._gathering]
        events = [event for group in groups for event in group.events]
        yield from enumerate(events, writer.last_sequence - len(events) + 1)

    def blob_breach(self) -> str:
        """Live jobs whose script or environment is neither stored nor on its way."""
        blobs = self.context.blobs
        try:
            reading = self._journal_on_disk()
        except JournalError:
            return ""
        known = blobs.known
        if reading is not None:
            with closing(reading):
                known = {*reading.blob_sizes(), *blobs._unsent, *blobs._committing}
        operator = self.process.host.disk and self.process.host.disk.operator
        known = known | operator.lost_keys if operator else known
        lacking = [
            job.id
            for job in self.machine.state.jobs.values()
            if not job.state.ended
            and any(key and key not in known for key in (job.spec.script_key, job.spec.environment_key))
        ]
        return f"jobs {lacking[:5]}" if lacking else ""

    def id_breach(self) -> str:
        """Jobs whose id another job had, of those that are durable."""
        if not self.context.writer.is_durable:
            return ""
        seen = self.world.job_ids
        twice = []
        for job in self.machine.state.jobs.values():
            who = (job.spec.uid, job.spec.comment or job.spec.name)
            if seen.setdefault(job.id, who) != who:
                twice.append(job.id)
        return f"jobs {twice[:5]}" if twice else ""

    # Work

    def queue_breach(self) -> str:
        """Queues that are longer than they should be."""
        writer = self.context.writer
        sizes = {
            "groups to release": (len(writer._unreleased), UNRELEASED_MAX),
            "events gathered": (len(writer._gathering.events), GATHERED_MAX),
            "reads of the journal": (self.context.reader._worker._waiting, WAITING_MAX),
            "lines of log files": (self.context.log_files._waiting, WAITING_MAX),
        }
        return ", ".join(f"{size} {name}" for name, (size, most) in sizes.items() if size > most)

    def deadline_breach(self) -> str:
        """A deadline that stays due at four looks. The earliest is looked for among all, not where the core looks."""
        state = self.machine.state
        kinds = state.deadlines, state.step_deadlines, state.minute_deadlines
        for kind in kinds:
            first, shown = min(kind.all().values(), default=None), kind.next()
            if shown != first:
                return f"the earliest of all is {first}, and the core looks at {shown} first"
        deadlines = [at for kind in kinds for at in kind.all().values()]
        deadlines += [at for at in (self.machine.next_deadline(),) if at is not None]
        before, self._deadline = self._deadline, min(deadlines, default=None)
        overdue = self._deadline is not None and self._deadline < self.process.host.wall() - OVERDUE_SECONDS
        self._overdue_looks = self._overdue_looks + 1 if overdue and before == self._deadline else 0
        return f"due since {self._deadline}" if self._overdue_looks == 3 else ""

    def failure_breach(self) -> str:
        """Failures that the writer has contained: users are spared them, and each is a defect all the same."""
        failures = {name: count for name, count in self.context.writer.failures.items() if name in _DECISIONS}
        before, self._failures = self._failures, failures
        return f"failed so far: {failures}" if failures != before else ""

    def deposed_breach(self) -> str:
        """Another controller leads for long, and this one goes on."""
        database, journal = self.process.host.database, self.context.journal
        if database is None:
            return ""
        term = Stored(database).term
        self._deposed_looks = self._deposed_looks + 1 if term > journal.term else 0
        return f"term {term} is another one's, not {journal.term}" if self._deposed_looks == DEPOSED_LOOKS else ""

    def _count_effects(self) -> None:
        writer = self.context.writer
        carry_out: Callable[..., None] = writer._on_effects

        def counted(effects: list[object]) -> None:
            second = int(self.world.now)
            if second != self._second:
                self._second = second
                self._effects.clear()
            for effect in effects:
                _, sequence = self._decided.pop(id(effect), (effect, 0))
                self.left(sequence, type(effect).__name__)
                text = repr(effect)
                self._effects[text] = times = self._effects.get(text, 0) + 1
                if times == REPEATED_MAX + 1:
                    self._report(ORDERS_ARE_FEW, text[:200])
            carry_out(effects)

        writer._on_effects = counted  # type: ignore[assignment]  # it takes what it is given

    # What leaves

    def left(self, sequence: int, what: str) -> None:
        """Something becomes known that follows from events up to this one."""
        if sequence > self._written:
            self._report(NOTHING_IS_EARLY, f"{what} follows from event {sequence}, the journal has {self._written}")

    def _watch_journal(self) -> None:
        journal = self.context.journal
        append = journal.append

        def appended(group: Group, blobs: Mapping[str, bytes]) -> None:
            append(group, blobs)
            self._written = group.last

        journal.append = appended  # type: ignore[method-assign]

    def _watch_replies(self) -> None:
        writer, machine = self.context.writer, self.machine
        handle, when_durable, decide = writer.handle, writer.when_durable, machine.handle

        def decided(command: Struct, now: float, caller: Caller = SYSTEM) -> Outcome:
            before = _scalars(machine)
            outcome = decide(command, now, caller)
            if not outcome.events and _scalars(machine) != before:
                self._report(STATE_IS_JOURNAL, f"{type(command).__name__} has changed the state without an event")
            sequence = writer.last_sequence + len(outcome.events)
            self._decided.update((id(effect), (effect, sequence)) for effect in outcome.effects)
            return outcome

        def handled(command: Struct, caller: Caller, then: Callable[[Reply], None] | None = None) -> Reply:
            if then is None:
                return handle(command, caller)
            sequence = [0]

            def replied(reply: Reply) -> None:
                self.left(sequence[0], f"the answer to {type(command).__name__}")
                then(reply)

            reply = handle(command, caller, replied)
            sequence[0] = writer.last_sequence
            return reply

        def shown(callback: Callable[[], None]) -> None:
            sequence = writer.last_sequence

            def looked() -> None:
                self.left(sequence, "a reading")
                callback()

            when_durable(looked)

        try_out = machine.check

        def tried(command: Struct, now: float, caller: Caller = SYSTEM) -> Outcome:
            before = _scalars(machine)
            outcome = try_out(command, now, caller)
            if _scalars(machine) != before:
                self._report(STATE_IS_JOURNAL, f"a trial of {type(command).__name__} has changed the state")
            return outcome

        machine.check = tried  # type: ignore[method-assign]
        machine.handle = decided  # type: ignore[method-assign]
        writer.handle = handled  # type: ignore[method-assign]
        writer.when_durable = shown  # type: ignore[method-assign]


def _scalars(machine: Machine) -> tuple[object, ...]:
    """Some of the state, to see whether a decision has changed it."""
    state = machine.state
    return state.next_job_id, state.next_slice_at, state.next_reservation_id, state.next_trigger_id, len(state.jobs)


def replay(reading: Reading, machine: Machine) -> None:
    """Apply each event after those that the state holds, once. Not by `recovery`, whose work is compared with this.

    Raises JournalError.
    """
    for group in reading.groups(machine.state.version):
        for number, event in enumerate(decode_group(group), group.first):
            if number == machine.state.version + 1:
                try:
                    machine.apply(event)
                except Exception as error:
                    raise JournalCorrupt(f"event {number} does not fit the state: {error!r}") from error
    if machine.state.version != reading.last_sequence:
        at, last = machine.state.version, reading.last_sequence
        raise JournalCorrupt(f"the journal ends at event {last}, and {at} is the last one that follows")


def _oldest(reading: Reading) -> Image | None:
    """The oldest image that all later events follow; None: the journal holds all events.

    A still older image may be there: power was lost before its removal, which is not synced, reached the disk.
    """
    first = reading.oldest_sequence or reading.last_sequence + 1
    followed = (image for image in reading.images() if first > 1 and image.sequence >= first - 1)
    return min(followed, key=lambda image: image.sequence, default=None)
