"""The base of all errors of this package, and the two things every parser here needs: bounded numbers and printable
excerpts.

Must stay free of imports: everything else in the room builds on it.
"""

from __future__ import annotations

#: longest piece of somebody's input that an error message repeats
_SHOWN_MAX = 80


class NotationError(ValueError):
    """Text that is not what it should be. The message is one line, in Slurm's words where Slurm has them."""


def shown(text: str, limit: int = _SHOWN_MAX) -> str:
    """`text` as a message may repeat it: at most `limit` characters, controls and stray bytes escaped, on one line."""
    head = text[: limit + 1]
    if not head.isprintable():
        head = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in head)
    return head if len(head) <= limit else head[: limit - 3] + "..."


def unsigned(text: str, maximum: int) -> int | None:
    """The number that ASCII digits `text` stand for, or None if it is something else or above `maximum`.

    Looks at the length first, so that a huge run of digits costs nothing.
    """
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > 20:
        text = text.lstrip("0") or "0"
        if len(text) > 20:
            return None
    value = int(text)
    return value if value <= maximum else None
