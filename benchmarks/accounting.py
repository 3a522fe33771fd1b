"""How fast does slurmdbd store, and answer? `python -m benchmarks.accounting [JOBS] [URL]`

Events a second from groups as a controller sends them (decode, project, write, commit), and the database's time for
the questions of people, on a history of JOBS jobs (100,000 unless said; a million is the goal's size) in SQLite in a
temporary directory, or in the empty database of URL.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import func, select

from spritz.accounting import schema
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.select import read_jobs
from spritz.accounting.store import Store
from spritz.model.accounting.records import EventGroup, JobPick, RegisterCluster, SelectJobs
from spritz_testing.history import History, in_groups

JOBS = 100_000
#: Jobs made up, and stored, at a time: the making is not counted.
CHUNK = 10_000
#: Events of one message of the outbox, about.
MESSAGE_EVENTS = 5_000


def say(what: str, value: float, unit: str) -> None:
    """One line of the result."""
    print(f"{what:62} {value:12.2f} {unit}", flush=True)


def moved(groups: list[EventGroup], by: int) -> list[EventGroup]:
    """The same groups, further on."""
    return [EventGroup(group.first + by, group.last + by, group.payload) for group in groups]


def fill(store: Store, jobs: int) -> float:
    """Store a history; the time of its last moment."""
    store.register(RegisterCluster(cluster="bench", journal=1, last_sequence=1 << 60), 0.0)
    history = History(1, nodes=256, plain=True)
    spent = processor = 0.0
    at = events = 0
    while history.next_job <= jobs:
        groups = moved(in_groups(history.events(min(CHUNK, jobs)), 1, longest=200), at)
        batch: list[EventGroup] = []
        began, cpu = time.perf_counter(), time.process_time()
        for group in groups:
            batch.append(group)
            if group.last - batch[0].first >= MESSAGE_EVENTS or group is groups[-1]:
                store.ingest("bench", 1, batch)
                batch = []
        spent += time.perf_counter() - began
        processor += time.process_time() - cpu
        events += groups[-1].last - at
        at = groups[-1].last
    say(f"{events} events of {history.next_job - 1} jobs stored", events / spent, "events/s")
    say("  processor's time alone", events / processor, "events/s")
    return history.now


def ask(store: Store, what: str, query: SelectJobs) -> None:
    """The best of three: time to the last row, and the database's part of it for the rows of jobs."""
    from spritz.accounting.select import conditions

    counted = select(func.count()).select_from(schema.jobs).where(schema.jobs.c.cluster_id == 1, *conditions(query, 1))
    best, database, rows = 1e9, 1e9, 0
    for _ in range(3):
        began = time.perf_counter()
        rows = sum(len(piece) for piece in read_jobs(store.engine, query))
        best = min(best, time.perf_counter() - began)
        with store.engine.connect() as connection:
            began = time.perf_counter()
            connection.execute(counted).scalar()
            database = min(database, time.perf_counter() - began)
    say(f"{what}: {rows} jobs, finding them", database * 1e3, "ms")
    say("  with steps, as records", best * 1e3, "ms")


def main(argv: list[str]) -> None:
    """Run it."""
    jobs = int(argv[0]) if argv else JOBS
    with tempfile.TemporaryDirectory() as directory:
        store = Store(open_engine(parse_url(argv[1] if len(argv) > 1 else f"sqlite:///{directory}/acct.db")))
        store.migrate()
        now = fill(store, jobs)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if store.engine.url.get_backend_name() == "sqlite":
            size = sum(path.stat().st_size for path in Path(directory).iterdir())
            say("size on disk for each job", size / jobs, "bytes")
        ask(store, "a user's last day", SelectJobs(users=(1007,), starts_at=now - 86_400, ends_at=now))
        ask(store, "a user's last hour", SelectJobs(users=(1007,), starts_at=now - 3_600, ends_at=now))
        ask(store, "everybody's last hour", SelectJobs(starts_at=now - 3_600, ends_at=now))
        ask(store, "one job", SelectJobs(picks=(JobPick(jobs // 2),)))
        ask(store, "everything", SelectJobs(steps=False))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - base
        say("memory that the answers took at most", grown, "MiB")
        store.engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1:])
