"""`sacctmgr show event`: times when nodes were unusable, and the cluster's resources over time.

Source: sacctmgr(1) SPECIFICATIONS FOR EVENTS; what 22.05 prints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.cli.administration.manager.arguments import match, time_of
from spritz.cli.administration.manager.commit import refusal
from spritz.cli.administration.manager.show import columns_of, print_table
from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.accounting.accounting_admin import EventRecords, SelectEvents
from spritz.notation.hostlist import expand
from spritz.notation.times import parse_time
from spritz.presentation.accounting.history_fields import BASE_STATES, EVENT_FIELDS
from spritz.presentation.users import uid_of
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spritz.cli.administration.manager.arguments import Word
    from spritz.cli.administration.manager.show import Style
    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.presentation.accounting.association_fields import Row

_WORDS = (
    *("all_clusters", "all_time", "clusters", "condflags", "end", "event", "format", "maxcpus", "mincpus", "nodes"),
    *("reason", "start", "states", "user"),
)
_DEFAULT = "cluster,nodename,start,end,state,reason,user"
_OF_CLUSTERS = "cluster,tres,start,end,clusternodes"


class EventQuestion:
    """The query, and the columns (`format`) that print its answer."""

    def __init__(self, cluster: str) -> None:
        self.query = SelectEvents(clusters=(cluster,))
        self.format = ""


def show_events(
    connection: DatabaseConnection, cluster: str, words: Sequence[Word], style: Style, context: Context
) -> int:
    """Query slurmdbd and print a table. Always 0; raises AlreadyReported after a message."""
    now = SystemClock().now()
    question = _read(cluster, words, now, context)
    default = _OF_CLUSTERS if question.query.kind == "cluster" else _DEFAULT
    columns = columns_of(question.format or default, EVENT_FIELDS, context)

    def rows() -> Iterator[Row]:
        for piece in connection.stream(question.query, EventRecords, timeout=60.0):
            for event in piece.events:
                yield {"e": event, "cluster": piece.cluster, "now": now}

    with refusal(context, " Error with request: {}\n"):
        print_table(columns, list(rows()), style, context)
    return 0


def resources_by_cluster(connection: DatabaseConnection) -> dict[str, Row]:
    """Each cluster's present nodes and TRES, by cluster name, for `show cluster`."""
    rows: dict[str, Row] = {}
    for piece in connection.stream(SelectEvents(kind="cluster"), EventRecords, timeout=60.0):
        for event in piece.events:
            has = dict(item.partition("=")[::2] for item in event.tres.split(",") if item)
            rows[piece.cluster] = {"nodes": event.nodes, "tres": event.tres, "node_count": has.get("node", "")}
    return rows


def _read(cluster: str, words: Sequence[Word], now: float, context: Context) -> EventQuestion:
    question = EventQuestion(cluster)
    changes: dict[str, object] = {}
    only_open = whole = False
    for word in words:
        text = word.key or word.value.lower()
        known = match(text, _WORDS, 2)
        if known in ("all_clusters", "all_time"):
            whole = whole or known == "all_time"
            changes |= {"clusters": ()} if known == "all_clusters" else {}
        elif not word.key or known == "event":
            kind = match(word.value.lower(), ("cluster", "node"), 1)
            if kind is None:
                context.err(f" Unknown event type: '{word.value}'  Valid events are Cluster and Node.\n")
                raise AlreadyReported
            changes["kind"] = kind
        elif known is None:
            context.err(f" Unknown condition: {word.text}\n")
            raise AlreadyReported
        elif known == "format":
            question.format += ("," if question.format else "") + word.value
        elif known == "condflags":
            for value in word.values:
                if match(value.lower(), ("open",), 1) is None:
                    context.error(f"Unknown condition flag {value}")
                    raise AlreadyReported
                only_open = True
        elif known in ("start", "end"):
            changes["starts_at" if known == "start" else "ends_at"] = time_of(word.value, now, context)
        elif known in ("maxcpus", "mincpus"):
            changes["cpus_max" if known == "maxcpus" else "cpus_min"] = _cpus(word, context)
        else:
            changes |= _condition(known, word, context)
    if only_open or (changes.get("states") and "starts_at" not in changes):
        changes.pop("starts_at", None)
        changes.pop("ends_at", None)
    elif whole:
        changes["starts_at"] = 0.0
    else:
        changes.setdefault("starts_at", _yesterday(now))
    question.query = replace(question.query, **changes)
    return question


def _cpus(word: Word, context: Context) -> int:
    if not (word.value.isascii() and word.value.isdigit() and len(word.value) < 10):
        context.error(f"Invalid value for {word.key} ({word.value})")
        raise AlreadyReported
    return int(word.value)


def _condition(known: str, word: Word, context: Context) -> dict[str, object]:
    if known == "clusters":
        return {"clusters": tuple(value.lower() for value in word.values)}
    if known == "nodes":
        return {"nodes": tuple(expand(word.value)), "kind": "node"}
    if known == "reason":
        return {"reasons": tuple(word.values)}
    if known == "states":
        states = tuple(value.upper() for value in word.values)
        for state in states:
            if state not in BASE_STATES and state not in ("DRAIN", "FAIL", "DRAINED", "DRAINING"):
                context.err(f'Bad state string: "{state}"\n')
                raise AlreadyReported
        return {"states": states, "kind": "node"}

    numbers = [uid_of(value) for value in word.values]
    if None in numbers:
        context.err(f" Unknown user: {word.value}\n")
        raise AlreadyReported
    return {"users": tuple(numbers), "kind": "node"}


def _yesterday(now: float) -> float:
    return parse_time("today", parse_time("today", now, future=False) - 43_200.0, future=False)
