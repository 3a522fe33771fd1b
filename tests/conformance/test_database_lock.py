"""Of two slurmdbds over one database exactly one serves (`accounting.database_lock`)."""

from __future__ import annotations

import os
import pwd
import subprocess
import sysconfig
from pathlib import Path

import pytest
from sqlalchemy import text

from spritz.accounting.database_lock import DatabaseLock
from spritz.accounting.engine import DatabaseError, open_engine, parse_url
from spritz.accounting.store import Store
from tests.conformance.databases import reason, server
from tests.e2e.cluster import until
from tests.ports import free_port


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


#: When the session with the advisory lock was last heard, while another session of slurmdbd waits for a table's lock.
_HEARD = """
SELECT max(state_change) FROM pg_stat_activity
WHERE pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')
AND EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock')
"""


@pytest.mark.slow
def test_the_lock_is_kept_while_the_tables_are_upgraded(tmp_path: Path) -> None:
    """The database ends a session that is silent for ten seconds; large tables take longer."""
    if why := reason("postgresql"):
        pytest.skip(why)
    with server("postgresql") as database:
        address = database.url()
        engine = open_engine(parse_url(address))
        Store(engine).migrate()
        conf = tmp_path / "slurmdbd.conf"
        user = pwd.getpwuid(os.geteuid()).pw_name
        conf.write_text(
            f"DbdHost=localhost\nDbdBackupHost=localhost\nDbdPort={free_port()}\nSlurmUser={user}\n"
            f"StorageUrl={address}\nLogFile={tmp_path}/dbd.log\nPidFile={tmp_path}/dbd.pid\n"
        )
        conf.chmod(0o600)
        with engine.connect() as upgrade, engine.connect() as watcher:
            upgrade.execute(text("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE"))
            slurmdbd = os.path.join(sysconfig.get_path("scripts"), "slurmdbd")
            daemon = subprocess.Popen([slurmdbd, "-D", "-f", str(conf)], stderr=subprocess.DEVNULL)
            try:

                def heard() -> object:
                    watcher.rollback()
                    return watcher.execute(text(_HEARD)).scalar()

                until(lambda: heard() is not None, "it holds the lock, and the upgrade waits", 30)
                first = heard()
                until(lambda: heard() != first, "its session has spoken again", 9)
                upgrade.rollback()
                until(lambda: "daemon.started" in (tmp_path / "dbd.log").read_text(), "it serves", 30)
                assert "duty.lost" not in (tmp_path / "dbd.log").read_text()
            finally:
                daemon.kill()
                daemon.wait()
        engine.dispose()
