"""The only entry to the cluster's state.

`handle` decides a command against the present state, and returns a reply (or a `Rejection`), the events that are now
facts, and the effects to carry out once those events are durable. `check` returns what `handle` would, and leaves the
state unchanged. `apply` replays a journaled event. Time is an argument; nothing here reads a clock or does I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.core import pending
from spritz.core.apply import apply_event
from spritz.core.copied import copied
from spritz.core.decide import DECISIONS, INTERNAL
from spritz.core.decide.accrue import settle_accrual
from spritz.core.decide.due import MINUTES, POWER, SLICES
from spritz.core.decide.replenish import replenish
from spritz.core.decide.set_aside import is_ignored
from spritz.core.decide.siblings import settle_siblings
from spritz.core.decision import DecisionContext, Fault, ReadOnlyContext, Refused, WouldRecord
from spritz.core.effects import Effect
from spritz.core.image import decoded, encoded
from spritz.core.power import power_due
from spritz.core.reservations import next_due
from spritz.core.state import State
from spritz.model.cluster import SYSTEM, Caller, ClusterSettings
from spritz.model.commands.job import Done
from spritz.model.events import Event
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from collections.abc import Callable


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a command. A Rejection comes without events and effects."""

    reply: Struct
    events: tuple[Event, ...] = ()
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

    def handle(self, command: Struct, now: float, caller: Caller = SYSTEM) -> Outcome:
        """Decide one command. `now`: seconds since the epoch. Raises TypeError for an object that is not a command."""
        context = DecisionContext(self.state, now, caller)
        if self.state.set_aside and type(command) in INTERNAL and is_ignored(self.state, getattr(command, "job_id", 0)):
            return Outcome(reply=Done())  # a report that failed twice
        try:
            reply = _decided(context, command)
            if isinstance(reply, Rejection):
                return Outcome(reply=reply)
            _follow(context)
        except Exception as error:
            subject = context.subject or (getattr(command, "job_id", 0) if type(command) in INTERNAL else 0)
            if context.events or subject:
                late = error.rejection if isinstance(error, Refused) else None
                raise Fault(subject, torn=bool(context.events), rejection=late) from error
            raise
        return Outcome(reply=reply, events=tuple(context.events), effects=tuple(context.effects))

    def check(self, command: Struct, now: float, caller: Caller = SYSTEM) -> Outcome:
        """What `handle` would return now, events and effects included; the state stays unchanged.

        Refusals and `test_only` record nothing, and are decided on the state itself. A command that would record an
        event is decided on a copy of the state, whose cost grows with the state.
        """
        # A copy of the state costs 0.2 s with 100,000 jobs, and most dry runs end without an event: so try on the state
        # itself first, where the attempt to record is what ends the trial, before anything has changed.
        context = ReadOnlyContext(self.state, now, caller)
        try:
            reply = _decided(context, command)
        except WouldRecord:
            return self.copy().handle(command, now, caller)
        return Outcome(reply=reply, effects=() if isinstance(reply, Rejection) else tuple(context.effects))

    def copy(self) -> Machine:
        """A machine with an independent copy of the state."""
        return Machine(state=copied(self.state))

    def apply(self, event: Event) -> None:
        """Change the state by one journaled event, as in replay."""
        apply_event(self.state, event)

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
        if state.set_aside:
            due = tuple(
                at for at, part in zip(due, _TICK_PARTS, strict=True) if not part or not is_ignored(state, part)
            )
        return min((at for at in due if at is not None), default=None)

    def pending_effects(self, node: str | None = None) -> list[Effect]:
        """All effects that may not have been delivered, derived from the state: after a restart, or (with `node`) when
        a node comes back.
        """
        return pending.pending_effects(self.state, node)

    def restore(self, other: Machine) -> None:
        """Become `other`, which has the state of the journal: a decision has torn this one."""
        self.state.take_over(other.state)

    def image(self) -> bytes:
        """The durable form of the state."""
        return encoded(self.state)

    @classmethod
    def from_image(cls, data: bytes) -> Machine:
        return cls(state=decoded(data))


#: the parts of a Tick that the deadlines of `Machine.next_deadline` belong to ("": they belong to jobs or reservations)
_TICK_PARTS = ("", "", MINUTES, SLICES, "", POWER)


def _follow(context: DecisionContext) -> None:
    """Consequences that any command may have, derived from what it has recorded.

    The order matters: the first two may record events, and `settle_siblings` tells other clusters of jobs as they are
    at the end.
    """
    for name, consequence in _CONSEQUENCES:
        context.subject = name
        if not context.state.set_aside or not is_ignored(context.state, name):
            consequence(context)


_CONSEQUENCES: tuple[tuple[str, Callable[[DecisionContext], None]], ...] = (
    ("reservations", replenish),
    ("age priority", settle_accrual),
    ("federated jobs", settle_siblings),
)


def _decided(context: DecisionContext, command: Struct) -> Struct:
    """The reply of the command's decision, or the Rejection that it raised."""
    decide = DECISIONS.get(type(command))
    if decide is None:
        raise TypeError(f"{type(command).__name__} is not a command of the core")
    if not context.caller.admin and type(command) in INTERNAL:
        return Rejection(code="ESLURM_ACCESS_DENIED")
    try:
        return decide(context, command)
    except Refused as refused:
        if context.events:
            raise  # too late: it becomes a Fault
        return refused.rejection
