"""`meant.txt`: what our commands are meant to print otherwise than Slurm 22.05, and why.

`compare` sets it aside; `docs/compatibility/differences.md` lists its reasons.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

PATH = Path(__file__).parent / "meant.txt"


@dataclass(frozen=True)
class Rule:
    """A pattern of what is set aside. `within`: commands that it holds for (None: all)."""

    pattern: re.Pattern[str]
    what: str
    within: re.Pattern[str] | None = None

    def holds_for(self, command: str) -> bool:
        return self.within is None or self.within.search(command) is not None


@dataclass
class Meant:
    """Rules in the order of the file. `reasons`: (what, why)."""

    reasons: list[tuple[str, str]] = field(default_factory=list)
    texts: list[Rule] = field(default_factory=list)
    lines: list[Rule] = field(default_factory=list)
    commands: list[Rule] = field(default_factory=list)
    refused: list[Rule] = field(default_factory=list)
    saying: list[Rule] = field(default_factory=list)

    def covers(self, command: str, ours: list[str], exit_code: int) -> str:
        """What is meant to differ, if that is all that the command says; else "".

        `ours`: what ours wrote to standard error, and how it ended.
        """
        for rule in self.commands:
            if rule.pattern.search(command):
                return rule.what
        for rule in self.refused:
            if exit_code and rule.pattern.search(command):
                return rule.what
        for rule in self.saying:
            if rule.holds_for(command) and any(rule.pattern.search(line) for line in ours):
                return rule.what
        return ""

    def kept(self, command: str, lines: list[str]) -> list[str]:
        """The lines of the command without what is meant to differ."""
        dropped = [rule.pattern for rule in self.lines if rule.holds_for(command)]
        texts = [rule.pattern for rule in self.texts if rule.holds_for(command)]
        kept = []
        for line in lines:
            if any(pattern.search(line) for pattern in dropped):
                continue
            for pattern in texts:
                line = pattern.sub("", line)
            kept.append(line)
        return kept


def read(path: Path = PATH) -> Meant:
    """Raises ValueError for a line of no known form."""
    meant = Meant()
    within: re.Pattern[str] | None = None
    what = ""
    kinds = {
        "text": meant.texts,
        "line": meant.lines,
        "command": meant.commands,
        "refused": meant.refused,
        "saying": meant.saying,
    }
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("# "):
            continue
        kind, _, rest = line.partition(" ")
        if kind == "==":
            what, _, why = rest.partition(" -- ")
            meant.reasons.append((what, why))
            within = None
        elif kind == "within":
            within = re.compile(rest)
        elif kind in kinds:
            rule = Rule(re.compile(rest), what, within)
            if within is None and rule.pattern.search("any line"):
                raise ValueError(f"{path}:{number}: {line!r} would set everything aside: name what differs, or where")
            kinds[kind].append(rule)
        else:
            raise ValueError(f"{path}:{number}: {line!r}")
    return meant
