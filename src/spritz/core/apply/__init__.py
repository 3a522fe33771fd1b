"""Event -> state. Never refuses, never reads a clock, never emits effects. Only this package changes a `State`.

One file per noun, as in `model.events`: `job`, `step`, `cluster` (nodes and partitions too), `reservation`, `crontab`,
`trigger`. `APPLIERS` maps every kind of event to its function; a test checks that it is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.core.apply import cluster, crontab, job, reservation, step, trigger

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event

# Any: each function takes its own kind of event; the table pairs them.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {
    **job.APPLIERS,
    **step.APPLIERS,
    **cluster.APPLIERS,
    **reservation.APPLIERS,
    **crontab.APPLIERS,
    **trigger.APPLIERS,
}


def apply_event(state: State, event: Event) -> None:
    """Advance the state by one event. Raises KeyError for a kind that has no handler."""
    if event.at < state.at:
        # The clock was set back: events carry the time of their decision.
        state.change_usage().set_back(state.at, event.at)
    state.at = event.at
    APPLIERS[type(event)](state, event)
    # The version is the sequence number of the last event in the journal: recovery replays from it.
    state.version += 1
