"""Steps of `true` that the zygote runs while it has nothing to do, so that the interpreter has adapted its own code.

CPython specializes code after some runs and caches what attributes are, by process. A forked supervisor begins with
what its parent has: without a rehearsal, each supervisor adapts the same code again and copies the memory that holds
it. Measured: docs/performance.md, wide steps.
"""

from __future__ import annotations

import os
import socket

from spritz.stepd import control, protocol, record, spec
from spritz.stepd.reactor import READABLE
from spritz.stepd.supervisor import Supervisor

#: CPython 3.11 adapts a function in its eighth run; some of ours run only once in a step.
_TIMES = 12


def rehearse() -> None:
    """Run some steps in this process. Leaves nothing but SIGCHLD with its default. Raises OSError."""
    # Not by tempfile: each fork would copy its modules, and each child would seed `random` again.
    directory = f"{os.environ.get('TMPDIR', '/tmp')}/spritz-rehearsal-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        step = _step(f"unix:@{listener.getsockname()[1:].decode()}")
        for _ in range(_TIMES):
            os.mkdir(directory, 0o700)
            os.chdir(directory)
            try:
                _run(step, listener)
            finally:
                for name in os.listdir(directory):
                    os.unlink(f"{directory}/{name}")
                os.chdir("/")
                os.rmdir(directory)


def _step(address: str) -> spec.SupervisorSpec:
    """A step of one task, whose client is reached through the node above it: this runs most of the code."""
    client = spec.CLIENT
    return spec.SupervisorSpec(
        job_id=0,
        restart_count=0,
        step_id=0,
        label="0.0",
        node="",
        node_index=0,
        identity=spec.Identity(os.geteuid(), os.getegid()),
        tasks=(spec.TaskSpec(task_id=0, argv=("true",), stdin=client, stdout=client, stderr=client),),
        environment=(b"PATH=/usr/bin:/bin",),
        io_address=address,
        io_parent=address,
        io_numbered=True,
    )


def _run(step: spec.SupervisorSpec, listener: socket.socket) -> None:
    descriptor = os.open(spec.RECORD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    record.append(descriptor, record.spec_entry(step))
    known = record.parse(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    assert known is not None
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket(socket.AF_UNIX) as later_daemons:
        later_daemons.bind("")
        later_daemons.listen()
        ours.sendall(control.encode(control.Forget()))
        supervisor = _WithClient(known.spec, descriptor, theirs, later_daemons)
        supervisor.listen(listener)
        try:
            supervisor.run()
        finally:
            supervisor.client.close()


class _WithClient(Supervisor):
    """A supervisor with its client in the same process."""

    def listen(self, listener: socket.socket) -> None:
        """Accept the client's connection at `listener` while the step runs."""
        self.client = socket.socket(socket.AF_UNIX)
        self._listener = listener
        self._decoder, self._received = protocol.Decoder(), 0
        self._reactor.watch(listener.fileno(), READABLE, self._accept)

    def _accept(self, ready: int) -> None:
        self.client.close()
        self.client, _ = self._listener.accept()
        self._reactor.watch(self.client.fileno(), READABLE, self._read)

    def _read(self, ready: int) -> None:
        data = self.client.recv(65536)
        if not data:
            self._reactor.forget(self.client.fileno())
        for kind, _, payload in self._decoder.feed(data):
            if kind != protocol.HELLO:
                self._received += protocol.HEADER_BYTES + len(payload)
            if kind in (protocol.HELLO, protocol.DONE):
                taken = protocol.pack_count(self._received)
                self.client.sendall(protocol.frame(protocol.TAKEN, protocol.ALL_TASKS, taken))
