"""Connections between the machines of clients and a server, and what is lost between them.

A `Line` is one connection. What a partition holds back arrives when it heals, unless the client's kernel has given up
by then (`tcp_user_timeout`, keepalives). A client that vanishes without a word leaves its session on the server, with
the locks of its transaction, until the server notices.

The methods under "Faults" are for the world; the others are called by `driver` with the server's lock held.

Source: tcp(7); https://www.postgresql.org/docs/current/libpq-connect.html (tcp_user_timeout, keepalives).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from msgspec import Struct

from spritz_testing.daemons.database import errors
from spritz_testing.daemons.database.runtime import Runtime
from spritz_testing.daemons.database.server import Answer, Request, Server, Session
from spritz_testing.daemons.database.statements import normal


class Loss(Enum):
    """Of the connection, with a statement."""

    #: the statement does not arrive
    BEFORE = "before"
    #: the statement is executed and, outside of a block, committed; its answer does not arrive
    AFTER = "after"


class Chances(Struct):
    """Probability, for each statement, that its connection is lost before it or after it."""

    lost_before: float = 0.0
    lost_after: float = 0.0


class _Planned(Struct, frozen=True, kw_only=True):
    loss: Loss
    host: str
    text: str


class _Held(Struct, kw_only=True, eq=False):
    """What a partition holds back."""

    line: Line
    deliver: Callable[[], None]


class _Link:
    """The way between one machine and the server."""

    def __init__(self) -> None:
        self.to_server = True
        self.to_client = True
        #: counts partitions: what was to happen in an earlier one does not
        self.cuts = 0
        self.held: list[_Held] = []

    @property
    def is_open(self) -> bool:
        return self.to_server and self.to_client


class Line:
    """The client's end of a connection."""

    def __init__(self, network: Network, host: str, silence_seconds: float, runtime: Runtime) -> None:
        self._network = network
        self.host = host
        self.silence_seconds = silence_seconds
        #: set when the client should look again
        self.signal = runtime.signal()
        self.session: Session | None = None
        self.answer: Answer | None = None
        #: an answer has arrived, the first of which says that the connection is open
        self.is_open = False
        #: what the client's next attempt meets
        self.error: errors.Error | None = None
        #: the client has closed its end
        self.left = False
        #: nothing more arrives in either direction
        self.dead = False

    def answered(self, answer: Answer) -> None:
        """See `server.Client`."""
        if answer.request is not None and answer.request.answer_lost:
            self._network.reset(self)
        else:
            self._network.to_client(self, lambda: self._arrive(answer))

    def ended(self, error: errors.Error) -> None:
        """See `server.Client`."""
        self.session = None
        self._network.to_client(self, lambda: self.lose(error))

    def _arrive(self, answer: Answer) -> None:
        self.answer = answer
        self.is_open = True
        self.signal.set()

    def lose(self, error: errors.Error) -> None:
        """The client's kernel finds the connection broken; the first reason counts."""
        self.error = self.error or error
        self.signal.set()


class Network:
    """Open between all machines and the server at first."""

    def __init__(self, server: Server, runtime: Runtime) -> None:
        self._server = server
        self._runtime = runtime
        self._links: dict[str, _Link] = {}
        self._lines: list[Line] = []
        self._planned: list[_Planned] = []
        self.chances = Chances()
        #: called with the machine and the text of each statement that is sent
        self.on_send: list[Callable[[str, str], None]] = []
        #: seconds that a statement takes to the server, and its answer back: at least, at most
        self.latency_seconds = (0.0, 0.0)
        #: how often something happened, by its name
        self.counts: dict[str, int] = {}
        server.agenda.on_new = self._wake

    # Sending

    def connect(self, host: str, silence_seconds: float, timeout_seconds: float) -> Line:
        """Begin to open a connection."""
        line = Line(self, host, silence_seconds, self._runtime)
        self._lines.append(line)
        self._to_server(line, lambda: self._server.accept(line, lambda session: self._opened(line, session)))
        self._server.agenda.at(self._runtime.now() + timeout_seconds, lambda: self._give_up(line))
        return line

    def _opened(self, line: Line, session: Session) -> None:
        line.session = session
        if line.left:
            self._server.hang_up(session)

    def _give_up(self, line: Line) -> None:
        if not line.is_open and not line.left:
            line.lose(errors.ConnectionTimeout("connection timeout expired"))
            self.hang_up(line)

    def send(self, line: Line, request: Request) -> None:
        """Send a statement; what happens to it is drawn, or was planned."""
        if self.on_send:
            text = normal(request.text)
            for told in list(self.on_send):
                told(line.host, text)
        loss = self._loss(line.host, request.text)
        if loss is Loss.BEFORE:
            self.reset(line)
            return
        request.answer_lost = loss is Loss.AFTER
        self._to_server(line, lambda: self._receive(line, request))

    def _receive(self, line: Line, request: Request) -> None:
        if line.session is not None:
            self._server.receive(line.session, request)

    def hang_up(self, line: Line) -> None:
        """The client closes its end. The server hears of it if the way is open before the client's kernel gives up."""
        if line.left:
            return
        line.left = True
        self._lines.remove(line)
        self._to_server(line, lambda: self._leave(line))
        if not self._link(line.host).is_open:
            self._server.agenda.at(self._runtime.now() + line.silence_seconds, lambda: self._vanish(line))

    def _leave(self, line: Line) -> None:
        if line.session is not None:
            self._server.hang_up(line.session)
            line.session = None

    def reset(self, line: Line) -> None:
        """The connection breaks, and both ends hear of it."""
        self._count("connection_lost")
        line.dead = True
        line.lose(errors.connection_lost())
        self._leave(line)

    def _to_server(self, line: Line, deliver: Callable[[], None]) -> None:
        self._send(line, self._link(line.host).to_server, deliver)

    def to_client(self, line: Line, deliver: Callable[[], None]) -> None:
        """Send something from the server."""
        if not line.left:
            self._send(line, self._link(line.host).to_client, deliver)

    def _send(self, line: Line, is_open: bool, deliver: Callable[[], None]) -> None:
        if line.dead:
            return
        if is_open:
            deliver()
        else:
            self._link(line.host).held.append(_Held(line=line, deliver=deliver))

    # Losses

    def _loss(self, host: str, text: str) -> Loss | None:
        for planned in self._planned:
            if planned.host in ("", host) and planned.text in normal(text):
                self._planned.remove(planned)
                self._count(f"lost_{planned.loss.value}")
                return planned.loss
        if not self.chances.lost_before and not self.chances.lost_after:
            return None
        drawn = self._runtime.random.random()
        if drawn < self.chances.lost_before:
            self._count("lost_before")
            return Loss.BEFORE
        if drawn < self.chances.lost_before + self.chances.lost_after:
            self._count("lost_after")
            return Loss.AFTER
        return None

    def _link(self, host: str) -> _Link:
        return self._links.setdefault(host, _Link())

    def _vanish(self, line: Line) -> None:
        """Nothing of this client arrives any more; the server notices it later."""
        if line.dead:
            return
        line.dead = True
        link = self._link(line.host)
        link.held = [held for held in link.held if held.line is not line]
        session, line.session = line.session, None
        if session is not None:
            self._server.agenda.at(
                self._runtime.now() + self._server.notice_seconds, lambda: self._server.forget(session)
            )

    def _time_out(self, line: Line, link: _Link, cuts: int) -> None:
        if link.cuts == cuts and not link.is_open and not line.dead:
            line.lose(errors.OperationalError("consuming input failed: could not receive data: Connection timed out"))
            self._vanish(line)

    def _wake(self) -> None:
        for line in self._lines:
            line.signal.set()

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # Faults

    def partition(self, host: str, *, to_server: bool = True, to_client: bool = True) -> None:
        """Nothing arrives from this machine at the server (`to_server`) or the other way (`to_client`)."""
        with self._server.lock:
            self._server.agenda.settle()
            link = self._link(host)
            link.cuts += 1
            link.to_server, link.to_client = not to_server, not to_client
            cuts = link.cuts
            for line in [line for line in self._lines if line.host == host]:
                moment = self._runtime.now() + line.silence_seconds
                self._server.agenda.at(moment, lambda line=line: self._time_out(line, link, cuts))  # type: ignore[misc]

    def heal(self, host: str) -> None:
        """End the partition: what it held back arrives."""
        with self._server.lock:
            self._server.agenda.settle()
            link = self._link(host)
            link.to_server = link.to_client = True
            held, link.held = link.held, []
            for message in held:
                if not message.line.dead:
                    message.deliver()

    def lose_connections(self, host: str = "") -> None:
        """Reset all connections, or those of one machine, whatever is under way."""
        with self._server.lock:
            self._server.agenda.settle()
            for line in [line for line in self._lines if host in ("", line.host)]:
                self.reset(line)

    def lose_next(self, loss: Loss, *, host: str = "", text: str = "") -> None:
        """Lose the connection with the next statement of this machine that contains this text ("COMMIT" ends a block).

        For a group's commit: `lose_next(Loss.AFTER, text="INSERT INTO groups (")` loses the answer, `Loss.BEFORE` the
        commit.
        """
        with self._server.lock:
            self._planned.append(_Planned(loss=loss, host=host, text=text))

    def process_ended(self, host: str) -> None:
        """The processes of this machine that used the database have ended: its kernel closes their connections."""
        with self._server.lock:
            self._server.agenda.settle()
            for line in [line for line in self._lines if line.host == host]:
                self.hang_up(line)

    def machine_lost(self, host: str) -> None:
        """The machine lost power: the server hears nothing, and notices after its `notice_seconds`."""
        with self._server.lock:
            self._server.agenda.settle()
            for line in [line for line in self._lines if line.host == host]:
                line.left = True
                self._lines.remove(line)
                self._vanish(line)
