"""Text that is not UTF-8: names, paths and arguments may be any bytes, and messages and the journal hold UTF-8 alone.

Two forms of such text. Python's own has a lone surrogate (U+DC80 to U+DCFF) for each byte that is not UTF-8; the system
takes and gives it, and nothing can encode it. The *plain* form has the private character U+10FF80 to U+10FFFF in its
place: text that can be sent and stored. Commands make text plain when they send it (`spritz.wire`); code that
hands it to the system or to a terminal restores it. Those private characters in a user's own text come out as bytes;
Unicode assigns them no meaning.

Source: PEP 383 for the surrogates.
"""

from __future__ import annotations

import os

_LONE = range(0xDC80, 0xDD00)
_SHIFT = 0x10FF80 - 0xDC80
_TO_PLAIN = {code: code + _SHIFT for code in _LONE}
_TO_LONE = {code + _SHIFT: code for code in _LONE}


def plain(text: str) -> str:
    """The form that can be sent."""
    return text if text.isascii() else text.translate(_TO_PLAIN)


def restored(text: str) -> str:
    """The form that the system takes: for paths, and for streams that are written with `surrogateescape`."""
    return text if text.isascii() else text.translate(_TO_LONE)


def octets(text: str) -> bytes:
    """The bytes that the text stands for, in either form."""
    return os.fsencode(text) if text.isascii() else restored(text).encode("utf-8", "surrogateescape")
