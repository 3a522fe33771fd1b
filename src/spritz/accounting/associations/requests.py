"""Requests about associations, and policies for controllers: sent when a controller registers and after every edit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from spritz.accounting.associations.recompute_usage import reckon
from spritz.accounting.associations.rights import shown
from spritz.accounting.associations.store import Edit, edit_book, ensure, policy_of, read_book
from spritz.client.errors import RemoteError
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.limits.change import change_between, is_empty
from spritz.model.limits.records import (
    AskPolicy,
    Association,
    Book,
    BookEdited,
    ChangePolicy,
    EditBook,
    GetBook,
    PolicyChange,
    Reckoned,
    ReckonUsage,
    RehearseEdit,
    SetPolicy,
)

if TYPE_CHECKING:
    from msgspec import Struct
    from sqlalchemy.engine import Engine

    from spritz.accounting.associations.callers import Callers
    from spritz.accounting.links import Link, Links
    from spritz.client.channel.handling import Call, Handler
    from spritz.runtime.log import Logger

#: lowest first
LEVELS = ("Operator", "Administrator")


class Booking(Protocol):
    """The database, who asks about it, and the controllers to tell (`api.Api`)."""

    @property
    def callers(self) -> Callers: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def links(self) -> Links: ...

    @property
    def log(self) -> Logger: ...

    @property
    def book_options(self) -> tuple[str, ...]: ...

    @property
    def default_qos(self) -> str: ...

    @property
    def coordinators_change(self) -> bool: ...

    @property
    def message_timeout(self) -> float: ...

    def now(self) -> float: ...


class BookRequests:
    """`store` runs work on the single thread that writes; `read` on a thread that reads."""

    def __init__(
        self,
        api: Booking,
        store: Callable[..., Coroutine[Any, Any, Any]],
        read: Callable[..., Coroutine[Any, Any, Any]],
    ) -> None:
        self._api = api
        self._store = store
        self._read = read

    def handlers(self) -> dict[type[Struct], Handler]:
        """Entries for the table of requests."""
        return {
            GetBook: self.get_book,
            EditBook: self.edit,
            RehearseEdit: self.edit,
            AskPolicy: self.ask_policy,
            ReckonUsage: self.reckon,
        }

    async def get_book(self, request: GetBook, call: Call) -> Book:
        """All records that the caller may see (PrivateData=accounts,users). Raises SpritzError if they are for
        operators only.
        """
        if request.level:
            if request.level not in LEVELS:
                raise SpritzError(f"no such level: {request.level[:40]}", code="SLURM_UNEXPECTED_MSG_ERROR")
            await self._api.callers.need(call, *LEVELS[LEVELS.index(request.level) :])
        rights = await self._api.callers.restricted(call, "accounts", "users")
        book: Book = await self._read(lambda: self._book(request))
        return book if rights is None else shown(book, rights, self._api.callers.private)

    def _book(self, request: GetBook) -> Book:
        return self._as_set(
            read_book(self._api.engine, transactions=request.transactions, with_deleted=request.deleted)
        )

    def _as_set(self, book: Book) -> Book:
        """The book with the options of slurmdbd.conf."""
        return replace(book, options=self._api.book_options, default_qos=self._api.default_qos)

    async def reckon(self, request: ReckonUsage, call: Call) -> Reckoned:
        """Usage by the records, the newest events included."""
        self._api.callers.need_admin(call)
        await self._api.links.catch_up((request.cluster,))
        usage: Reckoned = await self._read(self._reckoned, request)
        return usage

    def _reckoned(self, request: ReckonUsage) -> Reckoned:
        return reckon(self._api.engine, request, policy_of(self._as_set(read_book(self._api.engine)), request.cluster))

    async def edit(self, request: EditBook, call: Call) -> BookEdited:
        """Make (or only check) an edit, send it to every connected controller, then answer."""
        actor, admin = await self._api.callers.user_name(call), self._api.callers.is_admin(call)
        now = self._api.now()
        if gone := {record.cluster for record in request.drops if isinstance(record, Association)}:
            await self._api.links.catch_up(tuple(sorted(gone)))  # running jobs may still use these associations
        coordinators, options = self._api.coordinators_change, self._api.book_options
        edit: Edit = await self._store(
            lambda: edit_book(
                self._api.engine, request, actor, now, admin=admin, coordinators=coordinators, options=options
            )
        )
        if edit.after is not None:
            await asyncio.gather(*(self.tell(link, edit) for link in list(self._api.links.by_cluster.values())))
        return edit.done

    async def ask_policy(self, request: AskPolicy, call: Call) -> Done:
        """A controller has registered: add its cluster's root association and send its policy before the answer."""
        self._api.callers.need_admin(call)
        now, default_qos = self._api.now(), self._api.default_qos
        await self._store(lambda: ensure(self._api.engine, request.cluster, now, request.tres, default_qos))
        await self.tell(self._api.links.of(request.cluster, call.channel))
        return Done()

    async def tell(self, link: Link, edit: Edit | None = None) -> None:
        """Send a controller what an edit changed for it, or its whole policy if it lacks the version before.

        A controller that is not connected gets the whole policy when it registers again.
        """
        async with link.telling:
            try:
                if edit is None or edit.after is None or link.book_version != edit.before.version:
                    if edit is None or edit.after is None or link.book_version < edit.after.version:
                        await self._tell_all(link)
                    return
                change: PolicyChange = await self._read(self._change, edit, link)
                if not is_empty(change):
                    await link.channel.call(ChangePolicy(change=change), Done, timeout=self._api.message_timeout)
                    link.policy_version = change.version
                link.book_version = edit.after.version
            except RemoteError as error:
                self._api.log.info("policy.stale", cluster=link.cluster, error=error.message)
                await self._try_all(link)
            except (SpritzError, TimeoutError) as error:
                self._log_failure(link, error)

    async def _try_all(self, link: Link) -> None:
        try:
            await self._tell_all(link)
        except (SpritzError, TimeoutError) as error:
            self._log_failure(link, error)

    async def _tell_all(self, link: Link) -> None:
        book: Book = await self._read(lambda: self._as_set(read_book(self._api.engine)))
        await link.channel.call(
            SetPolicy(policy=policy_of(book, link.cluster)), Done, timeout=self._api.message_timeout
        )
        link.book_version = link.policy_version = book.version

    def _log_failure(self, link: Link, error: Exception) -> None:
        """Record the failure: the next edit sends the whole policy."""
        link.book_version = 0
        self._api.log.error("policy.not_told", cluster=link.cluster, error=str(error))

    def _change(self, edit: Edit, link: Link) -> PolicyChange:
        assert edit.after is not None
        before, after = (policy_of(self._as_set(book), link.cluster) for book in (edit.before, edit.after))
        return change_between(replace(before, version=link.policy_version), after)
