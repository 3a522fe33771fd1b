"""Of two slurmdbds over one database exactly one serves (`accounting.database_lock`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.accounting.database_lock import DatabaseLock
from spritz.accounting.engine import DatabaseError, open_engine, parse_url
from tests.conformance.databases import reason, server
from tests.e2e.cluster import until


def test_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="DbdBackupHost needs a database server") as refused:
        DatabaseLock(open_engine(parse_url(f"sqlite:///{tmp_path}/acct.db")))
    assert not refused.value.temporary


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_one_holds_it_until_its_session_ends(kind: str) -> None:
    if why := reason(kind):
        pytest.skip(why)
    with server(kind) as database:
        url = parse_url(database.url())
        engines = open_engine(url), open_engine(url)
        first, second = (DatabaseLock(engine) for engine in engines)
        assert first.take()
        assert not second.take()
        first.hold()
        first.drop()
        until(second.take, "the server has noticed the end of the first session")
        assert not first.take()
        second.drop()
        with pytest.raises(DatabaseError):
            second.hold()
        until(first.take, "the server has noticed the end of the second session")
        database.stop()
        with pytest.raises(DatabaseError):
            first.hold()
        database.start()
        assert second.take()
        second.drop()
        for engine in engines:
            engine.dispose()
