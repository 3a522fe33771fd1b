"""Whether the release notes are ready: `python -m tools.release VERSION` (`make release`).

The notes of a release are written by hand in CHANGELOG.md, from the fragments in `changelog.d/` (`make changelog`).
Says what is missing, and what is wrong with fragments; changes nothing. Source: changelog.d/README.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Characters of a fragment: two lines of CHANGELOG.md.
LENGTH_MAX = 220

#: Types of fragments, as in pyproject.toml.
TYPES = ("security", "removed", "added", "changed", "fixed")

_NAME = re.compile(rf"\+[a-z0-9]+(?:-[a-z0-9]+)*\.(?:{'|'.join(TYPES)})\.md")
_SECTION = re.compile(r"^## (\S+)(.*)$", re.MULTILINE)


def fragments(root: Path = ROOT) -> list[Path]:
    """Fragments of the next release, by name."""
    return sorted(path for path in (root / "changelog.d").iterdir() if path.name != "README.md")


def faults(fragment: Path) -> Iterator[str]:
    """What is wrong with a fragment."""
    if not _NAME.fullmatch(fragment.name):
        yield f"{fragment.name}: the name is not +SHORT-NAME.TYPE.md with TYPE of {', '.join(TYPES)}"
    text = fragment.read_text(encoding="utf-8")
    if (length := len(" ".join(text.split()))) > LENGTH_MAX:
        yield f"{fragment.name}: {length} characters, of at most {LENGTH_MAX}; the rest belongs in docs/"
    elif not length:
        yield f"{fragment.name}: it is empty"
    if text.startswith(("- ", "* ", "#")):
        yield f"{fragment.name}: it begins with a bullet or heading"
    if "\n\n" in text.strip():
        yield f"{fragment.name}: it has several paragraphs"


def missing(version: str, root: Path = ROOT) -> Iterator[str]:
    """What the notes of this release lack."""
    sections = _SECTION.findall((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if version not in [name for name, _ in sections]:
        yield f"CHANGELOG.md has no section `## {version} (YYYY-MM-DD)`: write it from `make changelog`"
    elif sections[0][0] != version:
        yield f"CHANGELOG.md: the section of {version} is not the first"
    elif not _is_date(sections[0][1]):
        yield f"CHANGELOG.md: `## {version}` is not followed by a date, (YYYY-MM-DD)"
    left = [path.name for path in fragments(root)]
    if left:
        yield f"merge these into CHANGELOG.md and remove them: {' '.join(left)}"


def _is_date(text: str) -> bool:
    found = re.fullmatch(r" \((\d{4}-\d\d-\d\d)\)", text)
    try:
        return found is not None and bool(date.fromisoformat(found[1]))
    except ValueError:
        return False


def main(arguments: list[str]) -> int:
    """Returns the exit status."""
    if len(arguments) != 1 or not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", arguments[0]):
        print("usage: python -m tools.release X.Y.Z", file=sys.stderr)
        return 2
    found = list(missing(arguments[0]))
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
