"""The way to slurmdbd for commands, in the words that Slurm's have when it is not there."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING

from spritz.cli.already_reported import AlreadyReported
from spritz.client.errors import ClientError, RemoteHost
from spritz.client.locate import locate_database
from spritz.client.sync import connect_address

#: A slurmdbd of this machine may be starting (`spritz up` does not wait for it): so long it is given to answer.
START_SECONDS = 3.0

_RETRY_SECONDS = 0.05

if TYPE_CHECKING:
    from spritz.cli.context import Context
    from spritz.client.sync import Connection


def connected(context: Context) -> tuple[Connection, str]:
    """A connection to slurmdbd, and the name of our cluster.

    Raises AlreadyReported after Slurm's lines; RemoteHost if AccountingStorageHost is another machine.
    """
    config = locate_database()
    if config.kind != "slurmdbd":
        context.err("Slurm accounting storage is disabled\n")
        raise AlreadyReported
    started = monotonic()
    problem: ClientError | None = None
    remote: RemoteHost | None = None
    while True:
        for address in config.addresses:
            try:
                # Any user can listen at a name or a port that is free: only root's and SlurmUser's are believed.
                connection = connect_address(address, timeout=config.message_timeout_seconds, owners=config.owners())
            except RemoteHost as error:
                remote = remote or error.naming(f"{config.path}: AccountingStorageHost={config.host}")
            except ClientError as error:
                problem = error
            else:
                connection.daemon = "slurmdbd"
                return connection, config.cluster_name
        if remote is not None and problem is not None and problem.code != "SLURM_COMMUNICATIONS_CONNECTION_ERROR":
            raise problem
        if remote is not None:
            raise remote
        if not config.is_local or monotonic() - started > START_SECONDS:
            break
        sleep(_RETRY_SECONDS)
    reason = (problem.hint if problem is not None else "").rpartition(": ")[2] or "Connection refused"
    context.error(
        "slurm_persist_conn_open_without_init: failed to open persistent connection to "
        f"host:{config.host}:{config.port}: {reason}"
    )
    context.error(f"Sending PersistInit msg: {reason}")
    context.error(f"Problem talking to the database: {reason}")
    raise AlreadyReported
