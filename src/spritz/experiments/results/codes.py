"""The code of a group's runs, which differs after `--new-code`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from spritz.experiments.records.store import Entry


@dataclass(frozen=True)
class Code:
    """A snapshot of the code, as the index has it."""

    branch: str
    commit: str
    tree: str
    changed: bool

    @property
    def label(self) -> str:
        """Branch and commit, with the tree where the commit does not have the code."""
        at = f"{self.branch or 'detached'} {self.commit[:7]}" if self.commit else ""
        changes = f" with changes (tree {self.tree[:7]})" if self.changed else ""
        return f"{at}{changes}" if at else f"tree {self.tree[:7]}"


def counts(entries: Iterable[Entry]) -> dict[Code, int]:
    """Number of runs by their code, in the order of their creation; empty for runs in place."""
    ordered = sorted(entries, key=lambda entry: (entry.created_at, entry.name))
    return dict(
        Counter(Code(entry.branch, entry.commit_id, entry.tree, entry.changed) for entry in ordered if entry.tree)
    )


def as_json(entries: Iterable[Entry]) -> list[dict[str, object]]:
    """Each code with the number of its runs."""
    return [{**asdict(code), "runs": count} for code, count in counts(entries).items()]


def differences(entries: Iterable[Entry], noun: str) -> str:
    """`8 trials with main 1234abc, 4 with main 5678def`; "" if all have the same code. `noun`: singular."""
    by_code = counts(entries)
    if len(by_code) < 2:
        return ""
    (first, count), *others = ((code.label, count) for code, count in by_code.items())
    return ", ".join([
        f"{count} {noun}{'s' if count != 1 else ''} with {first}",
        *(f"{other_count} with {label}" for label, other_count in others),
    ])  # fmt: skip
