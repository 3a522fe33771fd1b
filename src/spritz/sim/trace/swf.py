"""Standard Workload Format: 18 fields a row; `;` starts a remark; -1 means unknown.

Used: 1 job, 2 submit, 4 run time, 5 allocated processors, 8 requested processors, 9 requested time, 12 user, 13 group,
14 executable, 15 queue. A job's size is its requested processors, or the allocated ones if those are unknown. A job
without a requested time is planned with its run time. One that ran past its request is cut there, as a time limit
would. Jobs that ran for less than a second are left out: they have no slowdown. Dependencies (fields 17, 18) are not
replayed.

Source: https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.sim.trace.workload import SECONDS_MAX, ParsedTrace, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIELDS = 18


def parse_swf(
    rows: Iterable[str], processors: int | None = None, tick: Callable[[int], None] | None = None
) -> ParsedTrace:
    """Parse lines. Never fails: bad rows are counted in the result."""
    workload = Workload()
    parsed = ParsedTrace(workload=workload)
    seen: set[int] = set()
    latest = 0.0
    ordered = True
    for number, line in enumerate(rows, 1):
        words = line.split()
        if not words:
            continue
        if words[0][0] == ";":
            _remark(parsed, line)
            continue
        if processors is None and not parsed.rows:
            processors = machine_of(parsed.header)
        parsed.rows += 1
        if tick is not None and parsed.rows % 20_000 == 0:
            tick(parsed.rows)
        if len(words) < FIELDS:
            parsed.skip(f"fewer than {FIELDS} fields", number)
            continue
        try:
            job, submit, run = int(words[0]), float(words[1]), float(words[3])
            allocated, requested, limit = int(float(words[4])), int(float(words[7])), float(words[8])
        except (ValueError, OverflowError):
            parsed.skip("a field that is no number", number)
            continue
        size = requested if requested > 0 else allocated
        why = _unusable(submit, run, limit, size, processors)
        if why:
            parsed.skip(why, number)
            continue
        if job in seen:
            parsed.adjust("the number of an earlier job once more", number)
        seen.add(job)
        if submit < latest:
            ordered = False
            parsed.adjust("not in order of submission; sorted", number)
        latest = max(latest, submit)
        if limit <= 0:
            limit = run
            parsed.adjust("no requested time; the run time stands for it", number)
        elif run > limit:
            run = limit
            parsed.adjust("ran past the requested time; cut there", number)
        workload.job.append(job)
        workload.submit.append(submit)
        workload.run.append(run)
        workload.limit.append(limit)
        workload.processors.append(size)
        workload.user.append(words[11])
        workload.group.append(words[12])
        workload.name.append(words[13])
        workload.queue.append(words[14])
    if not ordered:
        parsed.workload = workload.in_order()
    return parsed


def _unusable(submit: float, run: float, limit: float, size: int, processors: int | None) -> str:
    """Reason for which the row cannot be replayed; "" if it can."""
    if not (-SECONDS_MAX < submit < SECONDS_MAX and -SECONDS_MAX < run < SECONDS_MAX and limit < SECONDS_MAX):
        return "a time beyond all bounds"
    if submit < 0:
        return "submitted at a negative time"
    if run < 0:
        return "no run time"
    if run < 1:
        return "ran for less than a second"
    if size <= 0:
        return "no number of processors"
    if processors is not None and size > processors:
        return f"asks for more than {processors} processors"
    return ""


def machine_of(header: dict[str, str]) -> int | None:
    """Processors of the machine, as named in the trace's header; None if it does not say."""
    for key in ("MaxProcs", "MaxNodes"):
        word = header.get(key, "").split(" ")[0]
        if word.isdecimal() and int(word) > 0:
            return int(word)
    return None


def _remark(parsed: ParsedTrace, line: str) -> None:
    name, colon, value = line.lstrip("; \t").partition(":")
    if colon and name and " " not in name:
        parsed.header.setdefault(name, value.strip())
