"""sacctmgr show reservation. Source: sacctmgr(1); headings, widths and lines as 22.05 has them."""

from __future__ import annotations

import io

import pytest

from spritz.cli.administration.manager.arguments import read as words_of
from spritz.cli.administration.manager.reservations import read, rows_of, unused_seconds
from spritz.cli.administration.manager.show import Style, columns_of, table_text
from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.model.accounting.records import ReservationRecord
from spritz.model.accounting.usage import ReservationUsage
from spritz.model.limits.records import Association, Book
from spritz.notation.times import parse_time
from spritz.presentation.accounting.history_fields import RESERVATION_FIELDS

NOW = parse_time("2026-11-22T10:00:00", 0.0, future=False)


def context() -> Context:
    return Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())


def kept(*, users: str = "", accounts: str = "", used: int = 0) -> ReservationUsage:
    """Two nodes of eight CPUs from 100 s ago for an hour; `used`: CPU seconds of its jobs."""
    record = ReservationRecord(
        number=7,
        reservation_id=3,
        name="r1",
        started_at=NOW - 100,
        ended_at=NOW + 3500,
        nodes="node[1-2]",
        tres="cpu=16",
        flags="SPEC_NODES",
        users=users,
        accounts=accounts,
    )
    return ReservationUsage(cluster="c1", record=record, used=[("cpu", used)] if used else [])


def lines(one: ReservationUsage, fields: str, book: Book | None = None, *, parsable: int = 2) -> list[str]:
    columns = columns_of(fields, RESERVATION_FIELDS, context())
    return "".join(table_text(columns, rows_of([one], book, NOW), Style(parsable=parsable))).splitlines()


def test_the_columns_are_slurms() -> None:
    shown = lines(kept(), "cluster,name%15,tres%30,timestart,timeend,unusedwall", parsable=0)
    assert shown == [
        "   Cluster            Name                           TRES           TimeStart             TimeEnd UnusedWall ",
        "---------- --------------- ------------------------------ ------------------- ------------------- ---------- ",
        "        c1              r1                         cpu=16 2026-11-22T09:58:20 2026-11-22T10:58:20 100.000000 ",
    ]


def test_every_field_has_its_heading() -> None:
    heading, row = lines(kept(), "assoc,cluster,end,flags,id,name,nodenames,start,tres,unused")
    assert heading == "Assocs|Cluster|TimeEnd|Flags|ID|Name|NodeName|TimeStart|TRES|UnusedWall"
    assert row == "|c1|2026-11-22T10:58:20|SPEC_NODES|3|r1|node[1-2]|2026-11-22T09:58:20|cpu=16|100.000000"


@pytest.mark.parametrize(("used", "wanted"), [(0, 100.0), (8 * 60, 70.0), (16 * 100, 0.0), (16 * 200, 0.0)])
def test_jobs_use_of_it_by_their_share_of_its_cpus(used: int, wanted: float) -> None:
    assert unused_seconds(kept(used=used), NOW) == wanted


def test_nothing_is_unused_of_a_job_that_has_not_begun() -> None:
    assert unused_seconds(kept(), NOW - 1000) == 0.0


@pytest.mark.parametrize(
    ("users", "accounts", "wanted"),
    [("", "chem", "2"), ("amy", "", "3,4"), ("amy", "chem", "3"), ("", "-chem", "-2"), ("-amy", "", "-3,-4")],
)
def test_users_of_a_reservation_are_shown_by_their_associations(users: str, accounts: str, wanted: str) -> None:
    book = Book(
        associations=(
            Association(id=2, cluster="c1", account="chem", parent="root"),
            Association(id=3, cluster="c1", account="chem", user="amy"),
            Association(id=4, cluster="c1", account="phys", user="amy"),
            Association(id=5, cluster="c1", account="chem", user="bob"),
            Association(id=6, cluster="c2", account="chem", user="amy"),
        )
    )
    assert lines(kept(users=users, accounts=accounts), "assoc", book) == ["Assocs", wanted]


def test_it_is_asked_of_today_until_now_unless_told() -> None:
    plain = read("c1", [], NOW, context()).query
    assert (plain.clusters, plain.starts_at, plain.ends_at) == (("c1",), int(NOW) - 36_000, int(NOW) + 1)
    words = ("where", "names=a,b", "id=3,4", "nodes=n[1-2]", "clusters=x,Y", "start=now-1hour", "end=now+1hour")
    told = read("c1", words_of(words)[0], NOW, context())
    query = told.query
    assert (query.names, told.ids, query.nodes, query.clusters) == (("a", "b"), {3, 4}, ("n1", "n2"), ("x", "y"))
    assert (query.starts_at, query.ends_at) == (int(NOW) - 3600, int(NOW) + 3600)


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("r1", " Unknown condition: r1\n Use keyword 'set' to modify value\n"),
        ("flags=maint", " Unknown condition: flags=maint\n Use keyword 'set' to modify value\n"),
        ("id=x", "sacctmgr: error: Invalid reservation id: x\n"),
        ("nodes=n[1", "sacctmgr: error: Invalid node list: n[1\n"),
        ("start=zzz", "Invalid time"),
    ],
)
def test_what_is_no_condition_is_said(word: str, problem: str) -> None:
    asking = context()
    with pytest.raises(AlreadyReported):
        read("c1", words_of([word])[0], NOW, asking)
    assert isinstance(asking.stderr, io.StringIO)
    assert asking.stderr.getvalue().startswith(problem)
