"""One command being decided: what it may read, and where its events and effects go.

A decision records events through `Turn.record`, which applies each at once, so that later parts of the same decision
see its result (ten starts of one plan must not take the same CPU). `Turn.record` is the only caller of `apply`
besides replay. A refusal raises `Refused` before anything is recorded: nothing is ever half done.
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
        """The same, with lines that Slurm prints before the failure itself."""
        self.rejection = replace(self.rejection, details=lines)
        return self


class Turn:
    """State, time and caller of one command, and what came of it so far."""

    __slots__ = ("caller", "effects", "events", "now", "state")

    def __init__(self, state: State, now: float, caller: Caller) -> None:
        self.state = state
        self.now = now
        self.caller = caller
        self.events: list[Event] = []
        self.effects: list[Effect] = []

    def record(self, event: Event) -> None:
        """The fact is decided; the state moves on."""
        apply_event(self.state, event)
        self.events.append(event)

    def ask(self, effect: Effect) -> None:
        """The world should do this once the events are durable. What concerns an external job is asked of nobody:
        whoever runs it follows the events.
        """
        job = self.state.jobs.get(getattr(effect, "job_id", 0))
        if job is None or not job.spec.external:
            self.effects.append(effect)


class WouldRecord(Exception):
    """A decision that must leave no trace wants to record an event. Never leaves the core."""


class CheckTurn(Turn):
    """A turn on a state that must stay as it is."""

    __slots__ = ()

    def record(self, event: Event) -> None:
        """Raises WouldRecord."""
        raise WouldRecord
