"""Pumps between a task's pipes and the clients or files: output by lines, input by credit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from spritz.stepd import protocol
from spritz.stepd.reactor import READABLE, WRITABLE, Reactor

_READ_BYTES = 65536
#: Bytes that a pipe may still hold when its writer has ended.
_PIPE_BYTES = 1024 * 1024


class OutputPump:
    """Reads one stream of one task and hands its bytes on, none at its end; `by_lines`: lines that end, if short."""

    def __init__(
        self,
        reactor: Reactor,
        descriptor: int,
        *,
        by_lines: bool,
        sink: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._by_lines = by_lines
        self._sink = sink
        self._on_end = on_end
        self._rest = b""
        self._holders: set[object] = set()
        self.ended = False
        os.set_blocking(descriptor, False)
        reactor.watch(descriptor, READABLE, self._ready)

    def pause(self, holder: object) -> None:
        """Read no more until `holder` resumes, and all other holders: the task is stopped by its full pipe."""
        if not self.ended:
            self._holders.add(holder)
            self._reactor.forget(self._descriptor)

    def resume(self, holder: object) -> None:
        if not self.ended and holder in self._holders:
            self._holders.discard(holder)
            if not self._holders:
                self._reactor.watch(self._descriptor, READABLE, self._ready)

    def drain(self) -> None:
        """Hand on all that was written so far, an unfinished line included."""
        for _ in range(_PIPE_BYTES // _READ_BYTES):
            if self.ended or not self._read():
                break
        self._hand_on(b"", all_of_it=True)

    def close(self) -> None:
        """Give the stream up, even if a process still holds its other end."""
        if not self.ended:
            self._end()

    def _ready(self, ready: int) -> None:
        self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the last process has closed the pty
            data = b""
        if data:
            self._hand_on(data, all_of_it=not self._by_lines)
            return True
        self._end()
        return False

    def _end(self) -> None:
        self.ended = True
        self._reactor.forget(self._descriptor)
        os.close(self._descriptor)
        self._hand_on(b"", all_of_it=True)
        self._sink(b"")
        self._on_end()

    def _hand_on(self, data: bytes, *, all_of_it: bool) -> None:
        data = self._rest + data if self._rest else data
        cut = len(data) if all_of_it else data.rfind(b"\n") + 1
        if len(data) - cut > protocol.LINE_BYTES_MAX:
            cut = len(data)
        self._rest = data[cut:]
        if cut:
            self._sink(data[:cut])


class Chunk:
    """Bytes of standard input on their way to one task or several; credited when all have had them."""

    __slots__ = ("data", "giver", "takers")

    def __init__(self, data: bytes, takers: int, giver: object) -> None:
        self.data = data
        self.takers = takers
        self.giver = giver


class InputPump:
    """Writes a client's standard input to one task. Data for a task that reads no more is dropped (and credited)."""

    def __init__(
        self, reactor: Reactor, descriptor: int, *, on_taken: Callable[[Chunk], None], terminal: bool = False
    ) -> None:
        self._reactor = reactor
        # A terminal's descriptor is also read from, and watched for that: writing has one of its own.
        self.descriptor = os.dup(descriptor) if terminal else descriptor
        self._terminal = terminal
        self._on_taken = on_taken
        self._queue: deque[tuple[Chunk, int]] = deque()
        self._ending = False
        self.closed = False
        os.set_blocking(self.descriptor, False)
        reactor.watch(self.descriptor, 0, self._ready)

    def feed(self, chunk: Chunk) -> None:
        """Queue it behind what is waiting."""
        if self.closed or self._ending:
            self._on_taken(chunk)
            return
        self._queue.append((chunk, 0))
        self._flush()

    def end(self) -> None:
        """Close when all is written; on a terminal: type the end-of-file character."""
        if self._terminal:
            self.feed(Chunk(b"\x04", 0, None))
            return
        self._ending = True
        if not self._queue:
            self.close()

    def close(self) -> None:
        """Close the task's input now; bytes that are still queued count as taken."""
        if not self.closed:
            self.closed = True
            self._reactor.forget(self.descriptor)
            os.close(self.descriptor)
            while self._queue:
                self._on_taken(self._queue.popleft()[0])

    def _ready(self, ready: int) -> None:
        if ready & WRITABLE:
            self._flush()
        else:
            self.close()  # no process holds the reading end

    def _flush(self) -> None:
        while self._queue:
            chunk, at = self._queue[0]
            try:
                written = os.write(self.descriptor, memoryview(chunk.data)[at:])
            except BlockingIOError:
                self._reactor.watch(self.descriptor, WRITABLE, self._ready)
                return
            except OSError:
                self.close()
                return
            if at + written < len(chunk.data):
                self._queue[0] = (chunk, at + written)
            else:
                self._queue.popleft()
                self._on_taken(chunk)
        if self._ending:
            self.close()
        else:
            self._reactor.watch(self.descriptor, 0, self._ready)
