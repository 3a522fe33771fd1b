"""Connections to slurmdbd for commands, with Slurm's messages where slurmdbd is away.

A slurmdbd may die, or be started again, in the middle of a command. Reads are then repeated once, at the slurmdbd that
answers next. Changes are not: the command reports that the outcome is unknown.

Source: slurm.conf(5) MessageTimeout, AccountingStorageBackupHost.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.client.command.sync import (
    HOST_SECONDS,
    RELAY_START_SECONDS,
    TAKE_OVER_SECONDS,
    connect_address,
    is_member,
    retry_pause,
)
from spritz.client.errors import ClientError, ConnectionLost, RemoteHost
from spritz.client.locate import locate_database

#: Seconds that a slurmdbd of this machine is given to answer: it may be starting, and `spritz up` does not wait for it.
START_SECONDS = 3.0

_RETRY_SECONDS = 0.05

#: Requests that change nothing; names, as importing the types takes longer than a short command.
READS = frozenset(
    {
        *("AskHistory", "AskJobSizes", "AskReservations", "AskUsage", "GetBook", "GetCallStatistics"),
        *("GetDatabaseConfiguration", "GetDocuments", "Ping", "RehearseEdit", "SelectEvents", "SelectJobs"),
    }
)

#: How to see whether a change was made, by the name of its request.
_LOOK = {
    "EditBook": "`sacctmgr show transactions` lists the changes",
    "FixRunaway": "`sacctmgr show runawayjobs` lists those left",
    "ModifyJobs": "`sacct -j JOB -o jobid,comment,admincomment,systemcomment,extra,derivedexitcode,wckey` shows it",
}

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self, TypeVar

    from msgspec import Struct

    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection
    from spritz.client.locate import DatabaseConfig

    T = TypeVar("T")


class DatabaseConnection:
    """A connection to slurmdbd, opened again when the daemon dies. Its calls are those of `Connection`."""

    def __init__(self, config: DatabaseConfig, connection: Connection) -> None:
        """Closes the connection at the end, or when it takes another."""
        self._config = config
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def call(self, request: Struct, reply_type: type[T], *, timeout: float | None = -1.0) -> T:
        """slurmdbd's answer to the request."""
        return self._repeated(request, lambda: self._connection.call(request, reply_type, timeout=timeout))

    def call_exact(self, request: Struct, reply_type: type[T], *, timeout: float | None = -1.0) -> T:
        """As `call`, for an answer that will be sent back whole."""
        return self._repeated(request, lambda: self._connection.call_exact(request, reply_type, timeout=timeout))

    def stream(self, request: Struct, item_type: type[T], *, timeout: float | None = None) -> Iterator[T]:
        """As in `Connection`, but all items are received before the first is returned."""
        return iter(self._repeated(request, lambda: list(self.stream_once(request, item_type, timeout=timeout))))

    def stream_once(self, request: Struct, item_type: type[T], *, timeout: float | None = None) -> Iterator[T]:
        """Items as they come. Raises ConnectionLost in the middle: see `reopen`."""
        return self._connection.stream(request, item_type, timeout=timeout)

    def reopen(self, lost: ConnectionLost) -> None:
        """Wait up to MessageTimeout, or the time of a takeover, for a slurmdbd that answers. Raises `lost` then."""
        seconds = self._config.message_timeout_seconds
        if self._config.backup_host:
            seconds = max(seconds, TAKE_OVER_SECONDS)
        started = monotonic()
        while (connection := self._opened()) is None:
            waited = monotonic() - started
            if waited > seconds:
                raise lost
            sleep(retry_pause(waited))
        self._connection.close()
        self._connection = connection

    def _opened(self) -> Connection | None:
        """A connection over which slurmdbd has answered."""
        from spritz.model.queries.daemons import Ping, Pong

        try:
            connection = _connect(self._config, HOST_SECONDS)
        except ClientError:
            return None
        try:
            # slurmd or sackd may have accepted it, without a slurmdbd behind.
            connection.call(Ping(), Pong)
        except ClientError:
            connection.close()
            return None
        connection.timeout_seconds = self._config.message_timeout_seconds
        return connection

    def _repeated(self, request: Struct, ask: Callable[[], T]) -> T:
        name = type(request).__name__
        if name not in READS and not self._connection.is_quiet():
            # The daemon has died since the last answer, such as while the user was asked: nothing is sent yet.
            self.reopen(self._connection.lost("the daemon closed the connection; nothing was changed"))
        try:
            return ask()
        except ConnectionLost as lost:
            if name not in READS:
                raise _outcome_unknown(name, lost) from lost
            self.reopen(lost)
        return ask()


def _outcome_unknown(request: str, lost: ConnectionLost) -> ConnectionLost:
    look = _LOOK.get(request, "slurmdbd's log tells")
    return ConnectionLost(f"{lost.message}: the change may have been made: {look}", code=lost.code, hint=lost.hint)


def connected(context: Context) -> tuple[DatabaseConnection, str]:
    """A connection to slurmdbd, and the name of our cluster.

    Raises AlreadyReported after Slurm's lines; RemoteHost if AccountingStorageHost is another machine; where this
    machine has keys, only after RELAY_START_SECONDS, as its slurmd or sackd may be starting.
    """
    config = locate_database()
    if config.kind != "slurmdbd":
        context.err("Slurm accounting storage is disabled\n")
        raise AlreadyReported
    started = monotonic()
    while True:
        try:
            connection = _connect(config, config.message_timeout_seconds)
            return DatabaseConnection(config, connection), config.cluster_name
        except RemoteHost:
            if not is_member(config.path) or monotonic() - started > RELAY_START_SECONDS:
                raise
        except ClientError as error:
            if not config.is_local or monotonic() - started > START_SECONDS:
                _report(config, error, context)
                raise AlreadyReported from error
        sleep(_RETRY_SECONDS)


def _connect(config: DatabaseConfig, timeout: float) -> Connection:
    """Try each address once. Raises ClientError; RemoteHost if no daemon with keys is here."""
    problem: ClientError | None = None
    remote: RemoteHost | None = None
    for address in config.addresses:
        try:
            # Any user can listen at a name or a port that is free: only root's and SlurmUser's are believed.
            connection = connect_address(address, timeout=timeout, owners=config.owners())
        except RemoteHost as error:
            remote = remote or error.naming(f"{config.path}: AccountingStorageHost={config.host}")
        except ClientError as error:
            problem = error
        else:
            connection.daemon = "slurmdbd"
            return connection
    if remote is not None and (problem is None or problem.code == "SLURM_COMMUNICATIONS_CONNECTION_ERROR"):
        raise remote
    assert problem is not None, "there are addresses"
    raise problem


def _report(config: DatabaseConfig, problem: ClientError, context: Context) -> None:
    reason = problem.hint.rpartition(": ")[2] or "Connection refused"
    context.error(
        "slurm_persist_conn_open_without_init: failed to open persistent connection to "
        f"host:{config.host}:{config.port}: {reason}"
    )
    context.error(f"Sending PersistInit msg: {reason}")
    context.error(f"Problem talking to the database: {reason}")
