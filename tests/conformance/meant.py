"""`meant.txt`: what our commands are meant to print otherwise than Slurm 22.05, and why.

`compare` sets it aside; `docs/compatibility.md` lists its reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

PATH = Path(__file__).parent / "meant.txt"


@dataclass
class Meant:
    """Rules in the order of the file. `reasons`: (what, why)."""

    reasons: list[tuple[str, str]] = field(default_factory=list)
    texts: list[re.Pattern[str]] = field(default_factory=list)
    lines: list[re.Pattern[str]] = field(default_factory=list)
    commands: list[tuple[re.Pattern[str], str]] = field(default_factory=list)

    def covers(self, command: str) -> str:
        """What is meant to differ, if that is all that the command says; else ""."""
        return next((what for pattern, what in self.commands if pattern.search(command)), "")

    def kept(self, lines: list[str]) -> list[str]:
        """The lines without what is meant to differ."""
        kept = []
        for line in lines:
            if any(pattern.search(line) for pattern in self.lines):
                continue
            for pattern in self.texts:
                line = pattern.sub("", line)
            kept.append(line)
        return kept


def read(path: Path = PATH) -> Meant:
    """Raises ValueError for a line of no known form."""
    meant = Meant()
    kinds = {"text": meant.texts, "line": meant.lines}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("# "):
            continue
        kind, _, rest = line.partition(" ")
        if kind == "==":
            what, _, why = rest.partition(" -- ")
            meant.reasons.append((what, why))
        elif kind == "command":
            meant.commands.append((re.compile(rest), meant.reasons[-1][0]))
        elif kind in kinds:
            kinds[kind].append(re.compile(rest))
        else:
            raise ValueError(f"{path}:{number}: {line!r}")
    return meant
