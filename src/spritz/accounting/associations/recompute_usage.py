"""Usage recomputed from the records of jobs, with the same arithmetic as the controllers'.

One streamed pass over the cluster's jobs that ran late enough to matter. Source: model.limits.usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from spritz.accounting import schema
from spritz.accounting.engine import database_errors
from spritz.model.limits.flags import NO_DECAY
from spritz.model.limits.records import Reckoned, ReckonUsage, UsageRow
from spritz.model.limits.rules import Rules
from spritz.model.limits.usage import decay_constant, factors, rates_of
from spritz.notation.tres import parse

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from spritz.model.limits.ledger import LedgerKey
    from spritz.model.limits.records import Policy

#: Half-lives after which decayed usage is too small for a float to show.
HALF_LIVES = 64
_PIECE = 2_000
_JOBS = schema.jobs.c
_COLUMNS = (
    *(_JOBS.number, _JOBS.account, _JOBS.user, _JOBS.partition, _JOBS.qos, _JOBS.started_at, _JOBS.ended_at),
    *(_JOBS.suspended_at, _JOBS.suspended_seconds, _JOBS.tres_allocated, _JOBS.licenses),
)


def reckon(engine: Engine, request: ReckonUsage, policy: Policy) -> Reckoned:
    """Usage of all associations and QOS of a cluster. Raises DatabaseError."""
    rules = Rules(policy, request.partition_qos, request.weights, request.largest)
    lasting = frozenset(qos_record.name for qos_record in rules.qos.values() if NO_DECAY in qos_record.flags)
    sums: dict[LedgerKey, dict[str, float]] = {}
    count = 0
    with database_errors(), engine.connect() as connection:
        cluster = connection.execute(
            select(schema.clusters.c.id).where(schema.clusters.c.name == request.cluster)
        ).scalar()
        if cluster is None:
            return Reckoned()
        for row, stops in _rows(connection, cluster, request, lasting=bool(lasting)):
            count += _add(sums, row, stops, rules, request, lasting)
    return Reckoned(
        rows=tuple(UsageRow(key=key, at=request.at, amounts=amounts) for key, amounts in sums.items()), jobs=count
    )


def _rows(
    connection: Connection, cluster: int, request: ReckonUsage, *, lasting: bool
) -> Iterator[tuple[Any, list[tuple[float, float]]]]:
    """Rows of jobs, each with the intervals in which it was suspended."""
    oldest = request.since
    if request.half_life_seconds and not lasting:
        oldest = max(oldest, request.at - HALF_LIVES * request.half_life_seconds)
    query = (
        select(*_COLUMNS)
        .where(
            _JOBS.cluster_id == cluster,
            _JOBS.started_at > 0.0,
            _JOBS.started_at < request.at,
            (_JOBS.ended_at == 0.0) | (_JOBS.ended_at > oldest),
        )
        .order_by(_JOBS.number)
    )
    rows = connection.execution_options(yield_per=_PIECE).execute(query)
    for piece in rows.partitions():
        stopped = [row.number for row in piece if row.suspended_at or row.suspended_seconds]
        stops = _stops(connection, cluster, stopped) if stopped else {}
        for row in piece:
            yield row, stops.get(row.number, [])


def _stops(connection: Connection, cluster: int, numbers: list[int]) -> dict[int, list[tuple[float, float]]]:
    table = schema.suspensions.c
    spans: dict[int, list[tuple[float, float]]] = {}
    for start in range(0, len(numbers), 500):
        query = select(table.number, table.started_at, table.ended_at).where(
            table.cluster_id == cluster, table.number.in_(numbers[start : start + 500])
        )
        for row in connection.execute(query.order_by(table.number, table.started_at)):
            spans.setdefault(row.number, []).append((row.started_at, row.ended_at))
    return spans


def _add(
    sums: dict[LedgerKey, dict[str, float]],
    row: Any,
    stops: Iterable[tuple[float, float]],
    rules: Rules,
    request: ReckonUsage,
    lasting: frozenset[str],
) -> int:
    """Add one job's usage. Returns 1 if it counts anywhere, else 0."""
    keys = [key for key in rules.job_limits(row.account, row.user, row.partition, row.qos).keys if key[0] in ("a", "q")]
    if not keys:
        return 0
    pairs = (*parse(row.tres_allocated), *_licenses(row.licenses))
    recorded = dict(pairs).get("billing", 0)
    # The record has whole numbers. If they agree with the weights, the exact billing is used in place of the rounded
    # one.
    exact = rules.billing(row.partition, pairs)
    billing = exact if exact is not None and int(exact) == recorded else float(recorded)
    rates = rates_of(pairs, billing, rules.usage_factor(row.qos))
    spans = list(_spans(row, stops, request))
    for key in keys:
        lasts = key[0] == "q" and key[1] in lasting
        constant = 0.0 if lasts else decay_constant(request.half_life_seconds)
        weight = 0.0
        for begin, end in spans:
            begin = begin if lasts else max(begin, request.since)
            if end > begin:
                weight += factors(constant, request.at - end)[0] * factors(constant, end - begin)[1]
        if weight:
            amounts_of_key = sums.setdefault(key, {})
            for name, rate in rates:
                amounts_of_key[name] = amounts_of_key.get(name, 0.0) + rate * weight
    return 1


def _licenses(text: str) -> Iterator[tuple[str, int]]:
    """`matlab:2,ansys` -> ("matlab", 2), ("ansys", 1)."""
    for item in text.split(",") if text else ():
        name, _, count = item.partition(":")
        if name and (not count or count.isdecimal()):
            yield f"license/{name}", int(count or 1)


def _spans(row: Any, stops: Iterable[tuple[float, float]], request: ReckonUsage) -> Iterator[tuple[float, float]]:
    """The intervals in which the job ran: from start to end (or now), without suspensions."""
    at, end = row.started_at, min(row.ended_at or request.at, request.at)
    for began, ended in stops:
        if began < at:
            continue
        yield at, min(began, end)
        at = ended or end
    yield at, end
