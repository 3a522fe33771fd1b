"""Messages between the node daemon and a supervisor: length-prefixed msgpack, without any I/O.

The daemon sends orders, the supervisor reports. Orders are idempotent; none is answered but by what it brings about.
"""

from __future__ import annotations

import msgspec.msgpack

from spritz.model.node_daemon.reports import StepFinished, Usage

#: Bytes of the length in front of every message.
PREFIX_BYTES = 4
#: Nothing that belongs here is longer.
_MESSAGE_BYTES_MAX = 64 * 1024 * 1024


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send `number` to every process of the step; `first_only`: only to the batch shell."""

    number: int
    first_only: bool = False


class Terminate(msgspec.Struct, frozen=True, tag="terminate"):
    """TERM and CONT to all, KILL after `kill_wait_seconds` (0: at once). `message` goes to standard error first."""

    message: str = ""
    kill_wait_seconds: float = 30.0


class Suspend(msgspec.Struct, frozen=True, tag="suspend"):
    """Stop every process of the step (SIGTSTP, SIGSTOP `grace_seconds` later), or let them go on."""

    resume: bool = False
    grace_seconds: float = 2.0


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    io_address: str
    io_key: str


class Notify(msgspec.Struct, frozen=True, tag="notify"):
    """A line for the step's standard error, or for its client only."""

    message: str
    to_client: bool = False


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    """The daemon has the step's result. It syncs it to disk if the controller does not store it soon, or the controller
    has stored it.
    """


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """Request the usage of the step so far. Answered by `Measured`."""


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """To an idle supervisor: run another step, in this spool directory."""

    directory: str


class Started(msgspec.Struct, frozen=True, tag="started"):
    """All tasks run (also sent to a daemon that adopts the supervisor)."""

    at: float
    pids: tuple[int, ...]


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """The step is over on this node. Its result is in the spool, unless it is `unstored`: then the supervisor keeps it
    until `Forget`, which the daemon sends when the controller has stored the result.

    `disk_error`: the errno of the last failure to write the spool; 0: there was none.
    """

    result: StepFinished
    unstored: bool = False
    disk_error: int = 0


class Idle(msgspec.Struct, frozen=True, tag="idle"):
    """The step is gone and forgotten; the supervisor can run another one."""


class NotForked(msgspec.Struct, frozen=True, tag="not_forked"):
    """No supervisor could be forked, or it could not write the step's spool: nothing was started. `number`: errno."""

    number: int


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """The usage of the step's tasks, and its processes."""

    usage: Usage
    pids: tuple[int, ...]


Order = Signal | Terminate | Suspend | Attach | Notify | Forget | Measure | Begin
Report = Started | Finished | Measured | Idle | NotForked

_encode = msgspec.msgpack.Encoder().encode
_orders = msgspec.msgpack.Decoder(Order)
_reports = msgspec.msgpack.Decoder(Report)


def encode(message: Order | Report) -> bytes:
    """The message with its length in front."""
    body = _encode(message)
    return len(body).to_bytes(PREFIX_BYTES, "big") + body


def body_bytes(prefix: bytes) -> int:
    """How many bytes follow the `PREFIX_BYTES` in front of a message. Raises ValueError for an impossible number."""
    size = int.from_bytes(prefix, "big")
    if size > _MESSAGE_BYTES_MAX:
        raise ValueError(f"impossible message of {size} bytes")
    return size


def decode_order(body: bytes) -> Order:
    """The decoded order. Raises ValueError for invalid bytes."""
    order: Order = _orders.decode(body)
    return order


class _Splitter:
    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def split(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        parts: list[bytes] = []
        while len(buffer) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(buffer[:PREFIX_BYTES], "big")
            if end > _MESSAGE_BYTES_MAX:
                raise ValueError(f"impossible message of {end} bytes")
            if len(buffer) < end:
                break
            parts.append(bytes(buffer[PREFIX_BYTES:end]))
            del buffer[:end]
        return parts


class OrderDecoder(_Splitter):
    """Splits received bytes into orders. Raises ValueError for invalid bytes."""

    def feed(self, data: bytes) -> list[Order]:
        """Orders that `data` completes, in order; the rest is kept for the next call."""
        return [_orders.decode(body) for body in self.split(data)]


class ReportDecoder(_Splitter):
    """Splits received bytes into reports. Raises ValueError for invalid bytes."""

    def feed(self, data: bytes) -> list[Report]:
        """Reports that `data` completes, in order; the rest is kept for the next call."""
        return [_reports.decode(body) for body in self.split(data)]
