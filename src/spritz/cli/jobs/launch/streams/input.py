"""Standard input of the tasks, with flow control: reads no more than the tasks can take.

Source: srun(1) --input.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from spritz.cli.call.terminal import in_foreground
from spritz.cli.jobs.launch.listener import send_all
from spritz.stepd import protocol
from spritz.stepd.reactor import READABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.cli.jobs.launch.listener import Link
    from spritz.stepd.reactor import Reactor

_READ_BYTES = 32 * 1024
#: Seconds between two checks whether srun has become the terminal's foreground.
_BACKGROUND_SECONDS = 0.5


class Input:
    """Reads `descriptor` while all receivers have room. `task`: a rank, or None for all tasks.

    Starts once all supervisors are connected, so that each receives the beginning.
    """

    def __init__(
        self,
        reactor: Reactor,
        descriptor: int,
        task: int | None,
        links: Callable[[], Iterable[Link]],
        *,
        read_bytes: int = 0,
    ) -> None:
        #: bytes read so far
        self.read_bytes = 0
        self._most = read_bytes or _READ_BYTES
        self._reactor = reactor
        self._descriptor = descriptor
        self._task = task
        self._links = links
        self._reading = False
        self._ended = False
        self._started = False
        # A file is always ready and poll says so; a directory or a closed descriptor fails at the first read.
        self._terminal = stat.S_ISCHR(os.fstat(descriptor).st_mode) and os.isatty(descriptor)

    def start(self) -> None:
        """Begin to read: all supervisors are connected."""
        self._started = True
        self.credited()

    def stop(self) -> None:
        """Stop reading: no task needs more input."""
        self._ended = True
        self._pause()

    def credited(self) -> None:
        """A receiver has used up input: continue to read if all have room."""
        if self._ended or self._reading or not self._started or not self._room():
            return
        if self._terminal and not self._foreground():
            self._reactor.after(_BACKGROUND_SECONDS, self.credited)
            return
        self._reading = True
        self._reactor.watch(self._descriptor, READABLE, self._ready)

    def _takers(self) -> list[Link]:
        live = [link for link in self._links() if not link.closed and not link.done]
        if self._task is None:
            return live
        return [link for link in live if self._task in link.hello.task_ids]

    def _room(self) -> bool:
        most = max((link.uncredited for link in self._takers()), default=0)
        return most + self._most <= protocol.STDIN_WINDOW_BYTES

    def _foreground(self) -> bool:
        """Whether srun may read its terminal. Reading from the background would stop srun, and the step's output."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            # Not our session's terminal: another session's, or the caller's if this is a child of the command server.
            return in_foreground(self._descriptor)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._reactor.forget(self._descriptor)

    def _ready(self, ready: int) -> None:
        if self._terminal and not self._foreground():
            self._pause()
            self.credited()
            return
        try:
            data = os.read(self._descriptor, self._most)
            self.read_bytes += len(data)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        rank = protocol.ALL_TASKS if self._task is None else self._task
        takers = self._takers()
        if not data:
            self.stop()
            self._send(takers, protocol.frame(protocol.STDIN_EOF, rank))
            return
        for link in takers:
            link.uncredited += len(data)
        self._send(takers, protocol.frame(protocol.STDIN, rank, data))
        if not self._room():
            self._pause()

    def _send(self, takers: list[Link], frame: bytes) -> None:
        if self._task is None:
            send_all(takers, frame)
        else:
            for link in takers:
                link.send(frame)
