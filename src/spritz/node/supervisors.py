"""A connection to a supervisor: sends orders, receives reports, detects its end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from spritz.stepd import control

if TYPE_CHECKING:
    from spritz.model.reports import RunningStep

OnReport = Callable[["SupervisorLink", control.Report], None]
OnEnd = Callable[["SupervisorLink"], None]

_RECEIVE_BYTES = 65536


class SupervisorLink:
    """One supervisor. `finished` once it has told the result; the end of its connection after that means nothing."""

    __slots__ = (
        "_connection",
        "_decoder",
        "_loop",
        "_on_end",
        "_on_report",
        "closed",
        "directory",
        "finished",
        "key",
        "measuring",
        "node",
        "task_ids",
    )

    def __init__(
        self,
        node: str,
        key: RunningStep,
        directory: str,
        task_ids: tuple[int, ...],
        connection: socket.socket,
        *,
        on_report: OnReport,
        on_end: OnEnd,
    ) -> None:
        self.node = node
        self.key = key
        self.directory = directory
        self.task_ids = task_ids
        self.finished = False
        self.closed = False
        #: callers waiting for the step's usage
        self.measuring: list[asyncio.Future[control.Measured]] = []
        self._connection = connection
        self._decoder = control.ReportDecoder()
        self._on_report = on_report
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._readable)

    def order(self, order: control.Order) -> None:
        """Send an order. Orders are small: a supervisor that stops reading is taken for dead."""
        if self.closed:
            return
        try:
            self._connection.sendall(control.encode(order))
        except OSError:
            self._end()

    async def measure(self) -> control.Measured:
        """What its step has used so far. Raises ConnectionError if the supervisor ends meanwhile."""
        future: asyncio.Future[control.Measured] = self._loop.create_future()
        self.measuring.append(future)
        # concurrent callers share one query
        if len(self.measuring) == 1:
            self.order(control.Measure())
        if self.closed:
            self.measured(None)
        return await future

    def measured(self, answer: control.Measured | None) -> None:
        """Answer the callers; None: the usage is unknown."""
        waiting, self.measuring = self.measuring, []
        for future in waiting:
            if future.done():
                continue
            if answer is None:
                future.set_exception(ConnectionError("the step ends"))
            else:
                future.set_result(answer)

    def begin(self, node: str, key: RunningStep, directory: str, task_ids: tuple[int, ...]) -> None:
        """Give another step to an idle supervisor. If the supervisor is gone, the link is `closed`."""
        self.measured(None)  # of the step before: its answer does not come any more
        self.node, self.key, self.directory, self.task_ids = node, key, directory, task_ids
        self.order(control.Begin(directory))
        self.finished = False

    def close(self) -> None:
        """Close the connection; the supervisor continues."""
        if not self.closed:
            self.closed = True
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            self.measured(None)

    def _end(self) -> None:
        if not self.closed:
            self.close()
            self._on_end(self)

    def _readable(self) -> None:
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        for report in self._decoder.feed(data):
            self._on_report(self, report)
