"""A user's command: a short-lived process with a thread, and what it enters into the history.

The thread runs production code of the commands (`client.command`, srun's and salloc's allocation and steps) over
simulated sockets (`blocking`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spritz.client.command.sync import Connection, connect_controller
from spritz.client.errors import ClientError, RemoteError
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz_testing.daemons.clients import blocking
from spritz_testing.daemons.history import Outcome
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.machine import USERS
from spritz_testing.daemons.system.world import Process

if TYPE_CHECKING:
    from typing import TypeVar

    from msgspec import Struct

    from spritz_testing.daemons.clients.users import Users
    from spritz_testing.daemons.history import Operation
    from spritz_testing.daemons.system.world import Host

    T = TypeVar("T")

#: Details of an action, by its kind.
Data = dict[str, Any]


class Skipped(Exception):
    """The action names a job that its user does not know."""


class Command:
    """One command: a process with a thread, and the operations that it enters into the history."""

    def __init__(self, users: Users, user: str, kind: str, host: Host) -> None:
        self.users = users
        self.world = users.world
        self.user = user
        self.uid = USERS[user]
        self.kind = kind
        self.process = Process(host, kind, self.uid)
        #: what it has asked
        self.operations: list[Operation] = []
        #: for a signal: set by commands that handle it
        self.on_signal: Callable[[int], None] | None = None

    # Life

    def begin(self, body: Callable[[Command, Data], None], data: Data) -> None:
        threads.Thread(target=lambda: self._run(body, data), name=self.kind).start()

    def _run(self, body: Callable[[Command, Data], None], data: Data) -> None:
        try:
            body(self, data)
        except Skipped:
            self.world.count(f"skipped {self.kind}")
        except SpritzError as error:
            self.world.tell(f"{self.process} {self.user}: {error.code} {error.message}")
        self.world.soon(self.process.end)

    def kill(self) -> None:
        """SIGKILL."""
        if self.process.is_alive:
            self.world.tell(f"{self.process} is killed")
            self.process.end()

    def signal(self, number: int) -> None:
        """A signal that the command may handle; else it ends it."""
        if self.on_signal is None:
            self.kill()
        else:
            handler = self.on_signal
            blocking.interrupt(self.process, lambda: handler(number))

    # Operations

    def called(self, kind: str, *, job_id: int = 0, wanted: Any = None) -> Operation:
        """Enter a request that is being made."""
        self.world.count(f"asked {kind}")
        operation = self.users.history.begin(self.user, self.uid, kind, self.world.now, job_id=job_id, wanted=wanted)
        self.operations.append(operation)
        return operation

    def done(self, operation: Operation, answer: Any = None, *, job_id: int = 0) -> None:
        self._answered(operation, Outcome.DONE, answer)
        operation.job_id = job_id or operation.job_id

    def refused(self, operation: Operation, code: str) -> None:
        """The request was answered, and not carried out."""
        self._answered(operation, Outcome.REFUSED, code)

    def failed(self, operation: Operation, error: SpritzError) -> None:
        """A refusal, or an answer that did not come."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, RemoteError):
            cause = cause.__cause__
        if cause is not None:
            self.refused(operation, error.code)
        else:
            operation.answer = error.code
            self._tell(operation, "answer lost")

    def connected(self, operation: Operation) -> Connection:
        """A connection for it. Without one nothing is sent, which counts as a refusal. Raises ClientError."""
        try:
            return connect_controller()
        except ClientError as error:
            self.refused(operation, error.code)
            raise

    def _answered(self, operation: Operation, outcome: Outcome, answer: Any) -> None:
        operation.answered_at = self.world.now
        operation.outcome = outcome
        operation.answer = answer
        self._tell(operation, outcome.value)

    def _tell(self, operation: Operation, how: str) -> None:
        subject = getattr(operation.wanted, "tag", "") or operation.job_id or ""
        self.world.count(f"{how} {operation.kind}")
        self.world.tell(f"{operation.client} {operation.kind} {subject}: {how} {operation.answer or ''}".rstrip())

    def ask(
        self,
        kind: str,
        request: Struct,
        reply_type: type[T],
        *,
        job_id: int = 0,
        wanted: Any = None,
        verdict: Callable[[T], str] = lambda reply: "",
    ) -> T:
        """Make a request once, as scontrol and scancel do. `verdict`: the code of a refusal that the reply tells.

        Raises ClientError.
        """
        operation = self.called(kind, job_id=job_id, wanted=wanted)
        try:
            with self.connected(operation) as controller:
                reply = controller.call(request, reply_type)
        except ClientError as error:
            if operation.outcome is Outcome.UNKNOWN:
                self.failed(operation, error)
            raise
        if code := verdict(reply):
            self.refused(operation, code)
            return reply
        self.done(operation, None if isinstance(reply, Done) else reply)
        return reply
