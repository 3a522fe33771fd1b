"""DebugFlags of slurmdbd.conf: logs SQL statements by the tables that they use, and requests. Values are never logged.

Source: slurmdbd.conf(5) DebugFlags.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.engine import Engine

    from spritz.client.channel.statistics import CallStatistics
    from spritz.runtime.log import Logger

#: flag -> tables whose statements it logs; DB_QUERY logs all statements and transactions
_TABLES = {
    "DB_ASSOC": ("accounts", "associations", "coordinators", "users"),
    "DB_EVENT": ("node_events",),
    "DB_JOB": ("jobs", "pending_reasons", "suspensions", "documents"),
    "DB_QOS": ("qos",),
    "DB_RESERVATION": ("reservations",),
    "DB_RESOURCE": ("resources", "resource_shares"),
    "DB_STEP": ("steps",),
    "DB_TRES": ("tres",),
    "DB_USAGE": ("usage_holders", "holder_usage", "cluster_usage", "job_sizes"),
    "DB_WCKEY": ("wckeys",),
}
#: Characters of a statement that are logged.
_SHOWN_MAX = 4_000


class Watched(Protocol):
    """What is logged, and where (`api.Api`)."""

    @property
    def engine(self) -> Engine: ...

    @property
    def statistics_of_calls(self) -> CallStatistics: ...

    @property
    def log(self) -> Logger: ...


class DebugFlags:
    """Installs and removes the logging hooks for the flags in force."""

    def __init__(self, api: Watched) -> None:
        self._api = api
        self._about: re.Pattern[str] | None = None
        event.listen(api.engine, "before_cursor_execute", self._statement)

    def put(self, flags: Iterable[str]) -> None:
        wanted = set(flags)
        tables = [name for flag, names in _TABLES.items() if flag in wanted for name in names]
        # A table's name must follow a keyword: some columns are called like tables (qos).
        pattern = "" if "DB_QUERY" in wanted else rf"\b(FROM|INTO|JOIN|UPDATE) ({'|'.join(tables)})\b"
        self._about = re.compile(pattern) if tables or not pattern else None
        self._api.statistics_of_calls.heard = self._request if "AuditRPCs" in wanted else None

    def _statement(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self._about is not None and self._about.search(statement):
            self._api.log.info("debug.statement", sql=" ".join(statement[:_SHOWN_MAX].split()))

    def _request(self, kind: str, uid: int, seconds: float) -> None:
        self._api.log.info("debug.request", kind=kind, uid=uid, milliseconds=round(seconds * 1e3, 3))
