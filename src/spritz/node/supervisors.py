"""Connections to the supervisors of this daemon's steps: orders out, reports in, and their ends noticed at once."""

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
        #: who waits to be told what the step has used
        self.measuring: list[asyncio.Future[control.Measured]] = []
        self._connection = connection
        self._decoder = control.ReportDecoder()
        self._on_report = on_report
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._readable)

    def order(self, order: control.Order) -> None:
        """Tell it something. Orders are small: a supervisor that reads none of many is taken for dead."""
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
        # One question is enough for all who ask while it is answered.
        if len(self.measuring) == 1:
            self.order(control.Measure())
        if self.closed:
            self.measured(None)
        return await future

    def measured(self, answer: control.Measured | None) -> None:
        """Tell those who wait; None: it will not be known."""
        waiting, self.measuring = self.measuring, []
        for future in waiting:
            if future.done():
                continue
            if answer is None:
                future.set_exception(ConnectionError("the step ends"))
            else:
                future.set_result(answer)

    def begin(self, node: str, key: RunningStep, directory: str, task_ids: tuple[int, ...]) -> None:
        """Give another step to an idle supervisor. It is `closed` afterwards if there was none any more."""
        self.node, self.key, self.directory, self.task_ids = node, key, directory, task_ids
        self.order(control.Begin(directory))
        self.finished = False

    def close(self) -> None:
        """Let go of it; it goes on by itself."""
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
