"""Output of `sacct` with --parsable or --parsable2: one line a job, `|` between fields, names in the first line.

Needed: JobID, Submit, and the run time as ElapsedRaw, Elapsed, or Start and End; the size as ReqCPUS, AllocCPUS or
NCPUS. Used if present: Timelimit (or TimelimitRaw, minutes), User, Account, JobName, Partition. Steps (`12.batch`) are
left out without a remark. Times count from the first submission.

    sacct -a -X -P --starttime=2024-01-01 \
        --format=JobID,User,Account,JobName,Partition,Submit,ElapsedRaw,Timelimit,ReqCPUS

Source: sacct(1) Job Accounting Fields.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from spritz.notation.duration import parse_seconds
from spritz.notation.errors import NotationError
from spritz.sim.trace.workload import ParsedTrace, TraceError, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

NEEDED = ("jobid", "submit")
RUN = (("elapsedraw",), ("elapsed",), ("start", "end"))
SIZE = ("reqcpus", "alloccpus", "ncpus")


def is_sacct(line: str) -> bool:
    """Whether this is the first line of such output."""
    return "jobid" in line.lower().replace("|", " ").split() and not line.startswith(";")


def parse_sacct(rows: Iterable[str], processors: int | None = None) -> ParsedTrace:
    """Parse lines, of which the first holds the names. Raises TraceError if a needed column is missing."""
    columns: list[str] = []
    workload = Workload()
    parsed = ParsedTrace(workload=workload)
    for number, line in enumerate(rows, 1):
        words = line.split("|")
        if not columns:
            columns = [word.strip().lower() for word in words]
            _check(columns)
            continue
        if not line.strip():
            continue
        row = dict(zip(columns, words, strict=False))
        if "." in row.get("jobid", ""):
            continue
        parsed.rows += 1
        if len(words) < len(columns):
            parsed.skip("fewer fields than names", number)
            continue
        try:
            submit, run, size = _time(row["submit"]), _run(row), _size(row)
            limit = _limit(row)
        except (ValueError, NotationError, OverflowError):
            parsed.skip("a field that cannot be read, or a job that has not run", number)
            continue
        if run < 1:
            parsed.skip("ran for less than a second", number)
            continue
        if size <= 0:
            parsed.skip("no number of processors", number)
            continue
        if processors is not None and size > processors:
            parsed.skip(f"asks for more than {processors} processors", number)
            continue
        if limit is None:
            limit = run
            parsed.adjust("no time limit; the run time stands for it", number)
        elif run > limit:
            run = limit
            parsed.adjust("ran past the time limit; cut there", number)
        digits = row["jobid"].partition("_")[0].partition("+")[0]
        workload.job.append(int(digits) if digits.isdecimal() else number)
        workload.submit.append(submit)
        workload.run.append(run)
        workload.limit.append(limit)
        workload.processors.append(size)
        workload.user.append(row.get("user", "") or "-1")
        workload.group.append(row.get("account", "") or "-1")
        workload.name.append(row.get("jobname", "") or "-1")
        workload.queue.append(row.get("partition", "") or "-1")
    if workload.submit:
        first = min(workload.submit)
        workload.submit = [submit - first for submit in workload.submit]
        parsed.workload = workload.in_order()
    return parsed


def _check(columns: list[str]) -> None:
    missing = [name for name in NEEDED if name not in columns]
    if not any(all(name in columns for name in names) for names in RUN):
        missing.append("elapsedraw")
    if not any(name in columns for name in SIZE):
        missing.append("reqcpus")
    if len(columns) == 1:
        raise TraceError("sacct output without |: sacct -P makes some that can be read")
    if missing:
        raise TraceError(f"sacct output without {', '.join(missing)}")


def _time(text: str) -> float:
    if text.isdecimal():
        return float(text)
    return datetime.fromisoformat(text).timestamp()


def _run(row: dict[str, str]) -> float:
    if row.get("elapsedraw"):
        return float(int(row["elapsedraw"]))
    if row.get("elapsed"):
        return float(parse_seconds(row["elapsed"]))
    return _time(row["end"]) - _time(row["start"])


def _size(row: dict[str, str]) -> int:
    for name in SIZE:
        if row.get(name, "").isdecimal() and int(row[name]):
            return int(row[name])
    return 0


def _limit(row: dict[str, str]) -> float | None:
    raw = row.get("timelimitraw", "")
    if raw.isdecimal():
        return 60.0 * int(raw)
    text = row.get("timelimit", "")
    if not text or not text[0].isdecimal():
        return None
    return float(parse_seconds(text))
