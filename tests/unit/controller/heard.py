"""A stand-in for the writer's listeners, whose failures are the test's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spritz.controller.writer.listeners import Follow, Listen, Loss
from spritz.model.events import NO_CHANGES, Changes, Event


class Heard:
    """Calls what was added, and contains nothing."""

    def __init__(self) -> None:
        self._listeners: list[tuple[Follow | None, Listen | None]] = []
        self._rebuilds: list[Callable[[], None]] = []

    def add(
        self,
        name: str,
        listen: Listen | None,
        loss: Loss,
        rebuild: Callable[[], None] | None = None,
        *,
        follow: Follow | None = None,
    ) -> None:
        """See `Listeners.add`."""
        self._listeners.append((follow, listen))
        if rebuild is not None:
            self._rebuilds.append(rebuild)

    def inform(self, events: Sequence[Event], changes: Changes = NO_CHANGES) -> None:
        """See `Listeners.inform`."""
        for follow, listen in self._listeners:
            if follow is not None:
                follow(changes)
            if listen is not None:
                listen(events)

    def lose(self) -> None:
        """All of them have missed events."""
        for rebuild in self._rebuilds:
            rebuild()
