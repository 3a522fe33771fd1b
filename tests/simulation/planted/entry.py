"""What a planted fault is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Edit:
    """In `file` (below src/spritz) replace `old`, which occurs exactly once, by `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One small wrong change.

    `rule`: the rule of the simulation that it breaks, 1 to 7. `why`: which guarantee breaks, and what must happen for
    that to show. `needs`: parts of the world that must run for it to show. `defect`: which of the ten read defects it
    puts back ("": none). `also`: further edits, where one alone would be made good by a second check.
    """

    name: str
    rule: int
    file: str
    old: str
    new: str
    why: str
    needs: tuple[str, ...] = ()
    defect: str = ""
    #: kinds of the simulation's faults without which it seldom shows; a search has runs with many of these alone
    kinds: tuple[str, ...] = ()
    also: tuple[Edit, ...] = field(default=())

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, the main one first."""
        return (Edit(self.file, self.old, self.new), *self.also)
