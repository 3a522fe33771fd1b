"""The only entry to the cluster's state.

`handle` decides a command against the present state, and returns a reply (or a `Rejection`), the events that are now
facts, and the effects to carry out once those events are durable. `trial` does the same and takes it back. `apply`
replays a journaled event. Time is an argument; nothing here reads a clock or does I/O.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.core import pending
from spritz.core.apply import apply_event
from spritz.core.decide import DECISIONS, INTERNAL
from spritz.core.decide.due import MINUTES, POWER, SLICES
from spritz.core.decide.reservations.replenish import replenish
from spritz.core.decide.siblings import settle_siblings
from spritz.core.decide.waiting.accrue import settle_accrual
from spritz.core.decision import DecisionContext, Fault, Refused, Torn
from spritz.core.effects import Effect
from spritz.core.image import decoded, encoded
from spritz.core.power import power_due
from spritz.core.reservations import next_due
from spritz.core.state import State
from spritz.model.cluster.settings import SYSTEM, Caller, ClusterSettings
from spritz.model.commands.job import Done
from spritz.model.events import NO_CHANGES, Changes, Event
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


#: Events in the story of a fault: a plan may have recorded thousands.
STORY_EVENTS_MAX = 20


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a command. A Rejection comes without events and effects. `changes`: of the events, on records."""

    reply: Struct
    events: tuple[Event, ...] = ()
    changes: Changes = NO_CHANGES
    effects: tuple[Effect, ...] = ()

    @property
    def rejection(self) -> Rejection | None:
        """The refusal, if the reply is one."""
        return self.reply if isinstance(self.reply, Rejection) else None


class Machine:
    """The cluster. Begin with `Machine(settings)` and a `Configure` command, or with `from_image` and
    replayed events.
    """

    def __init__(self, settings: ClusterSettings | None = None, *, state: State | None = None) -> None:
        self.state = state if state is not None else State(settings or ClusterSettings())
        #: why a trial could not be taken back: nothing may be decided on what it has left
        self._torn: Torn | None = None

    def handle(self, command: Struct, now: float, caller: Caller = SYSTEM) -> Outcome:
        """Decide one command. `now`: seconds since the epoch. Raises TypeError for an object that is not a command,
        Fault for one that fails, and Torn if that could not be taken back.
        """
        if self._torn is not None:
            raise Torn("an earlier trial could not be taken back") from self._torn
        context = DecisionContext(self.state, now, caller)
        outcome = _decide(context, command)
        context.commit()
        return outcome

    @contextmanager
    def trial(self, command: Struct, now: float, caller: Caller = SYSTEM) -> Iterator[Outcome]:
        """The outcome that `handle` would return now, with the state that it would leave; afterwards the state is as it
        was.

        Nothing else may be decided meanwhile. Raises Fault, and Torn if the state could not be taken back, as `handle`
        does from then on.
        """
        state, memory = self.state, self.state.memory
        state.memory = memory.copy()
        context = DecisionContext(state, now, caller)
        try:
            try:
                yield _decide(context, command)
            finally:
                context.roll_back()
                state.memory = memory
        except Torn as error:
            self._torn = error
            raise

    def check(self, command: Struct, now: float, caller: Caller = SYSTEM) -> Outcome:
        """The outcome that `handle` would return now, events and effects included; the state stays unchanged. Costs as
        much as `handle`.
        """
        with self.trial(command, now, caller) as outcome:
            return outcome

    def apply(self, event: Event) -> Changes:
        """Change the state by one journaled event, as in replay. Returns what it has changed."""
        state = self.state
        apply_event(state, event)
        state.undo.forget()
        return state.replaced.take(state)

    def next_deadline(self) -> float | None:
        """When to send `Tick` at the latest (seconds since the epoch); None if nothing falls due before another
        command.
        """
        state = self.state
        slice_at = state.next_slice_at or None
        due: tuple[float | None, ...] = (
            state.deadlines.next(),
            state.step_deadlines.next(),
            state.minute_deadlines.next(),
            slice_at,
            next_due(state),
            power_due(state),
        )
        if state.memory.set_aside:
            due = tuple(
                at for at, part in zip(due, _TICK_PARTS, strict=True) if not part or not state.memory.ignores(part)
            )
        return min((at for at in due if at is not None), default=None)

    def pending_effects(self, node: str | None = None) -> list[Effect]:
        """All effects that may not have been delivered, derived from the state: after a restart, or (with `node`) when
        a node comes back.
        """
        return pending.pending_effects(self.state, node)

    def image(self) -> bytes:
        """The durable form of the state."""
        return encoded(self.state)

    @classmethod
    def from_image(cls, data: bytes) -> Machine:
        return cls(state=decoded(data))


#: the parts of a Tick that the deadlines of `Machine.next_deadline` belong to ("": they belong to jobs or reservations)
_TICK_PARTS = ("", "", MINUTES, SLICES, "", POWER)


def _decide(context: DecisionContext, command: Struct) -> Outcome:
    """The outcome of the command, whose changes can still be taken back; of one that is refused or fails they are."""
    internal = type(command) in INTERNAL
    reported = getattr(command, "job_id", 0) if internal else 0
    if reported and context.state.memory.ignores(reported):
        return Outcome(reply=Done())  # a report that failed twice
    decide = DECISIONS.get(type(command))
    if decide is None:
        raise TypeError(f"{type(command).__name__} is not a command of the core")
    if internal and not context.caller.admin:
        return Outcome(reply=Rejection(code="ESLURM_ACCESS_DENIED"))
    try:
        reply = decide(context, command)
        _follow(context)
    except Refused as refused:
        context.roll_back()
        return Outcome(reply=refused.rejection)
    except Exception as error:
        subject, events = context.subject or reported, tuple(context.events)
        context.roll_back()
        if events or subject:
            record = context.state.jobs.get(subject) if isinstance(subject, int) else None
            raise Fault(subject, (*([record] if record is not None else []), *events[-STORY_EVENTS_MAX:])) from error
        raise
    events, effects = tuple(context.events), tuple(context.effects)
    changes = context.state.replaced.take(context.state) if events else NO_CHANGES
    return Outcome(reply=reply, events=events, changes=changes, effects=effects)


def _follow(context: DecisionContext) -> None:
    """Consequences that any command may have, derived from what it has recorded.

    The order matters: the first two may record events, and `settle_siblings` tells other clusters of jobs as they are
    at the end.
    """
    memory = context.state.memory
    for name, consequence in _CONSEQUENCES:
        context.subject = name
        if not memory.set_aside or not memory.ignores(name):
            consequence(context)


_CONSEQUENCES: tuple[tuple[str, Callable[[DecisionContext], None]], ...] = (
    ("reservations", replenish),
    ("age priority", settle_accrual),
    ("federated jobs", settle_siblings),
)
