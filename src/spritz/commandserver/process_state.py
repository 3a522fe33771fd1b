"""The state of a process: taken over from a launcher's request, and restored for the next one.

Source: environ(7), signal(7), getrlimit(2), credentials(7).
"""

from __future__ import annotations

import io
import os
import resource
import signal
import struct
import sys
import time

# The module `signal` makes an enumeration member of each blocked signal: more work than most commands do.
from _signal import getsignal, pthread_sigmask, sigpending  # type: ignore[import-not-found]  # typeshed knows `signal` alone
from socket import SO_PEERCRED, SOL_SOCKET
from typing import TYPE_CHECKING

from spritz.cli.call import terminal
from spritz.commandserver.request import LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from socket import socket
    from typing import Literal, TextIO

    from spritz.commandserver.request import Request

_SO_PEERGROUPS = 59
#: RLIM_INFINITY, which is -1 in Python
_UNLIMITED = (1 << 64) - 1
_CREDENTIALS = struct.Struct("iII")
_DEFAULT = (
    signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGQUIT, signal.SIGCONT, signal.SIGWINCH, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
#: Signals that a launcher passes on. An idle child blocks them.
FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
)  # fmt: skip
#: Those of them that kill a process with default handling.
_DEADLY = frozenset(FORWARDED) - {signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH}


class Unsuitable(Exception):
    """The child cannot take over the caller's state."""


class User:
    """A user with its groups, by the kernel, and the process that acts for it."""

    __slots__ = ("gid", "groups", "pid", "uid")

    def __init__(self, pid: int, uid: int, gid: int, groups: Iterable[int]) -> None:
        self.pid = pid
        self.uid = uid
        self.gid = gid
        self.groups = tuple(groups)

    @classmethod
    def of_process(cls) -> User:
        return cls(os.getpid(), os.geteuid(), os.getegid(), os.getgroups())

    @classmethod
    def of_peer(cls, connection: socket) -> User:
        """The user at the other end of a Unix socket."""
        pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(SOL_SOCKET, SO_PEERCRED, _CREDENTIALS.size))
        # Python's limit: users in more than 256 groups are not served.
        packed = connection.getsockopt(SOL_SOCKET, _SO_PEERGROUPS, 1024)
        return cls(pid, uid, gid, memoryview(packed).cast("I"))

    def is_like(self, other: User) -> bool:
        """Whether both have the same rights."""
        if (self.uid, self.gid) != (other.uid, other.gid):
            return False
        return self.groups == other.groups or {self.gid, *self.groups} == {other.gid, *other.groups}


def own_limits() -> tuple[int, ...]:
    """Soft and hard limits of this process, in a request's form."""
    pairs = [resource.getrlimit(number) for number in range(LIMITS)]
    return tuple(value if value >= 0 else _UNLIMITED for pair in pairs for value in pair)


def has_other_limits(request: Request, own_limits: tuple[int, ...]) -> bool:
    """Whether the request's limits or nice value differ from this process's."""
    return request.limits != own_limits or request.nice != os.getpriority(os.PRIO_PROCESS, 0)


def can_go_back(request: Request, own_limits: tuple[int, ...]) -> bool:
    """Whether `give_limits_back` can undo `take_limits`: only soft limits differ.

    Never with a limit on CPU time, as earlier calls have used some.
    """
    processor = 2 * resource.RLIMIT_CPU
    return (
        request.limits[1::2] == own_limits[1::2]
        and request.limits[processor] == own_limits[processor]
        and request.nice == os.getpriority(os.PRIO_PROCESS, 0)
    )


def give_limits_back(own_limits: tuple[int, ...]) -> None:
    """Restore the server's own limits after a command: (soft, hard) of each limit, flat, in order of number."""
    for number in range(LIMITS):
        pair = tuple(-1 if value == _UNLIMITED else value for value in own_limits[2 * number :][:2])
        if resource.getrlimit(number) != pair:
            resource.setrlimit(number, (pair[0], pair[1]))


def take_limits(request: Request) -> None:
    """Set the request's limits. Lowered hard limits and the nice value cannot be restored. Raises Unsuitable."""
    try:
        for number in range(LIMITS):
            soft, hard = (-1 if value == _UNLIMITED else value for value in request.limits[2 * number :][:2])
            if resource.getrlimit(number) != (soft, hard):
                resource.setrlimit(number, (soft, hard))
        if os.getpriority(os.PRIO_PROCESS, 0) != request.nice:
            os.setpriority(os.PRIO_PROCESS, 0, request.nice)
    except (ValueError, OSError) as error:
        raise Unsuitable("limits that cannot be had here") from error


def take_over(request: Request, passed: tuple[int, ...]) -> None:
    """Take over streams (`passed`: 0 to 2, -1: closed), umask, environment, arguments and ignored signals."""
    terminal.set_launcher(request.caller[0])
    for number, descriptor in enumerate(passed):
        if descriptor >= 0:
            os.dup2(descriptor, number)
            os.close(descriptor)
        else:
            os.close(number)
    os.umask(request.umask)
    take_environment(request.environment)
    sys.argv = [os.fsdecode(word) for word in request.argv]
    sys.stdin, sys.stdout, sys.stderr = streams(passed)
    for number in _numbers(request.ignored):
        signal.signal(number, signal.SIG_IGN)


def put_back(request: Request, null: int) -> None:
    """Release the caller's streams, replaced by `null`, and its directory."""
    terminal.set_launcher(0)
    for number in range(3):
        os.dup2(null, number)
    # Unwritten output of an interrupted command is dropped, so that it cannot reach the next caller.
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        try:
            stream.close()
        except (OSError, ValueError):
            pass
    os.chdir("/")
    os.umask(0o077)
    if getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _numbers(request.ignored):
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        elif number != signal.SIGPIPE:
            signal.signal(number, signal.SIG_DFL)


class _Taken:
    """The environment of the last call: calls in a shell loop mostly have the same.

    `block`: as received; `variables`: the content of `os.environb`; `decoded`: that of `os.environ`, which would take
    longer to rebuild than many commands run.
    """

    __slots__ = ("block", "decoded", "variables")

    def __init__(self, block: bytes | None, variables: dict[bytes, bytes], decoded: dict[str, str]) -> None:
        self.block = block
        self.variables = variables
        self.decoded = decoded


_taken = _Taken(None, {}, {})


def take_environment(block: bytes) -> None:
    """Set exactly these variables; each ends with a NUL byte."""
    global _taken
    environ = os.environb
    # copying it with its own methods would take longer than many commands run
    present: dict[bytes, bytes] = getattr(environ, "_data", None) or dict(environ)
    if block == _taken.block and present == _taken.variables:
        return
    wanted: dict[bytes, bytes] = {}
    for entry in block.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        # As Python does at its start: the first of several counts, and entries without a name are dropped.
        if equals and name and name not in wanted:
            wanted[name] = value
    # Each assignment calls setenv(3); little changes from call to call.
    for name in present.keys() - wanted.keys():
        del environ[name]
    for name, value in wanted.items():
        if present.get(name) != value:
            environ[name] = value
    _taken = _Taken(block, wanted, dict(os.environ))
    time.tzset()


def environment() -> dict[str, str]:
    """The variables as `take_environment` decoded them; a copy."""
    return dict(_taken.decoded)


def take_signals() -> None:
    """Set signal handling as in a new Python process."""
    signal.set_wakeup_fd(-1)
    for default in _DEFAULT:
        signal.signal(default, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def release_signals(request: Request) -> None:
    """Set the caller's mask of blocked signals."""
    pthread_sigmask(signal.SIG_SETMASK, _numbers(request.blocked))


def hold_signals() -> None:
    """Block the signals that a launcher passes on: an idle child must not get them."""
    pthread_sigmask(signal.SIG_SETMASK, FORWARDED)


def ignores_more(request: Request) -> bool:
    """Whether the command ignores SIGTERM, although its caller does not."""
    return getsignal(signal.SIGTERM) == signal.SIG_IGN and signal.SIGTERM not in _numbers(request.ignored)


def late_signal(request: Request) -> int:
    """A signal that arrived after the command's work and would have killed a normal process before its
    exit; 0: none.
    """
    pending = sigpending()
    return min(_DEADLY & pending - set(_numbers(request.blocked | request.ignored)), default=0) if pending else 0


def _numbers(bits: int) -> list[int]:
    """Signal numbers of a request's mask: bit n-1 is signal n."""
    return [number for number in range(1, 32) if bits >> number - 1 & 1] if bits else []


def streams(passed: tuple[int, ...]) -> tuple[TextIO, TextIO, TextIO]:
    """Standard streams as Python creates them (-1: closed) and `entry.run` leaves them."""
    names: list[int | str] = [number if descriptor >= 0 else os.devnull for number, descriptor in enumerate(passed)]
    stdin: TextIO
    if names[0] == 0 and os.isatty(0):
        raw = io.BufferedReader(terminal.TerminalInput())
        stdin = io.TextIOWrapper(raw, "utf-8", "surrogateescape")
    else:
        stdin = _open(names[0], "r", -1)
    return stdin, _open(names[1], "w", -1), _open(names[2], "w", 1)


def _open(name: int | str, mode: Literal["r", "w"], buffering: int) -> TextIO:
    return open(  # stays open for as long as the process lives
        name, mode, buffering, encoding="utf-8", errors="surrogateescape", closefd=not isinstance(name, int)
    )
