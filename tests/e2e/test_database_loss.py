"""A controller that loses PostgreSQL stands by or ends, at whatever point of its work; it never hangs in between."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spritz.client.errors import ClientError
from spritz.controller.journal.contract import JournalFailed
from spritz.controller.journal.postgresql import Store
from spritz.model.commands.job import JobSubmitted
from tests.conformance.databases import Server, reason, server
from tests.databases import put_tables
from tests.e2e.cluster import PATIENCE_SECONDS, until, user_name
from tests.e2e.controllers import Controllers
from tests.ports import free_port

pytestmark = pytest.mark.skipif(bool(reason("postgresql")), reason=reason("postgresql"))


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    with server("postgresql") as running:
        yield running


class Accounted(Controllers):
    """One controller with a lease of 2 s, and a slurmdbd to which it sends its events; the database may be lost."""

    module = "tests.e2e.lossy_controller"

    def __init__(self, database: Server) -> None:
        port = free_port()
        super().__init__(
            database,
            extra="SlurmctldTimeout=2\nAccountingStorageType=accounting_storage/slurmdbd\n"
            f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={port}\n",
        )
        self.loss = self.root / "loss"
        put_tables(self.root / "acct.db")
        conf = self.root / "slurmdbd.conf"
        conf.write_text(
            f"DbdPort={port}\nSlurmUser={user_name()}\nPidFile={self.root}/slurmdbd.pid\n"
            f"LogFile={self.root}/slurmdbd.log\nStorageType=accounting_storage/sqlite\nStorageLoc={self.root}/acct.db\n"
        )
        conf.chmod(0o600)
        self.slurmdbd = subprocess.Popen(
            [sys.executable, "-m", "spritz.accounting.main", "-D", "-f", str(conf)],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def lost(self) -> Path:
        return self.root / "loss.lost"

    def lose_at(self, operation: int) -> None:
        """Lose the database at this operation of the next controller that leads."""
        (self.root / "loss.at").write_text(str(operation))

    def ended_or_stands_by(self) -> bool:
        if self.ctl["ctl1"].poll() is not None:
            return True
        pong = self.pong("ctl1")
        return pong is not None and not pong.leading and bool(pong.detail)

    def close(self) -> None:
        self.slurmdbd.kill()
        self.slurmdbd.wait()
        super().close()


@pytest.fixture
def accounted(postgresql: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Accounted]:
    found = Accounted(postgresql)
    monkeypatch.setenv("SPRITZ_LOSS", str(found.loss))
    try:
        yield found
    finally:
        found.close()


@contextmanager
def _submissions(cluster: Controllers) -> Iterator[list[str]]:
    """Submit jobs all the time; the names of those that were acknowledged."""
    acknowledged: list[str] = []
    over = threading.Event()

    def submit() -> None:
        while not over.is_set():
            name = f"job{len(acknowledged)}-{time.monotonic()}"
            try:
                with cluster.connect(timeout=10.0) as connection:
                    connection.call(cluster.request("true", name=name), JobSubmitted)
                acknowledged.append(name)
            except (ClientError, AssertionError):
                over.wait(0.05)

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield acknowledged
    finally:
        over.set()
        thread.join(PATIENCE_SECONDS)


def _lose_at_each(accounted: Accounted, operations: list[int]) -> None:
    first, *others = operations
    accounted.lose_at(first)
    accounted.begin("ctl1")
    with _submissions(accounted) as acknowledged:
        for index, operation in enumerate([*others, 0]):
            until(accounted.lost.exists, f"the database is lost at operation {operations[index]}")
            until(accounted.ended_or_stands_by, f"after the loss at operation {operations[index]} it ends or stands by")
            if accounted.ctl["ctl1"].poll() is not None:
                accounted.lose_at(operation)
                accounted.lost.unlink()
                accounted.begin("ctl1")
            else:
                accounted.lose_at(operation)
                accounted.lost.unlink()
    until(lambda: accounted.leads("ctl1"), "it leads again")
    names = [job.spec.name for job in accounted.jobs().values()]
    assert all(names.count(name) == 1 for name in acknowledged), "each acknowledged job is there, once"
    assert "task.unended" not in accounted.log_of("ctl1"), "no task held up the end"
    assert "daemon.unended" not in accounted.log_of("ctl1")


def test_a_leader_that_loses_the_database_stands_by(accounted: Accounted) -> None:
    """While it takes the lease, while it starts, and while it serves."""
    _lose_at_each(accounted, [6, 10, 30])


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_leader_that_loses_the_database_at_any_operation_stands_by(accounted: Accounted) -> None:
    chance = random.Random(20261128)
    _lose_at_each(accounted, [*range(1, 45), *(chance.randrange(45, 400) for _ in range(20))])


@pytest.mark.slow
def test_a_database_that_is_stopped_again_and_again_leaves_no_controller_hanging(
    accounted: Accounted, postgresql: Server
) -> None:
    """The real thing: outbox, heartbeats and journal lose their connections at the same moment."""
    accounted.lose_at(0)
    accounted.begin("ctl1")
    with _submissions(accounted):
        for _ in range(int(os.environ.get("SPRITZ_LOSSES", "6"))):
            until(lambda: accounted.leads("ctl1"), "it leads")
            postgresql.stop()
            try:
                until(accounted.ended_or_stands_by, "it ends or stands by")
            finally:
                postgresql.start()
            assert accounted.ctl["ctl1"].poll() is None, "it stands by"
    assert "daemon.unended" not in accounted.log_of("ctl1")


def _sessions(url: str) -> list[int]:
    """Processes of the database that serve controllers."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as database:
        rows = database.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'slurmctld'").fetchall()
    return [row[0] for row in rows]


def _beats(cluster: Controllers) -> int:
    import psycopg

    with psycopg.connect(cluster.url.replace("+psycopg", ""), autocommit=True) as database:
        row = database.execute(f"SELECT beat FROM spritz_{cluster.name}.meta").fetchone()
    return 0 if row is None else int(row[0])


@contextmanager
def _frozen(processes: list[int]) -> Iterator[None]:
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass


@pytest.mark.skipif(os.geteuid() != 0, reason="the database's processes belong to another user")
def test_a_leader_whose_sessions_of_the_database_freeze_is_no_leader_any_more(postgresql: Server) -> None:
    """A frozen process answers nothing and breaks no connection: the lease's thread waits for ever."""
    found = Controllers(postgresql, extra="SlurmctldTimeout=2\n")
    try:
        found.begin("ctl1")
        until(lambda: found.leads("ctl1"), "it leads")
        until(lambda: _beats(found) > 0, "it sends heartbeats")
        with _frozen(_sessions(found.url)):
            until(lambda: "daemon.deposed" in found.log_of("ctl1"), "it knows that its lease is over")
        until(lambda: found.leads("ctl1"), "it leads again")
        found.signal("ctl1", signal.SIGTERM)
        assert found.ctl["ctl1"].wait(PATIENCE_SECONDS) == 0
    finally:
        found.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="the database's processes belong to another user")
def test_a_standby_whose_session_of_the_database_freezes_can_be_stopped(postgresql: Server) -> None:
    found = Controllers(postgresql)
    try:
        for name in ("ctl1", "ctl2"):
            found.begin(name)
        until(lambda: found.leads("ctl1"), "ctl1 leads")
        found.signal("ctl1", signal.SIGSTOP)  # its sessions freeze as well, and it tells nothing of that
        with _frozen(_sessions(found.url)):
            found.signal("ctl2", signal.SIGTERM)
            assert found.ctl["ctl2"].wait(PATIENCE_SECONDS) == 0
    finally:
        found.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="the database's processes belong to another user")
def test_an_operation_that_takes_too_long_fails(postgresql: Server) -> None:
    url = postgresql.url()
    store = Store(url, "frozen", patience_seconds=0.0, operation_seconds=0.5)
    store.prepare()
    with _frozen(_sessions(url)):
        with pytest.raises(JournalFailed):
            store.lease()
    assert store.lease().term == 0, "a new connection serves"
    store.abandon()
    with pytest.raises(JournalFailed, match="abandoned"):
        store.lease()
    store.drop()
