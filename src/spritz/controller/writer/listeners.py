"""Listeners: the parts of the controller that follow events, and the consequences when one of them fails.

Calls listeners in order and contains their failures: the failure is logged and counted (`sdiag`), the other listeners
still get the events, and no journaled event is lost. Each listener declares at its registration what follows from its
loss (`Loss`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.model.events import Event
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

#: Gets the events of one command, in order. Must neither hand in commands nor block.
Listen = Callable[["Sequence[Event]"], None]

#: Seconds after a failed rebuild before the next attempt.
REBUILD_SECONDS = 5.0

#: Seconds between two log lines about the same listener: it may fail for every event.
LOG_SECONDS = 10.0


class Loss(Enum):
    """What follows when a listener has missed events."""

    #: Its function rebuilds its memory from the state. Until that succeeds it gets no events: they would meet a memory
    #: that lacks what they are about.
    REBUILD = "rebuild"
    #: Its memory cannot be rebuilt, and the controller must not run without it: the daemon ends and recovers from the
    #: journal.
    STOP = "stop"
    #: Its output for these events is lost; nothing else depends on it.
    IGNORE = "ignore"


class _Listener:
    """`rebuild_at`: earliest time of the next rebuild (monotonic seconds); None: it has missed no event."""

    __slots__ = ("listen", "logged_at", "loss", "name", "rebuild", "rebuild_at")

    def __init__(self, name: str, listen: Listen, loss: Loss, rebuild: Callable[[], None] | None) -> None:
        self.name = name
        self.listen = listen
        self.loss = loss
        self.rebuild = rebuild
        self.rebuild_at: float | None = None
        self.logged_at = float("-inf")


class Listeners:
    """All listeners of the single writer. `failures` counts failures by "listener.NAME".

    `on_stop(error)` is called when a listener with Loss.STOP has failed.
    """

    def __init__(
        self, clock: Clock, log: Logger, failures: dict[str, int], *, on_stop: Callable[[Exception], None]
    ) -> None:
        self._clock = clock
        self._log = log
        self._failures = failures
        self._on_stop = on_stop
        self._listeners: list[_Listener] = []
        #: events are being delivered
        self.informing = False

    def add(self, name: str, listen: Listen, loss: Loss, rebuild: Callable[[], None] | None = None) -> None:
        """Register `listen`. `rebuild` restores its memory from the state; only for Loss.REBUILD."""
        assert (loss is Loss.REBUILD) is (rebuild is not None), f"listener {name}: {loss} with rebuild={rebuild}"
        self._listeners.append(_Listener(name, listen, loss, rebuild))

    def inform(self, events: Sequence[Event]) -> None:
        """Deliver events to all listeners. The state holds these events already. Raises nothing."""
        # Each listener gets all events of a command before the next one gets any, and none runs between two commands.
        # So a listener may look at the state: it is that after the last event that it is told.
        self.informing = True
        for listener in self._listeners:
            if listener.rebuild_at is not None:
                # Not these events as well: the state, from which it is rebuilt, holds them.
                self._rebuild(listener)
            else:
                self._tell(listener, events)
        self.informing = False

    def _tell(self, listener: _Listener, events: Sequence[Event]) -> None:
        try:
            listener.listen(events)
        except Exception as error:
            self._failed(listener, error, events)
            if listener.loss is Loss.STOP:
                self._on_stop(error)
            elif listener.loss is Loss.REBUILD:
                # At once: until the next event, perhaps hours, requests would be parked for jobs that have ended.
                listener.rebuild_at = 0.0
                self._rebuild(listener)

    def _rebuild(self, listener: _Listener) -> None:
        assert listener.rebuild is not None, f"listener {listener.name}"
        assert listener.rebuild_at is not None, f"listener {listener.name}"
        if self._clock.monotonic() < listener.rebuild_at:
            return
        try:
            listener.rebuild()
        except Exception as error:
            self._failed(listener, error, ())
            # A rebuild looks at the whole state. At each event of a burst it would take the loop from all requests.
            listener.rebuild_at = self._clock.monotonic() + REBUILD_SECONDS
        else:
            listener.rebuild_at = None

    def _failed(self, listener: _Listener, error: Exception, events: Sequence[Event]) -> None:
        where = f"listener.{listener.name}"
        count = self._failures[where] = self._failures.get(where, 0) + 1
        now = self._clock.monotonic()
        if now < listener.logged_at + LOG_SECONDS:
            return
        listener.logged_at = now
        self._log.error(
            "listener.failed",
            exception=error,
            error=repr(error),
            listener=listener.name,
            loss=listener.loss.value,
            events=",".join(sorted({type(event).__name__ for event in events})) or "none: it was to be rebuilt",
            failures=count,
        )
