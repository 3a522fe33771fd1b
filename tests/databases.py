"""SQLite databases with the tables of slurmdbd, for tests that do not test how the tables are made.

The migrations take a third of a second of processor time each time; a copy of their result takes milliseconds.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.store import Store


@cache
def _template() -> Path:
    """In the run's directory, for each process of the run."""
    path = Path(tempfile.mkdtemp(prefix="database-")) / "acct.db"
    store = Store(open_engine(parse_url(f"sqlite:///{path}")))
    store.migrate()
    store.engine.dispose()
    return path


def put_tables(path: Path) -> None:
    """Make an empty database with all tables at this path."""
    shutil.copy(_template(), path)


def open_store(path: Path) -> Store:
    """A store on a new database at this path. Its engine must be disposed of."""
    put_tables(path)
    return Store(open_engine(parse_url(f"sqlite:///{path}")))
