"""Database engines: missing drivers, and who may read SQLite's file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spritz.accounting.engine import DatabaseError, open_engine, parse_url
from spritz.accounting.store import Store
from spritz.extras import pip_install


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("postgresql://slurm@localhost/acct", "psycopg", "postgresql"),
        ("mariadb://slurm@localhost/acct", "pymysql", "mariadb"),
        ("mysql://slurm@localhost/acct", "pymysql", "mariadb"),
    ],
)
def test_a_missing_driver_names_the_extra_that_brings_it(
    url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(DatabaseError) as refused:
        open_engine(parse_url(url))
    assert refused.value.hint == pip_install(extra)
    assert not refused.value.temporary


def test_only_its_owner_may_read_a_new_sqlite_database(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = Store(open_engine(parse_url(f"sqlite:///{tmp_path}/acct.db")))
        store.migrate()
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    store.engine.dispose()
    assert modes.keys() >= {"acct.db", "acct.db-wal"}
    assert set(modes.values()) == {0o600}
