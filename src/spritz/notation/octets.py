"""Text that is not UTF-8: names, paths and arguments may be any bytes, but messages and the journal hold only UTF-8.

Such text has two forms. In Python's own form a lone surrogate (U+DC80 to U+DCFF) stands for each byte that is not
UTF-8; the operating system takes and returns this form, but no encoder does. In the *plain* form the private character
U+10FF80 to U+10FFFF stands there instead, so that the text can be sent and stored. Commands make text plain when they
send it (`spritz.wire`); code that passes it to the system or to a terminal restores it. If a user's own text holds one
of those private characters, it comes out as a byte; Unicode assigns them no meaning.

Source: PEP 383 for the surrogates.
"""

from __future__ import annotations

_LONE = range(0xDC80, 0xDD00)
_SHIFT = 0x10FF80 - 0xDC80
_TO_PLAIN = {code: code + _SHIFT for code in _LONE}
_TO_LONE = {code + _SHIFT: code for code in _LONE}


def plain(text: str) -> str:
    """The plain form, which can be sent and stored."""
    return text if text.isascii() else text.translate(_TO_PLAIN)


def restored(text: str) -> str:
    """Python's own form: for paths, and for streams written with `surrogateescape`."""
    return text if text.isascii() else text.translate(_TO_LONE)


def octets(text: str) -> bytes:
    """The bytes that the text, in either form, stands for."""
    return text.encode() if text.isascii() else restored(text).encode("utf-8", "surrogateescape")
