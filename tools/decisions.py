"""`docs/decisions/index.md`: the decisions by title and date, newest first, and which of them a later one replaces."""

from __future__ import annotations

import re
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent.parent / "docs" / "decisions"

INTRODUCTION = """\
# Decisions

What was weighed, with figures, and what was decided. Generated from the pages' own first lines (`make docs`); do
not edit. A new page takes the next free number and begins with `# NNNN Title` and `Status: accepted, YYYY-MM-DD.`

| | decision | status |
|---|---|---|
"""

_TITLE = re.compile(r"#\s*(?:\d{4}:?\s+)?(.+)")
_STATUS = re.compile(r"^(?:\*\*)?Status:(?:\*\*)?\s*(.+?)\s*(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def markdown() -> str:
    """The whole page."""
    rows = []
    for path in sorted(DIRECTORY.glob("[0-9]*.md"), reverse=True):
        text = path.read_text(encoding="utf-8")
        title = _TITLE.match(text)
        if title is None:
            raise ValueError(f"{path.name} has no title")
        status = _STATUS.search(text)
        words = " ".join(status[1].split()) if status else "accepted"
        rows.append(f"| {path.name[:4]} | [{title[1]}]({path.name}) | {words} |")
    return INTRODUCTION + "\n".join(rows) + "\n"
