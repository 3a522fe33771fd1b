"""`sacctmgr show reservation`: past and present reservations, their users, and the unused time of each.

Source: sacctmgr(1) SPECIFICATIONS FOR RESERVATIONS; what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager.arguments import match, time_of
from spritz.cli.administration.manager.commit import get_book, refusal
from spritz.cli.administration.manager.show import columns_of, print_table
from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.accounting.usage import AskReservations, ReservationReport
from spritz.notation import tres
from spritz.notation.errors import NotationError
from spritz.notation.hostlist import expand
from spritz.presentation.accounting.history_fields import RESERVATION_FIELDS
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.administration.manager.arguments import Word
    from spritz.cli.administration.manager.show import Style
    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.accounting.usage import ReservationUsage
    from spritz.model.limits.records import Association, Book
    from spritz.presentation.accounting.association_fields import Row

_WORDS = ("clusters", "end", "format", "ids", "names", "nodes", "start")
_DEFAULT = "cluster,name%15,tres%30,timestart,timeend,unusedwall"


class ReservationQuestion:
    """The query, and how its answer is printed. `ids`: print only these reservations; empty: all."""

    def __init__(self, query: AskReservations) -> None:
        self.query = query
        self.ids: set[int] = set()
        self.format = ""


def show_reservations(
    connection: DatabaseConnection, cluster: str, words: Sequence[Word], style: Style, context: Context
) -> int:
    """Query slurmdbd and print a table. Always 0; raises AlreadyReported after a message."""
    now = SystemClock().now()
    question = read(cluster, words, now, context)
    columns = columns_of(question.format or _DEFAULT, RESERVATION_FIELDS, context)
    book = None
    if any(column.field.header == "Assocs" for column in columns):
        book = get_book(connection)
    with refusal(context, " Problem with query.\n"):
        report = connection.call(question.query, ReservationReport, timeout=60.0)
    chosen = [
        reservation
        for reservation in report.reservations
        if not question.ids or reservation.record.reservation_id in question.ids
    ]
    print_table(columns, rows_of(chosen, book, now), style, context)
    return 0


def read(cluster: str, words: Sequence[Word], now: float, context: Context) -> ReservationQuestion:
    """Parse the conditions; by default from midnight until now. Raises AlreadyReported after a message."""
    question = ReservationQuestion(
        AskReservations(clusters=(cluster,), starts_at=int(time_of("today", now, context)), ends_at=0)
    )
    changes: dict[str, object] = {"ends_at": int(now) + 1}
    for word in words:
        known = match(word.key, _WORDS, 2)
        if known is None or word.op != "=":
            context.err(f" Unknown condition: {word.text}\n Use keyword 'set' to modify value\n")
            raise AlreadyReported
        if known == "format":
            question.format += ("," if question.format else "") + word.value
        elif known == "clusters":
            changes["clusters"] = tuple(value.lower() for value in word.values)
        elif known == "names":
            changes["names"] = tuple(word.values)
        elif known == "ids":
            if not all(value.isascii() and value.isdigit() for value in word.values):
                context.error(f"Invalid reservation id: {word.value}")
                raise AlreadyReported
            question.ids |= {int(value) for value in word.values}
        elif known == "nodes":
            changes["nodes"] = _nodes(word.value, context)
        else:
            changes["starts_at" if known == "start" else "ends_at"] = int(time_of(word.value, now, context))
    question.query = replace(question.query, **changes)
    return question


def _nodes(text: str, context: Context) -> tuple[str, ...]:
    try:
        return tuple(expand(text))
    except NotationError as error:
        context.error(f"Invalid node list: {text}")
        raise AlreadyReported from error


def rows_of(usages: Sequence[ReservationUsage], book: Book | None, now: float) -> list[Row]:
    """Rows for RESERVATION_FIELDS. `book`: needed for the column of associations; None without that column."""
    return [
        {
            "r": usage.record,
            "cluster": usage.cluster,
            "unused": f"{unused_seconds(usage, now):.6f}",
            "associations": _associations(usage, book) if book is not None else "",
        }
        for usage in usages
    ]


def unused_seconds(usage: ReservationUsage, now: float) -> float:
    """The reservation's wall-clock seconds until `now`, less its jobs' CPU seconds divided by its CPUs."""
    cpus = dict(tres.parse(usage.record.tres)).get("cpu", 0)
    seconds = max(0.0, min(now, usage.record.ended_at) - usage.record.started_at)
    return max(0.0, seconds - dict(usage.used).get("cpu", 0) / cpus) if cpus else seconds


def _associations(usage: ReservationUsage, book: Book) -> str:
    """Comma-separated ids of the associations that may use the reservation; ids of those that may not have a minus."""
    users, no_users = _names(usage.record.users)
    accounts, no_accounts = _names(usage.record.accounts)
    associations = [association for association in book.associations if association.cluster == usage.cluster]
    allowed: list[Association] = []
    if users and accounts:
        allowed = [item for item in associations if item.user in users and item.account in accounts]
    elif users:
        allowed = [item for item in associations if item.user in users]
    elif accounts:
        allowed = [item for item in associations if not item.user and item.account in accounts]
    denied = [item for item in associations if item.user in no_users or (not item.user and item.account in no_accounts)]
    return ",".join([str(item.id) for item in allowed] + [f"-{item.id}" for item in denied])


def _names(text: str) -> tuple[set[str], set[str]]:
    """(allowed, denied) names of a list in which `-` marks the denied."""
    names = {name for name in text.removeprefix("-").split(",") if name}
    return (set(), names) if text.startswith("-") else (names, set())
