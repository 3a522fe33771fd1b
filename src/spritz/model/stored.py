"""Records as bytes that outlive the process that wrote them: events, images of the state, records of steps.

Owns the envelope and its number. A stored value is a msgpack array of three: the number of the format, the fingerprint
of the records' schema, and the value. Bytes with this release's own number and fingerprint are decoded directly.
`model.upcast` reads all others: it refuses a newer format, brings an older one up to this one, and refuses fields that
this release does not know, so a downgraded daemon never drops what it cannot read. Messages between daemons do not use
the envelope: there, unknown fields are ignored (`wire`).

Values without an envelope are format 1, which releases before the envelope wrote.

Table of all stored formats: docs/stored-formats.md. To change a stored record: docs/checklists/stored-record.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import DecodeError, ValidationError
from msgspec.msgpack import Encoder

from spritz.model.errors import UnsupportedFormat

if TYPE_CHECKING:
    from typing import TypeVar

    from msgspec.msgpack import Decoder

    T = TypeVar("T")

#: Number of the format that this release writes. All stored records share one number, since they share parts.
FORMAT = 2

#: Fingerprint of the schema of all stored records, as `make formats` computes it. The top bit is set, so that it always
#: takes 5 bytes.
FINGERPRINT = 0xCF14B2EB

_encode = Encoder().encode
_HEAD = _encode((FORMAT, FINGERPRINT, None))[:-1]
_HEAD_BYTES = len(_HEAD)


def encode(value: object) -> bytes:
    """The value in this release's envelope."""
    return _encode((FORMAT, FINGERPRINT, value))


def decode(data: bytes | memoryview, decoder: Decoder[T]) -> T:
    """The value in an envelope of this release or an earlier one.

    Raises UnsupportedFormat, or msgspec.DecodeError for damaged data.
    """
    try:
        if data[:_HEAD_BYTES] == _HEAD:
            return decoder.decode(memoryview(data)[_HEAD_BYTES:])
        from spritz.model.upcast import upcast  # seldom needed, and step supervisors avoid the import

        plain = upcast(bytes(data), decoder.type, FORMAT)
    except UnicodeDecodeError as error:  # msgspec does not turn this into one of its own errors
        raise DecodeError(str(error)) from error
    try:
        return decoder.decode(plain)
    except ValidationError as error:
        raise UnsupportedFormat(str(error)) from error
