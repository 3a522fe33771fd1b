"""The events that a controller's journal has pruned: kept aside, since they say what accounting's tables must have."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from spritz.controller.journal_sqlite import SqliteJournal, SqliteReading
from spritz.sim.daemons import threads

if TYPE_CHECKING:
    from pathlib import Path

    from spritz.controller.journal import Group
    from spritz.sim.daemons.world import Host

#: host -> groups by their first event, in order
_kept: dict[Host, dict[int, Group]] = {}

_prune = SqliteJournal.prune


def prune(journal: SqliteJournal, keep_after: int) -> None:
    """As `SqliteJournal.prune`, after a look at all groups."""
    _keep(threads.world().running.host, list(journal.groups(0)))
    _prune(journal, keep_after)


def names() -> list[tuple[type[SqliteJournal], str, object]]:
    """Where `prune` stands, for `seam.NAMES`."""
    return [(SqliteJournal, "prune", prune)]


def _keep(host: Host, groups: list[Group]) -> None:
    """Add the groups. Of a state that was set back, these count instead of the later ones that were kept."""
    if groups:
        kept = _kept.get(host, {})
        _kept[host] = {first: group for first, group in kept.items() if first < groups[0].first} | {
            group.first: group for group in groups
        }


def groups_of(host: Host, state: Path) -> list[Group] | None:
    """All groups of a controller whose StateSaveLocation is `state`, from the first event. None: some are missing."""
    with closing(SqliteReading(state)) as journal:
        _keep(host, list(journal.groups(0)))
    groups = list(_kept.get(host, {}).values())
    expected = 1
    for group in groups:
        if group.first != expected:
            return None
        expected = group.last + 1
    return groups
