"""The context of one decision: what the decision may read, and where its events and effects go.

A decision records events through `DecisionContext.record`, which applies each event immediately, so that later parts
of the same decision see the result (ten starts of one plan must not take the same CPU). Apart from replay, `record` is
the only caller of `apply`. A decision raises `Refused` before it records anything, so a command is carried out in full
or not at all. One that fails after that leaves a state that is not the journal's: `Fault` says so, and the shell
replaces the state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.apply import apply_event
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.core.effects import Effect
    from spritz.core.state import State
    from spritz.model.cluster import Caller
    from spritz.model.events import Event


class Refused(Exception):
    """Carries a Rejection out of a decision. Never leaves the core."""

    def __init__(self, code: str, message: str = "", hint: str = "") -> None:
        super().__init__(code)
        self.rejection = Rejection(code=code, message=message, hint=hint)

    def with_details(self, *lines: str) -> Refused:
        """Adds the lines that Slurm prints before the failure itself. Returns self."""
        self.rejection = replace(self.rejection, details=lines)
        return self


#: What a decision is about at the moment: a job, or a part of a Tick (`reservation NAME`). 0: nothing in particular.
Subject = int | str


class Fault(Exception):
    """A fault of the core: a decision raised what it must not. The cause is chained.

    `torn`: the decision had recorded events; the state must be replaced by that of the journal. `subject`: what the
    decision was about, so that it can be set aside. `rejection`: the decision refused too late.
    """

    def __init__(self, subject: Subject, *, torn: bool, rejection: Rejection | None) -> None:
        super().__init__(f"a decision about {subject} failed" if subject else "a decision failed")
        self.subject = subject
        self.torn = torn
        self.rejection = rejection


class DecisionContext:
    """State, time and caller of one command, with the events and effects that the decision has produced so far."""

    __slots__ = ("caller", "effects", "events", "now", "state", "subject")

    def __init__(self, state: State, now: float, caller: Caller) -> None:
        self.state = state
        self.now = now
        self.caller = caller
        #: for `Fault` alone
        self.subject: Subject = 0
        self.events: list[Event] = []
        self.effects: list[Effect] = []

    def record(self, event: Event) -> None:
        """Apply the event to the state, and add it to the events of this decision."""
        # Memory is now ahead of the journal. No reader outside can tell: replies, reads and effects wait until the
        # events are on disk. If that write fails, the controller ends, and recovers without them.
        # In this order: an event that cannot be applied has changed a part of the state, perhaps.
        self.events.append(event)
        apply_event(self.state, event)

    def add_effect(self, effect: Effect) -> None:
        """Have the shell carry this out once the events are durable.

        Effects for external jobs are dropped: the workload manager that runs such a job follows the events instead.
        """
        job = self.state.jobs.get(getattr(effect, "job_id", 0))
        if job is None or not job.spec.external:
            self.effects.append(effect)


class WouldRecord(Exception):
    """A decision that must not change the state tried to record an event. Never leaves the core."""


class ReadOnlyContext(DecisionContext):
    """The context of `Machine.check`: the state must not change."""

    __slots__ = ()

    def record(self, event: Event) -> None:
        """Raises WouldRecord: the decision is not free of events."""
        raise WouldRecord
