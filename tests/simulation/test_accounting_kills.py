"""slurmdbd and the outbox are killed at random points; afterwards the tables say what the journal says, and no more.

`make kills` kills a thousand times. A failure prints its seed: `SPRITZ_KILLS_SEED=7 pytest tests/simulation/…`.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from spritz.accounting import schema
from spritz.accounting.engine import open_engine, parse_url
from spritz.client.command.sync import Connection, connect_address
from spritz.client.errors import ClientError
from spritz.client.locate import database_socket_name
from spritz.controller import outbox as outboxes
from spritz.controller.journal.events import decode_group
from spritz.model.accounting.records import ClusterRegistered, EventGroup, EventsStored, RegisterCluster, StoreEvents
from spritz.model.events import job as jobs
from spritz_testing.history import History, in_groups
from tests.databases import open_store
from tests.ports import free_port
from tests.simulation.accounting_world import World

#: What events lead to.
TABLES = ("jobs", "steps", "pending_reasons", "suspensions", "node_events")


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of the database, in order."""
    engine = open_engine(parse_url(f"sqlite:///{path}"))
    found = {}
    with engine.connect() as connection:
        for name in TABLES:
            table = schema.metadata.tables[name]
            found[name] = [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
    engine.dispose()
    return found


def by_the_journal(path: Path, groups: list[EventGroup], journal: int) -> dict[str, list[tuple[Any, ...]]]:
    """The rows that the journal leads to when nothing ever happens to anybody."""
    store = open_store(path)
    store.register(RegisterCluster(cluster="c1", journal=journal, last_sequence=groups[-1].last), 0.0)
    store.ingest("c1", journal, groups)
    store.engine.dispose()
    return contents(path)


def kill_often(directory: Path, seed: int, kills: int, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world after a number of kills, its tables compared with its journal."""
    # Small batches, and no waiting for company: a death may come at every few events.
    monkeypatch.setattr(outboxes, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(outboxes, "MESSAGE_GROUPS", 3)
    world = World(directory, seed)
    asyncio.run(world.run(kills))
    journal = list(world.journal.groups(0))
    groups = [EventGroup(group.first, group.last, group.payload) for group in journal]
    assert world.stored() == groups[-1].last
    found = contents(world.path)
    wanted = by_the_journal(directory / "reference.db", groups, world.journal.identity)
    for name in TABLES:
        missing, extra = set(wanted[name]) - set(found[name]), set(found[name]) - set(wanted[name])
        assert not missing, f"seed {seed}: {name}: {len(missing)} lost, {len(extra)} too many: {min(missing)}"
        assert found[name] == wanted[name], f"seed {seed}: {name}: {len(extra)} too many: {min(extra)}"
    events = [event for group in journal for event in decode_group(group)]
    lives = Counter(row[2] for row in found["jobs"] if not row[_ASIDE])
    # Tasks of arrays get their numbers as they start.
    assert set(lives) >= {event.job.id for event in events if isinstance(event, jobs.JobQueued)}, f"seed {seed}"
    requeued = Counter(event.job_id for event in events if isinstance(event, jobs.JobRequeued))
    assert lives == {job_id: 1 + requeued[job_id] for job_id in lives}, f"seed {seed}"
    return world


_ASIDE = [column.name for column in schema.jobs.columns].index("aside")


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_points_nothing_is_lost_and_nothing_doubled(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_often(tmp_path, seed, 20, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_a_thousand_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("SPRITZ_KILLS_SEED", "20"))
    world = kill_often(tmp_path, seed, 1000, monkeypatch)
    assert sum(world.kills.values()) == 1000
    assert min(world.kills.values()) > 20, world.kills


class Process:
    """A real slurmdbd on a database file."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory
        self._conf = directory / "slurmdbd.conf"
        self._conf.write_text(
            f"DbdPort={self.port}\nSlurmUser={os.geteuid()}\nPidFile={directory}/pid\nLogFile={directory}/log\n"
            f"StorageType=accounting_storage/sqlite\nStorageLoc={directory}/acct.db\n"
        )
        self._conf.chmod(0o600)
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> Connection:
        """A connection to a daemon that has just begun to serve."""
        with open(self._directory / "stderr", "ab") as stderr:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "spritz.accounting.main", "-D", "-f", str(self._conf)],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        while True:
            try:
                return connect_address(database_socket_name(self.port), timeout=100.0)
            except ClientError:
                assert self._daemon.poll() is None, (self._directory / "stderr").read_text()
                time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL."""
        if self._daemon is not None:
            self._daemon.send_signal(signal.SIGKILL)
            self._daemon.wait(100)


@pytest.mark.slow
def test_a_real_daemon_that_is_killed_with_batches_under_way_has_what_it_acknowledged(tmp_path: Path) -> None:
    groups = in_groups(History(31).events(400), 31)
    draw = random.Random(31)
    process = Process(tmp_path)
    acknowledged = deaths = 0
    try:
        while acknowledged < groups[-1].last:
            connection = process.start()
            with connection:
                request = RegisterCluster(cluster="c1", journal=9, last_sequence=groups[-1].last)
                at = connection.call(request, ClusterRegistered, timeout=100.0).sequence
                assert at >= acknowledged
                acknowledged = at
                left = [group for group in groups if group.last > at]
                batches = [left[start : start + 10] for start in range(0, len(left), 10)]
                # Some are answered; then one is under way when the daemon dies, at whatever it is doing.
                for batch in batches[: draw.randint(1, 4) if deaths < 4 else len(batches)]:
                    sent = StoreEvents(cluster="c1", journal=9, groups=batch)
                    acknowledged = connection.call(sent, EventsStored, timeout=100.0).sequence
                if acknowledged < groups[-1].last:
                    rest = [group for group in groups if group.last > acknowledged]
                    connection.send(StoreEvents(cluster="c1", journal=9, groups=rest[:60]))
            process.kill()
            deaths += 1
    finally:
        process.kill()
    assert deaths == 5
    reference = by_the_journal(tmp_path / "reference.db", groups, 9)
    assert contents(tmp_path / "acct.db") == reference
