"""Reports to the controller: sent in order, kept until acknowledged, sent again on every new connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spritz.client.errors import CallTimeout, ConnectionLost, RemoteError
from spritz.model.commands.job import Done
from spritz.model.node_daemon.reports import JobGone

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.channel import Channel
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger
    from spritz.runtime.tasks import Supervisor

#: Seconds to wait for the controller's answer, and before a refused report is sent again.
_ANSWER_SECONDS = 30.0
_REFUSED_SECONDS = 5.0


class Reporter:
    """Keeps unacknowledged reports. `on_acknowledged` is called with each report once."""

    def __init__(self, tasks: Supervisor, clock: Clock, log: Logger, on_acknowledged: Callable[[Struct], None]) -> None:
        self._tasks = tasks
        self._clock = clock
        self._log = log
        self._on_acknowledged = on_acknowledged
        self._pending: dict[int, Struct] = {}
        #: those of `_pending` that say that a job is gone
        self._gone: set[JobGone] = set()
        self._sequence = 0
        self._channel: Channel | None = None

    def __len__(self) -> int:
        return len(self._pending)

    def connected(self, channel: Channel) -> None:
        """The nodes are registered on a new connection: send all kept reports, oldest first."""
        self._channel = channel
        for number, report in list(self._pending.items()):
            self._tasks.spawn_contained(self._deliver(number, report, channel), name="report")

    def send(self, report: Struct) -> None:
        """Send a report now, or as soon as there is a controller.

        That a job is gone is not sent again while it waits for its acknowledgement: a controller whose orders arrive,
        and which hears nothing, orders the end again and again.
        """
        if isinstance(report, JobGone):
            if report in self._gone:
                return
            self._gone.add(report)
        self._sequence += 1
        self._pending[self._sequence] = report
        if self._channel is not None and self._channel.is_open:
            self._tasks.spawn_contained(self._deliver(self._sequence, report, self._channel), name="report")

    async def _deliver(self, number: int, report: Struct, channel: Channel) -> None:
        while number in self._pending and channel.is_open:
            try:
                await channel.call(report, Done, timeout=_ANSWER_SECONDS)
            except ConnectionLost:
                return
            except CallTimeout:
                self._log.error("report.unanswered", kind=type(report).__name__)
            except RemoteError as error:
                self._log.error("report.refused", kind=type(report).__name__, error=error.message)
                await self._clock.sleep(_REFUSED_SECONDS)
            else:
                if self._pending.pop(number, None) is not None:
                    if isinstance(report, JobGone):
                        self._gone.discard(report)
                    self._on_acknowledged(report)
                return
