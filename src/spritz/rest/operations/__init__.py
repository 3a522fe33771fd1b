"""What each operation does, under its key, for all versions. A file for each noun registers its own on import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from spritz.rest.answers import Answer, Fault

if TYPE_CHECKING:
    from spritz.presentation.json.documents import Json, Operation
    from spritz.presentation.json.shape import Convert
    from spritz.rest.callers import Caller
    from spritz.rest.daemons import Daemon, Daemons


class Ask(Struct, kw_only=True):
    """One request, authenticated and read. `body` and `query` hold only the given fields."""

    operation: Operation
    caller: Caller
    daemons: Daemons
    controller: Daemon
    database: Daemon
    path: dict[str, str]
    query: Json = field(default_factory=dict)
    body: Any = None
    #: epoch seconds
    now: float = 0.0
    #: If-None-Match; "" without
    unless: str = ""
    #: Idempotency-Key of a submission; "" without
    submit_key: str = ""
    #: (description, source)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    #: what shapes each key of the members of a list in the answer, by the list's name
    record: Callable[[str], dict[str, Convert]]

    def warn(self, text: str, source: str) -> None:
        """Add a warning about a requested action that is not done."""
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
    """The caller has the present state already."""

    tag: str


Result = Answer | Listing | Unchanged
Handler = Callable[[Ask], Awaitable[Result]]

#: key -> what it does
TABLE: dict[str, Handler] = {}


def operation(*keys: str) -> Callable[[Handler], Handler]:
    """Register what operations do."""

    def register(handler: Handler) -> Handler:
        for key in keys:
            assert key not in TABLE, key
            TABLE[key] = handler
        return handler

    return register


class Refused(Exception):
    """The operation ends with an error; `body` is what of the answer there is all the same."""

    def __init__(self, code: str, description: str = "", source: str = "", *, body: Json | None = None) -> None:
        super().__init__(description or code)
        self.code = code
        self.fault = Fault(code=code, description=description, source=source)
        self.body = body or {}


def load() -> dict[str, Handler]:
    """The whole table."""
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
