"""Who may ask slurmdbd what. Source: slurmdbd.conf(5) PrivateData; sacct(1)."""

from __future__ import annotations

import asyncio
import os
import pwd
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.accounting.api import Api
from spritz.accounting.associations.requests import LEVELS
from spritz.accounting.associations.store import edit_book, ensure, read_book
from spritz.accounting.select import read_jobs
from spritz.accounting.store import Store
from spritz.cli.listings.acct.connect import READS
from spritz.model.accounting.records import PICKS_MAX, GetDocuments, JobPick, RegisterCluster, SelectJobs
from spritz.model.accounting.usage import AskReservations, AskUsage
from spritz.model.errors import SpritzError
from spritz.model.limits.records import Account, Association, Coordinator, EditBook, GetBook, User
from spritz.runtime import directory
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz_testing.history import History, in_groups
from tests.databases import open_store

#: Two owners of jobs, neither of whom is root nor who runs the tests.
STRANGER, OTHER = [uid for uid in (1003, 1004, 1005) if uid != os.geteuid()][:2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = open_store(tmp_path / "acct.db")
    made.register(RegisterCluster(cluster="c1", journal=1, last_sequence=1 << 40), 0.0)
    made.ingest("c1", 1, in_groups(History(1).events(200), 1))
    yield made
    made.engine.dispose()


def asked(store: Store, uid: int | None, request: SelectJobs, longest: int | None = None, **options: Any) -> list[int]:
    """Owners of the jobs in the answer."""

    async def ask() -> list[int]:
        api = Api(store, SystemClock(), get_logger("test"), 999_999, **options)
        api.callers.longest_window = longest
        call: Any = SimpleNamespace(caller=None if uid is None else SimpleNamespace(uid=uid), machine=None)
        try:
            return [job.job.uid async for piece in api.select_jobs(request, call) for job in piece.jobs]
        finally:
            await asyncio.to_thread(api.close)

    return asyncio.run(ask())


def test_everybody_sees_all_jobs_unless_they_are_private(store: Store) -> None:
    everybody = asked(store, STRANGER, SelectJobs())
    assert len(set(everybody)) > 10
    private = frozenset({"jobs"})
    assert set(asked(store, STRANGER, SelectJobs(), private=private)) == {STRANGER}
    assert asked(store, STRANGER, SelectJobs(users=(OTHER,)), private=private) == []
    assert asked(store, 0, SelectJobs(), private=private) == everybody


def test_coordinators_see_jobs_of_their_accounts_and_operators_all(store: Store) -> None:
    private, everybody = frozenset({"jobs"}), asked(store, STRANGER, SelectJobs())
    name = pwd.getpwuid(1).pw_name
    assert asked(store, 1, SelectJobs(), private=private) == []
    accounts = {one.job.account for piece in read_jobs(store.engine, SelectJobs()) for one in piece}
    mine = sorted(accounts)[0]
    ensure(store.engine, "c1", 1.0)
    for records, count in (
        ((Account(name=mine), Association(id=-1, cluster="c1", account=mine, parent="root")), 0),
        ((User(name=name), Coordinator(account=mine, user=name)), None),
        ((User(name=name, admin="Operator"),), len(everybody)),
    ):
        version = read_book(store.engine).version
        edit_book(store.engine, EditBook(version=version, puts=records), "root", 3.0, admin=True)
        found = asked(store, 1, SelectJobs(), private=private)
        if count is None:
            assert found == asked(store, 0, SelectJobs(accounts=(mine,)))
            assert 0 < len(found) < len(everybody)
        else:
            assert len(found) == count


def test_windows_longer_than_the_site_allows_are_for_operators(store: Store) -> None:
    """slurmdbd.conf(5) MaxQueryTimeRange; as in Slurm jobs that are named are found, whenever they ran."""
    day, hour = SelectJobs(starts_at=0.0, ends_at=86_400.0), SelectJobs(starts_at=0.0, ends_at=3_600.5)
    for request in (day, SelectJobs(), SelectJobs(ends_at=86_400.0), SelectJobs(starts_at=1.0)):
        with pytest.raises(SpritzError, match="Too wide of a date range in query"):
            asked(store, STRANGER, request, 3_600)
    assert asked(store, STRANGER, hour, 3_600) == asked(store, STRANGER, hour)
    assert asked(store, 0, day, 3_600) == asked(store, STRANGER, day)
    named = SelectJobs(picks=(JobPick(job_id=1),))
    assert asked(store, STRANGER, named, 3_600) == asked(store, STRANGER, named)


@pytest.mark.parametrize(("admin", "levels"), [("None", []), ("Operator", ["Operator"]), ("Administrator", None)])
def test_a_book_that_is_for_operators_is_refused_to_others(store: Store, admin: str, levels: list[str] | None) -> None:
    ensure(store.engine, "c1", 1.0)
    edit = EditBook(version=read_book(store.engine).version, puts=(User(name=pwd.getpwuid(1).pw_name, admin=admin),))
    edit_book(store.engine, edit, "root", 3.0, admin=True)

    async def given() -> list[str]:
        api = Api(store, SystemClock(), get_logger("test"), 999_999)
        get_book: Any = api.handlers()[GetBook]
        call: Any = SimpleNamespace(caller=SimpleNamespace(uid=1))
        found = []
        try:
            for level in LEVELS:
                try:
                    await get_book(GetBook(level=level), call)
                    found.append(level)
                except SpritzError as error:
                    if error.code != "ESLURM_ACCESS_DENIED":
                        raise
        finally:
            await asyncio.to_thread(api.close)
        return found

    assert asyncio.run(given()) == (list(LEVELS) if levels is None else levels)


def test_a_book_for_a_level_that_there_is_not_is_refused(store: Store) -> None:
    async def asked_for() -> None:
        api = Api(store, SystemClock(), get_logger("test"), 999_999)
        get_book: Any = api.handlers()[GetBook]
        call: Any = SimpleNamespace(caller=SimpleNamespace(uid=0))
        try:
            await get_book(GetBook(level="Emperor"), call)
        finally:
            await asyncio.to_thread(api.close)

    with pytest.raises(SpritzError, match="no such level: Emperor"):
        asyncio.run(asked_for())


def test_an_empty_database_takes_a_cluster_before_any_controller(store: Store) -> None:
    """`sacctmgr -i add cluster X` is the first step of every installation."""

    async def added() -> tuple[Any, Any]:
        api = Api(store, SystemClock(), get_logger("test"), 0)
        handlers: Any = api.handlers()
        call: Any = SimpleNamespace(caller=SimpleNamespace(uid=0))
        try:
            await api.prepare()
            book = await handlers[GetBook](GetBook(), call)
            tree = Association(id=-1, cluster="x", account="root", qos="normal")
            await handlers[EditBook](EditBook(version=book.version, puts=(tree,)), call)
            return book, await handlers[GetBook](GetBook(), call)
        finally:
            await asyncio.to_thread(api.close)

    before, after = asyncio.run(added())
    assert ([account.name for account in before.accounts], [one.name for one in before.qos]) == (["root"], ["normal"])
    assert [cluster.name for cluster in after.clusters] == ["x"]


def test_an_unknown_user_is_told_nothing(store: Store) -> None:
    with pytest.raises(SpritzError, match="Protocol authentication error"):
        asked(store, None, SelectJobs())


def test_scripts_are_their_owners_and_events_the_controllers(store: Store) -> None:
    async def ask() -> None:
        api = Api(store, SystemClock(), get_logger("test"), 999_999)
        stranger: Any = SimpleNamespace(caller=SimpleNamespace(uid=os.geteuid() + 12_345))
        root: Any = SimpleNamespace(caller=SimpleNamespace(uid=0))
        request = GetDocuments(picks=(JobPick(1),))
        try:
            assert [document async for document in api.get_documents(request, stranger)] == []
            assert len([document async for document in api.get_documents(request, root)]) == 1
            with pytest.raises(SpritzError, match="Access/permission denied"):
                await api.register(RegisterCluster(cluster="c1", journal=2, last_sequence=0), stranger)
        finally:
            await asyncio.to_thread(api.close)

    asyncio.run(ask())


class _DayAfter(SystemClock):
    """A day after the store's history."""

    def now(self) -> float:
        return 1_700_090_000.0


def test_usage_is_rolled_up_before_it_is_told_and_others_is_private_if_so_configured(store: Store) -> None:
    async def ask(uid: int, **options: Any) -> dict[str, int]:
        api = Api(store, _DayAfter(), get_logger("test"), 999_999, **options)
        call: Any = SimpleNamespace(caller=SimpleNamespace(uid=uid))
        request = AskUsage(starts_at=-(1 << 62), ends_at=1 << 62)
        found: dict[str, int] = {}
        try:
            async for piece in api.usage.usage(request, call):
                for holder in piece.holders:
                    found[holder.user] = found.get(holder.user, 0) + holder.seconds
        finally:
            await asyncio.to_thread(api.close)
        return found

    everybody = asyncio.run(ask(STRANGER))
    assert len(everybody) > 10
    private = frozenset({"usage"})
    assert asyncio.run(ask(0, private=private)) == everybody
    # A user without a name here is known by a number, and no usage is stored under it.
    assert asyncio.run(ask(4_000_123, private=private)) == {}


def test_no_question_names_more_jobs_than_memory_is_kept_for(store: Store) -> None:
    many = tuple(JobPick(job_id=number) for number in range(1, PICKS_MAX + 2))
    assert asked(store, 0, SelectJobs(picks=many[1:]))
    with pytest.raises(SpritzError, match=f"{PICKS_MAX + 1} jobs are named in one request"):
        asked(store, 0, SelectJobs(picks=many))


def test_private_reservations_are_refused_to_all_but_operators(store: Store) -> None:
    async def ask(uid: int) -> Any:
        api = Api(store, SystemClock(), get_logger("test"), 999_999, private=frozenset({"reservations"}))
        answer: Any = api.handlers()[AskReservations]
        call: Any = SimpleNamespace(caller=SimpleNamespace(uid=uid))
        try:
            return await answer(AskReservations(starts_at=0, ends_at=10), call)
        finally:
            await asyncio.to_thread(api.close)

    with pytest.raises(SpritzError, match="Access/permission denied"):
        asyncio.run(ask(STRANGER))
    assert asyncio.run(ask(0)).reservations == []


def test_a_directory_of_users_that_hangs_refuses_only_what_needs_a_name(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PrivateData is decided by the caller's name; administrators are known by number."""
    back = threading.Event()

    def getpwuid(uid: int) -> pwd.struct_passwd:
        assert back.wait(100)
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)
    monkeypatch.setattr(directory, "DEADLINE_SECONDS", 0.01)
    private = frozenset({"jobs"})
    with pytest.raises(directory.DirectoryUnavailable, match=f"for user {STRANGER}"):
        asked(store, STRANGER, SelectJobs(), private=private)
    assert asked(store, STRANGER, SelectJobs()) == asked(store, 0, SelectJobs(), private=private)
    back.set()


#: Requests of commands that make changes, which are not repeated; and those of controllers, which repeat their own.
CHANGES = {
    *("ArchiveDump", "ArchiveLoad", "ClearStatistics", "EditBook", "FixRunaway", "ModifyJobs"),
    *("ReckonUsage", "ReconfigureDatabase", "ShutdownDatabase"),
}
OF_CONTROLLERS = {"AskPolicy", "PassToCluster", "RegisterCluster", "Statistics", "StoreEvents", "StoreState"}


def test_each_request_is_a_read_that_commands_repeat_or_a_change(store: Store) -> None:
    """A new request must be put in one of the three."""
    api = Api(store, SystemClock(), get_logger("test"), 0)
    try:
        assert {kind.__name__ for kind in api.handlers()} == READS | CHANGES | OF_CONTROLLERS
    finally:
        api.close()
