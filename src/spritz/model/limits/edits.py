"""Adding and deleting accounting's records: which other records an edit adds, changes or deletes with them.

Pure. `sacctmgr` and the REST operations parse the request and word the answer; slurmdbd checks rights and validity. A
new association has a negative id until slurmdbd assigns one. Source: sacctmgr(1); what 22.05 does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from spritz.model.limits.records import (
    Account,
    Association,
    Qos,
    Resource,
    ResourceShare,
    User,
    WcKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from spritz.model.limits.records import Book, Record

    #: (cluster, parent account) -> an association with the settings of a new one; the callers here fill in its place
    Template = Callable[[str, str], Association]
    R = TypeVar("R", bound=Record)


# -- add


def account_places(book: Book) -> set[tuple[str, str]]:
    """(cluster, account) for each association of an account."""
    return {(entry.cluster, entry.account) for entry in book.associations if not entry.user}


def new_accounts(book: Book, names: Iterable[str], parent: str, description: str, organization: str) -> list[Account]:
    """Accounts that the book lacks. The organization of an account below another defaults to the parent's name."""
    existing = {account.name for account in book.accounts}
    return [
        Account(
            name=name,
            description=description or name,
            organization=organization or (parent if parent != "root" else name),
        )
        for name in dict.fromkeys(names)
        if name not in existing
    ]


def account_associations(
    book: Book, names: Iterable[str], clusters: Sequence[str], parent: str, template: Template
) -> list[Association]:
    """New associations of accounts below `parent`, on each cluster where the account has none."""
    present = account_places(book)
    places = [
        (cluster, name) for name in dict.fromkeys(names) for cluster in clusters if (cluster, name) not in present
    ]
    return [
        replace(template(cluster, parent), id=-number, cluster=cluster, account=name, parent=parent)
        for number, (cluster, name) in enumerate(places, 1)
    ]


def new_users(book: Book, names: Iterable[str], admin: str, default_wckey: str) -> list[User]:
    """Records for those of `names` that the book has no user of."""
    existing = {user.name for user in book.users}
    return [User(name=name, admin=admin, default_wckey=default_wckey) for name in names if name not in existing]


def user_associations(
    book: Book,
    users: Iterable[str],
    accounts: Iterable[str],
    clusters: Sequence[str],
    partitions: Sequence[str],
    default_account: str,
    template: Template,
) -> list[Association]:
    """New associations of users, on each cluster where the account has an association.

    A user without a default association on a cluster gets the one of `default_account`.
    `partitions`: [""] for associations with all partitions.
    """
    accounts = tuple(dict.fromkeys(accounts))
    places = account_places(book)
    present = {(entry.cluster, entry.account, entry.user, entry.partition) for entry in book.associations}
    with_default = {(entry.cluster, entry.user) for entry in book.associations if entry.user and entry.is_default}
    added: list[Association] = []
    for user in users:
        for account in accounts:
            for cluster in clusters:
                for partition in partitions:
                    if (cluster, account) not in places or (cluster, account, user, partition) in present:
                        continue
                    is_default = (cluster, user) not in with_default and account == default_account
                    if is_default:
                        with_default.add((cluster, user))
                    association = replace(
                        template(cluster, account), id=-len(added) - 1, cluster=cluster, account=account, user=user
                    )
                    added.append(replace(association, partition=partition, is_default=is_default))
    return added


def new_wckeys(book: Book, users: Iterable[str], names: Sequence[str], clusters: Sequence[str]) -> list[WcKey]:
    """Workload characterization keys that the book lacks."""
    present = {(key.cluster, key.name, key.user) for key in book.wckeys}
    return [
        WcKey(cluster=cluster, name=name, user=user)
        for user in users
        for name in names
        for cluster in clusters
        if (cluster, name, user) not in present
    ]


def new_clusters(book: Book, names: Iterable[str], root: Association, *, first_id: int = -1) -> list[Record]:
    """Root associations of clusters that the book lacks: the account root with the settings of `root`, and its user
    root.

    The first cluster also adds the account root, the user root and the default QOS. Ids count down from `first_id`.
    """
    existing = {entry.cluster for entry in book.associations}
    added = [name for name in dict.fromkeys(names) if name not in existing]
    if not added:
        return []
    puts: list[Record] = []
    if not any(account.name == "root" for account in book.accounts):
        puts.append(Account(name="root", description="default root account", organization="root"))
    if not any(user.name == "root" for user in book.users):
        puts.append(User(name="root", admin="Administrator"))
    puts += book.lacking_qos(book.default_qos)
    qos = root.qos if root.qos is not None else book.default_qos
    for number, name in enumerate(added):
        account_id = first_id - 2 * number
        puts.append(replace(root, id=account_id, cluster=name, account="root", qos=qos))
        puts.append(Association(id=account_id - 1, cluster=name, account="root", user="root", is_default=True))
    return puts


# -- delete


def with_descendants(book: Book, chosen: Iterable[Association]) -> list[Association]:
    """The associations, and those of accounts and users below the accounts among them."""
    doomed = {entry.id: entry for entry in chosen}
    while True:
        accounts = {(entry.cluster, entry.account) for entry in doomed.values() if not entry.user}
        below = [
            entry
            for entry in book.associations
            if entry.id not in doomed
            and ((entry.cluster, entry.account) in accounts or (entry.cluster, entry.parent) in accounts)
        ]
        if not below:
            return list(doomed.values())
        doomed.update((entry.id, entry) for entry in below)


def delete_associations(
    book: Book, chosen: Iterable[Association], accounts: Collection[str] = frozenset()
) -> list[Record]:
    """The associations and those below them; accounts that then have none, with their coordinators; and `accounts`."""
    associations = with_descendants(book, chosen)
    ids = {entry.id for entry in associations}
    remaining = {entry.account for entry in book.associations if entry.id not in ids and not entry.user}
    emptied = {entry.account for entry in associations if not entry.user} - remaining
    drops: list[Record] = list(associations)
    drops += [account for account in book.accounts if account.name in emptied or account.name in accounts]
    drops += [coordinator for coordinator in book.coordinators if coordinator.account in emptied]
    return drops


def delete_users(book: Book, names: AbstractSet[str]) -> list[Record]:
    """The users, what they coordinate, and their workload characterization keys; not their associations."""
    drops: list[Record] = [user for user in book.users if user.name in names]
    drops += [coordinator for coordinator in book.coordinators if coordinator.user in names]
    drops += [key for key in book.wckeys if key.user in names]
    return drops


def delete_clusters(book: Book, names: AbstractSet[str]) -> list[Record]:
    """All associations and workload characterization keys of clusters. Their history stays."""
    drops: list[Record] = [entry for entry in book.associations if entry.cluster in names]
    drops += [key for key in book.wckeys if key.cluster in names]
    drops += [member for member in book.federation_members if member.cluster in names]
    return drops


def remove_qos_from_lists(book: Book, names: AbstractSet[str]) -> list[Record]:
    """Associations and other QOS that name these QOS, without them."""
    puts: list[Record] = []
    for entry in book.associations:
        listed = (entry.qos or "").split(",")
        remaining = [name for name in listed if name not in names]
        if entry.default_qos in names or len(remaining) != len(listed):
            qos = ",".join(remaining) if entry.qos is not None else None
            puts.append(replace(entry, qos=qos, default_qos="" if entry.default_qos in names else entry.default_qos))
    for other in book.qos:
        preempted = ",".join(name for name in other.preempt.split(",") if name not in names)
        if other.name not in names and preempted != other.preempt:
            puts.append(replace(other, preempt=preempted))
    return puts


# -- read


def with_deleted(book: Book) -> Book:
    """The book with deleted records put back; `deleted` still lists them. Source: sacctmgr(1) WithDeleted."""

    def restored(record_type: type[R], present: tuple[R, ...], *keys: str) -> tuple[R, ...]:
        records = [*present, *(record for record in book.deleted if isinstance(record, record_type))]
        return tuple(sorted(records, key=lambda record: tuple(getattr(record, key) for key in keys)))

    return replace(
        book,
        clusters=tuple(sorted((*book.clusters, *book.deleted_clusters), key=lambda cluster: cluster.name)),
        accounts=restored(Account, book.accounts, "name"),
        users=restored(User, book.users, "name"),
        wckeys=restored(WcKey, book.wckeys, "cluster", "name", "user"),
        associations=restored(Association, book.associations, "id"),
        qos=restored(Qos, book.qos, "id"),
        resources=restored(Resource, book.resources, "name", "server"),
        resource_shares=restored(ResourceShare, book.resource_shares, "name", "server", "cluster"),
    )
