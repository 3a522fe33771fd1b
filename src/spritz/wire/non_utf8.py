"""Messages with text that is not UTF-8, made such that they can be sent. Only what cannot be encoded comes here.

Owns the walk through a message; the two forms of such text are `spritz.notation.octets`.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.notation import octets


def encodable(value: object) -> object:
    """The value with all its text in plain form; what holds none is the very same."""
    if isinstance(value, str):
        return octets.plain(value)
    if isinstance(value, Struct):
        return type(value)(**{name: encodable(getattr(value, name)) for name in value.__struct_fields__})
    if isinstance(value, tuple):
        return tuple(encodable(item) for item in value)
    if isinstance(value, list):
        return [encodable(item) for item in value]
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    return value
