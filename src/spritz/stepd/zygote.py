"""The warm parent that supervisors are forked from: `python -m spritz.stepd FD [user-namespace]`.

The node daemon keeps one. Each message on the socket FD names a step's spool directory and carries one descriptor, the
supervisor's connection to the daemon. One thread, everything imported: a fork is all that a step costs.
It ends with the daemon; supervisors go on.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import signal
import socket

from spritz.model.scarcity import UNWRITABLE
from spritz.stepd import control, processes, record, spec
from spritz.stepd.daemonlink import GIVEN_UP, Listener
from spritz.stepd.notes import note
from spritz.stepd.rehearsal import rehearse
from spritz.stepd.resources.confine import Confinement
from spritz.stepd.resources.usage import MemoryGroup
from spritz.stepd.supervisor import Supervisor
from spritz.stepd.tasks import namespaces
from spritz.stepd.tasks.script import write_script

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
            note(f'slurmd: debug: zygote.unrehearsed error="{error}"')
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
    """Exclude the present objects from garbage collection, so that children share their pages."""
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
    except BaseException as error:  # for the daemon's log; then the daemon cleans up after us
        import traceback  # each fork would copy its modules

        note("".join(traceback.format_exception(error)).rstrip())
    finally:
        os._exit(status)


def supervise(directory: str, daemon: socket.socket) -> None:
    """Run one step, and further ones that the daemon sends while idle: all share the cost of one fork."""
    connection: socket.socket | None = daemon
    memory: MemoryGroup | None = None
    confinement = Confinement()
    with contextlib.closing(Listener()) as listener:
        for steps_after in reversed(range(STEPS_MAX)):
            assert connection is not None
            try:
                descriptor, known, listening = _begin(directory, listener)
            except OSError as error:
                if error.errno not in UNWRITABLE:
                    raise
                # The daemon has another place for the step's spool.
                connection.setblocking(True)
                connection.sendall(control.encode(control.NotForked(error.errno)))
                return
            memory = _memory_group(known, memory)
            supervisor = Supervisor(known, descriptor, connection, listening, memory, confinement)
            connection = supervisor.run()
            os.chdir("/")
            # A supervisor that reports idle must accept the next step; so the last one ends without that report.
            directory = _next_directory(connection) if connection is not None and steps_after else ""
            if not directory:
                return


def _begin(directory: str, listener: Listener) -> tuple[int, spec.SupervisorSpec, socket.socket]:
    """Enter the step's spool directory and make the step ours: its record, the step, the socket of later daemons.

    Raises OSError: where the directory cannot be written, nothing has begun.
    """
    os.chdir(directory)
    descriptor = os.open(spec.RECORD, os.O_RDWR | os.O_CLOEXEC)
    known = record.parse(os.read(descriptor, os.fstat(descriptor).st_size))
    if known is None:
        raise ValueError(f"{directory} holds no step")
    # Before the socket, whose name decides that the step has begun.
    if known.spec.batch:
        write_script(known.spec)
    listening = listener.listen()
    if not os.fstat(descriptor).st_nlink:  # on a disk on which the daemon could not take the name
        raise FileExistsError(errno.EEXIST, GIVEN_UP)
    return descriptor, known.spec, listening


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
        note(
            f"slurmstepd: error: step.uncontained label={known.label} directory={parent} "
            f'error="{error}" detail="its memory limit is held by sampling"'
        )
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
