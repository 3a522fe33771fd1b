"""Envelopes: the content of frames, and their encoding.

Owns `Hello`, `Request`, `Response` and `Failure`. Bodies are opaque: Structs of the peers, encoded in place (one pass,
no copy) and decoded by the receiver, which knows the type.
"""

from __future__ import annotations

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.msgpack import Decoder, Encoder

from spritz.model.errors import ESLURM, SpritzError
from spritz.model.rejection import Rejection
from spritz.wire.frames import FRAME_BYTES_MAX, PREFIX_BYTES, FrameError

#: first field of every `Hello`; a connection that starts otherwise is refused
MAGIC = "spritz"


class Hello(Struct, frozen=True, kw_only=True, array_like=True, tag=0, gc=False):
    """First frame of each side: its range of protocol versions and its identity.

    `software`: for example `spritz 0.1.0`; `role`: `command`, `slurmctld`, `slurmd`, `srun` …, for logs and to detect a
    wrong port.
    """

    magic: str
    version_min: int
    version_max: int
    software: str
    role: str


class Failure(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Why a request failed. `code` is Slurm's ESLURM name, `errno` its number (1 where Slurm has none).

    `message` is one line for the user, `hint` suggests a remedy; a command exits with `exit_code`.
    """

    code: str
    errno: int
    message: str
    hint: str = ""
    exit_code: int = 1
    #: lines that a command prints as errors of their own before the message
    details: tuple[str, ...] = ()
    #: how many of them, from the first, are site plugins' messages to the user
    told: int = 0


class Request(Struct, frozen=True, kw_only=True, array_like=True, tag=1):
    """A request. `id` 0 wants no response. `token` has no meaning yet and is refused if present."""

    id: int
    kind: str
    body: Raw
    token: bytes | None = None
    version: int = 1


class Response(Struct, frozen=True, kw_only=True, array_like=True, tag=2):
    """The answer to the request of that `id`; `more` announces further ones. An empty stream item has an empty body."""

    id: int
    body: Raw = Raw(b"\xc0")
    error: Failure | None = None
    more: bool = False


class Cancel(Struct, frozen=True, kw_only=True, array_like=True, tag=3, gc=False):
    """The sender of request `id` no longer waits for its response; the receiver may stop working on it."""

    id: int


Envelope = Hello | Request | Response | Cancel

#: msgpack's nil: the body of a response without a value
NO_BODY = b"\xc0"

_encode_into = Encoder().encode_into
_decoder: Decoder[Envelope] = Decoder(Envelope)


def encode(envelope: Envelope) -> bytes:
    """The whole frame of an envelope, prefix included. Raises FrameError if it is too long."""
    buffer = bytearray(256)
    try:
        _encode_into(envelope, buffer, PREFIX_BYTES)
    except UnicodeEncodeError:
        from spritz.wire.non_utf8 import encodable

        _encode_into(encodable(envelope), buffer, PREFIX_BYTES)
    size = len(buffer) - PREFIX_BYTES
    if size > FRAME_BYTES_MAX:
        raise FrameError(f"message of {size} bytes is longer than the {FRAME_BYTES_MAX} that a frame may have")
    buffer[:PREFIX_BYTES] = size.to_bytes(PREFIX_BYTES, "big")
    return bytes(buffer)


def encode_request(request_id: int, body: Struct, *, version: int = 1) -> bytes:
    """The frame for a request; its kind is the body's class name."""
    # The encoder writes the Struct where the receiver expects Raw: one pass instead of two.
    return encode(Request(id=request_id, kind=type(body).__name__, body=body, version=version))  # type: ignore[arg-type]


def encode_response(request_id: int, body: Struct, *, more: bool = False) -> bytes:
    """The frame that answers a request with a Struct."""
    return encode(Response(id=request_id, body=body, more=more))  # type: ignore[arg-type]  # as in encode_request


def encode_reply(request_id: int, body: bytes = NO_BODY, *, more: bool = False) -> bytes:
    """The frame for a body in msgpack already: for cached answers, and to end a stream."""
    return encode(Response(id=request_id, body=Raw(body), more=more))


def encode_failure(request_id: int, error: Failure) -> bytes:
    """The frame that reports why a request failed."""
    return encode(Response(id=request_id, error=error))


def decode_envelope(payload: bytes) -> Envelope:
    """The envelope in one frame. Raises FrameError for anything else: the peer does not speak this protocol."""
    try:
        return _decoder.decode(payload)
    except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"frame is not an envelope: {error}") from error


def failure(
    code: str, message: str = "", *, hint: str = "", exit_code: int = 1, details: tuple[str, ...] = ()
) -> Failure:
    """A Failure with Slurm's number, and Slurm's text where `message` is empty."""
    number, text = ESLURM.get(code, (1, code))
    return Failure(code=code, errno=number, message=message or text, hint=hint, exit_code=exit_code, details=details)


def failure_of(error: SpritzError | Rejection) -> Failure:
    """A Failure for a raised error or a returned rejection."""
    if isinstance(error, Rejection):
        number = ESLURM.get(error.code, (1, ""))[0]
        return Failure(
            code=error.code,
            errno=number,
            message=error.text,
            hint=error.hint,
            details=error.details,
            told=error.told,
        )
    return failure(error.code, error.message, hint=error.hint, exit_code=error.exit_code, details=error.details)
