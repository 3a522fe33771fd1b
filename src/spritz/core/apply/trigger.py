"""How events about triggers change the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.model.events import trigger as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event


def _set(state: State, event: events.TriggerSet) -> None:
    state.put_trigger(event.trigger)
    state.next_trigger_id = event.trigger.id + 1


def _pulled(state: State, event: events.TriggersPulled) -> None:
    for pull in event.pulls:
        trigger = state.triggers[pull.id]
        state.put_trigger(replace(trigger, pulls=(*trigger.pulls, pull)))


def _fired(state: State, event: events.TriggersFired) -> None:
    for pull in event.pulls:
        trigger = state.triggers.get(pull.id)
        if trigger is None:
            continue
        left = tuple(other for other in trigger.pulls if other != pull)
        if trigger.permanent or left:
            state.put_trigger(replace(trigger, pulls=left))
        else:
            state.drop_trigger(pull.id)


def _cleared(state: State, event: events.TriggersCleared) -> None:
    for number in event.ids:
        state.drop_trigger(number)


# Any: each function takes its own kind of event.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {
    events.TriggerSet: _set,
    events.TriggersPulled: _pulled,
    events.TriggersFired: _fired,
    events.TriggersCleared: _cleared,
}
