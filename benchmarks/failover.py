"""How long no controller leads after the leading one is killed: two of them over a private PostgreSQL.

    python -m benchmarks.failover [KILLS]          minimum, median and maximum of the seconds
    python -m benchmarks.failover --machines [N]   the same with each controller on a machine of its own, which loses
                                                   power: seconds until `sbatch` on a login host has answered (root)
    python -m benchmarks.failover --journal        the journal in SQLite and in PostgreSQL: groups a second

From the kill to a submission that is answered. The private PostgreSQL syncs nothing in tests; here it does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.conformance.databases import server
from tests.e2e.cluster import until
from tests.e2e.controllers import HOSTS, Controllers

from spritz.controller.journal.contract import Group, Journal
from spritz.controller.journal.postgresql import PostgresJournal
from spritz.controller.journal.sqlite import SqliteJournal

#: Groups of one measurement, and bytes of a group of one submission.
GROUPS, GROUP_BYTES = 2000, 1500


def kills(count: int) -> None:
    """Print the seconds of each failover, and what they amount to."""
    found: list[float] = []
    with server("postgresql", durable=True) as database:
        pair = Controllers(database)
        try:
            pair.begin_both()
            for number in range(count):
                victim = pair.leading()
                other = next(name for name in HOSTS if name != victim)
                until(lambda other=other: pair.pong(other) is not None, f"{other} stands by")  # type: ignore[misc]
                pair.kill(victim)
                began = time.monotonic()
                until(lambda other=other: pair.leads(other), f"{other} leads")  # type: ignore[misc]
                pair.submit("true")
                found.append(time.monotonic() - began)
                print(f"{number + 1:3} {victim} killed: {found[-1]:.2f} s", flush=True)
                pair.begin(victim)
        finally:
            pair.close()
    _tell(count, found)


def machines(count: int) -> None:
    """Print the seconds of each failover between machines, and what they amount to."""
    from tests.machines.lan import Lan
    from tests.machines.test_failover import begun

    found: list[float] = []
    with Lan() as lan, begun(lan, durable=True) as site:
        for number in range(count):
            victim, other = ("ctl1", "ctl2") if number % 2 == 0 else ("ctl2", "ctl1")
            until(lambda: site.leads(victim), "all is well")  # noqa: B023
            until(lambda: site.out("login", "sinfo", "-h", "-n", "n1", "-o", "%t").strip() == "idle", "nodes are there")
            site[victim].crash()
            began = time.monotonic()
            site.submit("login", "-w", "n1", "--wrap", "true")
            found.append(time.monotonic() - began)
            print(f"{number + 1:3} {victim} lost power: {found[-1]:.2f} s until {other} had answered", flush=True)
            site.begin(victim)
    _tell(count, found)


def _tell(count: int, found: list[float]) -> None:
    print(
        f"{count} kills: minimum {min(found):.2f} s, median {statistics.median(found):.2f} s,"
        f" maximum {max(found):.2f} s"
    )


def journals() -> None:
    """Print how long it takes to commit groups of one submission, one after the other."""
    with tempfile.TemporaryDirectory() as directory, server("postgresql", durable=True) as database:
        journals: dict[str, Journal] = {
            "SQLite": SqliteJournal(Path(directory) / "state"),
            "PostgreSQL": PostgresJournal(database.url(), "bench"),
        }
        for name, journal in journals.items():
            times = []
            for number in range(1, GROUPS + 1):
                began = time.perf_counter()
                journal.append(Group(first=number, last=number, at=0.0, payload=bytes(GROUP_BYTES)), {})
                times.append((time.perf_counter() - began) * 1e3)
            p99 = statistics.quantiles(times, n=100)[98]
            print(
                f"{name:10} {GROUPS / sum(times) * 1e3:6.0f} groups/s,"
                f" median {statistics.median(times):.2f} ms, p99 {p99:.2f} ms"
            )
            journal.close()


if __name__ == "__main__":
    if "--journal" in sys.argv:
        journals()
    elif "--machines" in sys.argv:
        machines(int(sys.argv[2]) if len(sys.argv) > 2 else 20)
    else:
        kills(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
