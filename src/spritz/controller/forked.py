"""Runs long computations on the current state in a forked child: a fork is a cheap frozen copy of the state.

Owns the fork, the pipe for the result, and reaping. The child must do pure work and use nothing that the parent has
open (journal, loop, sockets): it closes these descriptors first. It never returns into the caller's code.

Forking a process with other threads (journal, log, lookups) is safe here because the child needs none of the locks that
they may hold: it computes, writes to its own descriptors, and ends by `os._exit`.

Source: docs/decisions/0008.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.runtime.log import Logger

#: Loaded before any fork: in a child, another thread's lock may be held for ever.
_prctl = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1

#: Runs in the child and returns its result.
Work = Callable[[], bytes]


class Child:
    """A computation in progress. `done(result)` is called in the loop; None if the child failed.

    Raises OSError if the system refuses the fork.
    """

    def __init__(self, name: str, work: Work, done: Callable[[bytes | None], None], log: Logger, *, nice: int) -> None:
        self._name = name
        self._done = done
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        descriptors: list[int] = []
        parent = os.getpid()
        try:
            descriptors += os.pipe()
            descriptors += os.pipe()
            self.pid = os.fork()
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._result, theirs, gate, self._gate = descriptors
        if self.pid == 0:
            _run_child(work, gate, theirs, nice, parent)
        os.close(theirs)
        os.close(gate)
        os.set_blocking(self._result, False)
        self._loop.add_reader(self._result, self._read)

    def go(self) -> None:
        """Make the child's `wait_for_go` return True. If the parent ends without this, it returns False."""
        if self._gate >= 0:
            try:
                os.write(self._gate, b"1")
            except OSError:
                pass  # the child is gone: the other pipe reports its end
            self._close_gate()

    def kill(self) -> None:
        """Kill the child; `done(None)` follows, unless it had finished."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        # Only now: a child waiting at its gate would go on, and might finish before the signal.
        self._close_gate()

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def _read(self) -> None:
        try:
            data = os.read(self._result, 1 << 20)
        except BlockingIOError:
            return
        if data:
            self._received += data
            return
        self._loop.remove_reader(self._result)
        os.close(self._result)
        self._close_gate()
        _, status = os.waitpid(self.pid, 0)
        if status:
            detail = self._received[-500:].decode("utf-8", "replace")
            self._log.error("child.failed", work=self._name, status=os.waitstatus_to_exitcode(status), detail=detail)
        self._done(None if status else bytes(self._received))


#: in the child: the read end of the parent's gate
_gate_of_child = -1


def wait_for_go() -> bool:
    """In the child: wait for the parent's `go()`. False if the parent ended instead."""
    return os.read(_gate_of_child, 1) == b"1"


def _run_child(work: Work, gate: int, result: int, nice: int, parent: int) -> None:
    """Runs in the child. Never returns.

    It dies with its parent: it has the controller's command line, so `spritz up` and administrators would take it for a
    running controller.
    """
    status = 1
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the prctl
            os._exit(status)
        global _gate_of_child
        _gate_of_child = gate
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
        _close_others({2, gate, result})
        if nice:
            os.nice(nice)
        view = memoryview(work())
        while view:
            view = view[os.write(result, view) :]
        status = 0
    except BaseException as error:
        try:
            os.write(result, f"{type(error).__name__}: {error}".encode()[:400])
        except OSError:
            pass
    finally:
        os._exit(status)


def _close_others(keep: set[int]) -> None:
    """Close all other descriptors: the child must not hold the parent's lock, connections or listeners."""
    low = 0
    for descriptor in sorted(keep):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))
