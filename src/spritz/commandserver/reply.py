"""Messages to a launcher: its command has stopped or ended. `launcher/serve.c` reads them."""

from __future__ import annotations

import struct

#: exit status
ENDED = b"E"
#: the signal that killed the command
KILLED = b"K"
#: the signal that stopped it
STOPPED = b"T"

_REPLY = struct.Struct("=c3xi")


def encode(kind: bytes, value: int) -> bytes:
    return _REPLY.pack(kind, value)
