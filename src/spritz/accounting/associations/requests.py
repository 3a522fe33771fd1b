"""Requests about the book, and telling the controllers what holds: when they register, and after every edit."""

from __future__ import annotations

import asyncio
import pwd
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from spritz.accounting.associations.book import edit_book, ensure, policy_of, read_book
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.limits.records import AskPolicy, Book, BookEdited, EditBook, GetBook, SetPolicy

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.accounting.api import Api
    from spritz.accounting.links import Link
    from spritz.client.handling import Call, Handler

#: A controller takes a policy within this time.
TELL_SECONDS = 10.0


class BookRequests:
    """`store` runs work on the one thread that writes; `read` on one of those that read."""

    def __init__(
        self,
        api: Api,
        store: Callable[..., Coroutine[Any, Any, Any]],
        read: Callable[..., Coroutine[Any, Any, Any]],
    ) -> None:
        self._api = api
        self._store = store
        self._read = read

    def handlers(self) -> dict[type[Struct], Handler]:
        """For the table of requests."""
        return {GetBook: self.get_book, EditBook: self.edit, AskPolicy: self.ask_policy}

    async def get_book(self, request: GetBook, call: Call) -> Book:
        """All of it, to whoever asks."""
        self._api.uid(call)
        found: Book = await self._read(lambda: read_book(self._api.engine, transactions=request.transactions))
        return found

    async def edit(self, request: EditBook, call: Call) -> BookEdited:
        """Change it, tell every connected controller, and then answer."""
        actor, admin = _name_of(self._api.uid(call)), self._api.is_admin(call)
        now = self._api.now()
        done: BookEdited = await self._store(lambda: edit_book(self._api.engine, request, actor, now, admin=admin))
        if not done.stale:
            await asyncio.gather(*(self.tell(link) for link in list(self._api.links.by_cluster.values())))
        return done

    async def ask_policy(self, request: AskPolicy, call: Call) -> Done:
        """A controller has registered: its cluster has a root, and it hears what holds before it has its answer."""
        self._api.need_admin(call)
        now = self._api.now()
        await self._store(lambda: ensure(self._api.engine, request.cluster, now))
        await self.tell(self._api.links.of(request.cluster, call.channel))
        return Done()

    async def tell(self, link: Link) -> None:
        """One controller hears all of its policy; one that is away hears it when it registers again."""
        try:
            book: Book = await self._read(lambda: read_book(self._api.engine))
            policy = policy_of(book, link.cluster)
            await link.channel.call(SetPolicy(policy=policy), Done, timeout=TELL_SECONDS)
        except (SpritzError, TimeoutError) as error:
            self._api.log.error("policy.not_told", cluster=link.cluster, error=str(error))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
