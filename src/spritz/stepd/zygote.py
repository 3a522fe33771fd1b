"""The warm parent that supervisors are forked from: `python -m spritz.stepd FD [user-namespace]`.

The node daemon keeps one. Each message on the socket FD names a step's spool directory and carries one descriptor, the
supervisor's connection to the daemon. One thread, everything imported: a fork is all that a step costs.
It ends with the daemon; supervisors go on.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys

from spritz.stepd import control, namespaces, processes, record, spec
from spritz.stepd.confine import Confinement
from spritz.stepd.daemonlink import Listener
from spritz.stepd.rehearsal import rehearse
from spritz.stepd.supervisor import Supervisor
from spritz.stepd.usage import MemoryGroup

#: Steps after which a supervisor ends, together with anything that it has leaked.
STEPS_MAX = 100
#: Seconds for which it waits for another step; longer than the daemon remembers it.
IDLE_SECONDS = 10.0
#: Seconds without a request after which the zygote rehearses: the first step of a new daemon does not wait for that.
_REHEARSE_SECONDS = 0.5
#: Objects that a supervisor keeps before its garbage collector looks for cycles. A step of a few tasks has fewer: the
#: collector writes to what it looks at, and so would copy pages that the supervisor shares with the zygote.
_COLLECTED_OBJECTS = 10_000
#: A spool path is never longer (PATH_MAX).
_MESSAGE_BYTES = 4096


def main(descriptor: int, *, user_namespace: bool) -> None:
    """Fork a supervisor for every request until the daemon is gone. `user_namespace`: tasks get names of their own."""
    if user_namespace:
        namespaces.enter_user_namespace()
    record.this_boot()
    _freeze()
    processes.become_subreaper("slurmd-zygote")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = socket.socket(fileno=descriptor)
    requests.set_inheritable(False)
    if not select.select([requests], [], [], _REHEARSE_SECONDS)[0]:
        try:
            rehearse()
        except OSError as error:  # no space, no processes: steps then begin a little later
            sys.stderr.write(f'slurmd: debug: zygote.unrehearsed error="{error}"\n')
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        _freeze()
    while True:
        body, handed, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 4)
        if not body:
            return
        # Not for tasks: the daemon learns of a supervisor's death by the end of this connection. (recv_fds of 3.11
        # drops its flags, so MSG_CMSG_CLOEXEC does not help.)
        os.set_inheritable(handed[0], False)
        _fork(os.fsdecode(body), handed[0], requests)
        os.close(handed[0])


def _freeze() -> None:
    """What is alive now stays for ever: the collector must not touch it, so that children share its pages."""
    gc.disable()
    gc.collect()
    gc.freeze()


def _fork(directory: str, connection: int, requests: socket.socket) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        with contextlib.suppress(OSError):  # else the daemon sees the connection end and nothing begun
            os.write(connection, control.encode(control.NotForked(error.errno or 0)))
        return
    if pid:
        return
    status = 1
    try:
        requests.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # In this order: a session of its own, so that no signal for the daemon's group reaches the step; then the role
        # of subreaper, so that orphaned tasks come to this process and not to init, where no kill would find them.
        os.setsid()
        processes.become_subreaper("slurmstepd")
        gc.set_threshold(_COLLECTED_OBJECTS)
        gc.enable()
        supervise(directory, socket.socket(fileno=connection))
        status = 0
    except BaseException as error:  # told to the daemon's log; then the daemon cleans up after us
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)


def supervise(directory: str, daemon: socket.socket) -> None:
    """Run one step, and further ones that the daemon sends while idle: all share the cost of one fork."""
    connection: socket.socket | None = daemon
    memory: MemoryGroup | None = None
    confinement = Confinement()
    with contextlib.closing(Listener()) as listener:
        for left in reversed(range(STEPS_MAX)):
            os.chdir(directory)
            descriptor = os.open(spec.RECORD, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            known = record.parse(os.read(descriptor, os.fstat(descriptor).st_size))
            if known is None or connection is None:
                raise ValueError(f"{directory} holds no step")
            memory = _memory_group(known.spec, memory)
            supervisor = Supervisor(known.spec, descriptor, connection, listener.listen(), memory, confinement)
            connection = supervisor.run()
            os.chdir("/")
            # A supervisor that reports idle must accept the next step; so the last one ends without that report.
            directory = _next_directory(connection) if connection is not None and left else ""
            if not directory:
                return


def _memory_group(known: spec.SupervisorSpec, held: MemoryGroup | None) -> MemoryGroup | None:
    """The cgroup for a step with a memory limit, if the daemon allows one. `held`: where this supervisor is already."""
    parent = known.cgroup_memory
    if held is not None and held.parent == parent:
        return held
    if not parent or (held is None and not known.memory_limit_mib):
        return None
    try:
        group = MemoryGroup(parent, known.job_memory_limit_mib, known.job_swap_limit_mib)
    except OSError as error:
        # Standard error is the daemon's log.
        sys.stderr.write(f"slurmstepd: error: step.uncontained label={known.label} directory={parent} ")
        sys.stderr.write(f'error="{error}" detail="its memory limit is held by sampling"\n')
        sys.stderr.flush()
        return None
    if held is not None:
        held.remove()
    return group


def _next_directory(connection: socket.socket) -> str:
    """Report idle. Returns the next step's directory, or "" if there is none."""
    connection.settimeout(IDLE_SECONDS)
    try:
        connection.sendall(control.encode(control.Idle()))
        while body := _receive(connection, control.body_bytes(_receive(connection, control.PREFIX_BYTES))):
            order = control.decode_order(body)
            if isinstance(order, control.Begin):
                return order.directory
    except OSError:
        pass  # the daemon is gone, or idle itself
    return ""


def _receive(connection: socket.socket, size: int) -> bytes:
    """Read exactly this many bytes: what follows, perhaps an order to end the step, is for the step's own link."""
    received = b""
    while len(received) < size:
        data = connection.recv(size - len(received))
        if not data:
            return b""
        received += data
    return received
