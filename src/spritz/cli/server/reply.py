"""What a launcher is told: somebody is there; its command has begun, stopped, ended. `launcher/serve.c` reads it."""

from __future__ import annotations

import struct

#: somebody is there to take the descriptors
THERE = b"H"
#: the command has begun; the child's process id
STARTED = b"S"
#: exit status
ENDED = b"E"
#: the signal that killed the command
KILLED = b"K"
#: the signal that stopped it
STOPPED = b"T"

_REPLY = struct.Struct("=c3xi")


def encode(kind: bytes, value: int) -> bytes:
    """One message."""
    return _REPLY.pack(kind, value)
