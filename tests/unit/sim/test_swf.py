"""Standard Workload Format: what is read, what is skipped, and that it is counted."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from spritz.sim.trace.read import read_trace
from spritz.sim.trace.swf import parse_swf
from spritz.sim.trace.workload import TraceError

if TYPE_CHECKING:
    from pathlib import Path


def row(job: object = 1, submit: object = 0, run: object = 10, processors: object = 1, **more: object) -> str:
    """One line; `more`: requested (processors), limit, user."""
    fields = [job, submit, -1, run, processors, -1, -1, more.get("requested", -1), more.get("limit", 60), -1, 1]
    return " ".join(str(one) for one in [*fields, more.get("user", 7), 1, -1, 0, -1, -1, -1])


def test_fields_are_where_the_format_says() -> None:
    parsed = parse_swf(["; MaxProcs: 128", "", row(5, 100, 30, 4, requested=8, limit=90, user=3)])
    workload = parsed.workload
    assert (workload.job, workload.submit, workload.run, workload.limit) == ([5], [100], [30], [90])
    assert (workload.processors, workload.user) == ([8], ["3"])
    assert parsed.header == {"MaxProcs": "128"}
    assert parsed.remarks() == []


def test_allocated_processors_stand_for_unknown_requested_ones() -> None:
    assert parse_swf([row(processors=4)]).workload.processors == [4]


def test_a_run_past_its_request_is_cut_and_counted() -> None:
    parsed = parse_swf([row(run=100, limit=60)])
    assert parsed.workload.run == [60]
    assert "ran past the requested time" in parsed.remarks()[0]


def test_without_a_request_the_run_time_stands_for_it() -> None:
    parsed = parse_swf([row(run=100, limit=-1)])
    assert parsed.workload.limit == [100]
    assert "no requested time" in parsed.remarks()[0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1 2 3", "fewer than 18 fields"),
        (row(job="x"), "a field that is no number"),
        (row(submit=-5), "submitted at a negative time"),
        (row(run=-1), "no run time"),
        (row(run=0), "ran for less than a second"),
        (row(processors=-1), "no number of processors"),
        (row(processors=200), "asks for more than 128 processors"),
        (row(submit="1e300"), "a time beyond all bounds"),
        (row(run="nan"), "a time beyond all bounds"),
        (row(processors="inf"), "a field that is no number"),
    ],
)
def test_a_bad_row_is_skipped_and_named(line: str, why: str) -> None:
    parsed = parse_swf([row(), line, line], processors=128)
    assert len(parsed.workload) == 1
    assert parsed.remarks() == [f"skipped 2 rows: {why} (first at line 2)"]


def test_rows_out_of_order_are_sorted_and_counted() -> None:
    parsed = parse_swf([row(1, 50), row(2, 10), row(3, 10), row(4, 70)])
    assert parsed.workload.job == [2, 3, 1, 4]
    assert parsed.adjusted["not in order of submission; sorted"].count == 2


def test_gzip_is_told_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "trace.dat"
    path.write_bytes(gzip.compress((row() + "\n").encode()))
    assert len(read_trace(str(path), None).workload) == 1


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bnonsense", b"\xff\xfe\x00\x01\n" * 3, b"; only a remark\n"])
def test_a_file_without_jobs_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.swf"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="trace.swf"):
        read_trace(str(path), None)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(str(tmp_path / "absent.swf"), None)


def test_the_machine_of_the_header_is_as_large_as_one_that_is_given() -> None:
    parsed = parse_swf(["; MaxProcs: 128", row(processors=200), row(processors=100)])
    assert parsed.remarks()[0] == "skipped 1 row: asks for more than 128 processors (first at line 2)"
    assert len(parsed.workload) == 1
