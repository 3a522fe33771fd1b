"""The process that runs site scripts: `python -m spritz.controller.plugins.child DESCRIPTOR`.

Serves one request after another on the given socket, and ends when the socket closes. It also ends with the controller,
even while a script runs. Output of scripts is discarded, as in Slurm's daemons.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence

from spritz.controller.plugins.messages import (
    Ask,
    Done,
    Need,
    Ready,
    Setup,
    encode,
    jobs_of,
    reservations_of,
    to_child,
)
from spritz.model.job.record import Job
from spritz.model.node.partition import Partition
from spritz.model.node.reservation import Reservation
from spritz.plugins.answer import PluginError
from spritz.plugins.description import Description
from spritz.plugins.script import Script, ScriptContext
from spritz.wire.frames import PREFIX_BYTES, frame

#: Bytes of address space: a script that fills memory affects only this process.
MEMORY_BYTES_MAX = 4 << 30

_PR_SET_PDEATHSIG = 1


class Ended(Exception):
    """The controller has closed the socket."""


class Serving:
    """The loop that answers requests of the controller, one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._scripts: dict[str, Script] = {}
        self._partitions: tuple[Partition, ...] = ()
        self._cpus: tuple[int, ...] = ()

    def run(self) -> None:
        """Serve until the socket is closed."""
        try:
            while True:
                message = to_child.decode(self._receive())
                if isinstance(message, Setup):
                    self._send(encode(self._begin(message)))
                else:
                    self._send(encode(self._serve(message)))
        except Ended:
            return

    def _begin(self, setup: Setup) -> Ready:
        try:
            for name, path in setup.scripts:
                script = _script(name, path, setup.cluster)
                script.load()
                self._scripts[name] = script
        except PluginError as error:
            return Ready(problem=str(error))
        return Ready()

    def _serve(self, ask: Ask) -> Done:
        if ask.partitions is not None:
            self._partitions, self._cpus = ask.partitions, ask.cpus
        description = Description(
            ask.fields,
            facts=ask.facts,
            script=ask.script,
            environment=ask.environment,
            job_id=0 if ask.job is None else ask.job.id,
        )
        context = ScriptContext(
            ask.uid,
            ask.user_id,
            ask.groups,
            self._partitions,
            self._cpus,
            ask.job,
            self._jobs,
            self._reservations,
        )
        script = self._scripts[ask.plugin]
        answer = (script.submit if ask.job is None else script.modify)(description, context)
        if answer.number:
            return Done(answer=answer)
        environment = tuple(description.environment)
        return Done(
            answer=answer,
            fields=description.fields,
            changed=tuple(sorted(description.changed)),
            min_cpus=description.min_cpus,
            script=description.script if description.script != ask.script else None,
            environment=environment if environment != ask.environment else None,
        )

    def _jobs(self) -> Sequence[Job]:
        self._send(encode(Need(what="jobs")))
        return jobs_of.decode(self._receive())

    def _reservations(self) -> Sequence[Reservation]:
        self._send(encode(Need(what="reservations")))
        return reservations_of.decode(self._receive())

    def _send(self, payload: bytes) -> None:
        self._connection.sendall(frame(payload))

    def _receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(PREFIX_BYTES), "big"))

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            piece = self._connection.recv(count - len(parts))
            if not piece:
                raise Ended
            parts += piece
        return bytes(parts)


def _script(name: str, path: str, cluster: str) -> Script:
    if name == "lua":
        from spritz.plugins.lua_submit import LuaSubmit

        return LuaSubmit(path, cluster)
    from spritz.plugins.python import PythonSubmit

    return PythonSubmit(path, cluster)


def main() -> None:
    """Entry of the process; exits with the controller, also when that is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = int(sys.argv[2])
    if os.getppid() != parent:  # the parent ended before the prctl
        return
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # Passed over, not ignored: programs that a script starts would inherit that, and `timeout` could not end them.
        signal.signal(number, lambda _number, _frame: None)
        signal.siginterrupt(number, False)
    _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_BYTES_MAX if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    Serving(socket.socket(fileno=int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
