"""The answer to a question about jobs: the database's records, and the controller's where that knows more."""

from __future__ import annotations

from spritz.model.accounting import JobRecords

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.cli.acct.live import Live
    from spritz.client.sync import Connection
    from spritz.model.accounting import JobWithSteps, SelectJobs


def answered(connection: Connection, query: SelectJobs) -> Iterator[tuple[JobWithSteps, float]]:
    """Jobs as they come, and the time at which they were so."""
    live: Live | None = None
    now = 0.0
    for piece in connection.stream(query, JobRecords, timeout=None):
        now = piece.now
        if piece.behind:
            from spritz.client.locate import locate_database

            ours = locate_database().cluster_name
            if ours in piece.behind:
                from spritz.cli.acct.live import Live

                live = Live(query, ours)
        for one in piece.jobs:
            yield (one if live is None else live.newer(one)), now
    if live is not None:
        for one in live.rest():
            yield one, now
