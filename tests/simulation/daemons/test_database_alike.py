"""The database of the simulation and a real PostgreSQL give the same answers to the same calls and statements.

Calls are drawn from a seed: of journals and stores, one after another; and of statements of several sessions, whose
transactions wait for each other.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Protocol

import pytest

from spritz.controller.journal import postgresql as journal_postgresql
from spritz.controller.journal.contract import Group, Image, JournalError, content_key
from spritz.controller.journal.postgresql import Lease, PostgresJournal, Store, set_aside
from spritz_testing.daemons.database import Database, FakePsycopg, installed
from tests.conformance import databases

from .database_runtimes import Threads

_SECONDS = 30.0


def _seeds(quick: int, all_of_them: int) -> list[object]:
    """The first few are for every run."""
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(quick, all_of_them)]
    return [*range(quick), *slow]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[databases.Server]:
    if why := databases.reason("postgresql"):
        pytest.skip(why)
    with databases.server("postgresql") as running:
        yield running


class Side(Protocol):
    """One of the two databases."""

    url: str

    def connect(self) -> Any:
        """A connection of psycopg's kind; its statements find the tables of the cluster."""
        ...

    def sessions(self) -> int:
        """How many sessions there are."""
        ...

    def end_sessions(self) -> None: ...

    def pid(self, connection: Any) -> int: ...

    def waits(self) -> dict[int, list[int]]:
        """The sessions that wait, and for which."""
        ...

    def be_read_only(self, value: bool) -> None:
        """From the next transaction on."""
        ...

    def use(self) -> Any:
        """A block in which journals and stores are made for this side."""
        ...


class Real:
    def __init__(self, server: databases.Server) -> None:
        import psycopg

        self.url = server.url()
        self._address = self.url.replace("+psycopg", "")
        self._watch = psycopg.connect(self._address, autocommit=True)

    def connect(self) -> Any:
        import psycopg

        connection = psycopg.connect(self._address, autocommit=True)
        connection.execute("SET deadlock_timeout = '1ms'")
        return connection

    _OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    def sessions(self) -> int:
        row = self._watch.execute(f"SELECT count(*) {self._OTHERS} AND backend_type = 'client backend'").fetchone()
        assert row is not None
        return int(row[0])

    def end_sessions(self) -> None:
        self._watch.execute(f"SELECT pg_terminate_backend(pid) {self._OTHERS}")

    def pid(self, connection: Any) -> int:
        return int(connection.info.backend_pid)

    def waits(self) -> dict[int, list[int]]:
        rows = self._watch.execute(f"SELECT pid, pg_blocking_pids(pid) {self._OTHERS}").fetchall()
        return {pid: blockers for pid, blockers in rows if blockers}

    def be_read_only(self, value: bool) -> None:
        self._watch.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if value else 'off'}")
        self._watch.execute("SELECT pg_reload_conf()")
        with self.connect() as probe:
            until(lambda: probe.execute("SHOW default_transaction_read_only").fetchone() == ("on" if value else "off",))

    @contextmanager
    def use(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        self._watch.close()


class Simulated:
    def __init__(self) -> None:
        self.url = "postgresql+psycopg://spritz@db/journal"
        self.database = Database(Threads())
        self._driver = FakePsycopg({"db": self.database})

    def connect(self) -> Any:
        return self._driver.connect("host=db dbname=journal", autocommit=True)

    def sessions(self) -> int:
        return len(self.database.server.sessions)

    def end_sessions(self) -> None:
        self.database.server.end_sessions()

    def pid(self, connection: Any) -> int:
        return int(connection._line.session.pid)

    def waits(self) -> dict[int, list[int]]:
        sessions = self.database.server.sessions.values()
        return {
            waiting.pid: [each.pid for each in sessions if each.transaction is waiting.blocked.holder]
            for waiting in sessions
            if waiting.blocked is not None
        }

    def be_read_only(self, value: bool) -> None:
        self.database.server.read_only = value

    def use(self) -> Any:
        return installed(self._driver)


@pytest.fixture
def sides(postgresql: databases.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Side, Side]]:
    monkeypatch.setattr(journal_postgresql, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(journal_postgresql, "_PAGE_GROUPS", 3)
    monkeypatch.setattr(journal_postgresql, "_PART_BYTES", 4)
    real, simulated = Real(postgresql), Simulated()
    yield real, simulated
    real.close()
    assert not simulated.database.server.unknown


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# Journals and stores


class Controllers:
    """Journals and stores on one side, and what they are told to do. Every call returns what can be compared."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._open: dict[str, PostgresJournal] = {}
        with side.use():
            self._store = Store(side.url, "cluster", patience_seconds=0.5)
        self._seen: Lease | None = None

    def do(self, name: str, holder: str, number: int) -> object:
        """The result, or the error."""
        try:
            return getattr(self, name)(holder, number)
        except JournalError as error:
            return type(error).__name__, re.sub(r"postgresql\+psycopg://\S*?(?=[:\s]|$)", "DB", error.message)
        except KeyError:
            return "not open"

    def look(self, holder: str, number: int) -> object:
        self._seen = self._store.prepared_lease()
        return self._seen, self._store.checksum(number), self._store.kept("leader.json")

    def open(self, holder: str, number: int) -> object:
        if holder in self._open:
            return "open"
        seen = self._seen if number % 2 else None
        with self._side.use():
            journal = PostgresJournal(
                self._side.url, "cluster", holder=holder, lease_seconds=0.5, seen=seen, forced=number % 4 == 1
            )
        self._open[holder] = journal
        return journal.term, journal.last_sequence, journal.oldest_sequence

    def close(self, holder: str, number: int) -> object:
        self._open.pop(holder).close()
        return None

    def append(self, holder: str, number: int) -> object:
        journal = self._open[holder]
        first = journal.last_sequence + 1
        payload = b"%d of %s" % (number, holder.encode())
        blobs = {content_key(b"%d" % each): b"%d" % each for each in range(number % 3)}
        journal.append(Group(first=first, last=first + number % 4, at=float(number), payload=payload), blobs)
        return journal.last_sequence

    def beat(self, holder: str, number: int) -> object:
        return self._open[holder].beat()

    def raise_term(self, holder: str, number: int) -> object:
        journal = self._open[holder]
        journal.raise_term(journal.term + number - 4)
        return journal.term

    def read(self, holder: str, number: int) -> object:
        journal = self._open[holder]
        return list(journal.groups(number)), list(journal.images()), sorted(journal.blob_sizes().items())

    def remove(self, holder: str, number: int) -> object:
        self._open[holder].remove_blobs({content_key(b"%d" % number), "none"})
        return self._open[holder].blob(content_key(b"0"))

    def image(self, holder: str, number: int) -> object:
        journal = self._open[holder]
        journal.write_image(Image(sequence=max(0, journal.last_sequence - number % 2), payload=b"state" * number))
        return None

    def prune(self, holder: str, number: int) -> object:
        journal = self._open[holder]
        journal.prune(journal.last_sequence - number)
        return journal.oldest_sequence

    def keep(self, holder: str, number: int) -> object:
        self._open[holder].keep("leader.json", b"%d" % number)
        return self._open[holder].kept("leader.json")

    def set_aside(self, holder: str, number: int) -> object:
        return set_aside(self._store) if number == 0 else None

    def end_sessions(self, holder: str, number: int) -> object:
        self._side.end_sessions()
        return None

    def end(self) -> None:
        for journal in self._open.values():
            for each in (journal._writer, journal._reader, journal._beats, journal._images):
                each.drop()
        self._store.drop()


_CALLS = {
    "look": 3,
    "open": 3,
    "close": 1,
    "append": 8,
    "beat": 3,
    "raise_term": 1,
    "read": 3,
    "remove": 1,
    "image": 2,
    "prune": 2,
    "keep": 1,
    "set_aside": 1,
    "end_sessions": 1,
}


def _drawn(seed: int, length: int) -> Iterator[tuple[str, str, int]]:
    random = Random(seed)
    yield "look", "ctl1", 0
    for name in random.choices(list(_CALLS), list(_CALLS.values()), k=length):
        yield name, random.choice(["ctl1", "ctl2", "ctl3"]), random.randrange(8)


@pytest.mark.parametrize("seed", _seeds(4, 80))
def test_journals_and_stores_are_answered_alike(sides: tuple[Side, Side], seed: int) -> None:
    controllers = [Controllers(side) for side in sides]
    done: list[object] = []
    with ExitStack() as ends:
        for each in controllers:
            ends.callback(each.end)
        for call in _drawn(seed, 80):
            real, simulated = (each.do(*call) for each in controllers)
            done.append((call, real))
            assert simulated == real, done
            until(lambda: sides[0].sessions() == sides[1].sessions())


# Statements of several sessions


class Sessions:
    """Connections of one side, each with a thread, since statements wait for each other."""

    def __init__(self, side: Side, count: int) -> None:
        self._side = side
        self.connections = [side.connect() for _ in range(count)]
        self._pids = [side.pid(connection) for connection in self.connections]
        self._threads = [ThreadPoolExecutor(1) for _ in self.connections]
        self.pending: dict[int, Future[object]] = {}

    def execute(self, index: int, text: str, parameters: list[object]) -> None:
        """Begin a statement."""
        connection = self.connections[index]

        def work() -> object:
            try:
                if text in ("BEGIN", "COMMIT", "ROLLBACK"):
                    _end_of_block(connection, text)
                    return text
                cursor = connection.execute(text, parameters)
                return cursor.rowcount, cursor.fetchall() if text.startswith("SELECT") else []
            except Exception as error:
                return type(error).__name__, getattr(error, "sqlstate", "")

        self.pending[index] = self._threads[index].submit(work)

    def settled(self) -> dict[int, object]:
        """The answers that have come, by session, when all others wait for each other."""
        until(self._is_settled)
        if isinstance(self._side, Real):  # one that was woken may not have gone on yet
            time.sleep(0.003)
            until(self._is_settled)
        answers = {index: future.result() for index, future in self.pending.items() if future.done()}
        for index in answers:
            del self.pending[index]
        return answers

    def _is_settled(self) -> bool:
        """Whether all that have no answer wait for others, and not in a circle that is about to be broken."""
        working = [self._pids[index] for index, future in self.pending.items() if not future.done()]
        waits = self._side.waits() if working else {}
        return all(pid in waits and not _is_in_a_circle(pid, waits) for pid in working)

    def close(self) -> None:
        self._side.end_sessions()
        for thread in self._threads:
            thread.shutdown()
        for connection in self.connections:
            connection.close()


def _is_in_a_circle(pid: int, waits: dict[int, list[int]]) -> bool:
    """Whether the sessions that this one waits for wait for it."""
    seen: set[int] = set()
    ahead = list(waits[pid])
    while ahead:
        other = ahead.pop()
        if other not in seen:
            seen.add(other)
            ahead += waits.get(other, [])
    return pid in seen


def _end_of_block(connection: Any, text: str) -> None:
    """psycopg's `transaction()` says the same to the server; here the words must come one by one."""
    if hasattr(connection, "ask"):
        connection.ask(text)
    else:
        connection.execute(text.encode())


def _statement(random: Random) -> tuple[str, list[object]]:
    term, last, name = random.choice([1, 1, 1, 2]), random.randrange(1, 4), random.choice(["a", "b"])
    row: list[object] = [last, last, 1.5, random.randrange(3), b"x"]
    statements: list[tuple[str, list[object]]] = [
        (journal_postgresql._HOLD, ["90001", term]),
        (journal_postgresql._HOLD, ["90001", term]),
        ("UPDATE meta SET beat = beat + 1 WHERE term = %s", [term]),
        ("UPDATE meta SET term = %s WHERE term = %s", [random.choice([1, 2]), term]),
        ("UPDATE meta SET holder = '', address = '', pid = 0 WHERE term = %s", [term]),
        (journal_postgresql._APPEND, [term, *row]),
        (journal_postgresql._APPEND, [term, *row]),
        (journal_postgresql._APPEND_BLOBS, [term, [name, "c"], [b"1", b"2"], *row]),
        ("SELECT first, checksum FROM groups WHERE last = %s", [last]),
        ("SELECT coalesce((SELECT first FROM groups ORDER BY last LIMIT 1), 0)", []),
        (
            "SELECT first, last, at, checksum, payload FROM groups WHERE last > %s AND last <= %s"
            " ORDER BY last LIMIT %s",
            [0, 3, 2],
        ),
        ("DELETE FROM groups WHERE last <= %s", [last]),
        ("DELETE FROM blobs WHERE key = ANY(%s)", [[name, "none"]]),
        ("SELECT body FROM blobs WHERE key = %s", [name]),
        ("INSERT INTO images VALUES (%s, %s, %s, %s, %b)", [last, 0, 1, 1, b"i"]),
        ("DELETE FROM images WHERE sequence = %s", [last]),
        ("DELETE FROM images WHERE sequence < %s", [last]),
        ("SELECT DISTINCT sequence FROM images ORDER BY sequence DESC", []),
        ("INSERT INTO kept VALUES (%s, %b) ON CONFLICT (name) DO UPDATE SET body = excluded.body", [name, b"k"]),
        ("SELECT body FROM kept WHERE name = %s", [name]),
        ("SELECT pg_advisory_xact_lock(hashtext(%s))", [name]),
        ("SELECT layout FROM meta", []),
        (
            f"SELECT term, beat, holder, address, {journal_postgresql._ALIVE},"
            " coalesce((SELECT last FROM groups ORDER BY last DESC LIMIT 1), base), layout FROM meta",
            [],
        ),
    ]
    return random.choice(statements)


_CONFIGURE = (
    "SELECT set_config('search_path', %s, false), set_config('synchronous_commit', 'on', false),"
    " set_config('idle_in_transaction_session_timeout', %s, false)"
)


@contextmanager
def _both(sides: tuple[Side, Side], count: int) -> Iterator[tuple[Sessions, Sessions]]:
    """Sessions on both sides, whose tables are empty and whose term is 1."""
    for side in sides:
        with side.use():
            made = Store(side.url, "cluster", patience_seconds=0.0)
        made.prepare()
        made.run(lambda database: database.execute(journal_postgresql._RAISE, (1, 0)))
        made.drop()
    both = Sessions(sides[0], count), Sessions(sides[1], count)
    try:
        for sessions in both:
            for connection in sessions.connections:
                connection.execute(_CONFIGURE, ["spritz_cluster", "0"])
        yield both
    finally:
        for sessions in both:
            sessions.close()


@pytest.mark.parametrize("seed", _seeds(8, 200))
def test_transactions_that_wait_for_each_other_are_answered_alike(sides: tuple[Side, Side], seed: int) -> None:
    random = Random(seed)
    with _both(sides, 4) as (real, simulated):
        blocks = [False] * 4
        done: list[object] = []
        for _ in range(120):
            free = [index for index in range(4) if index not in real.pending]
            if not free:
                break
            index = random.choice(free)
            if random.random() < 0.3:
                text = random.choice(["COMMIT", "ROLLBACK"]) if blocks[index] else "BEGIN"
                blocks[index] = not blocks[index]
                parameters: list[object] = []
            else:
                text, parameters = _statement(random)
            several_wait = len(real.pending) > 1
            for sessions in (real, simulated):
                sessions.execute(index, text, parameters)
            answers = real.settled(), simulated.settled()
            done.append((index, " ".join(text.split()), parameters, answers[0]))
            if several_wait and answers[1] != answers[0] and len(answers[0]) > 1:
                break  # which of several that waited goes on first may be chance
            assert answers[1] == answers[0], "\n".join(map(str, done))


def test_a_read_only_server_refuses_the_same_statements(sides: tuple[Side, Side]) -> None:
    random = Random(1)
    with _both(sides, 1) as both:
        for side in sides:
            side.be_read_only(True)
        try:
            for _ in range(150):
                text, parameters = _statement(random)
                for sessions in both:
                    sessions.execute(0, text, parameters)
                real, simulated = (sessions.settled() for sessions in both)
                assert simulated == real, text
        finally:
            for side in sides:
                side.be_read_only(False)
