"""What DebugFlags of slurmdbd.conf show. Source: slurmdbd.conf(5)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.accounting.associations.store import read_book
from spritz.accounting.debug_flags import _TABLES, DebugFlags
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.schema import metadata
from spritz.accounting.select import read_jobs
from spritz.client.channel.statistics import CallStatistics
from spritz.model.accounting.records import RegisterCluster, SelectJobs
from tests.databases import open_store


@pytest.mark.parametrize(
    ("flags", "book", "jobs"),
    [((), False, False), (("DB_QOS",), True, False), (("DB_JOB",), False, True), (("DB_QUERY",), True, True)],
)
def test_statements_are_shown_by_what_they_are_about(
    tmp_path: Path, flags: tuple[str, ...], book: bool, jobs: bool
) -> None:
    store = open_store(tmp_path / "acct.db")
    store.register(RegisterCluster(cluster="c", journal=1, last_sequence=1), 0.0)
    said: list[str] = []
    log = SimpleNamespace(info=lambda _, sql: said.append(sql))
    api: Any = SimpleNamespace(engine=store.engine, statistics_of_calls=CallStatistics(), log=log)
    shown = DebugFlags(api)
    shown.put(flags)
    read_book(store.engine)
    assert any("FROM qos" in one for one in said) is book
    said.clear()
    list(read_jobs(store.engine, SelectJobs()))
    assert any("FROM jobs" in one for one in said) is jobs
    store.engine.dispose()


def test_requests_are_shown_with_audit_rpcs(tmp_path: Path) -> None:
    said: list[dict[str, object]] = []
    statistics = CallStatistics()
    log = SimpleNamespace(info=lambda _, **fields: said.append(fields))
    engine = open_engine(parse_url(f"sqlite:///{tmp_path}/acct.db"))
    shown = DebugFlags(SimpleNamespace(engine=engine, statistics_of_calls=statistics, log=log))
    for flags in (["AuditRPCs"], []):
        shown.put(flags)
        statistics.note("Ping", 5, 0.25)
    assert said == [{"kind": "Ping", "uid": 5, "milliseconds": 250.0}]


def test_the_tables_are_there() -> None:
    assert {name for names in _TABLES.values() for name in names} <= set(metadata.tables)
