"""Accounting's records at the end of a run, and whether they are what they must be.

Three sources are compared. The journal of slurmctld says which rows the tables must have, by slurmdbd's own rules in an
undisturbed database: nothing may be lost, and nothing stored twice. What sreport adds up must be the sum of the jobs of
sacct. And the jobs must have run as long as nodes saw them run: the only source that no daemon of the run has written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from spritz.accounting import schema
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.store import Store
from spritz.model.accounting.records import EventGroup, RegisterCluster
from spritz_testing.daemons.accounting.daemon import STORED
from spritz_testing.daemons.accounting.database import template
from spritz_testing.daemons.accounting.policy import CLUSTER
from spritz_testing.daemons.accounting.whole_journal import groups_of
from spritz_testing.daemons.history import Began, Ended

if TYPE_CHECKING:
    from spritz.model.accounting.records import JobWithSteps
    from spritz.model.accounting.usage import HolderUsage
    from spritz_testing.daemons.history import Entry
    from spritz_testing.daemons.system.world import Host

#: Tables whose rows follow from the events of a journal.
TABLES = ("jobs", "steps", "pending_reasons", "suspensions", "node_events", "reservations", "events_set_aside")

Rows = dict[str, list[tuple[Any, ...]]]


def rows_of(path: Path) -> Rows:
    """All rows of `TABLES` in a database, in the order of their keys."""
    engine = open_engine(parse_url(f"sqlite:///{path}"))
    rows: Rows = {}
    with engine.connect() as connection:
        for name in TABLES:
            table = schema.metadata.tables[name]
            rows[name] = [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]
    engine.dispose()
    return rows


def rows_by_journal(host: Host, state: Path) -> Rows | None:
    """The rows to which the journal of a controller leads. `state`: its StateSaveLocation.

    None if some of its events are gone.
    """
    groups = groups_of(host, state)
    if not groups:
        return None
    with TemporaryDirectory() as directory:
        path = Path(directory) / "acct.db"
        path.write_bytes(template())
        store = Store(open_engine(parse_url(f"sqlite:///{path}")))
        store.register(RegisterCluster(cluster=CLUSTER, journal=1, last_sequence=groups[-1].last, store=STORED), 0.0)
        store.ingest(CLUSTER, 1, [EventGroup(group.first, group.last, group.payload) for group in groups])
        store.engine.dispose()
        return rows_of(path)


def journal_differences(database: Path, host: Host, state: Path) -> list[str] | None:
    """How the rows of slurmdbd's database differ from what the journal of the controller on `host` leads to.

    None if that cannot be told: events are gone, or the journal was set back, of which slurmdbd keeps both branches.
    """
    engine = open_engine(parse_url(f"sqlite:///{database}"))
    with engine.connect() as connection:
        base = connection.execute(select(schema.clusters.c.base).where(schema.clusters.c.name == CLUSTER)).scalar()
    engine.dispose()
    wanted = rows_by_journal(host, state)
    return None if base or wanted is None else differences(rows_of(database), wanted)


def differences(found: Rows, wanted: Rows) -> list[str]:
    """One line for each row that is missing, or too many, or not as it must be."""
    lines = []
    for name in TABLES:
        missing, extra = (
            [row for row in some if row not in others]
            for some, others in ((wanted[name], set(found[name])), (found[name], set(wanted[name])))
        )
        lines += [f"{name}: lost {row}" for row in missing] + [f"{name}: too many {row}" for row in extra]
        if not missing and not extra and len(found[name]) != len(wanted[name]):
            lines.append(f"{name}: {len(found[name])} rows instead of {len(wanted[name])}")
    return lines


def usage_differences(
    jobs: Iterable[JobWithSteps],
    holders: Iterable[HolderUsage],
    starts_at: int,
    ends_at: int,
    *,
    has_reservations: bool = False,
    set_by: Callable[[float, float], float] = lambda started_at, ended_at: 0.0,
) -> list[str]:
    """Whether sreport's CPU seconds of each user of an account, between two full hours, are those of sacct's jobs.

    A suspended job uses nothing meanwhile; a second of it may be counted in another hour. `has_reservations`: sreport
    may have more, since who reserves nodes is charged for those that no job uses. `set_by`: by how
    many seconds clocks were set between these times. Where that was while a job ran, a suspension may be recorded
    outside of the job's own times, and then takes nothing from its usage, as in Slurm.
    """
    wanted: dict[tuple[str, str], int] = defaultdict(int)
    slack: dict[tuple[str, str], int] = defaultdict(int)
    #: by how much sreport may have more
    more: dict[tuple[str, str], float] = defaultdict(lambda: inf if has_reservations else 0.0)
    for job in (row.job for row in jobs if row.job.started_at):
        end = min(int(job.ended_at) or ends_at, ends_at)
        seconds = max(0, end - max(int(job.started_at), starts_at))
        key = job.account, job.user
        if job.suspended_seconds or job.suspended_at:
            slack[key] += job.cpus * (seconds if job.started_at < starts_at or end == ends_at else 2)
            more[key] += job.cpus * set_by(job.started_at, job.ended_at)
        wanted[key] += job.cpus * max(0, seconds - int(job.suspended_seconds))
    found: dict[tuple[str, str], int] = defaultdict(int)
    for row in holders:
        if row.tres == "cpu" and row.user:
            found[row.account, row.user] += row.seconds
    return [
        f"user {key[1]} of account {key[0]}: sreport has {found[key]} CPU seconds, the jobs have {wanted[key]}"
        for key in sorted({*wanted, *found})
        if not -slack[key] <= found[key] - wanted[key] <= slack[key] + more[key]
    ]


def run_differences(
    history: Sequence[Entry], jobs: Iterable[JobWithSteps], *, slack_seconds: float, clock_seconds: float = 0.0
) -> list[str]:
    """Whether each life that nodes ran has one record, whose start is up to `slack_seconds` before the first process.

    The end in a record is that of the last process, or the moment from which the job is being ended: then processes may
    outlive it by as much. Lives that a node lost have no true end. `clock_seconds`: by how much the controller's clock
    may have been wrong.
    """
    records: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in jobs:
        if row.job.started_at:
            records[row.job.job_id, row.job.restart_count].append(row.job)
    lines = [f"job {key[0]} restart {key[1]}: {len(rows)} records" for key, rows in records.items() if len(rows) > 1]
    for (job_id, restart), (began, ended, nodes) in _lives(history).items():
        name = f"job {job_id} restart {restart}"
        if not records[job_id, restart]:
            lines.append(f"{name}: ran on {','.join(sorted(nodes))}, and has no record of a start")
            continue
        record = records[job_id, restart][0]
        early, late = began - record.started_at, record.ended_at - ended if record.ended_at and ended else 0.0
        if not -clock_seconds <= early <= slack_seconds + clock_seconds:
            lines.append(f"{name}: began on a node {early:.3f} s after the start in its record")
        if abs(late) > slack_seconds + clock_seconds:
            lines.append(f"{name}: ended on its nodes {late:.3f} s before the end in its record")
        if record.node_count < len(nodes):
            lines.append(f"{name}: ran on {len(nodes)} nodes, its record has {record.node_count}")
    return lines


def _lives(history: Sequence[Entry]) -> dict[tuple[int, int], tuple[float, float, set[str]]]:
    """(first beginning, last end or 0.0, nodes) of each (job, restart) that nodes ran."""
    lives: dict[tuple[int, int], tuple[float, float, set[str]]] = {}
    lost: set[tuple[int, int]] = set()
    for entry in history:
        if not isinstance(entry, Began | Ended):
            continue
        key = entry.job_id, entry.restart_count
        began, ended, nodes = lives.get(key, (entry.at, 0.0, set()))
        if isinstance(entry, Ended):
            ended = entry.at
            if entry.lost:
                lost.add(key)
        lives[key] = began, ended, nodes | {entry.node}
    return {key: (began, 0.0 if key in lost else ended, nodes) for key, (began, ended, nodes) in lives.items()}
