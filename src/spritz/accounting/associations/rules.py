"""Constraints that association records must satisfy, one by one and together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.model.limits.federations import CLUSTERS_MAX, STATES
from spritz.model.limits.guarantees import overpromised
from spritz.model.limits.records import SHARES_PARENT, Association, Coordinator, FederationMember, Record
from spritz.notation.errors import NotationError
from spritz.notation.tres import parse

if TYPE_CHECKING:
    from spritz.model.limits.records import Book

#: Longest name: some databases would cut longer ones.
NAME_LENGTH = 120

_TRES_FIELDS = frozenset(
    {"grp_tres", "max_tres", "max_tres_per_node", "max_tres_pj", "max_tres_pn", "max_tres_pu", "max_tres_pa"}
    | {"min_tres_pj", "guarantee"}
    | {"grp_tres_mins", "grp_tres_run_mins", "max_tres_mins", "max_tres_mins_pj"}
    | {"max_tres_run_mins_pu", "max_tres_run_mins_pa"}
)
#: TRES of every site, and prefixes of named ones; each site says which names exist
_TRES = frozenset({"billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem"})
_TRES_KINDS = ("bb/", "gres/", "ic/", "license/")
_COUNT_MAX = 0x7FFFFFFF


class BookError(SpritzError):
    """The edit would break a constraint."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="ESLURM_INVALID_ACCOUNT")


def check_record(record: Record) -> None:
    """Check one record alone. Raises BookError."""
    for field in record.__struct_fields__:
        value = getattr(record, field)
        if isinstance(value, str) and field in _TRES_FIELDS:
            try:
                names = [name for name, _count in parse(value)]
            except NotationError as error:
                raise BookError(str(error)) from error
            for name in names:
                if name not in _TRES and not (name.startswith(_TRES_KINDS) and name.partition("/")[2]):
                    raise BookError(f"slurmdb_format_tres_str: no TRES known by type {name}")
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _COUNT_MAX:
            raise BookError(f"{field} is out of range: {value}")
    for field in ("name", "account", "user", "cluster", "partition", "parent", "server", "federation"):
        text = getattr(record, field, "")
        if len(text) > NAME_LENGTH or not text.isprintable() or any(letter in text for letter in ",:'\"= |"):
            raise BookError(f"not a name: {text[:NAME_LENGTH]!r}")
    if not getattr(record, "name", "x") or not getattr(record, "account", "x"):
        raise BookError("a name is missing")
    if isinstance(record, Association) and not (0 <= record.shares < SHARES_PARENT or record.shares == SHARES_PARENT):
        raise BookError(f"Fairshare is out of range: {record.shares}")
    if isinstance(record, Association) and record.guarantee:
        _check_guarantee(record)


def _check_guarantee(record: Association) -> None:
    if record.user or record.account == "root":
        raise BookError("Guarantee is for accounts below root, not for root or users")
    for name, _count in parse(record.guarantee):
        if name not in ("cpu", "mem", "node") and not name.startswith("gres/"):
            raise BookError(f"{name} cannot be guaranteed: cpu, mem, node and gres/… can")


def _bad_qos(name: str, book: Book) -> BookError:
    return BookError(
        f"You gave a bad qos '{name}'. Valid QOS's are {','.join(qos_record.name for qos_record in book.qos)}"
    )


def check_book(book: Book) -> None:
    """Check all records together: every reference exists, and the accounts form one tree. Raises BookError."""
    accounts, users = {account.name for account in book.accounts}, {user.name for user in book.users}
    qos = {qos_record.name for qos_record in book.qos}
    for level in book.qos:
        for name in level.preempt.split(",") if level.preempt else ():
            if name not in qos:
                raise _bad_qos(name, book)
    parents: dict[str, dict[str, str]] = {}
    seen: set[tuple[str, str, str, str]] = set()
    for association in book.associations:
        key = (association.cluster, association.account, association.user, association.partition)
        if key in seen:
            raise BookError(
                f"two associations of account {association.account} user {association.user}"
                f" on cluster {association.cluster}"
            )
        seen.add(key)
        if association.account not in accounts:
            raise BookError(f"This account '{association.account}' doesn't exist.")
        if association.user and association.user not in users:
            raise BookError(f"user {association.user} is not known")
        if not association.user:
            parents.setdefault(association.cluster, {})[association.account] = association.parent
        for name in (association.qos or "").split(",") if association.qos else ():
            if name not in qos:
                raise _bad_qos(name, book)
        if association.default_qos and association.default_qos not in qos:
            raise _bad_qos(association.default_qos, book)
    for association in book.associations:
        if association.user and association.account not in parents.get(association.cluster, {}):
            raise BookError(f"account {association.account} is not on cluster {association.cluster}")
    for cluster, tree in parents.items():
        _check_tree(cluster, tree)
        guarantees = {
            association.account: dict(parse(association.guarantee))
            for association in book.associations
            if association.cluster == cluster and association.guarantee and not association.user
        }
        for account, name, total, guaranteed in overpromised(guarantees, tree):
            raise BookError(
                f"accounts below {account} would be guaranteed {name}={total}, and {account} itself {name}={guaranteed}"
            )
    _check_resources(book)
    _check_federations(book)
    for item in book.coordinators:
        if item.account not in accounts or item.user not in users:
            raise BookError(f"coordinator {item.user} of {item.account}: no such user or account")


def _check_resources(book: Book) -> None:
    """Refuse a resource that is allocated beyond 100 % or beyond its count."""
    unit = "" if "AllResourcesAbsolute" in book.options else "%"
    wholes = {(resource.name, resource.server): 100 if unit else resource.count for resource in book.resources}
    allocated = dict.fromkeys(wholes, 0)
    for share in book.resource_shares:
        key = (share.name, share.server)
        if key not in allocated or not 0 <= share.percent <= wholes[key]:
            raise BookError(f"{share.name}@{share.server} is no resource of which {share.percent}{unit} can be given")
        allocated[key] += share.percent
        if allocated[key] > wholes[key]:
            raise BookError(f"more than {wholes[key]}{unit} of {share.name}@{share.server} would be allocated")


def _check_federations(book: Book) -> None:
    """Every member belongs to an existing federation, with a number of its own and a valid state."""
    names = {federation.name for federation in book.federations}
    taken: set[tuple[str, int]] = set()
    for member in book.federation_members:
        if not member.federation:
            if member.number or member.state:
                raise BookError(f"cluster {member.cluster} is in no federation")
            continue
        if member.federation not in names:
            raise BookError(f"The federation {member.federation} doesn't exist.")
        if not 0 < member.number <= CLUSTERS_MAX or (member.federation, member.number) in taken:
            raise BookError(f"cluster {member.cluster} has no number of its own in federation {member.federation}")
        if member.state not in STATES:
            raise BookError(f"Invalid FedState {member.state}.")
        taken.add((member.federation, member.number))


def _check_tree(cluster: str, parents: dict[str, str]) -> None:
    sound = {"root"}
    for account in parents:
        path: list[str] = []
        at = account
        while at not in sound:
            if at in path:
                raise BookError(f"account {account} would be its own ancestor on cluster {cluster}")
            path.append(at)
            above = parents.get(at)
            if not above:
                raise BookError(f"account {at} has no parent on cluster {cluster}")
            at = above
        sound.update(path)


def under(accounts: Sequence[tuple[str, str]], names: set[str]) -> set[str]:
    """The accounts and all accounts below them. `accounts`: pairs (account, parent)."""
    reached = set(names)
    grown = True
    while grown:
        more = {account for account, parent in accounts if parent in reached} - reached
        reached |= more
        grown = bool(more)
    return reached


def named(record: Record) -> str:
    """The record as the transaction list shows it."""
    if isinstance(record, Association):
        return f"id_assoc={record.id}" if record.id > 0 else f"{record.account} {record.user}".strip()
    if isinstance(record, Coordinator):
        return record.user
    return record.cluster if isinstance(record, FederationMember) else record.name


_NOUNS = {"Account": "Accounts", "User": "Users", "Coordinator": "Account Coord", "WcKey": "WCKeys"}
_NOUNS |= {"Association": "Associations", "Qos": "QOS", "Resource": "Resources", "ResourceShare": "Cluster Resources"}
_NOUNS |= {"Federation": "Federations", "FederationMember": "Clusters"}


def action(verb: str, record: Record) -> str:
    """`Add Users`, as the transaction list of sacctmgr words it."""
    words = f"{verb} {_NOUNS[type(record).__name__]}"
    return f"{words}s" if words == "Remove Account Coord" else words


def difference(old: Record | None, new: Record) -> str:
    """The changed fields, as text for the transaction list."""
    fields: Iterable[str] = new.__struct_fields__
    return ", ".join(
        f"{field}='{value}'" if isinstance(value, str) else f"{field}={value}"
        for field in fields
        if (value := getattr(new, field)) != (getattr(old, field) if old is not None else None)
        and not (old is None and value in ("", None))
    )
