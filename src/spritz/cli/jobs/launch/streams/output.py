"""Destinations of tasks' output at the client: its own streams or files.

Source: srun(1) --output, --error, --unbuffered; recorded output of 22.05.
"""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING

from spritz.stepd.reactor import WRITABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.stepd.reactor import Reactor

#: Queued bytes beyond which srun stops reading from supervisors.
_QUEUE_HIGH_BYTES = 1 << 20
#: A pipe that is ready for writing accepts at least this many bytes (PIPE_BUF).
_PIECE_BYTES = 4096
#: Longest time between two looks for signals while srun waits for a reader at its end.
_DRAIN_PAUSE_MS = 100


class Sink:
    """A destination of output. Queues data for a slow reader, so that a full pipe does not block srun and its signals.

    Calls `on_broken(error)` once if writing fails; later output is lost.
    """

    def __init__(self, reactor: Reactor, descriptor: int, on_broken: Callable[[OSError], None]) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._on_broken = on_broken
        self._queue: list[memoryview] = []
        self._broken = False
        self._gave_up = False
        self._slow = not stat.S_ISREG(os.fstat(descriptor).st_mode)
        self.queued_bytes = 0

    @property
    def full(self) -> bool:
        """Whether so much is queued that srun should stop reading from supervisors."""
        return self.queued_bytes > _QUEUE_HIGH_BYTES

    def write(self, data: bytes) -> None:
        """Write or queue the data; drops it once the reader has closed the pipe."""
        if self._broken or not data:
            return
        self._queue.append(memoryview(data))
        self.queued_bytes += len(data)
        if len(self._queue) == 1:
            if self._slow and not self._ready_now():
                self._reactor.watch(self._descriptor, WRITABLE, self._writable)
            else:
                self._flush()
        if self._gave_up:
            self._drop()

    def give_up(self) -> None:
        """Wait no longer for a slow reader: from now on drop what it does not take at once."""
        self._gave_up = True
        self._drop()

    def _drop(self) -> None:
        if self._slow and not self._ready_now():
            self._forget_queue()

    def drain(self) -> None:
        """Wait until all queued data is written. Signals are handled meanwhile, and may give up the wait."""
        self._reactor.forget(self._descriptor)
        while self._queue and not self._broken:
            if not self._slow:
                self._write_piece(1 << 20)
            elif self._ready_now(_DRAIN_PAUSE_MS):
                self._write_piece(_PIECE_BYTES)
            else:
                self._reactor.on_child()

    def _ready_now(self, patience_ms: int = 0) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(patience_ms))

    def _forget_queue(self) -> None:
        self._queue.clear()
        self.queued_bytes = 0
        self._reactor.forget(self._descriptor)

    def _writable(self, ready: int) -> None:
        self._flush()

    def _flush(self) -> None:
        while self._queue and not self._broken:
            self._write_piece(_PIECE_BYTES if self._slow else 1 << 20)
            if self._queue and self._slow and not self._ready_now():
                self._reactor.watch(self._descriptor, WRITABLE, self._writable)
                return
        self._reactor.forget(self._descriptor)

    def _write_piece(self, most: int) -> None:
        piece = self._queue[0]
        try:
            written = os.write(self._descriptor, piece[:most])
        except BlockingIOError:
            return
        except OSError as error:
            self._broken = True
            self._forget_queue()
            self._on_broken(error)
            return
        self.queued_bytes -= written
        if written < len(piece):
            self._queue[0] = piece[written:]
        else:
            del self._queue[0]
