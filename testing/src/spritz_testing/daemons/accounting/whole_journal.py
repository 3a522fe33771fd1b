"""The events that a controller's journal has pruned: kept aside, since they say what accounting's tables must have."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from spritz.controller.journal.postgresql import PostgresJournal
from spritz.controller.journal.sqlite import SqliteJournal, SqliteReading
from spritz_testing.daemons.controller.standby import Stored
from spritz_testing.daemons.system import threads

if TYPE_CHECKING:
    from pathlib import Path

    from spritz.controller.journal.contract import Group
    from spritz_testing.daemons.database import Database
    from spritz_testing.daemons.system.world import Host

#: a host with a journal, or a database -> groups by their first event, in order
_kept: dict[Host | Database, dict[int, Group]] = {}

_prune = SqliteJournal.prune
_prune_postgres = PostgresJournal.prune


def prune(journal: SqliteJournal, keep_after: int) -> None:
    """As `SqliteJournal.prune`, after a look at all groups."""
    _keep(threads.world().running.host, list(journal.groups(0)))
    _prune(journal, keep_after)


def prune_postgres(journal: PostgresJournal, keep_after: int) -> None:
    """As `PostgresJournal.prune`, after a look at all groups."""
    database = threads.world().running.host.database
    assert database is not None, "its host has one"
    _keep(database, list(Stored(database).groups(0)))
    _prune_postgres(journal, keep_after)


def names() -> list[tuple[type[Any], str, object]]:
    """Where `prune` stands, for `seam.NAMES`."""
    return [(SqliteJournal, "prune", prune), (PostgresJournal, "prune", prune_postgres)]


def _keep(owner: Host | Database, groups: list[Group]) -> None:
    """Add the groups. Of a state that was set back, these count instead of the later ones that were kept."""
    if groups:
        kept = _kept.get(owner, {})
        _kept[owner] = {first: group for first, group in kept.items() if first < groups[0].first} | {
            group.first: group for group in groups
        }


def groups_of(host: Host, state: Path) -> list[Group] | None:
    """All groups of a controller whose StateSaveLocation is `state`, from the first event. None: some are missing."""
    owner = host.database or host
    with closing(SqliteReading(state) if host.database is None else Stored(host.database)) as journal:
        _keep(owner, list(journal.groups(0)))
    groups = list(_kept.get(owner, {}).values())
    expected = 1
    for group in groups:
        if group.first != expected:
            return None
        expected = group.last + 1
    return groups
