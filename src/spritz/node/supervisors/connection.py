"""A connection to a supervisor: sends orders, receives reports, detects its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from spritz.node import spool
from spritz.process_identity import Process, identify, send
from spritz.stepd import control
from spritz.stepd.spec import RECORD

if TYPE_CHECKING:
    from spritz.model.node_daemon.reports import RunningStep

OnReport = Callable[["SupervisorLink", control.Report], None]
OnEnd = Callable[["SupervisorLink"], None]

_RECEIVE_BYTES = 65536
#: Bytes of orders that wait for a supervisor, above which messages and questions are dropped.
_WAITING_BYTES_MAX = 256 * 1024
_NAME = "slurmstepd"


def kill_supervisor(directory: str) -> Process | None:
    """SIGKILL to the supervisor of the step in this spool directory. Returns that process; None if there is none.

    It is known by its open record. Slow where the record does not name it: reads /proc.
    """
    record = spool.read_record(directory)
    named = record.pids[:1] if record is not None else ()
    for pid in (*named, *(int(entry) for entry in os.listdir("/proc") if entry.isdecimal())):
        process = identify(pid)
        if _is_of(pid, directory) and send(process, signal.SIGKILL):
            return process
    return None


def _is_of(pid: int, directory: str) -> bool:
    """Whether this is the supervisor of the step in the directory."""
    files, path = f"/proc/{pid}/fd", f"{os.path.realpath(directory)}/{RECORD}"
    try:
        with open(f"/proc/{pid}/comm") as file:
            if file.read().strip() != _NAME:
                return False
        # " (deleted)" may follow.
        return any(os.readlink(f"{files}/{entry}").startswith(path) for entry in os.listdir(files))
    except OSError:
        return False


class SupervisorLink:
    """One supervisor. `finished` once it has reported the result; the end of its connection then means nothing."""

    __slots__ = (
        "_connection",
        "_decoder",
        "_loop",
        "_on_end",
        "_on_report",
        "_outgoing",
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
        #: orders that the supervisor has not taken yet
        self._outgoing = bytearray()
        self._decoder = control.ReportDecoder()
        self._on_report = on_report
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._readable)

    def order(self, order: control.Order) -> None:
        """Send an order now, or when the supervisor reads again. It may be busy for a while."""
        if self.closed:
            return
        if len(self._outgoing) > _WAITING_BYTES_MAX and isinstance(order, control.Notify):
            return  # what ends, holds or measures the step is short, and must reach it
        waits = bool(self._outgoing)
        self._outgoing += control.encode(order)
        if not waits:
            self._write()
            if self._outgoing and not self.closed:
                self._loop.add_writer(self._connection.fileno(), self._writable)

    def _write(self) -> None:
        try:
            del self._outgoing[: self._connection.send(self._outgoing, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass
        except OSError:
            self._end()

    def _writable(self) -> None:
        self._write()
        if not self._outgoing and not self.closed:
            self._loop.remove_writer(self._connection.fileno())

    async def measure(self) -> control.Measured:
        """The usage of its step so far. Raises ConnectionError if the supervisor ends meanwhile."""
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
            self._loop.remove_writer(self._connection.fileno())
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
