"""Wraps the prose of Markdown pages at 120 columns, so that a difference shows the sentence that changed.

    python -m tools.wrap            # wraps the pages in place
    python -m tools.wrap --check    # fails, and names the pages that have longer lines

A paragraph with a line that is too long is filled anew; all others stay as their writer broke them. Tables, code,
headings, HTML and definitions of links stay as they are. No line is broken inside `code`, and none begins with what
Markdown would take for a list, a heading or a quotation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

WIDTH = 120

#: Release notes are assembled from fragments by towncrier, which wraps nothing.
_OTHERS = ("CHANGELOG.md",)

_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)(?=\S)")
_ADMONITION = re.compile(r"\s*(?:!!!|\?\?\?\+?)\s")
#: Lines that are neither filled nor part of a paragraph: tables, headings, HTML, definitions of links, rules.
_VERBATIM = re.compile(r"\s*(?:\||#{1,6}\s|<[a-z/!]|\[[^\]]+\]:\s|(?:-{3,}|={3,}|\*{3,})\s*$)")
#: A word that would begin another block if it stood first on a line.
_OPENS = re.compile(r"[-+*]$|#{1,6}$|>|\||=+$|-+$|\d+[.)]$|!!!|\?\?\?|:::|[<`~]{3}|<[a-z/!]|\[[^\]]*\]:")
#: A word: anything without spaces, except inside code.
_WORD = re.compile(r"(?:(`+)(?!`).*?(?<!`)\1(?!`)|[^\s`]|`+)+", re.DOTALL)


def pages() -> list[Path]:
    """Pages for people, in the order of their names."""
    return sorted(
        [
            *(path for path in ROOT.glob("*.md") if path.name not in _OTHERS),
            *(ROOT / "docs").rglob("*.md"),
            *(ROOT / "benchmarks").glob("*.md"),
            *(ROOT / "tests").rglob("README.md"),
        ]
    )


def wrap(text: str, width: int = WIDTH) -> str:
    """The same page with no line of prose longer than `width`, as far as its words allow."""
    return "".join(line + "\n" for line in _wrapped(text.splitlines(), width))


@dataclass
class _Paragraph:
    """Lines of a paragraph, without their indentation; `first` and `rest` are what its lines begin with."""

    first: str
    rest: str
    lines: list[str] = field(default_factory=list)

    def filled(self, width: int) -> list[str]:
        as_written = [(self.rest if number else self.first) + line for number, line in enumerate(self.lines)]
        broken_on_purpose = any(line.endswith(("  ", "\\")) for line in self.lines[:-1])
        if broken_on_purpose or all(len(line) <= width for line in as_written):
            return as_written
        words = [match[0] for match in _WORD.finditer("\n".join(self.lines))]
        return _fill([" ".join(word.split("\n")) for word in words], self.first, self.rest, width)


def _wrapped(lines: list[str], width: int) -> Iterator[str]:
    offsets = [0]  # columns at which the content of the open lists and admonitions begins
    fence = ""
    paragraph: _Paragraph | None = None
    for line in lines:
        text = line.lstrip()
        indent = len(line) - len(text)
        item = _ITEM.match(line)
        opened = _FENCE.match(line)
        code = paragraph is None and bool(text) and indent - _content(offsets, indent) >= 4
        verbatim = (
            fence or opened or not text or code or _VERBATIM.match(line) or (_ADMONITION.match(line) and not paragraph)
        )
        if paragraph and not verbatim and not item:
            if len(paragraph.lines) == 1:
                paragraph.rest = line[:indent]
            paragraph.lines.append(text)
            continue
        if paragraph:
            yield from paragraph.filled(width)
            paragraph = None
        if verbatim:
            yield line
            if opened and not fence:
                fence = opened[1]
            elif fence and text.startswith(fence) and not text.strip(fence[0]):
                fence = ""
            elif not fence and not code and _ADMONITION.match(line):
                _close(offsets, indent)
                offsets.append(indent + 4)
            continue
        _close(offsets, indent)
        start = item.end() if item else indent
        if item:
            offsets.append(start)
        paragraph = _Paragraph(line[:start], " " * start, [line[start:]])
    if paragraph:
        yield from paragraph.filled(width)


def _content(offsets: list[int], indent: int) -> int:
    """Column at which the content begins of the innermost list that a line with this indentation belongs to."""
    return max(offset for offset in offsets if offset <= indent)


def _close(offsets: list[int], indent: int) -> None:
    """Forgets the lists that a line with this indentation is no longer part of."""
    offsets[:] = [offset for offset in offsets if offset <= indent]


def _fill(words: list[str], first: str, rest: str, width: int) -> list[str]:
    lines: list[list[str]] = [[]]
    for word in words:
        prefix = first if len(lines) == 1 else rest
        line = lines[-1]
        if line and len(prefix) + sum(len(written) + 1 for written in line) + len(word) > width:
            carried = [word]
            # What would open a block is not put first: the words in front of it move down with it.
            while _OPENS.match(carried[0]) and len(line) > 1:
                carried.insert(0, line.pop())
            if _OPENS.match(carried[0]):
                line += carried
            else:
                lines.append(carried)
        else:
            line.append(word)
    return [(rest if number else first) + " ".join(line) for number, line in enumerate(lines)]


def unwrapped() -> list[str]:
    """Pages with lines that are too long, relative to the root."""
    return [
        str(path.relative_to(ROOT))
        for path in pages()
        if (text := path.read_text(encoding="utf-8")) and wrap(text) != text
    ]


def main(argv: list[str]) -> int:
    """0; 1 with --check if a page has longer lines."""
    if argv == ["--check"]:
        long = unwrapped()
        for name in long:
            print(f"{name} has lines of more than {WIDTH} characters: run `make format`")
        return 1 if long else 0
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if (filled := wrap(text)) != text:
            path.write_text(filled, encoding="utf-8")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
