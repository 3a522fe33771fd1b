"""Records as scontrol writes them: lines of `Key=value`, all but the first indented by three blanks, or a
single line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import INFINITE
from spritz.notation.hostlist import compress
from spritz.notation.oneline import one_line
from spritz.presentation.local_time import clock_text

if TYPE_CHECKING:
    from collections.abc import Sequence

NULL = "(null)"


def join(lines: Sequence[str], oneliner: bool) -> str:
    """A record followed by an empty line, or as one line. Newlines in the lines are escaped."""
    lines = [one_line(line) for line in lines]
    return " ".join(lines) + "\n" if oneliner else "\n   ".join(lines) + "\n\n"


def or_null(text: str) -> str:
    """Slurm's word for an empty text."""
    return text or NULL


def yes_no(value: bool) -> str:
    return "YES" if value else "NO"


def one_or_zero(value: object) -> int:
    return 1 if value else 0


def moment(at: float, none: str = "Unknown") -> str:
    """A time in SLURM_TIME_FORMAT; `none` for 0."""
    if not at:
        return none

    return clock_text(at)


def limit(count: int) -> str:
    """A count as text; UNLIMITED for `INFINITE` and above."""
    return "UNLIMITED" if count >= INFINITE else str(count)


def hosts(names: Sequence[str]) -> str:
    return compress(names)
