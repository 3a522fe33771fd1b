"""A launcher's request: everything that its process has around it. `launcher/request.c` writes it.

Numbers are in the machine's own order: both ends are on one machine.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

#: Changes with anything that launcher and server must agree on.
PROTOCOL = b"SPRITZ1\n"
LIMITS = 16

_HEADER = struct.Struct(f"=8sIIIIiIQQ{2 * LIMITS}Q")
_SIZE_MAX = 1 << 30
_PIECE = 1 << 16
#: the working directory, the token, and up to three standard streams
_DESCRIPTORS_MAX = 5
_CMSG_CLOEXEC = 0x40000000


class BadRequest(Exception):
    """Whoever sent this is no launcher of ours."""


class Request:
    """One call. `streams` has a descriptor for each of 0, 1 and 2, -1 where the caller has it closed.

    `blocked` and `ignored` have bit n-1 for signal n; `limits` are soft and hard limits by number, all in one tuple.
    """

    __slots__ = (
        "argv", "blocked", "directory", "environ", "ignored", "limits", "nice", "pid", "streams", "token", "umask",
    )  # fmt: skip

    def __init__(self, data: bytes | bytearray, descriptors: list[int]) -> None:
        """Raises BadRequest."""
        fields = _HEADER.unpack_from(data)
        _, _, argc, self.umask, opened, self.nice, self.pid, self.blocked, self.ignored = fields[:9]
        self.limits: tuple[int, ...] = fields[9:]
        if len(descriptors) != 2 + (opened & 7).bit_count():
            raise BadRequest("descriptors are missing")
        words = bytes(data[_HEADER.size :]).split(b"\0")
        if words.pop() or not 0 < argc <= len(words):
            raise BadRequest("arguments are missing")
        self.argv: list[bytes] = words[:argc]
        self.environ: list[bytes] = words[argc:]
        self.directory, self.token = descriptors[:2]
        passed = iter(descriptors[2:])
        self.streams = tuple(next(passed) if opened & 1 << number else -1 for number in range(3))


def receive(connection: socket.socket) -> Request:
    """The whole request. Raises BadRequest, or OSError if it does not come."""
    data = bytearray()
    descriptors: list[int] = []
    space = 16 + 8 * _DESCRIPTORS_MAX
    while True:
        piece, control, _, _ = connection.recvmsg(_PIECE, 0 if descriptors else space, _CMSG_CLOEXEC)
        if not piece:
            raise BadRequest("it ends too early")
        for level, kind, content in control:
            if level == 1 and kind == 1:  # SOL_SOCKET, SCM_RIGHTS
                descriptors += memoryview(content[: len(content) // 4 * 4]).cast("i").tolist()
        data += piece
        if len(data) < _HEADER.size:
            continue
        if not data.startswith(PROTOCOL):
            raise BadRequest("another protocol")
        size = int.from_bytes(data[8:12], "little" if _LITTLE else "big")
        if not _HEADER.size < size < _SIZE_MAX or len(data) > size:
            raise BadRequest("an impossible size")
        if len(data) == size:
            return Request(data, descriptors)


_LITTLE = struct.pack("=H", 1) == b"\x01\x00"
