"""Whether a message says more than its reader understands.

Fields that a reader does not know are passed over, so that peers one release apart understand each other. Where
something is changed, that would do another thing than was asked for: there they are looked for, and refused. What is
sent must leave out fields that are as they always were (`omit_defaults`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.msgpack import decode

if TYPE_CHECKING:
    from typing_extensions import Buffer


def unknown_field(value: object, body: Buffer) -> str:
    """The first field in `body` that `value`, which was decoded from it, has no place for: `Qos.colour`; or ""."""
    return _unknown(value, decode(body))


def _unknown(value: object, raw: object) -> str:
    found = ""
    if isinstance(value, Struct) and isinstance(raw, dict):
        known = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for key, item in raw.items():
            if key in known:
                found = found or _unknown(getattr(value, known[key]), item)
            elif key != value.__struct_config__.tag_field:
                found = found or f"{type(value).__name__}.{key}"
    elif isinstance(value, list | tuple) and isinstance(raw, list):
        found = next(filter(None, map(_unknown, value, raw)), "")
    return found
