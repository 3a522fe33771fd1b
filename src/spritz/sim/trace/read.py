"""A trace of jobs in any supported form: Standard Workload Format, sacct output, or Spritz's own journal."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from spritz.sim.trace.files import lines
from spritz.sim.trace.journal import is_journal, read_journal
from spritz.sim.trace.sacct import is_sacct, parse_sacct
from spritz.sim.trace.swf import parse_swf
from spritz.sim.trace.workload import ParsedTrace, TraceError

if TYPE_CHECKING:
    from collections.abc import Callable


def read_trace(path: str, processors: int | None, tick: Callable[[int], None] | None = None) -> ParsedTrace:
    """Read a trace, plain or gzip (its first line tells the form), or a journal.

    `processors`: larger jobs are skipped.

    Raises TraceError for a file that cannot be read, or that holds no row to replay.
    """
    if is_journal(path):
        return read_journal(path)
    rows = lines(path)
    first = list(islice(rows, 1))
    everything = chain(first, rows)
    if first and is_sacct(first[0]):
        parsed = parse_sacct(everything, processors)
    else:
        parsed = parse_swf(everything, processors, tick)
    if not len(parsed.workload):
        raise TraceError(f"{path}: no job that can be replayed", "; ".join(parsed.remarks()))
    return parsed
