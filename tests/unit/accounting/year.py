"""Two days of a small cluster, as records: those that a real slurmdbd 22.05 was given for `golden/sreport.txt`.

Times are of UTC, from 20 November 2026 on.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict
from sqlalchemy import insert

from spritz.accounting import schema
from spritz.accounting.associations.store import ensure, read_book
from spritz.accounting.associations.tables import TABLES, book
from spritz.accounting.store import Store
from spritz.accounting.upsert import upsert
from spritz.model.accounting.records import (
    JobRecord,
    NodeEventRecord,
    RegisterCluster,
    ReservationRecord,
    SuspensionRecord,
)
from spritz.model.limits.records import Account, Association, User, WcKey

FIRST = 1_795_132_800
SECOND = FIRST + 86_400
#: when it is asked
NOW = SECOND + 86_400 + 7_500.0
CLUSTER = "real"

_NODE = "cpu=2,mem=2000M,node=1,billing=2"
_PEOPLE = {"root": 0, "games": 5, "nobody": 65534}


def fill(store: Store, *, reserved: bool = True) -> None:
    """Put it all into an empty database. `reserved`: one of the jobs ran in a reservation."""
    store.register(RegisterCluster(cluster=CLUSTER, journal=1, last_sequence=0), float(FIRST))
    ensure(store.engine, CLUSTER, float(FIRST))
    tree = (("phys", "root"), ("chem", "root"), ("theory", "phys"))
    people = (("phys", "root"), ("theory", "root"), ("phys", "games"), ("chem", "games"), ("theory", "nobody"))
    known = {one.name for one in read_book(store.engine).users}
    with store.engine.begin() as connection:
        put: list[Any] = [Account(name=name) for name, _ in tree]
        put += [User(name=name) for name in _PEOPLE if name not in known]
        put += [
            Association(id=number, cluster=CLUSTER, account=name, parent=parent)
            for number, (name, parent) in enumerate(tree, 3)
        ]
        put += [
            Association(id=number, cluster=CLUSTER, account=account, user=user)
            for number, (account, user) in enumerate(people, 6)
        ]
        put += [WcKey(cluster=CLUSTER, name="w1", user="root"), WcKey(cluster=CLUSTER, name="w2", user="nobody")]
        for record in put:
            upsert(connection, TABLES[type(record)], [asdict(record)])
        connection.execute(book.update().values(last_id=100))
        for table, records in (
            (schema.jobs, _jobs(reserved=reserved)),
            (schema.node_events, _node_events()),
            (schema.reservations, _reservations()),
            (schema.suspensions, [SuspensionRecord(number=4, started_at=SECOND + 12000.0, ended_at=SECOND + 14000.0)]),
        ):
            rows = [{"cluster_id": 1, **asdict(record)} for record in records]
            for row in rows:
                row.pop("cluster", None)
            connection.execute(insert(table), rows)


def _job(
    number: int, account: str, user: str, times: tuple[int, int, int], cpus: int, mem: int, **more: Any
) -> JobRecord:
    eligible, start, end = (float(at) for at in times)
    given = {
        "tres_allocated": f"cpu={cpus},mem={mem}M,node=1,billing={cpus}" if end > start else "",
        "nodes": "n1" if end > start else "",
        "node_count": int(end > start),
        "cpus": cpus if end > start else 0,
        "state": "COMPLETED" if end > start else "CANCELLED",
    }
    return JobRecord(
        number=number,
        job_id=number,
        account=account,
        user=user,
        uid=_PEOPLE[user],
        gid=_PEOPLE[user],
        qos="normal",
        partition="debug",
        name=f"j{number}",
        submitted_at=eligible,
        eligible_at=eligible,
        started_at=start,
        ended_at=end,
        requested_cpus=cpus,
        **(given | more),
    )


def _jobs(*, reserved: bool) -> list[JobRecord]:
    one, two = FIRST, SECOND
    found = [
        _job(1, "phys", "root", (one + 3000, one + 3600, one + 5400), 2, 1000, wckey="w1"),
        _job(2, "phys", "games", (one + 79000, one + 80000, one + 90000), 1, 500),
        _job(3, "theory", "nobody", (two + 1000, two + 9000, two + 20000), 3, 1500, wckey="w2"),
        _job(4, "theory", "root", (two + 9000, two + 10000, two + 21000), 1, 100, wckey="w1", suspended_seconds=2000.0),
        _job(5, "chem", "games", (two + 20000, two + 24000, two + 24000), 4, 1000),
        _job(6, "phys", "root", (two + 60500, two + 61000, two + 65000), 1, 1000, wckey="w1"),
    ]
    found[-1].reservation = "own" if reserved else ""
    for place in range(6):
        times = (two + 70000 + place * 100, two + 76000 + place * 800, two + 79000 + place * 800)
        found.append(_job(7 + place, "chem", "games", times, 2, 800))
    return found


def _node_events() -> list[NodeEventRecord]:
    return [
        NodeEventRecord(
            place=1,
            nodes="n[1-2]",
            started_at=float(FIRST),
            tres="cpu=4,mem=4000M,node=2,billing=4,gres/gpu=0",
            node_tres=f"{_NODE}@n[1-2]",
        ),
        NodeEventRecord(
            place=2,
            node="n2",
            started_at=SECOND + 30000.0,
            ended_at=SECOND + 40000.0,
            state="DOWN",
            reason="broken",
        ),
    ]


def _reservations() -> list[ReservationRecord]:
    return [
        ReservationRecord(
            number=50,
            reservation_id=1,
            name="maint",
            started_at=SECOND + 50000.0,
            ended_at=SECOND + 57600.0,
            nodes="n1",
            tres=_NODE,
            flags="MAINT",
            accounts="root",
            closed=True,
        ),
        ReservationRecord(
            number=51,
            reservation_id=2,
            name="own",
            started_at=SECOND + 60000.0,
            ended_at=SECOND + 70000.0,
            nodes="n2",
            tres=_NODE,
            users="root,games",
            accounts="phys",
            closed=True,
        ),
    ]
