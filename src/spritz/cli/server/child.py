"""One call, in a child of the server: wait for it, check it, become what the caller's own process would be, run.

Until the token is taken nothing of the command has happened, and the launcher may still run it itself: whatever is not
as it should be ends the child without a word, which sends the launcher that way.
"""

from __future__ import annotations

import io
import os
import resource
import select
import signal
import struct
import sys
import time
from socket import AF_UNIX, SCM_RIGHTS, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

from spritz.cli.context import Context
from spritz.cli.entry import call
from spritz.cli.server import rehearsal, reply, terminal
from spritz.cli.server.request import LIMITS, BadRequest, Descriptors, Request, receive, receive_descriptors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, NoReturn, TextIO

    from spritz.cli.entry import Main
    from spritz.cli.server.sources import Sources

_SO_PEERGROUPS = 59
_REQUEST_SECONDS = 10.0
_REHEARSAL_SECONDS = 10
#: RLIM_INFINITY, which Python has as -1
_UNLIMITED = (1 << 64) - 1
_CREDENTIALS = struct.Struct("iII")
_DEFAULT = (
    signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
)  # fmt: skip

#: what the parent is told over the control socket, with the connection
TAKEN, STALE = b"T", b"S"


class Unsuitable(Exception):
    """The child cannot become what the caller is."""


class Post:
    """What a spare child has from its parent. `lifeline` ends when the parent does, or wants spares to."""

    def __init__(
        self,
        listener: socket,
        control: socket,
        lifeline: int,
        sources: Sources,
        commands: dict[str, Main],
        *,
        system: bool,
        inherited: tuple[int, ...],
        limits: tuple[int, ...],
    ) -> None:
        self.listener = listener
        self.control = control
        self.lifeline = lifeline
        self.sources = sources
        self.commands = commands
        self.system = system
        #: descriptors of the parent's that a command must not hold
        self.inherited = inherited
        #: the parent's own, as a request has them
        self.limits = limits


def run(post: Post) -> NoReturn:
    """The whole life of a child."""
    status = 1
    try:
        if not _is_awaited(post):
            _rehearse(post)
        connection = _wait(post)
        if connection is not None:
            status = _serve(post, connection)
    except (BadRequest, Unsuitable, OSError):
        pass
    finally:
        os._exit(status)


def _is_awaited(post: Post) -> bool:
    """A call is there already: this is no time to rehearse."""
    poll = select.poll()
    poll.register(post.listener, select.POLLIN)
    return bool(poll.poll(0))


def _rehearse(post: Post) -> None:
    """Have the memory written to that a call writes to."""
    # Whatever hangs in here would have every caller wait: better no child at all.
    signal.alarm(_REHEARSAL_SECONDS)
    rehearsal.rehearse(post.commands)
    _take_environment([b"REHEARSAL_%d=%s" % (number, b"x" * 60) for number in range(60)])
    _take_environment([])
    time.tzset()
    _streams((0, 1, 2))
    _take_signals(0, 0)
    signal.alarm(0)


def _wait(post: Post) -> socket | None:
    """The next call's connection; None when spares are to end."""
    poll = select.poll()
    poll.register(post.listener, select.POLLIN)
    poll.register(post.lifeline, 0)
    while True:
        if any(descriptor == post.lifeline for descriptor, _ in poll.poll()):
            return None
        try:
            descriptor, _ = post.listener._accept()  # type: ignore[attr-defined]  # accept() without getsockname & co.
        except BlockingIOError:
            continue  # another spare was faster
        return socket(AF_UNIX, SOCK_STREAM, fileno=descriptor)


def _serve(post: Post, connection: socket) -> int:
    stale = post.sources.changed()
    message = (STALE if stale else TAKEN) + os.getpid().to_bytes(4, "little")
    rights = [(SOL_SOCKET, SCM_RIGHTS, struct.pack("i", connection.fileno()))]
    post.control.sendmsg([message], rights)
    if stale:
        return 0
    connection.settimeout(_REQUEST_SECONDS)
    connection.send(reply.encode(reply.THERE, 0))
    request = receive(connection)
    _become_user(connection, system=post.system)
    main = post.commands.get(os.path.basename(os.fsdecode(request.argv[0])))
    if main is None:
        raise Unsuitable("no command of ours")
    _take_limits(request, post.limits)
    descriptors = receive_descriptors(connection, request)
    os.fchdir(descriptors.directory)
    os.read(descriptors.token, 8)  # BlockingIOError: the launcher does it itself
    connection.settimeout(None)
    connection.send(reply.encode(reply.STARTED, os.getpid()))
    for descriptor in (*post.inherited, post.lifeline, descriptors.directory, descriptors.token):
        os.close(descriptor)
    post.listener.close()
    post.control.close()
    context = _take_over(request, descriptors)
    status = call(main, sys.argv[1:], context)
    for number in range(3):
        try:
            os.close(number)
        except OSError:
            pass
    connection.send(reply.encode(reply.ENDED, status & 0xFF))
    return status


def _become_user(connection: socket, *, system: bool) -> None:
    """Who calls, by the kernel's word: one of several users of root's server, or the user that this server is."""
    _, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, _CREDENTIALS.size))
    # Python takes no more than this: whoever is in more than 256 groups is not served.
    packed = connection.getsockopt(SOL_SOCKET, _SO_PEERGROUPS, 1024)
    groups = list(memoryview(packed).cast("I"))
    if system:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    elif (uid, gid, {gid, *groups}) != (os.geteuid(), os.getegid(), {os.getegid(), *os.getgroups()}):
        raise Unsuitable("another user, or other groups")


def own_limits() -> tuple[int, ...]:
    """Soft and hard limits of this process, as a request has them."""
    pairs = [resource.getrlimit(number) for number in range(LIMITS)]
    return tuple(value if value >= 0 else _UNLIMITED for pair in pairs for value in pair)


def _take_limits(request: Request, own: tuple[int, ...]) -> None:
    try:
        if request.limits != own:
            for number in range(LIMITS):
                soft, hard = (-1 if value == _UNLIMITED else value for value in request.limits[2 * number :][:2])
                if resource.getrlimit(number) != (soft, hard):
                    resource.setrlimit(number, (soft, hard))
        if os.getpriority(os.PRIO_PROCESS, 0) != request.nice:
            os.setpriority(os.PRIO_PROCESS, 0, request.nice)
    except (ValueError, OSError) as error:
        raise Unsuitable("limits that cannot be had here") from error


def _take_over(request: Request, descriptors: Descriptors) -> Context:
    """Become what the launcher is. Nothing of this can fail halfway in a way that the command would not have met."""
    os.setpgid(0, 0)
    terminal.set_launcher(request.pid)
    for number, descriptor in enumerate(descriptors.streams):
        if descriptor >= 0:
            os.dup2(descriptor, number)
            os.close(descriptor)
        else:
            os.close(number)
    os.umask(request.umask)
    _take_environment(request.environ)
    time.tzset()
    sys.argv = [os.fsdecode(word) for word in request.argv]
    sys.stdin, sys.stdout, sys.stderr = _streams(descriptors.streams)
    _take_signals(request.ignored, request.blocked)
    environ = os.environ
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = environ.get("PWD", "/")
    program = os.path.basename(sys.argv[0])
    return Context(program, environ, cwd, sys.stdin, sys.stdout, sys.stderr, request.pid)


def _take_environment(entries: list[bytes]) -> None:
    environ = os.environb
    for name in list(environ):
        del environ[name]
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        # As Python does at its start: the first of several counts, and what has no name is nothing.
        if equals and name and name not in environ:
            environ[name] = value


def _take_signals(ignored: int, blocked: int) -> None:
    signal.set_wakeup_fd(-1)
    for default in _DEFAULT:
        signal.signal(default, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if ignored:
        for number in range(1, 32):
            if ignored >> number - 1 & 1:
                signal.signal(number, signal.SIG_IGN)
    if blocked:
        signal.pthread_sigmask(signal.SIG_SETMASK, {number for number in range(1, 32) if blocked >> number - 1 & 1})


def _streams(passed: tuple[int, ...]) -> tuple[TextIO, TextIO, TextIO]:
    """Standard streams as Python makes them (-1: closed), and `entry.run` leaves them."""
    names: list[int | str] = [number if descriptor >= 0 else os.devnull for number, descriptor in enumerate(passed)]
    stdin: TextIO
    if names[0] == 0 and os.isatty(0):
        raw = io.BufferedReader(terminal.TerminalInput())
        stdin = io.TextIOWrapper(raw, "utf-8", "surrogateescape")
    else:
        stdin = _open(names[0], "r", -1)
    return stdin, _open(names[1], "w", -1), _open(names[2], "w", 1)


def _open(name: int | str, mode: Literal["r", "w"], buffering: int) -> TextIO:
    return open(  # lives as long as the process
        name, mode, buffering, encoding="utf-8", errors="surrogateescape", closefd=not isinstance(name, int)
    )
