"""Commands survive a slurmdbd that dies, and wait for a slurmd or sackd that is started again."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.listings.acct import connect
from spritz.cli.listings.acct.answer import answered
from spritz.cli.listings.acct.connect import READS, DatabaseConnection, connected
from spritz.client.channel.handling import DEFERRED, Call, Deferred
from spritz.client.command.sync import connect_address
from spritz.client.errors import ClientError
from spritz.client.locate import DatabaseConfig, database_socket_name
from spritz.model.accounting import accounting_admin, usage
from spritz.model.accounting import records as accounting
from spritz.model.accounting.records import JobRecord, JobRecords, JobWithSteps, SelectJobs
from spritz.model.limits import records
from spritz.model.limits.records import Book, BookEdited, EditBook, GetBook
from spritz.model.queries import daemons
from spritz.model.queries.daemons import Ping, Pong
from spritz.runtime.sockets import unix_socket
from tests.ports import free_port
from tests.unit.client.conversation import Serving, serving

EDIT = EditBook(version=1, puts=(), drops=())


class Dying:
    """A slurmdbd that dies while it answers its first request."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.received = threading.Event()
        self.channels: list[Call] = []

    def _dies(self, request: object, call: Call) -> bool:
        self.asked.append(type(request).__name__)
        self.channels.append(call)
        if len(self.asked) == 1:
            call.channel.pipe.abort()
        return len(self.asked) == 1

    def book(self, request: GetBook, call: Call) -> Book | Deferred:
        return DEFERRED if self._dies(request, call) else Book()

    def edit(self, request: EditBook, call: Call) -> BookEdited | Deferred:
        return DEFERRED if self._dies(request, call) else BookEdited(version=2)

    async def jobs(self, request: SelectJobs, call: Call) -> AsyncIterator[JobRecords]:
        self.asked.append("SelectJobs")
        yield _piece(1, 2)
        if len(self.asked) == 1:
            await asyncio.to_thread(self.received.wait, 100)
            call.channel.pipe.abort()
        yield _piece(3)

    def ping(self, request: Ping, call: Call) -> Pong:
        return Pong(host="db", pid=1, version="", software="", started_at=0.0, now=0.0)

    def table(self) -> dict[type, object]:
        return {GetBook: self.book, EditBook: self.edit, SelectJobs: self.jobs, Ping: self.ping}


def _piece(*numbers: int) -> JobRecords:
    jobs = [JobWithSteps(job=JobRecord(cluster="c", number=number, job_id=number)) for number in numbers]
    return JobRecords(now=5.0, jobs=jobs)


def _config(port: int, *, host: str = "127.0.0.1", path: str = "slurm.conf") -> DatabaseConfig:
    user = str(os.getuid())
    return DatabaseConfig(
        path=path, cluster_name="c", kind="slurmdbd", host=host, port=port, slurm_user=user, message_timeout_seconds=100
    )


def _opened(server: Serving) -> DatabaseConnection:
    return DatabaseConnection(_config(server.port), connect_address(("127.0.0.1", server.port), timeout=100))


def test_a_read_is_repeated_at_the_slurmdbd_that_answers_next() -> None:
    slurmdbd = Dying()
    with serving(slurmdbd.table()) as server, _opened(server) as connection:  # type: ignore[arg-type]  # one handler each
        assert connection.call(GetBook(), Book) == Book()
    assert slurmdbd.asked == ["GetBook", "GetBook"]


def test_a_change_is_not_repeated_and_its_outcome_is_said_to_be_unknown() -> None:
    slurmdbd = Dying()
    with serving(slurmdbd.table()) as server, _opened(server) as connection:  # type: ignore[arg-type]  # one handler each
        with pytest.raises(ClientError, match=r"the change may have been made: `sacctmgr show transactions`"):
            connection.call(EDIT, BookEdited)
    assert slurmdbd.asked == ["EditBook"]


def test_a_change_is_made_though_slurmdbd_was_started_again_while_the_user_was_asked() -> None:
    slurmdbd = Dying()
    slurmdbd.asked.append("earlier")
    with serving(slurmdbd.table()) as server, _opened(server) as connection:  # type: ignore[arg-type]  # one handler each
        connection.call(GetBook(), Book)
        server.on_loop(slurmdbd.channels[0].channel.pipe.abort)
        connection.call(EDIT, BookEdited)
    assert slurmdbd.asked == ["earlier", "GetBook", "EditBook"]


def test_jobs_that_were_printed_before_slurmdbd_died_are_not_printed_again() -> None:
    slurmdbd = Dying()
    numbers = []
    with serving(slurmdbd.table()) as server, _opened(server) as connection:  # type: ignore[arg-type]  # one handler each
        for record, _ in answered(connection, SelectJobs()):
            numbers.append(record.job.number)
            slurmdbd.received.set()
    assert numbers == [1, 2, 3]
    assert slurmdbd.asked == ["SelectJobs", "SelectJobs"]


def test_the_listed_reads_are_requests() -> None:
    modules = (accounting, accounting_admin, usage, records, daemons)
    assert {name for name in READS if any(hasattr(module, name) for module in modules)} == READS


def test_a_command_waits_for_the_daemon_of_a_machine_that_has_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmd or sackd, which relays to slurmdbd, is started again."""
    port = free_port()
    # RFC 5737: an address that no machine has.
    config = _config(port, host="192.0.2.1", path=str(tmp_path / "slurm.conf"))
    monkeypatch.setattr(connect, "locate_database", lambda: config)
    context = Context("sacct", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(ClientError, match="is another machine"):
        connected(context)
    (tmp_path / "slurm.key").touch(mode=0)
    with ExitStack() as later:
        monkeypatch.setattr(connect, "sleep", lambda _: later.enter_context(unix_socket(database_socket_name(port))))
        connection, cluster = connected(context)
        with connection:
            assert cluster == "c"
