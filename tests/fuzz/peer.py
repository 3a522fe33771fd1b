"""A peer that sends what it likes: frames with any kind and body, many at once, and reads what comes back."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from select import select

from msgspec import Raw, msgpack

from spritz.wire.envelope import Request, Response, decode_envelope, encode
from spritz.wire.frames import FrameDecoder, FrameError
from spritz.wire.versions import hello

#: A request: its kind, and its body as msgpack carries it.
Message = tuple[str, object]

#: Whether the daemon is there, and (of slurmctld) whether what was decided before is durable and answered.
LAST: tuple[Message, ...] = (("Ping", {}), ("ListReservations", {}))


def exchange(address: str, messages: Iterable[Message], *, patience: float, all_of_them: bool) -> Counter[str]:
    """Send them on one connection, and `LAST` behind them; how often each kind of answer came until the last, or all of
    them, were answered.

    An answer is "ok", or the code of a failure. Requests that are held back are given up when the connection closes.
    Raises TimeoutError where the daemon says nothing for `patience` seconds, and OSError where it is gone.
    """
    sent = [*messages, *LAST]
    awaited: set[int] = set()
    frames = [encode(hello("command"))]
    for number, (kind, body) in enumerate(sent, 1):
        with suppress(FrameError):  # longer than any frame
            frames.append(encode(Request(id=number, kind=kind, body=Raw(msgpack.encode(body)))))
            if all_of_them or number > len(sent) - len(LAST):
                awaited.add(number)
    answers: Counter[str] = Counter()
    unsent = memoryview(b"".join(frames))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience)
        connection.connect(address)
        connection.setblocking(False)
        received = FrameDecoder()
        while True:
            # Both at once: a daemon whose answers are not read stops reading.
            readable, writable, _ = select([connection], [connection] if unsent else [], [], patience)
            if not readable and not writable:
                raise TimeoutError(f"no answer in {patience} s after {dict(answers)}; {len(unsent)} bytes are unsent")
            if writable:
                unsent = unsent[connection.send(unsent) :]
            for frame in received.feed(_piece(connection)) if readable else ():
                envelope = decode_envelope(frame)
                if isinstance(envelope, Response) and not envelope.more:
                    awaited.discard(envelope.id)
                    answers["ok" if envelope.error is None else envelope.error.code] += 1
            if not awaited:
                return answers


def _piece(connection: socket.socket) -> bytes:
    piece = connection.recv(1 << 18)
    if not piece:
        raise ConnectionResetError("the daemon closed the connection")
    return piece
