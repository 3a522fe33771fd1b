"""--whole-hetjob: which components of a heterogeneous job `-j` means.

By default the number of the leader means all of them, and any other only itself. Source: sacct(1) --whole-hetjob.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.call.options import Fatal
from spritz.cli.listings.acct.answer import answered

if TYPE_CHECKING:
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.accounting.records import JobPick, SelectJobs


def picked(connection: DatabaseConnection, query: SelectJobs, text: str) -> SelectJobs:
    """The query with adjusted picks. Raises Fatal for anything but yes or no."""
    if text.lower() not in ("", "yes", "no"):
        raise Fatal(f"Invalid --whole-hetjob value: {text[:80]}")
    if not query.picks:
        return query
    # As asked: which of the numbers are of components, and of which jobs?
    whole_of = {
        record.job.job_id: record.job.het_job_id for record, _now in answered(connection, replace(query, steps=False))
    }
    picks: dict[JobPick, None] = {}
    for pick in query.picks:
        whole = whole_of.get(pick.job_id + (pick.het_offset or 0), 0)
        if whole and text.lower() == "no":
            pick = replace(pick, job_id=whole, het_offset=pick.het_offset or pick.job_id - whole)
        elif whole:
            pick = replace(pick, job_id=whole, het_offset=None)
        picks[pick] = None
    return replace(query, picks=tuple(picks))
