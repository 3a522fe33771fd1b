"""The answer to a question about jobs: the database's records, and the controller's where that knows more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.client.errors import ConnectionLost
from spritz.client.locate import locate_database
from spritz.model.accounting.records import PICKS_MAX, JobRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.cli.listings.acct.live import Live
    from spritz.model.accounting.records import JobPick, JobWithSteps, SelectJobs


def answered(connection: DatabaseConnection, query: SelectJobs) -> Iterator[tuple[JobWithSteps, float]]:
    """Jobs as they come, and the time at which they were so; each once, in however many questions it is named."""
    if len(query.picks) <= PICKS_MAX:
        yield from _answered(connection, query)
        return
    seen: set[tuple[str, int, int, int]] = set()
    for picks in portions(query.picks):
        for record, now in _answered(connection, replace(query, picks=picks)):
            job = record.job
            key = (job.cluster, job.number, job.job_id, job.restart_count)
            if key not in seen:
                seen.add(key)
                yield record, now


def portions(picks: tuple[JobPick, ...]) -> Iterator[tuple[JobPick, ...]]:
    """The jobs in portions that one query may name, ordered by job id."""
    ordered = sorted(picks, key=lambda pick: pick.job_id)
    for start in range(0, len(ordered), PICKS_MAX):
        yield tuple(ordered[start : start + PICKS_MAX])


def _answered(connection: DatabaseConnection, query: SelectJobs) -> Iterator[tuple[JobWithSteps, float]]:
    """Where slurmdbd dies in the middle, the query is repeated once, without the jobs that were delivered."""
    #: cluster -> numbers of the jobs delivered
    delivered: dict[str, list[int]] = {}
    before: dict[str, set[int]] = {}
    is_repeated = False
    while True:
        live: Live | None = None
        now = 0.0
        try:
            for piece in connection.stream_once(query, JobRecords):
                now = piece.now
                if piece.behind:
                    ours = locate_database().cluster_name
                    if ours in piece.behind:
                        from spritz.cli.listings.acct.live import Live

                        live = Live(query, ours)
                for record in piece.jobs:
                    newest = record if live is None else live.newer(record)
                    cluster, number = record.job.cluster, record.job.number
                    if number in before.get(cluster, ()):
                        continue
                    delivered.setdefault(cluster, []).append(number)
                    yield newest, now
            break
        except ConnectionLost as lost:
            if is_repeated:
                raise
            connection.reopen(lost)
            is_repeated = True
            before = {cluster: set(numbers) for cluster, numbers in delivered.items()}
    if live is not None:
        for record in live.rest():
            yield record, now
