"""Faults of slurmdbd, its database and its host: those of `accounting.faults`, as kinds of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.sim.daemons import faults
from spritz.sim.daemons.accounting.faults import KINDS
from spritz.sim.daemons.accounting.faults import Kind as AccountingKind

if TYPE_CHECKING:
    from spritz.sim.daemons.plan import Action
    from spritz.sim.daemons.site import Site

#: A database that is set back to a copy has lost records that nothing can bring back: tests of its own look at that.
_APART = frozenset({"accounts backed up", "accounts set back"})

#: How often each comes compared with faults of other parts, of which there are many more.
_WEIGHT = 2.5


def _add(name: str, kind: AccountingKind) -> None:
    def perform(site: Site, action: Action, seconds: float) -> str | None:
        if site.accounting is None:
            return None
        kind.act(site.accounting, action.data)
        return " ".join(f"{key}={value}" for key, value in action.data.items() if key != "draw")

    faults.add(
        faults.Kind(name=name, targets=("slurmdbd",), weight=_WEIGHT, part="accounting", details=kind.draw), perform
    )


for _name, _kind in KINDS.items():
    if _name not in _APART:
        _add(_name, _kind)
