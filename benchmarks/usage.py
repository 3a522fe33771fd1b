"""How long do roll-up and reports take? `python -m benchmarks.usage [JOBS] [URL]`

A year of JOBS jobs (a million unless said) of 200 users in 20 accounts on 256 nodes, put into SQLite in a temporary
directory or into the empty database of URL; then: rolling all of it up, rolling up one more hour, rolling up again
after news of a week ago, and the year's reports: by rolled-up usage and by the size of jobs.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from msgspec.structs import asdict
from sqlalchemy import insert, text, update

from spritz.accounting import schema
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.rollup.report import usage_of
from spritz.accounting.rollup.roll import roll
from spritz.accounting.rollup.size_queries import job_sizes
from spritz.accounting.store import Store
from spritz.model.accounting.records import JobRecord, NodeEventRecord, RegisterCluster
from spritz.model.accounting.usage import AskJobSizes, AskUsage

JOBS = 1_000_000
HOUR = 3600
YEAR = 365 * 24 * HOUR
#: 1 January 2025, 00:00 of the local clock
START = int(time.mktime((2025, 1, 1, 0, 0, 0, 0, 0, -1)))
NODES = 256
ROWS = 5_000


def say(what: str, value: float, unit: str) -> None:
    """One line of the result."""
    print(f"{what:62} {value:12.3f} {unit}", flush=True)


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time, the best of three."""
    best = 1e9
    for _ in range(3):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def jobs(count: int) -> Iterator[dict[str, object]]:
    """Rows of `jobs`, in the order of their submission."""
    draw = random.Random(1)
    template = asdict(JobRecord(number=0, job_id=0, qos="normal", partition="main", state="COMPLETED"))
    del template["cluster"]
    for number in range(1, count + 1):
        user = draw.randrange(200)
        cpus = draw.choice((1, 1, 2, 4, 8, 16, 64))
        submitted = START + YEAR * number / count
        started = submitted + draw.expovariate(1 / 600)
        name = f"n{draw.randrange(NODES)}"
        yield template | {
            "cluster_id": 1,
            "number": number,
            "job_id": number,
            "uid": 1000 + user,
            "user": f"user{user}",
            "account": f"project{user % 20}",
            "wckey": draw.choice(("", "a", "b")),
            "submitted_at": submitted,
            "eligible_at": submitted,
            "started_at": started,
            "ended_at": started + draw.expovariate(1 / 5400),
            "requested_cpus": cpus,
            "cpus": cpus,
            "nodes": name,
            "node_count": 1,
            "tres_allocated": f"cpu={cpus},mem={cpus * 4000}M,node=1,billing={cpus}",
        }


def fill(store: Store, count: int) -> None:
    """Put everything into the database."""
    store.register(RegisterCluster(cluster="bench", journal=1, last_sequence=0), float(START))
    each = "cpu=64,mem=256000M,node=1,billing=64"
    whole = NodeEventRecord(
        place=1,
        nodes=f"n[0-{NODES - 1}]",
        started_at=float(START),
        tres=f"cpu={64 * NODES},mem={256000 * NODES}M,node={NODES},billing={64 * NODES}",
        node_tres=f"{each}@n[0-{NODES - 1}]",
    )
    with store.engine.begin() as connection:
        connection.execute(insert(schema.node_events), [{"cluster_id": 1, **asdict(whole)}])
    rows: list[dict[str, object]] = []
    for row in jobs(count):
        rows.append(row)
        if len(rows) == ROWS:
            with store.engine.begin() as connection:
                connection.execute(insert(schema.jobs), rows)
            rows = []
    with store.engine.begin() as connection:
        if rows:
            connection.execute(insert(schema.jobs), rows)
        if store.engine.url.get_backend_name() != "mariadb":
            connection.execute(text("ANALYZE"))


def roll_all(store: Store, now: float) -> int:
    """Until nothing is due; hours."""
    hours = 0
    while done := roll(store.engine, now):
        hours += done[1]
    return hours


def main(argv: list[str]) -> None:
    """Run it."""
    count = int(argv[0]) if argv else JOBS
    with tempfile.TemporaryDirectory() as directory:
        store = Store(open_engine(parse_url(argv[1] if len(argv) > 1 else f"sqlite:///{directory}/acct.db")))
        store.migrate()
        began = time.perf_counter()
        fill(store, count)
        say(f"{count} jobs put in", time.perf_counter() - began, "s (not measured for itself)")
        end = float(START + YEAR)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        began = time.process_time()
        hours = roll_all(store, end)
        say(f"all of it rolled up, {hours} hours", time.process_time() - began, "s of processor time")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - base
        say("  memory that took at most", grown, "MiB")
        began = time.perf_counter()
        say("one hour later: hours rolled up", roll_all(store, end + HOUR), "")
        say("  in", time.perf_counter() - began, "s")
        with store.engine.begin() as connection:
            connection.execute(update(schema.clusters).values(rolled_until=int(end) - 7 * 24 * HOUR))
        began = time.perf_counter()
        say("after news of a week ago: hours rolled up", roll_all(store, end + HOUR), "")
        say("  in", time.perf_counter() - began, "s")
        year = AskUsage(starts_at=START, ends_at=START + YEAR)
        odd = AskUsage(starts_at=START + 5 * HOUR, ends_at=START + YEAR - 5 * HOUR)
        say("usage of the year, of clusters and users", timed(lambda: list(usage_of(store.engine, year))), "s")
        say("  of a year less five hours at each end", timed(lambda: list(usage_of(store.engine, odd))), "s")
        sizes = AskJobSizes(starts_at=START, ends_at=START + YEAR)
        say("the year's jobs by size", timed(lambda: job_sizes(store.engine, sizes, end)), "s")
        odd_sizes = AskJobSizes(starts_at=START + 5 * HOUR, ends_at=START + YEAR - 5 * HOUR, partitions=("main",))
        say("  of a year less five hours at each end", timed(lambda: job_sizes(store.engine, odd_sizes, end)), "s")
        store.engine.dispose()


if __name__ == "__main__":
    main(sys.argv[1:])
