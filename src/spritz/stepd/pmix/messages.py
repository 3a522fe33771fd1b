"""Messages between the PMIx servers of a step's nodes, through the step's client. Nodes are identified by rank.

A message is one msgpack record, in frames `protocol.PMIX` of which the last is for ALL_TASKS and those before it for
task 0.
"""

from __future__ import annotations

import msgspec.msgpack

from spritz.stepd import protocol

#: Bytes of one frame, far below the longest payload.
_PIECE_BYTES = protocol.PAYLOAD_BYTES_MAX // 4


class Gather(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Up: this node's part of a collective. When `nodes` have all sent theirs each gets `Gathered`."""

    key: bytes
    nodes: tuple[int, ...]
    data: bytes


class Gathered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Down: the parts of all nodes, in order of rank."""

    key: bytes
    data: bytes


class Question(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Up and down: for node `to`, from node `sender`, whose number for it comes back with the answer."""

    to: int
    sender: int
    number: int
    body: bytes


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Up and down: node `sender` answers the question of this number of node `to`: a status of the library's, and data.

    The client answers for a node that has ended.
    """

    to: int
    sender: int
    number: int
    status: int
    data: bytes = b""


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Request for the data that the task of this rank has put."""

    rank: int


class Publish(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Store these: (key, value as packed by the library). The answer has no data."""

    rank: int
    entries: tuple[tuple[bytes, bytes], ...]


class Lookup(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Look up these keys. `wait`: answer when this many exist (0: now)."""

    keys: tuple[bytes, ...]
    wait: int


class Unpublish(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Remove entries published by the task of this rank: under these keys, or all."""

    rank: int
    keys: tuple[bytes, ...]


Message = Gather | Gathered | Question | Answer
#: the content of a question
Body = Fetch | Publish | Lookup | Unpublish
#: (rank of the publisher, key, packed value)
Published = list[tuple[int, bytes, bytes]]

_encode = msgspec.msgpack.Encoder().encode
_messages: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_bodies: msgspec.msgpack.Decoder[Body] = msgspec.msgpack.Decoder(Body)
_published = msgspec.msgpack.Decoder(Published)


def frames(message: Message) -> bytes:
    """The message in frames of at most _PIECE_BYTES; the last has ALL_TASKS as its task, the others 0."""
    data = _encode(message)
    if len(data) <= _PIECE_BYTES:
        return protocol.frame(protocol.PMIX, protocol.ALL_TASKS, data)
    pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]
    return b"".join(
        protocol.frame(protocol.PMIX, protocol.ALL_TASKS if index == len(pieces) else 0, piece)
        for index, piece in enumerate(pieces, 1)
    )


class Assembler:
    """Messages out of the frames of one peer."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, payload: bytes, *, last: bool) -> Message | None:
        """The message that the frame completes. Raises ProtocolError."""
        self._pieces.append(payload)
        if not last:
            return None
        data = b"".join(self._pieces)
        self._pieces.clear()
        try:
            return _messages.decode(data)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise protocol.ProtocolError(f"bad PMIX message: {error}") from error


def encode_body(body: Body) -> bytes:
    return _encode(body)


def decode_body(body: bytes) -> Body:
    """The question that `encode_body` has encoded. Raises ProtocolError for anything else."""
    try:
        return _bodies.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise protocol.ProtocolError(f"bad question: {error}") from error


def encode_published(entries: Published) -> bytes:
    """Data of the answer to a `Lookup`."""
    return _encode(entries)


def decode_published(data: bytes) -> Published:
    """The entries that `encode_published` has encoded. Raises ProtocolError for anything else."""
    try:
        return _published.decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise protocol.ProtocolError(f"bad entries: {error}") from error
