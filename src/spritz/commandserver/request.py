"""A launcher's request: the state of its process, in two messages. `launcher/request.c` writes them.

The first message is text, with descriptors of the caller's directory and of a socket: the call's box, which contains
the second message, the streams. The side that takes them out runs the call; after a time limit the launcher takes them
out itself.

Numbers are in the machine's own order: both ends are on one machine.
"""

from __future__ import annotations

import struct
import sys
from socket import AF_UNIX, MSG_CMSG_CLOEXEC, MSG_DONTWAIT, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

#: changes whenever the format does
PROTOCOL = b"SPRITZ5\n"
LIMITS = 16

_HEADER = struct.Struct(f"=8sIIIIiIIIQQ{2 * LIMITS}Q")
_SIZE_MAX = 1 << 30
_PIECE, _MORE = 1 << 14, 1 << 18
_STREAMS_MAX = 3


class BadRequest(Exception):
    """The sender is not a launcher of this release."""


class Request:
    """A call without its directory and streams.

    `caller`: process id, uid and gid as the caller sees them. `opened` has bit n set if the caller has descriptor n
    open; `blocked` and `ignored` have bit n-1 for signal n; `limits` are soft and hard limits by number, all in one
    tuple. in `environment` each variable ends with a NUL byte.
    """

    __slots__ = ("argv", "blocked", "caller", "environment", "ignored", "limits", "nice", "opened", "umask")

    def __init__(self, data: bytes) -> None:
        """Raises BadRequest."""
        fields = _HEADER.unpack_from(data)
        _, _, argc, self.umask, self.opened, self.nice = fields[:6]
        self.caller: tuple[int, int, int] = fields[6:9]
        self.blocked, self.ignored = fields[9:11]
        self.limits: tuple[int, ...] = fields[11:]
        if not 0 < argc <= len(data) or data[-1] or self.opened > 7:
            raise BadRequest("arguments are missing")
        *argv, environment = data[_HEADER.size :].split(b"\0", argc)
        if len(argv) < argc:
            raise BadRequest("arguments are missing")
        self.argv: list[bytes] = argv
        self.environment: bytes = environment


def receive(connection: socket) -> tuple[Request, int, socket]:
    """The first message, the directory, and the box. Raises BadRequest, or OSError if it does not come."""
    data, control, _, _ = connection.recvmsg(_PIECE, 32, MSG_CMSG_CLOEXEC)
    passed = _descriptors(control)
    if len(passed) != 2:
        raise BadRequest("it has no box")
    if len(data) < _HEADER.size or not data.startswith(PROTOCOL):
        raise BadRequest("another protocol")
    size = int.from_bytes(data[8:12], sys.byteorder)
    if not _HEADER.size < size < _SIZE_MAX:
        raise BadRequest("another protocol")
    if len(data) < size:
        data = _whole(connection, data, size)
    if len(data) > size:
        raise BadRequest("it does not end")
    return Request(data), passed[1], socket(AF_UNIX, SOCK_STREAM, 0, passed[0])


def _whole(connection: socket, beginning: bytes, size: int) -> bytes:
    data = bytearray(beginning)
    while len(data) < size:
        piece = connection.recv(min(size - len(data), _MORE))
        if not piece:
            raise BadRequest("it ends too early")
        data += piece
    return bytes(data)


def take_out(box: socket, request: Request) -> tuple[int, ...]:
    """Take the call with the content of its box: descriptors for 0, 1 and 2, each -1 if the caller has it closed.

    Raises BlockingIOError or BadRequest if the box is already empty.
    """
    data, control, _, _ = box.recvmsg(1, 16 + 4 * _STREAMS_MAX, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)
    passed = _descriptors(control)
    if not data or len(passed) != request.opened.bit_count():
        raise BadRequest("streams are missing")
    descriptors = iter(passed)
    return tuple(next(descriptors) if request.opened & 1 << number else -1 for number in range(3))


def _descriptors(control: list[tuple[int, int, bytes]]) -> list[int]:
    passed: list[int] = []
    for level, kind, content in control:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            passed += memoryview(content[: len(content) // 4 * 4]).cast("i").tolist()
    return passed
