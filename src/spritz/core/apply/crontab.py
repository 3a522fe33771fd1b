"""How a change of a crontab changes the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.model.events.crontab import CrontabChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event


def _changed(state: State, event: CrontabChanged) -> None:
    state.put_crontab(event.crontab)


# Any: each function takes its own kind of event.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {CrontabChanged: _changed}
