"""sreport, byte by byte as a real 22.05 printed the same two days (`accounting.year`), and what it refuses."""

from __future__ import annotations

import io
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spritz.accounting.associations.store import read_book
from spritz.accounting.rollup.report import reservations, usage_of
from spritz.accounting.rollup.roll import roll
from spritz.accounting.rollup.size_queries import job_sizes
from spritz.accounting.store import Store
from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.cli.sreport import main
from spritz.model.accounting.usage import AskJobSizes, AskReservations, JobSizes, ReservationReport
from spritz.model.limits.records import GetBook
from spritz.presentation import users
from spritz.runtime.clock import SystemClock
from tests.databases import open_store
from tests.unit.accounting import year

GOLDEN = Path(__file__).parent / "golden"

#: status, standard output and standard error of a command line
Run = Callable[..., tuple[int, str, str]]


class _Connection:
    """slurmdbd without a wire."""

    def __init__(self, store: Store) -> None:
        self._engine = store.engine

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def stream(self, query: Any, *_: object, **__: object) -> Iterator[Any]:
        return usage_of(self._engine, query)

    def call(self, query: Any, *_: object, **__: object) -> Any:
        if isinstance(query, GetBook):
            return read_book(self._engine)
        if isinstance(query, AskJobSizes):
            return JobSizes(sizes=job_sizes(self._engine, query, year.NOW))
        assert isinstance(query, AskReservations)
        return ReservationReport(reservations=reservations(self._engine, query, year.NOW))


@pytest.fixture(scope="module")
def utc() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module")
def stores(utc: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Store]]:
    """By whether a job ran in a reservation."""
    made = {}
    for reserved in (True, False):
        path = tmp_path_factory.mktemp("database") / "acct.db"
        store = made[reserved] = open_store(path)
        year.fill(store, reserved=reserved)
        while roll(store.engine, year.NOW):
            pass
    yield made
    for store in made.values():
        store.engine.dispose()


@pytest.fixture
def run(stores: dict[bool, Store], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command: status, standard output, standard error."""

    def sreport(line: str, *, reserved: bool = False, stdin: str = "", **environ: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            "spritz.cli.administration.report.session.connected",
            lambda context: (_Connection(stores[reserved]), year.CLUSTER),
        )
        monkeypatch.setattr(SystemClock, "now", lambda self: year.NOW)
        numbers = {"games": 5, "nobody": 65534, "root": 0}
        monkeypatch.setattr(users, "uid_of", lambda word: numbers.get(word, int(word) if word.isdigit() else None))
        monkeypatch.setattr("spritz.cli.administration.report.session.proper_name", lambda user: user)
        context = Context("sreport", environ, "/", io.StringIO(stdin), io.StringIO(), io.StringIO())
        status = call(main, shlex.split(line), context)
        return status, context.stdout.getvalue(), context.stderr.getvalue()  # type: ignore[attr-defined]  # StringIO

    return sreport


def _golden(name: str) -> list[tuple[str, str, int]]:
    """Command, output and status of each."""
    found = []
    for block in re.split(r"^\$ sreport ", (GOLDEN / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        line, _, rest = block.partition("\n")
        output, _, status = rest.rstrip("\n").rpartition("[")
        found.append((line, output, int(status.rstrip("]"))))
    return found


@pytest.mark.parametrize(("line", "output", "status"), _golden("sreport.txt"))
def test_usage_is_printed_as_slurm_prints_it(run: Run, line: str, output: str, status: int) -> None:
    done, out, err = run(line)
    assert out + err == output
    assert done == status


@pytest.mark.parametrize(("line", "output", "status"), _golden("sreport_reservations.txt"))
def test_reservations_are_printed_as_slurm_prints_them(run: Run, line: str, output: str, status: int) -> None:
    done, out, err = run(line, reserved=True)
    assert out + err == output
    assert done == status


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cluster Utilization start=2026-02-30", "Invalid time specification (no such date): 2026-02-30\n"),
        ("cluster Utilization start=bogus", "Invalid time specification (pos=0): bogus\n"),
        ("user top users=games bogus=1", " Unknown condition: bogus=1\nUse keyword set to modify value\n"),
        ("user top format=bogus", " Unknown field 'bogus'\n"),
        ("user top topcount=x", "sreport: error: Invalid value for TopCount (x)\n"),
        ("user top -t bogus", "unknown time format bogus\n"),
        ("user top -T nosuch start=11/20", "sreport: fatal: No valid TRES given\n"),
        ("job sizesbyaccount users=nosuch", "sreport: error: Invalid user id: nosuch\n"),
        ("job sizesbyaccount gid=no:such", "sreport: error: Invalid group id: no:such\n"),
        (
            "job sizesbyaccount grouping=3,2",
            "sreport: error: Invalid value for grouping (3,2): rising numbers, or individual\n",
        ),
        (
            "cluster account withdeleted",
            "sreport: error: withdeleted is not supported by Spritz: usage of what was deleted is always shown\n",
        ),
        ("bogus", "invalid keyword: bogus\n"),
        ("cluster", "too few arguments for keyword:cluster\n"),
        ("help extra", "too many arguments for keyword:help\n"),
        ("reservation bogus", 'Not valid report bogus\nValid reservation reports are, "Utilization"\n'),
    ],
)
def test_what_is_not_understood_is_said_and_nothing_is_reported(run: Run, line: str, said: str) -> None:
    assert run(line) == (1, "", said)


def test_an_hour_that_the_clock_was_put_forward_over_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        status, out, err = run("cluster Utilization start=2026-03-29T02:30")
    finally:
        monkeypatch.setenv("TZ", "UTC")
        time.tzset()
    assert (status, out, err) == (1, "", "Invalid time specification (no such time): 2026-03-29T02:30\n")


def test_a_session_remembers_how_to_print_and_the_last_line(run: Run) -> None:
    lines = (
        "time hours",
        "parsable2",
        "user top start=11/20 end=11/22 topcount=1 format=login,used",
        "!!",
        "bogus",
        "exit",
    )
    status, out, err = run("-n", stdin="\n".join((*lines, "user top")) + "\n")
    printed = [line for line in out.splitlines() if not line.startswith("sreport: ")]
    assert (status, printed, err) == (1, ["games|10"] * 2, "invalid keyword: bogus\n")


def test_every_field_of_every_report_can_be_printed(run: Run) -> None:
    from spritz.presentation.accounting import report_fields

    reports = {
        "cluster AccountUtilizationByUser": report_fields.ACCOUNT_FIELDS,
        "cluster AccountUtilizationByQOS": report_fields.QOS_FIELDS,
        "cluster UserUtilizationByAccount": report_fields.ACCOUNT_FIELDS,
        "cluster UserUtilizationByWckey": report_fields.WCKEY_FIELDS,
        "cluster WCKeyUtilizationByUser": report_fields.WCKEY_FIELDS,
        "cluster Utilization": report_fields.UTILIZATION_FIELDS,
        "reservation Utilization": report_fields.RESERVATION_FIELDS,
        "job SizesByAccount": report_fields.SIZE_FIELDS["SizesByAccount"],
        "job SizesByAccountAndWckey": report_fields.SIZE_FIELDS["SizesByAccountAndWckey"],
        "job SizesByWckey": report_fields.SIZE_FIELDS["SizesByWckey"],
        "user TopUsage": report_fields.ACCOUNT_FIELDS,
    }
    for report, fields in reports.items():
        status, out, err = run(f"-nP {report} start=11/20 end=11/22 format={','.join(fields)}")
        assert (status, err) == (0, "")
        assert all(line.count("|") >= len(fields) - 1 for line in out.splitlines())
        assert out


def test_all_tres_are_those_that_every_cluster_has_and_its_own(run: Run) -> None:
    _, out, _ = run("-nP cluster util start=11/20 end=11/22 -T all format=tresname")
    assert out.split() == ["cpu", "mem", "energy", "billing", "fs/disk", "vmem", "pages", "gres/gpu"]


def test_of_accounts_below_each_other_the_highest_has_the_jobs(run: Run) -> None:
    _, out, _ = run("-nP job sizesbyaccount start=11/20 end=11/22 accounts=theory,phys,chem")
    assert [line.split("|")[1:3] for line in out.splitlines()] == [["chem", "600"], ["phys", "993"]]


@pytest.mark.parametrize(
    ("start", "end", "title"),
    [
        ("2026-11-20T05:29:30", "2026-11-20T17:29:29", "2026-11-20T06:00:00 - 2026-11-20T16:59:59"),
        ("2026-11-20T05:29:29", "2026-11-20T17:29:59", "2026-11-20T05:00:00 - 2026-11-20T17:59:59"),
    ],
)
def test_times_are_rounded_to_minutes_and_then_to_hours(run: Run, start: str, end: str, title: str) -> None:
    assert f"Cluster Utilization {title}\n" in run(f"-P cluster util start={start} end={end}")[1]


def test_accounts_are_divided_by_qos(run: Run) -> None:
    """The same sums as by user; unused reserved time has no QOS."""
    line = "-nP cluster AccountUtilizationByQOS start=11/20 end=11/22 format=account,qos,used"
    _, out, _ = run(line)
    assert out.splitlines() == [
        "root||2180",
        "chem||600",
        "chem|normal|600",
        "phys||1327",
        "phys|normal|293",
        "theory||700",
        "theory|normal|700",
    ]
    assert run(line + " qos=none")[1] == ""
