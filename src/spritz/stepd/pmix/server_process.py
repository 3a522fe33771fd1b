"""The supervisor's side of PMIx: starts and ends the server's process, forwards its messages, and cleans up."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from typing import TYPE_CHECKING

from spritz.stepd import processes, protocol
from spritz.stepd.pmix import process
from spritz.stepd.reactor import READABLE, WRITABLE, Reactor, write_some

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.stepd.spec import Pmix, SupervisorSpec

#: The process's own directory in the step's spool: rendezvous, shared data of tasks and library. It goes with the step.
DIRECTORY = "pmix"
#: Seconds that the process may take to start, on a busy machine, and to end.
_START_SECONDS = 60.0
_END_SECONDS = 8.0
_RECEIVE_BYTES = 256 * 1024
_TOLD_BYTES = 2000


class PmixServer:
    """`emit(frame)` reaches the step's client; `abort(rank, status)`: a task wants the step ended (status None: it is
    gone without a word); `failed(text)`: the process has died before its time."""

    def __init__(
        self,
        spec: SupervisorSpec,
        about: Pmix,
        spool: str,
        reactor: Reactor,
        *,
        emit: Callable[[bytes], None],
        abort: Callable[[int, int | None], None],
        failed: Callable[[str], None],
    ) -> None:
        """Start it. `spool` is the step's directory. Raises OSError if tasks cannot be served."""
        self._reactor = reactor
        self._emit = emit
        self._abort = abort
        self._failed = failed
        self._decoder = protocol.Decoder()
        self._queued = bytearray()
        self._ending = False
        # A hanging process must not look like a task that cannot be killed.
        self._end_seconds = min(_END_SECONDS, spec.unkillable_seconds / 2)
        self._directory = os.path.join(spool, DIRECTORY)
        self._errors = os.memfd_create("pmix-errors")
        os.mkdir(self._directory, 0o700)
        if os.geteuid() == 0:
            os.chown(self._directory, spec.identity.uid, spec.identity.gid)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._connection = ours
        self.pid = os.fork()
        if not self.pid:
            process.run(about, spec, self._directory, theirs, self._errors)
        theirs.close()
        processes.spared.add(self.pid)
        self._variables = dict(zip(about.ranks[about.node], self._first_word(), strict=True))
        ours.setblocking(False)
        reactor.watch(ours.fileno(), READABLE, self._ready)

    def open(self, task_id: int) -> tuple[int, dict[bytes, bytes]]:
        """No descriptor, and the variables by which a task finds the server."""
        return -1, self._variables[task_id]

    def take(self, payload: bytes, *, last: bool) -> None:
        """A frame from the client, for the process."""
        self._queued += protocol.frame(protocol.PMIX, protocol.ALL_TASKS if last else 0, payload)
        self._flush()

    def end(self) -> None:
        """End the server, which no task needs any more: it should end by itself, and is killed otherwise. May be called
        repeatedly.
        """
        if not self._ending:
            self._ending = True
            self._reactor.forget(self._connection.fileno())
            self._connection.close()
            self._reactor.after(self._end_seconds, self._kill)

    def reaped(self) -> None:
        """The server has ended: remove its directory, and fail the step unless `end` was called before."""
        processes.spared.discard(self.pid)
        shutil.rmtree(self._directory, ignore_errors=True)
        output = self._output()
        os.close(self._errors)
        if not self._ending:
            self.end()
            self._failed(f"mpi/pmix: the PMIx server died{output}")

    def _first_word(self) -> list[dict[bytes, bytes]]:
        self._connection.settimeout(_START_SECONDS)
        try:
            ready = process.receive_ready(self._connection)
            error = ready.error and f"{ready.error}{self._output()}"
        except TimeoutError:
            error = f"the PMIx server did not start in {_START_SECONDS:.0f} s"
        except (OSError, EOFError) as failure:
            error = f"{failure}{self._output()}"
        if error:
            self._connection.close()
            self._kill()
            os.waitpid(self.pid, 0)
            self._ending = True
            self.reaped()
            raise OSError(f"mpi/pmix: {error}")
        environments = []
        for variables in ready.environments:
            pairs = [variable.partition(b"=") for variable in variables]
            environments.append({name: value for name, _, value in pairs})
        return environments

    def _kill(self) -> None:
        if self.pid in processes.spared:
            processes.spared.discard(self.pid)
            os.kill(self.pid, signal.SIGKILL)

    def _output(self) -> str:
        """The last lines of the library's error output."""
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, _TOLD_BYTES, max(0, size - _TOLD_BYTES)).decode(errors="replace").strip()
        return f": {text}" if text else ""

    def _ready(self, ready: int) -> None:
        if ready & WRITABLE:
            self._flush()
        if ready & ~WRITABLE and not self._ending:
            self._receive()

    def _receive(self) -> None:
        try:
            data = os.read(self._connection.fileno(), _RECEIVE_BYTES)
            for kind, task, payload in self._decoder.feed(data):
                if kind == protocol.PMIX:
                    self._emit(protocol.frame(kind, task, payload))
                elif kind == protocol.PMI_ABORT:
                    self._abort(task, protocol.unpack_status(payload) if payload else None)
        except BlockingIOError:
            return
        except (OSError, protocol.ProtocolError):
            data = b""
        if not data and not self._ending:
            # It is dying, or speaks nonsense: `reaped` will tell.
            self._reactor.forget(self._connection.fileno())
            self._kill()

    def _flush(self) -> None:
        if self._ending:
            return
        descriptor = self._connection.fileno()
        try:
            write_some(descriptor, self._queued)
        except OSError:
            self._queued.clear()  # reading tells
            return
        self._reactor.watch(descriptor, READABLE | (WRITABLE if self._queued else 0), self._ready)
