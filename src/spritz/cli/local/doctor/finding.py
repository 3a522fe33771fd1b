"""A line of the report of `spritz doctor`."""

from __future__ import annotations

OK, NOTE, WRONG = "ok", "note", "wrong"


class Finding:
    """One line of the report. `advice`: the remedy, "" if nothing is wrong."""

    __slots__ = ("advice", "grade", "text")

    def __init__(self, grade: str, text: str, advice: str = "") -> None:
        self.grade = grade
        self.text = text
        self.advice = advice


def count(number: int, what: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
