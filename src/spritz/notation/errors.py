"""The base of all errors of this package, and helpers of every parser: bounded numbers, C's way to read one, and
printable excerpts.

Must not import anything: every other module here imports it.
"""

from __future__ import annotations

#: longest excerpt of a user's input in an error message
_SHOWN_MAX = 80


class NotationError(ValueError):
    """Text that its parser does not accept. The message is one line, in Slurm's words where Slurm has them."""


def shown(text: str, limit: int = _SHOWN_MAX) -> str:
    """`text` for use in a message: at most `limit` characters, controls and stray bytes escaped, on one line."""
    head = text[: limit + 1]
    if not head.isprintable():
        head = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in head)
    return head if len(head) <= limit else head[: limit - 3] + "..."


def unsigned(text: str, maximum: int) -> int | None:
    """The value of the ASCII digits `text`; None for other text, or a value above `maximum`.

    Checks the length first: a huge run of digits must cost nothing.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > 20:
        text = text.lstrip("0") or "0"
        if len(text) > 20:
            return None
    value = int(text)
    return value if value <= maximum else None


def c_integer(text: str) -> str:
    """The number that C's atoi reads from `text`, without leading zeros: blanks before it and all text behind it are
    passed over. "0" for text that begins with no number.
    """
    text = text.lstrip(" \t\n\v\f\r")
    sign = text[:1] if text[:1] in ("-", "+") else ""
    length = len(sign)
    while length < len(text) and "0" <= text[length] <= "9":
        length += 1
    digits = text[len(sign) : length].lstrip("0")
    return f"-{digits}" if digits and sign == "-" else digits or "0"
