"""A child of the server: waits for a call, takes over the caller's process state, runs the command.

Until the child has emptied the call's box, no part of the command has run, and the launcher may still run it itself: in
any doubt the child just ends, and the launcher does so.

After a short command the child serves again, if the call left no trace that the next call could notice
(docs/decisions/0168). Commands that keep signals, threads or processes get a child of their own.
"""

from __future__ import annotations

import _thread
import fcntl
import gc
import os
import resource
import select
import signal
import struct
import sys

# As in `process_state`: avoids the enumeration.
from _signal import sigpending  # type: ignore[import-not-found]
from socket import SO_RCVTIMEO, SOL_SOCKET
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.client import locate
from spritz.client.command import sync
from spritz.commandserver import process_state, reply, warm_up
from spritz.commandserver.call_queue import FREE, LONG
from spritz.commandserver.process_state import Unsuitable
from spritz.commandserver.request import BadRequest, Request, receive, take_out

if TYPE_CHECKING:
    from socket import socket
    from typing import NoReturn

    from spritz.cli.call.entry import Main
    from spritz.commandserver.call_queue import CallQueue

#: struct timeval: time limit for the launcher to send its request
_REQUEST_TIME = struct.pack("@ll", 10, 0)
_WARM_UP_SECONDS = 10
#: Commands whose changes cannot all be undone: a child runs one of these and ends.
_ONCE = frozenset(("salloc", "sattach", "sbcast", "sgather", "scrontab"))
#: Commands that may last and catch signals meanwhile: their signal handlers are restored afterwards. Of the others a
#: call may come to ignore SIGTERM (scontrol requeue).
_LASTING = frozenset(("srun",))
#: Calls after which a child is replaced, in case it has accumulated anything.
_CALLS_MAX = 2000
#: Growth in memory after which a child ends: the memory of a huge listing must be freed.
_GROWN_KIB_MAX = 64 * 1024
#: Calls between two garbage collections.
_COLLECT_CALLS = 50
#: A child has a dozen descriptors of its own; with a limit below this it could lose a caller's.
_DESCRIPTORS_MIN = 32
#: fcntl(2): selects the signal that O_ASYNC sends; Linux only, as is this server
_F_SETSIG = 10
_OPEN = "/proc/self/fd"


class Post:
    """A child's descriptors from its parent. Calls come through `queue`; `limits`: the parent's, in a
    request's form.
    """

    def __init__(
        self, queue: CallQueue, commands: dict[str, Main], *, inherited: tuple[int, ...], limits: tuple[int, ...]
    ) -> None:
        self.queue = queue
        self.commands = commands
        #: descriptors of the parent that a child must close
        self.inherited = inherited
        self.limits = limits


def run(post: Post) -> NoReturn:
    """The whole life of a child."""
    status = 1
    try:
        Child(post).live()
        status = 0
    except (BadRequest, Unsuitable, OSError):
        pass
    finally:
        os._exit(status)


class Child:
    """One child, during and between calls."""

    def __init__(self, post: Post) -> None:
        self._queue = post.queue
        self._commands = post.commands
        self._pid = os.getpid()
        self._null = os.open(os.devnull, os.O_RDWR)
        for descriptor in post.inherited:
            os.close(descriptor)
        self._queue.open()
        self._user = process_state.User.of_process()
        self._limits = post.limits
        self._calls = 0
        self._descriptors = 0
        self._peak_kib = 0

    def live(self) -> None:
        """Serve calls until there is a reason to end."""
        os.setpgid(0, 0)
        process_state.hold_signals()
        process_state.take_signals()
        if not self._queue.called():
            _warm_up(self._commands)
        gc.collect()
        gc.freeze()
        # listings make many objects and no reference cycles
        gc.set_threshold(50_000, 20, 100)
        self._descriptors = _descriptors()
        self._peak_kib = _peak_kib()
        sync.connection_cache = sync.ConnectionCache()
        while (connection := self._queue.wait()) is not None:
            once = self._serve(connection)
            # The launcher ends meanwhile.
            if once or not self._is_as_before() or not self._queue.is_let_go(connection):
                break
            # The launcher can send no more signals; a late one must not hit the next command.
            if sigpending():
                break
            connection.close()
            self._queue.tell(FREE)
            if self._calls % _COLLECT_CALLS == 0:
                gc.collect()

    def _serve(self, connection: socket) -> bool:
        """Serve one call. Returns whether it must be the last."""
        if self._queue.declines(connection):
            return True
        self._queue.take(connection)
        # The kernel's own time-out: Python's would poll before each message.
        connection.setsockopt(SOL_SOCKET, SO_RCVTIMEO, _REQUEST_TIME)
        caller = process_state.User.of_peer(connection)
        if not caller.is_like(self._user):
            raise Unsuitable("another user, or other groups")
        request, directory, box = receive(connection)
        if (caller.pid, caller.uid, caller.gid) != request.caller:
            raise Unsuitable("a caller in other namespaces")
        name = os.path.basename(os.fsdecode(request.argv[0]))
        main = self._commands.get(name)
        if main is None:
            raise Unsuitable("no command of ours")
        if request.limits[2 * resource.RLIMIT_NOFILE] < _DESCRIPTORS_MIN:
            raise Unsuitable("too few descriptors")
        once = name in _ONCE or request.opened != 7
        borrowed = process_state.has_other_limits(request, self._limits)
        if borrowed:
            once = once or not process_state.can_go_back(request, self._limits)
            process_state.take_limits(request)
        _die_with(box, self._pid)
        # A file server may refuse this or hang: then the launcher runs the command.
        os.fchdir(directory)
        os.close(directory)
        streams = take_out(box, request)
        if not _is_held(box):
            raise Unsuitable("the caller has gone")
        if once:
            self._leave_post()
        elif name in _LASTING:
            self._queue.tell(LONG)
        kind, value = self._perform(main, name, request, streams)
        handled = name in _LASTING or process_state.ignores_more(request)
        if handled:
            process_state.take_signals()
        if borrowed and not once:
            process_state.give_limits_back(self._limits)
        process_state.put_back(request, self._null)
        _outlive(box)
        box.close()
        late = 0 if handled else process_state.late_signal(request)
        connection.send(reply.encode(reply.KILLED, late) if late else reply.encode(kind, value))
        self._calls += 1
        return once

    def _leave_post(self) -> None:
        """Close the server's descriptors: this process may start others, or last."""
        self._queue.tell(LONG)
        sync.connection_cache = None
        self._queue.close()

    def _perform(self, main: Main, name: str, request: Request, streams: tuple[int, ...]) -> tuple[bytes, int]:
        """Run the command. Returns how it ended, as a `reply`."""
        process_state.take_over(request, streams)
        locate.begin_call()
        environ = process_state.environment()
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = environ.get("PWD", "/")
        context = Context(name, environ, cwd, sys.stdin, sys.stdout, sys.stderr, request.caller[0])

        def begin(argv: list[str], context: Context) -> int:
            """Signals that arrived meanwhile now reach the command, not the server's code."""
            process_state.release_signals(request)
            return main(argv, context)

        try:
            status = call(begin, sys.argv[1:], context)
            process_state.hold_signals()
        except KeyboardInterrupt:
            process_state.hold_signals()  # Ctrl-C was pressed twice
            return reply.KILLED, signal.SIGINT
        except Exception:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            self._calls = _CALLS_MAX
            status = 1
        return reply.ENDED, status & 0xFF

    def _is_as_before(self) -> bool:
        """Whether the call left no process, thread or descriptor (except its connection) and little memory."""
        if os.geteuid() != self._user.uid:  # srun --uid
            return False
        if self._calls >= _CALLS_MAX or _thread._count():
            return False
        if _peak_kib() - self._peak_kib > _GROWN_KIB_MAX:
            return False
        kept = sync.connection_cache is not None and sync.connection_cache.descriptor() >= 0
        if _descriptors() != self._descriptors + kept + 1:
            return False
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        return False


def _die_with(box: socket, pid: int) -> None:
    """Make the kernel kill this process when the launcher ends: the command must end with it.

    The launcher filled the box before sending it, so its end is the only event to come. The launcher finds the process
    for its signals through the box's owner, which is set before the call is taken.
    """
    fcntl.fcntl(box, fcntl.F_SETOWN, pid)
    fcntl.fcntl(box, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(box, fcntl.F_SETFL, os.O_ASYNC)


def _is_held(box: socket) -> bool:
    """Whether the launcher lives; no signal reports an end before `_die_with`."""
    poll = select.poll()
    poll.register(box, 0)
    return not poll.poll(0)


def _outlive(box: socket) -> None:
    fcntl.fcntl(box, fcntl.F_SETFL, 0)


def _descriptors() -> int:
    """Number of open descriptors."""
    # Linux reports the number since 6.2, at a third of the price.
    return os.stat(_OPEN).st_size or len(os.listdir(_OPEN)) - 1


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _warm_up(commands: dict[str, Main]) -> None:
    """Touch the memory that a call writes to."""
    # A hang in here would block every caller: rather no child at all.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(_WARM_UP_SECONDS)
    warm_up.warm_up(commands)
    process_state.take_environment(b"".join(b"WARM_UP_%d=%s\0" % (number, b"x" * 60) for number in range(60)))
    process_state.take_environment(b"")
    process_state.streams((0, 1, 2))
    signal.alarm(0)
    process_state.hold_signals()
