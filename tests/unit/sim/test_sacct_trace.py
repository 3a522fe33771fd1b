"""sacct's output as a trace."""

from __future__ import annotations

import re

import pytest

from spritz.sim.trace.read import read_trace
from spritz.sim.trace.sacct import is_sacct, parse_sacct
from spritz.sim.trace.workload import TraceError

HEADER = "JobID|User|Account|JobName|Partition|Submit|ElapsedRaw|Timelimit|ReqCPUS"


def test_rows_become_jobs_and_steps_are_left_out() -> None:
    parsed = parse_sacct(
        [
            HEADER,
            "7|ann|ml|train|gpu|2024-05-01T10:00:30|600|01:00:00|8",
            "7.batch|||batch||2024-05-01T10:00:30|600||8",
            "8_2|bob|ml|eval|cpu|2024-05-01T10:00:00|90|00:01:00|2",
        ]
    )
    workload = parsed.workload
    assert (workload.job, workload.submit, workload.run, workload.limit) == ([8, 7], [0, 30], [60, 600], [60, 3600])
    assert (workload.user, workload.group, workload.queue) == (["bob", "ann"], ["ml", "ml"], ["cpu", "gpu"])
    assert parsed.rows == 2
    assert "ran past the time limit" in parsed.remarks()[0]


def test_other_columns_for_the_run_time_will_do() -> None:
    rows = ["JobID|Submit|Start|End|NCPUS", "1|2024-05-01T10:00:00|2024-05-01T10:00:10|2024-05-01T10:01:10|4"]
    assert parse_sacct(rows).workload.run == [60]
    assert parse_sacct(["JobID|Submit|Elapsed|NCPUS", "1|5|1-00:00:01|4"]).workload.run == [86401]


def test_what_cannot_be_read_is_skipped_and_counted() -> None:
    rows = [HEADER, "1|a|b|c|d|Unknown|5|UNLIMITED|1", "2|a|b|c|d|2024-05-01T10:00:00|0|1:00|1", "3|a"]
    parsed = parse_sacct(rows)
    assert not len(parsed.workload)
    assert sum(one.count for one in parsed.skipped.values()) == 3


def test_missing_columns_are_named() -> None:
    assert is_sacct("JobID|Submit|State")
    assert not is_sacct("1 0 -1 5 1")
    with pytest.raises(TraceError, match="elapsedraw, reqcpus"):
        parse_sacct(["JobID|Submit|State"])


def test_the_form_is_told_by_the_first_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("sacct") / "jobs.txt"
    path.write_text(f"{HEADER}\n7|ann|ml|train|gpu|100|600|60|8\n")
    assert read_trace(str(path), None).workload.limit == [3600]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("JobID|JobName|State", "sacct output without submit, elapsedraw, reqcpus"),
        ("JobID      JobName  Partition", "sacct output without |: sacct -P makes some that can be read"),
    ],
)
def test_output_that_is_too_little_is_told_what_it_lacks(names: str, why: str) -> None:
    assert is_sacct(names)
    with pytest.raises(TraceError, match=re.escape(why)):
        parse_sacct([names, "1|a|COMPLETED"])
