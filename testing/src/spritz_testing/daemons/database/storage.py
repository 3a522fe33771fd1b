"""Schemas, tables and rows of a server, as transactions of the level READ COMMITTED see and change them.

A transaction keeps its changes to itself until its commit, and its locks until its end. A lock that another transaction
holds raises `Blocked`: the statement is then evaluated from its beginning when that transaction has ended. PostgreSQL
checks the locked row again and keeps the snapshot for the others; the journal's statements read nothing else that
could have changed meanwhile.

Commits are remembered for a time, so that a replica which had not received the last of them can be promoted.

Source: https://www.postgresql.org/docs/current/transaction-iso.html, explicit-locking.html (conflicts of row locks).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Hashable, Sequence
from enum import IntEnum
from typing import Any

from spritz_testing.daemons.database import errors

#: Commits that a replica may lack.
_COMMITS_KEPT = 2000


class Mode(IntEnum):
    """Of a lock: any number of transactions share it, or a single one has it."""

    SHARE = 1
    EXCLUSIVE = 2


class Blocked(Exception):
    """A lock is held by another transaction, which must end first: of several that share it, the one that began first,
    as PostgreSQL waits for one after another.
    """

    def __init__(self, what: Hashable, mode: Mode, holder: Transaction) -> None:
        super().__init__("a lock is held")
        self.what = what
        self.mode = mode
        self.holder = holder

    def is_ahead_of(self, other: Blocked) -> bool:
        """Whether one that began to wait later must let this one pass."""
        return self.what == other.what and max(self.mode, other.mode) is Mode.EXCLUSIVE


class Table:
    """Committed rows by key, and the keys in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: dict[Any, Any] = {}
        self.keys: list[Any] = []

    def put(self, key: Any, row: Any) -> None:
        """Insert, replace, or remove (None) a row."""
        if row is None:
            if key in self.rows:
                del self.rows[key]
                del self.keys[bisect_left(self.keys, key)]
            return
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = row


class Schema:
    """Tables by name. Not changed once committed: a change of layout replaces it, with the same tables."""

    def __init__(self, tables: dict[str, Table]) -> None:
        self.tables = tables


class Transaction:
    """What one transaction sees. `Storage` begins and ends it."""

    def __init__(self, storage: Storage, *, read_only: bool) -> None:
        self.storage = storage
        self.read_only = read_only
        self.changes: dict[Table, dict[Any, Any]] = {}
        self.schemas: dict[str, Schema | None] = {}
        self.locks: dict[Hashable, Mode] = {}
        #: idle_in_transaction_session_timeout of this transaction, if it has one of its own
        self.idle_seconds: float | None = None
        #: given with the first lock
        self.number = 0

    def schema(self, name: str) -> Schema | None:
        """The schema of this name; None if there is none."""
        return self.schemas[name] if name in self.schemas else self.storage.schemas.get(name)

    def table(self, schema: str, name: str) -> Table:
        """Raises UndefinedTable."""
        found = self.schema(schema)
        if found is None or name not in found.tables:
            raise errors.UndefinedTable(f'relation "{name}" does not exist')
        return found.tables[name]

    def row(self, table: Table, key: Any) -> Any:
        """The row of this key; None if there is none."""
        changes = self.changes.get(table)
        return changes[key] if changes and key in changes else table.rows.get(key)

    def keys(self, table: Table) -> Sequence[Any]:
        """Keys in order. Not to be kept beyond the statement."""
        changes = self.changes.get(table)
        if not changes:
            return table.keys
        gone = {key for key, row in changes.items() if row is None}
        return sorted((table.rows.keys() | changes.keys()) - gone)

    def keys_after(self, table: Table, key: Any, count: int) -> Sequence[Any]:
        """The first `count` keys that are larger than this one."""
        keys = self.keys(table)
        start = bisect_right(keys, key)
        return keys[start : start + count]

    def wait_for(self, what: Hashable, mode: Mode) -> None:
        """Raises Blocked if another transaction holds a lock that excludes one of this mode."""
        holders = self.storage.locks.get(what, {})
        others = [one for one, held in holders.items() if one is not self and max(held, mode) is Mode.EXCLUSIVE]
        if others:
            raise Blocked(what, mode, min(others, key=lambda one: one.number))

    def lock(self, what: Hashable, mode: Mode) -> None:
        """Hold a lock until the end. Raises Blocked."""
        self.wait_for(what, mode)
        if not self.number:
            self.storage.numbers += 1
            self.number = self.storage.numbers
        holders = self.storage.locks.setdefault(what, {})
        self.locks[what] = holders[self] = max(mode, holders.get(self, mode))

    def put(self, table: Table, key: Any, row: Any) -> None:
        """Insert or replace a row, or remove it (None). Raises Blocked while another transaction changes that key."""
        self.lock((table, key), Mode.EXCLUSIVE)
        self.changes.setdefault(table, {})[key] = row

    def lock_schema(self, name: str) -> None:
        """Wait for others that create or rename a schema of this name. Raises Blocked."""
        self.lock(("schema", name), Mode.EXCLUSIVE)

    def put_schema(self, name: str, schema: Schema | None) -> None:
        """Create, replace or remove a schema. Raises Blocked."""
        self.lock_schema(name)
        self.schemas[name] = schema


class _Commit:
    """What must be put back to undo a commit."""

    def __init__(self) -> None:
        self.rows: list[tuple[Table, Any, Any]] = []
        self.schemas: list[tuple[str, Schema | None]] = []
        self.adds_group = False


class Storage:
    """What is committed, and the locks of the transactions that are open."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self.locks: dict[Hashable, dict[Transaction, Mode]] = {}
        self.numbers = 0
        self._commits: deque[_Commit] = deque(maxlen=_COMMITS_KEPT)

    def commit(self, transaction: Transaction) -> None:
        """Make the changes durable, and give back the locks."""
        done = _Commit()
        for table, changes in transaction.changes.items():
            for key, row in changes.items():
                done.adds_group |= table.name == "groups" and row is not None
                done.rows.append((table, key, table.rows.get(key)))
                table.put(key, row)
        for name, schema in transaction.schemas.items():
            done.schemas.append((name, self.schemas.get(name)))
            self._put_schema(name, schema)
        if done.rows or done.schemas:
            self._commits.append(done)
        self.roll_back(transaction)

    def roll_back(self, transaction: Transaction) -> None:
        """Forget the changes, and give back the locks."""
        for what in transaction.locks:
            holders = self.locks[what]
            del holders[transaction]
            if not holders:
                del self.locks[what]
        transaction.locks.clear()
        transaction.changes.clear()
        transaction.schemas.clear()

    def lose(self, *, groups: int, commits: int) -> int:
        """Undo the last commits: this many, and more until so many groups are gone. Returns how many were undone."""
        undone = 0
        while self._commits and (undone < commits or groups > 0):
            last = self._commits.pop()
            groups -= last.adds_group
            undone += 1
            for table, key, row in reversed(last.rows):
                table.put(key, row)
            for name, schema in reversed(last.schemas):
                self._put_schema(name, schema)
        return undone

    def _put_schema(self, name: str, schema: Schema | None) -> None:
        if schema is None:
            self.schemas.pop(name, None)
        else:
            self.schemas[name] = schema
