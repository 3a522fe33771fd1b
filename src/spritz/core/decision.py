"""The context of one decision: what the decision may read, and where its events and effects go.

A decision records events through `DecisionContext.record`, which applies each event immediately, so that later parts
of the same decision see the result (ten starts of one plan must not take the same CPU). Apart from replay, `record` is
the only caller of `apply`. A decision is a transaction: where it raises `Refused`, or fails, whatever it has recorded
is taken back, so a command is carried out in full or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.apply import apply_event
from spritz.core.memory import Subject
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Struct

    from spritz.core.effects import Effect
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
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


class Fault(Exception):
    """A fault of the core: a decision raised what it must not, and was taken back. The cause is chained.

    `subject`: what the decision was about, so that it can be set aside. `story`: the record that it was about, as it
    was before, and the last events that the decision had recorded, for the developer who repairs it.
    """

    def __init__(self, subject: Subject, story: Sequence[Struct] = ()) -> None:
        super().__init__(f"a decision about {subject} failed" if subject else "a decision failed")
        self.subject = subject
        self.story = story


class Torn(Exception):
    """A decision failed, and could not be taken back: the state is not the journal's. The cause is chained."""


class DecisionContext:
    """State, time and caller of one command, with the events and effects that the decision has produced so far.

    It ends with `commit` or `roll_back`.
    """

    __slots__ = ("_names", "caller", "effects", "events", "now", "state", "subject")

    def __init__(self, state: State, now: float, caller: Caller) -> None:
        self.state = state
        self.now = now
        self.caller = caller
        #: for `Fault` alone
        self.subject: Subject = 0
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        #: those of the state before the first event
        self._names: tuple[object, ...] | None = None

    def record(self, event: Event) -> None:
        """Apply the event to the state, and add it to the events of this decision."""
        # Memory is now ahead of the journal. No reader outside can tell: replies, reads and effects wait until the
        # events are on disk. If that write fails, the controller ends, and recovers without them.
        # In this order: an event that cannot be applied has changed a part of the state, perhaps.
        if self._names is None:
            self._names = self.state.names()
        self.events.append(event)
        apply_event(self.state, event)

    def add_effect(self, effect: Effect) -> None:
        """Have the shell carry this out once the events are durable.

        Effects for external jobs are dropped: the workload manager that runs such a job follows the events instead.
        """
        job = self.state.jobs.get(getattr(effect, "job_id", 0))
        if job is None or not job.spec.external:
            self.effects.append(effect)

    def commit(self) -> None:
        """Keep the recorded events."""
        self.state.undo.forget()

    def roll_back(self) -> None:
        """Leave the state as it was before the decision. Raises Torn."""
        try:
            if self._names is None:
                self.state.undo.roll_back()  # deadlines that no event moves
            else:
                self.state.roll_back(self._names)
        except Exception as error:
            raise Torn("a decision could not be taken back") from error
