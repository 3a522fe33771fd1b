"""Runs long computations on the current state in a forked child: a fork is a cheap frozen copy of the state.

Owns the fork, the pipe for the result, and reaping. The child must do pure work and use nothing that the parent has
open (journal, loop, sockets): it closes these descriptors first. It never returns into the caller's code.

Forking a process with other threads (journal, log, lookups) is safe here because the child needs none of the locks that
they may hold: it computes, writes to its own descriptors, and ends by `os._exit`.

The system may refuse a fork (memory, a limit of processes), and a child may never end (stuck in the kernel on a disk
that does not answer). After a refusal no fork is tried for a while, longer each time. A child that exceeds its time is
killed, and its work counts as failed. Both are counted, for sdiag.

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

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from spritz.runtime.log import Logger

#: Seconds after a refused fork before the next attempt; doubled with each further refusal, up to the maximum.
REFUSED_SECONDS = 1.0
REFUSED_SECONDS_MAX = 60.0

#: Seconds between two looks at whether a child has ended; doubled each time, up to the maximum.
_REAP_SECONDS = 0.001
_REAP_SECONDS_MAX = 1.0

#: Loaded before any fork: in a child, another thread's lock may be held for ever.
_prctl = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1

#: Runs in the child and returns its result.
Work = Callable[[], bytes]


class ForkRefused(SpritzError):
    """The system permits no further process now."""


class Forks:
    """Counts of this process's forks: the system's limits hold for all of its children together.

    `refused`, `overdue` and `failed` count forks that the system refused, children that were killed for their time, and
    children that failed in another way.
    """

    def __init__(self) -> None:
        self.refused = 0
        self.overdue = 0
        self.failed = 0
        self._not_before = float("-inf")
        self._pause = REFUSED_SECONDS

    def counters(self) -> dict[str, float]:
        """The counts, as `Context.counters` has them."""
        return {
            "child.failed_count": float(self.failed),
            "child.overdue_count": float(self.overdue),
            "child.refused_count": float(self.refused),
        }

    def check(self, name: str, now: float) -> None:
        """Raises ForkRefused during the pause after a refusal."""
        if now < self._not_before:
            raise _refusal(name, "it was refused a moment ago")

    def note_refusal(self, name: str, error: OSError, now: float, log: Logger) -> ForkRefused:
        """Begin a pause. Returns the error to raise."""
        self.refused += 1
        self._not_before = now + self._pause
        log.error("child.refused", work=name, error=str(error), retry_seconds=self._pause, refused=self.refused)
        self._pause = min(2 * self._pause, REFUSED_SECONDS_MAX)
        return _refusal(name, error.strerror or str(error))

    def note_success(self) -> None:
        """A fork was permitted: the next refusal begins with a short pause."""
        self._pause = REFUSED_SECONDS


def _refusal(name: str, reason: str) -> ForkRefused:
    return ForkRefused(
        f"Resource temporarily unavailable: no process can be started for {name}",
        code="ESLURM_INTERNAL",
        hint=f"fork: {reason}; the machine of slurmctld lacks memory, or processes are limited",
    )


#: those of this process
FORKS = Forks()


class Child:
    """A computation in progress. `done(result)` is called in the loop; None if the child failed, or took longer than
    `seconds`, in which case it is killed.

    Raises ForkRefused if the system refuses the fork, or did so a moment ago.
    """

    def __init__(
        self,
        name: str,
        work: Work,
        done: Callable[[bytes | None], None],
        log: Logger,
        *,
        nice: int,
        seconds: float,
    ) -> None:
        self._name = name
        self._done = done
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._reaped = False
        self._told = False
        self._reap_pause = _REAP_SECONDS
        descriptors: list[int] = []
        parent = os.getpid()
        FORKS.check(name, self._loop.time())
        try:
            descriptors += os.pipe()
            descriptors += os.pipe()
            self.pid = os.fork()
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            raise FORKS.note_refusal(name, error, self._loop.time(), log) from error
        self._result, theirs, gate, self._gate = descriptors
        if self.pid == 0:
            _run_child(work, gate, theirs, nice, parent)
        FORKS.note_success()
        os.close(theirs)
        os.close(gate)
        os.set_blocking(self._result, False)
        self._loop.add_reader(self._result, self._read)
        self._deadline = self._loop.call_later(seconds, self._overdue, seconds)

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
        if not self._reaped:  # until then its number belongs to no other process
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
        self._close_result()
        self._close_gate()
        self._reap()

    def _close_result(self) -> None:
        if self._result >= 0:
            self._loop.remove_reader(self._result)
            os.close(self._result)
            self._result = -1

    def _overdue(self, seconds: float) -> None:
        """Kill it. `done` does not wait for its end: a process that is stuck in the kernel does not end now."""
        FORKS.overdue += 1
        self._log.error("child.overdue", work=self._name, pid=self.pid, seconds=seconds, action="killed")
        self.kill()
        if self._result >= 0:  # else `_reap` looks already
            self._close_result()
            self._reap()
        self._tell(None)

    def _reap(self) -> None:
        """Collect the child's status once it has ended, without waiting for that."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            self._loop.call_later(self._reap_pause, self._reap)
            self._reap_pause = min(2 * self._reap_pause, _REAP_SECONDS_MAX)
            return
        self._reaped = True
        if status and not self._told:
            FORKS.failed += 1
            detail = self._received[-500:].decode("utf-8", "replace")
            self._log.error("child.failed", work=self._name, status=os.waitstatus_to_exitcode(status), detail=detail)
        self._tell(None if status else bytes(self._received))

    def _tell(self, result: bytes | None) -> None:
        """Call `done`, once."""
        self._deadline.cancel()
        if not self._told:
            self._told = True
            self._received.clear()
            self._done(result)


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
