"""The association tables as one `Book`: read as a whole, changed in one transaction or not at all.

An edit names the version that it was made for. If another edit came first, nothing changes and the editor reads again.
Every edit writes the version, so several slurmdbds may share one database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection, Engine, func, insert, select, update

from spritz.accounting import schema
from spritz.accounting.associations import deleted, permissions, rules, tables
from spritz.accounting.engine import database_errors
from spritz.accounting.upsert import upsert
from spritz.model.limits.federations import member_of, members_of
from spritz.model.limits.records import (
    Account,
    Association,
    Book,
    BookEdited,
    ClusterRow,
    Coordinator,
    EditBook,
    Federation,
    FederationMember,
    Policy,
    Qos,
    Record,
    RehearseEdit,
    Resource,
    ResourceShare,
    Transaction,
    User,
    WcKey,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

#: TRES that every cluster has, with fixed numbers
USUAL_TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")

#: Newest transactions to show.
TRANSACTIONS_MAX = 10_000


def read_book(engine: Engine, *, transactions: bool = False, with_deleted: bool = False) -> Book:
    """Every record that sacctmgr manages, in the order of its keys. Raises DatabaseError.

    `transactions`: with the log of changes; `with_deleted`: with deleted associations, accounts, users and QOS.
    """
    with database_errors(), engine.connect() as connection:
        return _read(connection, transactions=transactions, with_deleted=with_deleted)


def _read(connection: Connection, *, transactions: bool = False, with_deleted: bool = False) -> Book:
    def every(kind: type[Any]) -> tuple[Any, ...]:
        table = tables.TABLES[kind]
        query = tables.records_of(kind).order_by(*table.primary_key)
        if "deleted" in table.c:
            query = query.where(~table.c.deleted)
        return tuple(kind(**row._mapping) for row in connection.execute(query))

    version = connection.execute(select(tables.book.c.version)).scalar() or 0
    clusters = schema.clusters
    known = [
        ClusterRow(name=row.name, host=row.host, port=row.port, version=row.version)
        for row in connection.execute(select(clusters).order_by(clusters.c.name))
    ]
    associations: tuple[Association, ...] = every(Association)
    gone = deleted.read_deleted(connection) if with_deleted else ()
    live, old = deleted.split_clusters(known, associations, gone)
    done: tuple[Transaction, ...] = ()
    if transactions:
        table = tables.transactions
        rows = connection.execute(select(table).order_by(table.c.id.desc()).limit(TRANSACTIONS_MAX))
        done = tuple(Transaction(**{k: v for k, v in row._mapping.items() if k != "id"}) for row in rows)[::-1]
    return Book(
        version=version,
        clusters=live,
        accounts=every(Account),
        users=every(User),
        coordinators=every(Coordinator),
        wckeys=every(WcKey),
        associations=associations,
        qos=tuple(sorted(every(Qos), key=lambda record: record.id)),
        resources=every(Resource),
        resource_shares=every(ResourceShare),
        federations=every(Federation),
        federation_members=every(FederationMember),
        tres=tuple(connection.execute(select(tables.tres.c.name).order_by(tables.tres.c.id)).scalars()),
        transactions=done,
        deleted=gone,
        deleted_clusters=old if with_deleted else (),
    )


def policy_of(book: Book, cluster: str) -> Policy:
    """The part of the book that a cluster's controllers need."""
    return Policy(
        version=book.version,
        associations=tuple(association for association in book.associations if association.cluster == cluster),
        qos=book.qos,
        wckeys=tuple(wckey for wckey in book.wckeys if wckey.cluster == cluster),
        default_wckeys=tuple((user.name, user.default_wckey) for user in book.users if user.default_wckey),
        licenses=_licenses(book, cluster),
        admins=tuple(sorted((user.name, user.admin) for user in book.users if user.admin != "None")),
        coordinators=tuple(sorted((coordinator.user, coordinator.account) for coordinator in book.coordinators)),
        federation=tuple(members_of(book.federation_members, member_of(book, cluster).federation)),
    )


def _licenses(book: Book, cluster: str) -> tuple[tuple[str, int], ...]:
    if "AllResourcesAbsolute" in book.options:
        counts = {(resource.name, resource.server): 100 for resource in book.resources}
    else:
        counts = {(resource.name, resource.server): resource.count for resource in book.resources}
    return tuple(
        (f"{share.name}@{share.server}", counts.get((share.name, share.server), 0) * share.percent // 100)
        for share in book.resource_shares
        if share.cluster == cluster
    )


class Edit(Struct, frozen=True, kw_only=True):
    """Result of an edit: the answer, and the book before and after (None if nothing was changed)."""

    done: BookEdited
    before: Book
    after: Book | None = None


def edit_book(
    engine: Engine,
    request: EditBook,
    actor: str,
    now: float,
    *,
    admin: bool,
    coordinators: bool = True,
    options: tuple[str, ...] = (),
) -> Edit:
    """Apply the puts and drops of `request` in one transaction.

    Raises SpritzError, and then nothing has changed. `coordinators`: whether they may edit; `options`: as `Book` has
    them.
    """
    with database_errors(), engine.begin() as connection:
        book = replace(_read(connection), options=options)
        if book.version != request.version:
            return Edit(done=BookEdited(version=book.version, stale=True), before=book)
        permissions.check_right(book, actor, request.puts, request.drops, admin=admin, coordinators=coordinators)
        deleted.check_idle(connection, request.drops)
        after = _edit(connection, book, request, actor, now)
        if isinstance(request, RehearseEdit):
            connection.rollback()
            return Edit(done=BookEdited(version=book.version), before=book)
        return Edit(done=BookEdited(version=after.version), before=book, after=after)


def ensure(engine: Engine, cluster: str, now: float, tres: Iterable[str] = (), default_qos: str = "normal") -> bool:
    """Add what is missing of root, the QOS of `default_qos`, the cluster's root associations and the names of its TRES.

    `cluster` "": only what a database needs before its first cluster. Returns whether an association record was added.
    """
    with database_errors(), engine.begin() as connection:
        known = {*connection.execute(select(tables.tres.c.name)).scalars(), *USUAL_TRES}
        names = [name for name in tres if name not in known and len(name) <= tables.NAME_LENGTH]
        if names:
            connection.execute(insert(tables.tres), [{"name": name} for name in names])
        if connection.execute(select(tables.book.c.version)).scalar() is None:
            connection.execute(insert(tables.book).values(id=1, version=0, last_id=0))
        book = _read(connection)
        puts: list[Record] = []
        if not any(account.name == "root" for account in book.accounts):
            puts.append(Account(name="root", description="default root account", organization="root"))
        if not any(user.name == "root" for user in book.users):
            puts.append(User(name="root", admin="Administrator"))
        puts += book.lacking_qos(default_qos)
        if cluster and not any(
            association.cluster == cluster and association.account == "root" and not association.user
            for association in book.associations
        ):
            puts.append(Association(id=-1, cluster=cluster, account="root", qos=default_qos))
            puts.append(Association(id=-2, cluster=cluster, account="root", user="root", is_default=True))
        if not puts:
            return False
        _edit(connection, book, EditBook(version=book.version, puts=tuple(puts)), "root", now)
        return True


def _edit(connection: Connection, book: Book, request: EditBook, actor: str, now: float) -> Book:
    """Apply the edit to the tables. Returns the book afterwards."""
    last = connection.execute(select(tables.book.c.last_id)).scalar() or 0
    # Numbers of QOS, wckeys and associations are separate sequences, as in Slurm.
    last_qos, last_key = (
        connection.execute(select(func.max(tables.TABLES[kind].c.id))).scalar() or 0 for kind in (Qos, WcKey)
    )
    puts: list[Record] = []
    for record in request.puts:
        rules.check_record(record)
        if isinstance(record, Association) and record.id <= 0:
            number = deleted.number_of(connection, record)
            last += number is None
            record = replace(record, id=last if number is None else number)
        elif isinstance(record, Qos) and not record.id:
            number = deleted.number_of(connection, record)
            last_qos += number is None
            record = replace(record, id=last_qos if number is None else number)
        elif isinstance(record, WcKey) and not record.id:
            last_key += 1
            record = replace(record, id=last_key)
        puts.append(record)
    after = applied(book, puts, request.drops)
    rules.check_book(after)
    old = _by_key(book)
    rows = [_transaction_row("Remove", record, "", actor, now) for record in request.drops]
    for record in puts:
        before = old.get(_key(record))
        verb = "Add" if before is None else "Modify"
        rows.append(_transaction_row(verb, record, rules.difference(before, record), actor, now))
    for record in request.drops:
        deleted.drop(connection, record, now)
    for kind in tables.TABLES:
        rows_of_kind = [deleted.row_of(record, now) for record in puts if type(record) is kind]
        if rows_of_kind:
            upsert(connection, tables.TABLES[kind], rows_of_kind)
    if rows:
        connection.execute(insert(tables.transactions), rows)
    done = connection.execute(
        update(tables.book)
        .where(tables.book.c.id == 1, tables.book.c.version == book.version)
        .values(version=book.version + 1, last_id=last)
    )
    if done.rowcount != 1:
        raise rules.BookError("the accounts were changed at the same moment by another request; try again")
    return replace(after, version=book.version + 1)


def _transaction_row(verb: str, record: Record, info: str, actor: str, now: float) -> dict[str, Any]:
    return {
        "at": now,
        "action": rules.action(verb, record),
        "actor": actor,
        "where": rules.named(record),
        "info": info[:60_000],
    }


def _key(record: Record) -> tuple[Any, ...]:
    return (type(record), *(getattr(record, name) for name in tables.KEYS[type(record)]))


def _by_key(book: Book) -> dict[tuple[Any, ...], Record]:
    return {_key(record): record for record in _records(book)}


def _records(book: Book) -> Iterable[Record]:
    yield from book.accounts
    yield from book.users
    yield from book.coordinators
    yield from book.wckeys
    yield from book.associations
    yield from book.qos
    yield from book.resources
    yield from book.resource_shares
    yield from book.federations
    yield from book.federation_members


def applied(book: Book, puts: Iterable[Record], drops: Iterable[Record]) -> Book:
    """The book that would result from an edit."""
    records = _by_key(book)
    for record in drops:
        records.pop(_key(record), None)
    for record in puts:
        records[_key(record)] = record

    def of(kind: type[Any]) -> tuple[Any, ...]:
        return tuple(record for record in records.values() if type(record) is kind)

    return replace(
        book,
        accounts=of(Account),
        users=of(User),
        coordinators=of(Coordinator),
        wckeys=of(WcKey),
        associations=of(Association),
        qos=of(Qos),
        resources=of(Resource),
        resource_shares=of(ResourceShare),
        federations=of(Federation),
        federation_members=of(FederationMember),
    )
