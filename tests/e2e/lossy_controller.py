"""slurmctld whose database is lost at the n-th operation of the journal since it took the lease.

`SPRITZ_LOSS` names a file: `FILE.at` holds n, `FILE.lost` exists while the database is lost, and whoever removes it
brings the database back, with the n that `FILE.at` has by then.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg

from spritz.controller.journal import postgresql as journal_postgresql
from spritz.controller.main import entry

_AT, _LOST = Path(os.environ["SPRITZ_LOSS"] + ".at"), Path(os.environ["SPRITZ_LOSS"] + ".lost")


class _Count:
    """Operations since the lease was taken; before, none is counted."""

    def __init__(self) -> None:
        self.counting = False
        self.operations = 0


def main() -> None:
    count = _Count()
    connect, opened = journal_postgresql.Store.connect, journal_postgresql.PostgresJournal.__init__

    def connect_or_fail(store: journal_postgresql.Store) -> Any:
        if count.counting and not _LOST.exists():
            count.operations += 1
            if 0 < int(_AT.read_text()) <= count.operations:
                _LOST.touch()
        if _LOST.exists():
            raise psycopg.OperationalError("the database is lost")
        return connect(store)

    def open_counted(journal: journal_postgresql.PostgresJournal, *words: Any, **more: Any) -> None:
        count.counting, count.operations = True, 0
        opened(journal, *words, **more)

    # as a method: `setattr` keeps mypy from a complaint about each
    setattr(journal_postgresql.Store, "connect", connect_or_fail)  # noqa: B010
    setattr(journal_postgresql.PostgresJournal, "__init__", open_counted)  # noqa: B010
    entry()


if __name__ == "__main__":
    main()
