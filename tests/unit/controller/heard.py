"""A stand-in for the writer's listeners, whose failures are the test's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spritz.controller.writer.listeners import Loss
from spritz.model.events import Event


class Heard:
    """Calls what was added, and contains nothing."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Sequence[Event]], None]] = []
        self._rebuilds: list[Callable[[], None]] = []

    def add(
        self,
        name: str,
        listen: Callable[[Sequence[Event]], None],
        loss: Loss,
        rebuild: Callable[[], None] | None = None,
    ) -> None:
        """See `Listeners.add`."""
        self._listeners.append(listen)
        if rebuild is not None:
            self._rebuilds.append(rebuild)

    def inform(self, events: Sequence[Event]) -> None:
        """See `Listeners.inform`."""
        for listen in self._listeners:
            listen(events)

    def lose(self) -> None:
        """All of them have missed events."""
        for rebuild in self._rebuilds:
            rebuild()
