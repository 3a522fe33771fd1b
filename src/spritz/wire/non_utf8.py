"""Converts messages with text that is not UTF-8, so that they can be encoded. Used only after encoding failed.

Walks through a message; `spritz.notation.octets` defines the two forms of such text.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.notation import octets


def encodable(value: object) -> object:
    """The value with all its text in plain form; the same object if nothing had to be converted."""
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
