"""`docs/decisions/index.md`: the decisions by package, newest first, with the decisions that replace others.

A page names its packages in a line of its own (`Packages: ...`). It is listed under the first of them; the other
packages refer to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
DIRECTORY = DOCS / "decisions"

INTRODUCTION = """\
# Decisions

Each page has the context of a decision, the options with figures, what was decided, and the consequences. The
decisions are listed by package, newest first; what a package owns is said in [architecture](../architecture.md). The
index is generated from the first lines of the pages (`make docs`); do not edit. A new page takes the next free number
and begins like this, with the package that it changes most named first:

    # NNNN Title

    Status: accepted, YYYY-MM-DD.

    Packages: `core`, `scheduling`.
"""

#: names that are not packages of the product, and what decisions under them are about
_OTHERS = {"testing": "how tests run", "project": "all packages"}

_TITLE = re.compile(r"#\s*(?:\d{4}:?\s+)?(.+)")
_STATUS = re.compile(r"^Status:\s*(.+?)\s*\n\n", re.MULTILINE | re.DOTALL)
_PACKAGES = re.compile(r"^Packages:\s*(.+?)\.\n\n", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `(\w+)` \| ([^|:;(\[]+)", re.MULTILINE)


@dataclass(frozen=True)
class Decision:
    name: str  # of its file
    title: str
    status: str
    packages: tuple[str, ...]

    @property
    def number(self) -> str:
        return self.name[:4]


def read(path: Path) -> Decision:
    """Raises ValueError if one of the page's first lines is missing or names an unknown package."""
    text = path.read_text(encoding="utf-8")
    title, status, packages = _TITLE.match(text), _STATUS.search(text), _PACKAGES.search(text)
    if title is None or status is None or packages is None:
        raise ValueError(f"{path.name} begins with a title, `Status: accepted, DATE.` and `Packages: NAMES.`")
    named = tuple(name.strip().strip("`") for name in packages[1].split(","))
    if unknown := set(named) - set(_subjects()):
        raise ValueError(f"{path.name} names {', '.join(sorted(unknown))}, which is in no row of architecture.md")
    return Decision(path.name, title[1], " ".join(status[1].split()), named)


def markdown() -> str:
    """The whole page."""
    decisions = [read(path) for path in sorted(DIRECTORY.glob("[0-9]*.md"), reverse=True)]
    return INTRODUCTION + "\n".join(line for lines in _sections(decisions) for line in lines) + "\n"


def _sections(decisions: list[Decision]) -> Iterator[list[str]]:
    for package, subject in _subjects().items():
        listed = [decision for decision in decisions if decision.packages[0] == package]
        others = [decision for decision in decisions if package in decision.packages[1:]]
        if not listed and not others:
            continue
        yield ["", f"## {package}: {subject}"]
        if listed:
            yield ["", "| | decision | status |", "|---|---|---|"]
            yield [f"| {each.number} | [{each.title}]({each.name}) | {each.status} |" for each in listed]
        if others:
            yield ["", "See also " + ", ".join(f"[{each.number}]({each.name})" for each in others) + "."]


def _subjects() -> dict[str, str]:
    """Packages in the order of architecture.md, with the beginning of what each owns."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    return {name: words.partition(", and ")[0].strip() for name, words in _ROW.findall(page)} | _OTHERS
