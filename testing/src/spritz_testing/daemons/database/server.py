"""A PostgreSQL server: its sessions, the order of their work, and what can happen to it.

A statement is executed in one instant, when it arrives or when the locks that it waits for are given back. It is
executed to its end even if its client is gone, as PostgreSQL does: a client that cut its connection does not take back
what it sent.

The methods without an underscore are called with `lock` held by `network` and `driver`; those under "Faults" take it
themselves.

Source: https://www.postgresql.org/docs/current/protocol-flow.html, server-shutdown.html, warm-standby-failover.html.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from threading import RLock
from typing import Any, Protocol

from msgspec import Struct

from spritz_testing.daemons.database import errors
from spritz_testing.daemons.database.runtime import Runtime
from spritz_testing.daemons.database.statements import Result, Work, execute, normal
from spritz_testing.daemons.database.storage import Blocked, Storage, Transaction

#: Seconds until the server notices that the machine of an idle session has vanished: tcp_keepalives_idle of Linux.
NOTICE_SECONDS = 7200.0


class Request(Struct, kw_only=True, eq=False):
    """A statement on its way. `answer_lost`: the connection breaks when it has been executed."""

    text: str
    parameters: Sequence[Any] | Mapping[str, Any] = ()
    answer_lost: bool = False


class Answer(Struct, kw_only=True, eq=False):
    """`request`: None for a new connection. One of `result` and `error` is there."""

    request: Request | None
    result: Result | None = None
    error: Exception | None = None


class Client(Protocol):
    """The server's view of a connection. Called with the server's lock held; must not call the server."""

    def answered(self, answer: Answer) -> None: ...

    def ended(self, error: errors.Error) -> None:
        """The server has ended the connection; the error is what the client's next attempt meets."""
        ...


class Agenda:
    """What happens by itself at a later moment, unless it is superseded."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        #: called when there is something new to wait for
        self.on_new: Callable[[], None] = lambda: None

    def at(self, moment: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (moment, self._number, action))
        self.on_new()

    def settle(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= self._now():
            heapq.heappop(self._due)[2]()

    def seconds_left(self) -> float | None:
        """Until the next action; None if there is none."""
        return max(0.0, self._due[0][0] - self._now()) if self._due else None


class Session:
    """A server process: what pg_stat_activity has a row for."""

    def __init__(self, server: Server, pid: int, started: float, client: Client) -> None:
        self._server = server
        self.pid = pid
        self.started = started
        self.client = client
        self.schema = "public"
        #: until a silent client's transaction is ended; 0: never
        self.idle_seconds = 0.0
        #: statements executed
        self.executed = 0
        self.requests: deque[Request] = deque()
        #: its client is gone: it ends after what it has received
        self.leaves = False
        self.transaction: Transaction | None = None
        #: between BEGIN and COMMIT or ROLLBACK
        self.in_block = False
        #: the block has met an error
        self.failed = False
        #: what it waits for
        self.blocked: Blocked | None = None
        #: see `statements.Surroundings`
        self.memory: dict[str, Any] = {}

    def has_waited_for(self, what: Hashable) -> bool:
        """See `statements.Surroundings`."""
        return self.blocked is not None and self.blocked.what == what

    def exists(self, pid: int, started: float) -> bool:
        """See `statements.Surroundings`."""
        found = self._server.sessions.get(pid)
        return found is not None and found.started == started

    def take_space(self) -> None:
        """See `statements.Surroundings`."""
        if self._server.full_for > 0:
            self._server.full_for -= 1
            raise errors.DiskFull('could not extend file "base/16384/16390": No space left on device')

    def set_schema(self, name: str) -> None:
        """See `statements.Surroundings`."""
        self.schema = name

    def set_idle_seconds(self, seconds: float) -> None:
        """See `statements.Surroundings`."""
        self.idle_seconds = seconds


class Server:
    """Running, and empty, at first."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.lock = RLock()
        self.agenda = Agenda(runtime.now)
        self.storage = Storage()
        self.sessions: dict[int, Session] = {}
        self.notice_seconds = NOTICE_SECONDS
        self.runs = True
        self.frozen = False
        #: so many of the next insertions fail as on a full disk; `math.inf`: all, until it is 0 again
        self.full_for = 0.0
        #: as default_transaction_read_only, from the next transaction on
        self.read_only = False
        self.sessions_max: int | None = None
        #: statements that nobody has taught it; a simulation fails if there is one
        self.unknown: list[str] = []
        self._pids = 1000
        self._arrivals: deque[Callable[[], None]] = deque()
        self._waiting: list[Session] = []

    # Connections

    def accept(self, client: Client, opened: Callable[[Session], None]) -> None:
        """A connection arrives; `opened` gets its session, unless it is refused or the client has left."""
        if not self.runs:
            client.ended(errors.OperationalError("connection failed: Connection refused"))
        elif self.frozen:
            self._arrivals.append(lambda: self._open(client, opened))
        else:
            self._open(client, opened)

    def _open(self, client: Client, opened: Callable[[Session], None]) -> None:
        if self.sessions_max is not None and len(self.sessions) >= self.sessions_max:
            client.ended(errors.OperationalError("connection failed: FATAL:  sorry, too many clients already"))
            return
        self._pids += 1
        session = Session(self, self._pids, self._runtime.now(), client)
        self.sessions[session.pid] = session
        opened(session)
        client.answered(Answer(request=None, result=Result()))

    def receive(self, session: Session, request: Request) -> None:
        """A statement arrives."""
        session.requests.append(request)
        self._work_on(session)

    def hang_up(self, session: Session) -> None:
        """The end of a client's side arrives."""
        session.leaves = True
        self._work_on(session)

    def forget(self, session: Session) -> None:
        """End a session whatever it does: its client has been found to be gone."""
        if self.frozen:
            self._arrivals.append(lambda: self.forget(session))
        elif self.sessions.get(session.pid) is session:
            self._end(session)
            self._retry()

    # Work

    def _work_on(self, session: Session) -> None:
        if self.frozen or session in self._waiting:
            return
        moved = False
        while session.pid in self.sessions and session.requests and self._step(session):
            moved = True
        if session.leaves and not session.requests and session.pid in self.sessions:
            self._end(session)
            moved = True
        if moved:
            self._retry()

    def _step(self, session: Session) -> bool:
        """Execute the session's next statement; False if it waits for a lock."""
        request = session.requests[0]
        try:
            answer = Answer(request=request, result=self._perform(session, request))
        except Blocked as blocked:
            session.blocked = blocked
            if not self._is_waited_for_by_itself(session):
                if session not in self._waiting:
                    self._waiting.append(session)
                return False
            answer = Answer(request=request, error=errors.DeadlockDetected("deadlock detected"))
            self._abort(session)
        except (errors.Error, errors.UnknownStatement) as error:
            if isinstance(error, errors.UnknownStatement):
                self.unknown.append(normal(request.text))
            self._abort(session)
            answer = Answer(request=request, error=error)
        session.blocked = None
        session.memory.clear()
        session.requests.popleft()
        session.executed += 1
        if session.in_block:
            self._await_next(session)
        session.client.answered(answer)
        return True

    def _perform(self, session: Session, request: Request) -> Result:
        if request.text in _BLOCK:
            _BLOCK[request.text](self, session)
            return Result()
        if session.failed:
            raise errors.InFailedSqlTransaction(
                "current transaction is aborted, commands ignored until end of transaction block"
            )
        if session.transaction is None:
            session.transaction = Transaction(self.storage, read_only=self.read_only)
        result = execute(Work(session.transaction, session.schema, session), request.text, request.parameters)
        if not session.in_block:
            self._commit(session)
        return result

    def _begin(self, session: Session) -> None:
        assert not session.in_block, "a transaction inside another one, which would need a savepoint"
        session.in_block, session.failed = True, False
        session.transaction = Transaction(self.storage, read_only=self.read_only)

    def _commit(self, session: Session) -> None:
        if session.transaction is not None:
            self.storage.commit(session.transaction)
        session.transaction, session.in_block, session.failed = None, False, False

    def _roll_back(self, session: Session) -> None:
        self._abort(session)
        session.in_block = session.failed = False

    def _abort(self, session: Session) -> None:
        """Undo the transaction; in a block, what follows is refused until its end."""
        if session.transaction is not None:
            self.storage.roll_back(session.transaction)
        session.transaction, session.failed = None, session.in_block

    def _await_next(self, session: Session) -> None:
        """End the session if its client says nothing more for too long."""
        own = session.transaction.idle_seconds if session.transaction is not None else None
        seconds = session.idle_seconds if own is None else own
        executed = session.executed

        def end() -> None:
            if self.frozen:
                self._arrivals.append(end)
            elif session.executed == executed and not session.requests and session.pid in self.sessions:
                self.forget(session)
                session.client.ended(
                    errors.IdleInTransactionSessionTimeout("terminating connection due to idle-in-transaction timeout")
                )

        if seconds:
            self.agenda.at(self._runtime.now() + seconds, end)

    def _retry(self) -> None:
        """Go on with the sessions whose locks may have been given back, in the order in which they came."""
        for session in list(self._waiting):
            if session not in self._waiting:
                continue
            place = self._waiting.index(session)
            if any(_is_ahead(other, session) for other in self._waiting[:place]):
                continue
            del self._waiting[place]
            self._work_on(session)
            if session in self._waiting:
                self._waiting.remove(session)
                self._waiting.insert(place, session)

    def _is_waited_for_by_itself(self, session: Session) -> bool:
        """Whether sessions wait for each other in a circle."""
        owners = {other.transaction: other for other in self.sessions.values() if other.transaction is not None}
        seen: list[Session] = []
        other: Session | None = session
        while other is not None and other.blocked is not None and other not in seen:
            seen.append(other)
            other = owners.get(other.blocked.holder)
        return other is session

    def _end(self, session: Session) -> None:
        """Of the session; its transaction is undone."""
        self._abort(session)
        session.requests.clear()
        del self.sessions[session.pid]
        if session in self._waiting:
            self._waiting.remove(session)

    def _end_all(self, error: Callable[[], errors.Error]) -> None:
        self._arrivals.clear()
        sessions = list(self.sessions.values())
        for session in sessions:
            self._end(session)
        for session in sessions:
            session.client.ended(error())

    # Faults

    def stop(self) -> None:
        """A fast shutdown: sessions are told and ended, new ones are refused until `start`."""
        with self.lock:
            self.agenda.settle()
            self.runs = self.frozen = False
            self._end_all(_shut_down)

    def crash(self) -> None:
        """Sessions end without a word, open transactions vanish, what is committed stays. Refuses until `start`."""
        with self.lock:
            self.agenda.settle()
            self.runs = self.frozen = False
            self._end_all(errors.connection_lost)

    def start(self) -> None:
        """After `stop` or `crash`."""
        with self.lock:
            self.runs = True

    def end_sessions(self) -> None:
        """As pg_terminate_backend does for each session."""
        with self.lock:
            self.agenda.settle()
            self._end_all(_shut_down)

    def freeze(self) -> None:
        """Nothing is executed, accepted or noticed until `thaw`; connections stay."""
        with self.lock:
            self.agenda.settle()
            self.frozen = True

    def thaw(self) -> None:
        """Go on with all that was received meanwhile, the sessions in a drawn order."""
        with self.lock:
            self.frozen = False
            arrivals, self._arrivals = self._arrivals, deque()
            sessions = list(self.sessions.values())
            self._runtime.random.shuffle(sessions)
            for session in sessions:
                self._work_on(session)
            for arrival in arrivals:
                arrival()

    def fail_over(self, *, lost_groups: int = 0, lost_commits: int = 0) -> int:
        """A replica takes the server's place, without the last commits that were acknowledged: without this many, and
        without more until so many groups are gone. Returns how many commits were lost.
        """
        with self.lock:
            self.crash()
            lost = self.storage.lose(groups=lost_groups, commits=lost_commits)
            self.start()
            return lost


def _is_ahead(one: Session, other: Session) -> bool:
    """Whether one in the queue of a lock lets this later one wait; not if that shares the lock already."""
    assert one.blocked is not None
    assert other.blocked is not None
    shares = other.transaction is not None and other.blocked.what in other.transaction.locks
    return not shares and one.blocked.is_ahead_of(other.blocked)


def _shut_down() -> errors.Error:
    return errors.AdminShutdown("terminating connection due to administrator command")


_BLOCK: dict[str, Callable[[Server, Session], None]] = {
    "BEGIN": Server._begin,
    "COMMIT": Server._commit,
    "ROLLBACK": Server._roll_back,
}
