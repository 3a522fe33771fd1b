"""A launcher's request: everything that its process has around it, in two messages. `launcher/request.c` writes them.

The descriptors come when the launcher has heard that somebody takes them: on their way they would hold a caller's pipe.

Numbers are in the machine's own order: both ends are on one machine.
"""

from __future__ import annotations

import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

#: Changes with anything that launcher and server must agree on.
PROTOCOL = b"SPRITZ2\n"
LIMITS = 16

_HEADER = struct.Struct(f"=8sIIIIiIQQ{2 * LIMITS}Q")
_SIZE_MAX = 1 << 30
_PIECE = 1 << 18
#: the working directory, the token, and up to three standard streams
_DESCRIPTORS_MAX = 5
_CMSG_CLOEXEC = 0x40000000


class BadRequest(Exception):
    """Whoever sent this is no launcher of ours."""


class Request:
    """One call, without its descriptors.

    `opened` has bit n for each of 0, 1 and 2 that the caller has open; `blocked` and `ignored` have bit n-1 for signal
    n; `limits` are soft and hard limits by number, all in one tuple. `environment` has a NUL behind each variable.
    """

    __slots__ = ("argv", "blocked", "environment", "ignored", "limits", "nice", "opened", "pid", "umask")

    def __init__(self, data: bytes | bytearray) -> None:
        """Raises BadRequest."""
        fields = _HEADER.unpack_from(data)
        _, _, argc, self.umask, self.opened, self.nice, self.pid, self.blocked, self.ignored = fields[:9]
        self.limits: tuple[int, ...] = fields[9:]
        if not 0 < argc <= len(data) or data[-1] or self.opened > 7:
            raise BadRequest("arguments are missing")
        *argv, environment = bytes(data[_HEADER.size :]).split(b"\0", argc)
        if len(argv) < argc:
            raise BadRequest("arguments are missing")
        self.argv: list[bytes] = argv
        self.environment: bytes = environment


class Descriptors:
    """`streams` has one for each of 0, 1 and 2, -1 where the caller has it closed."""

    __slots__ = ("directory", "streams", "token")

    def __init__(self, request: Request, passed: list[int]) -> None:
        """Raises BadRequest."""
        if len(passed) != 2 + request.opened.bit_count():
            raise BadRequest("descriptors are missing")
        self.directory, self.token, *streams = passed
        rest = iter(streams)
        self.streams = tuple(next(rest) if request.opened & 1 << number else -1 for number in range(3))


def receive(connection: socket.socket) -> Request:
    """The first message. Raises BadRequest, or OSError if it does not come."""
    data = bytearray()
    wanted = _HEADER.size
    while len(data) < wanted:
        # Never a byte more: what comes next carries the descriptors, and they would be lost.
        piece = connection.recv(min(wanted - len(data), _PIECE))
        if not piece:
            raise BadRequest("it ends too early")
        data += piece
        if len(data) == _HEADER.size:
            wanted = int.from_bytes(data[8:12], sys.byteorder)
            if not data.startswith(PROTOCOL) or not _HEADER.size < wanted < _SIZE_MAX:
                raise BadRequest("another protocol")
    return Request(data)


def receive_descriptors(connection: socket.socket, request: Request) -> Descriptors:
    """The second message. Raises BadRequest, or OSError if it does not come."""
    _, control, _, _ = connection.recvmsg(1, 16 + 4 * _DESCRIPTORS_MAX, _CMSG_CLOEXEC)
    passed: list[int] = []
    for level, kind, content in control:
        if level == 1 and kind == 1:  # SOL_SOCKET, SCM_RIGHTS
            passed += memoryview(content[: len(content) // 4 * 4]).cast("i").tolist()
    return Descriptors(request, passed)
