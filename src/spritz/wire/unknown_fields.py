"""Detects fields of a message that its receiver does not know.

Unknown fields are normally ignored, so that peers one release apart understand each other. In a request that changes
state, ignoring a field would do something else than requested, so such requests are refused. Senders must therefore
leave out fields with default values (`omit_defaults`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.msgpack import decode

if TYPE_CHECKING:
    from typing_extensions import Buffer


def unknown_field(value: object, body: Buffer) -> str:
    """The first field in `body` that `value`, decoded from it, does not have, such as `Qos.colour`; or ""."""
    return _unknown(value, decode(body))


def _unknown(value: object, raw: object) -> str:
    unknown = ""
    if isinstance(value, Struct) and isinstance(raw, dict):
        known = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for key, item in raw.items():
            if key in known:
                unknown = unknown or _unknown(getattr(value, known[key]), item)
            elif key != value.__struct_config__.tag_field:
                unknown = unknown or f"{type(value).__name__}.{key}"
    elif isinstance(value, list | tuple) and isinstance(raw, list):
        unknown = next(filter(None, map(_unknown, value, raw)), "")
    return unknown
