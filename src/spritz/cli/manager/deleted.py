"""`withdeleted`: what is there and what was deleted, in one list. Source: sacctmgr(1) WithDeleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.limits.records import Account, Association, Qos, Resource, ResourceShare, User, WcKey

if TYPE_CHECKING:
    from typing import TypeVar

    from spritz.model.limits.records import Book, Record

    R = TypeVar("R", bound=Record)


def with_deleted(book: Book) -> Book:
    """The book as if nothing had been deleted; `deleted` still says what was."""

    def all_of(kind: type[R], there: tuple[R, ...], *keys: str) -> tuple[R, ...]:
        found = [*there, *(one for one in book.deleted if isinstance(one, kind))]
        return tuple(sorted(found, key=lambda one: tuple(getattr(one, key) for key in keys)))

    return replace(
        book,
        clusters=tuple(sorted((*book.clusters, *book.deleted_clusters), key=lambda one: one.name)),
        accounts=all_of(Account, book.accounts, "name"),
        users=all_of(User, book.users, "name"),
        wckeys=all_of(WcKey, book.wckeys, "cluster", "name", "user"),
        associations=all_of(Association, book.associations, "id"),
        qos=all_of(Qos, book.qos, "id"),
        resources=all_of(Resource, book.resources, "name", "server"),
        resource_shares=all_of(ResourceShare, book.resource_shares, "name", "server", "cluster"),
    )
