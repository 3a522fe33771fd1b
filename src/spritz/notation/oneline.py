"""Text of users within a line of output.

A name or comment may hold newlines. Printed as they are, the text after a newline reads as a line of its own: a
program that reads `scontrol show job` line by line would take `JobState=FAILED` from a comment. All characters at which
a program may split lines count, those of Python's `str.splitlines` and of text files in universal newline mode.
"""

from __future__ import annotations

_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r"}
_ESCAPES |= {code: f"\\x{code:02x}" for code in (0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x85)}
_ESCAPES |= {code: f"\\u{code:04x}" for code in (0x2028, 0x2029)}


def one_line(text: str) -> str:
    """The text with `\\n` in two characters for a newline, and other characters that end a line likewise.

    Backslashes stay as they are, so the result does not tell a newline from a backslash and an `n`.
    """
    return text if text.isprintable() else text.translate(_ESCAPES)
