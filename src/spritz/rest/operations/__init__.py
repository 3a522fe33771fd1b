"""The operations by key, for all versions. A file for each noun registers its operations on import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from spritz.rest.answers import Answer

if TYPE_CHECKING:
    from spritz.presentation.json.documents import Json, Operation
    from spritz.presentation.json.shape import Convert
    from spritz.rest.callers import Caller
    from spritz.rest.daemons import Daemon, Daemons


class Ask(Struct, kw_only=True):
    """An authenticated and parsed request. `body` and `query` contain only the fields that the caller sent."""

    operation: Operation
    caller: Caller
    daemons: Daemons
    controller: Daemon
    database: Daemon
    path: dict[str, str]
    query: Json = field(default_factory=dict)
    body: Any = None
    #: seconds since the epoch
    now: float = 0.0
    #: If-None-Match, "" without
    unless: str = ""
    #: Idempotency-Key of a submission, "" without
    submit_key: str = ""
    #: (description, source)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    #: by the name of a list in the answer: converters of its members' keys
    record: Callable[[str], dict[str, Convert]]

    def warn(self, text: str, source: str) -> None:
        """Add a warning about a requested action that was not performed."""
        self.warnings.append((text, source))


class Listing(Struct, kw_only=True):
    """A streamed answer. `name`: the list's key; `pieces`: its records, encoded.

    `rest`: the other fields of the body.
    """

    name: str
    pieces: AsyncIterator[list[bytes]]
    rest: Json
    tag: str


class Unchanged(Struct):
    """The caller already has the present state (If-None-Match)."""

    tag: str


Result = Answer | Listing | Unchanged
Handler = Callable[[Ask], Awaitable[Result]]

#: Key of an operation -> its handler.
TABLE: dict[str, Handler] = {}


#: The GETs with an effect, which Slurm's documents have. A HEAD of them is refused.
CHANGING_GETS = frozenset({"GET /slurm/job/{job_id}/requeue", "GET /slurm/reconfigure"})


def operation(*keys: str) -> Callable[[Handler], Handler]:
    """Register a handler for these keys."""

    def register(handler: Handler) -> Handler:
        for key in keys:
            assert key not in TABLE, key
            TABLE[key] = handler
        return handler

    return register


def load() -> dict[str, Handler]:
    """All handlers, by key. Imports the modules that register them."""
    for name in (
        "jobs",
        "job_changes",
        "submit",
        "nodes",
        "partitions",
        "reservations",
        "cluster",
        "accounting_jobs",
        "book",
    ):
        import_module(f"spritz.rest.operations.{name}")
    return TABLE
