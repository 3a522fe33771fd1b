"""Accounts, users, associations, QOS, clusters, wckeys and TRES. Source: OpenAPI slurmdbd; sacctmgr(1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from spritz.model.limits import edits
from spritz.model.limits.records import Account, Association, Book, BookEdited, EditBook, GetBook, Policy, Record, WcKey
from spritz.model.limits.rules import Rules, own_bounds
from spritz.presentation.accounting.tres_numbers import tres_of
from spritz.presentation.json.associations import View
from spritz.rest.answers import Answer, Refused
from spritz.rest.operations import Ask, Result, operation
from spritz.rest.operations import book_edits as requests
from spritz.rest.operations.book_edits import Edit
from spritz.rest.operations.job_fields import bad

#: Attempts at an edit while other clients change the accounting policy at the same time.
_ATTEMPTS = 10


async def book_of(ask: Ask, *, deleted: bool = False) -> Book:
    """The part of accounting's policy that the caller may see."""
    book = await ask.database.call(GetBook(deleted=deleted), Book, timeout=60.0)
    return edits.with_deleted(book) if deleted else book


async def change(ask: Ask, make: Callable[[Book], Edit]) -> Any:
    """Send the edit that `make` derives from the policy; repeats both if the policy changed meanwhile. Returns the text
    of the edit.
    """
    for _ in range(_ATTEMPTS):
        book = await ask.database.call(GetBook(), Book, timeout=60.0)
        puts, drops, text = make(book)
        if not puts and not drops:
            return text
        edit = EditBook(version=book.version, puts=tuple(puts), drops=tuple(drops))
        if not (await ask.database.call(edit, BookEdited, timeout=60.0)).stale:
            return text
    raise Refused("ESLURM_DB_CONNECTION", "others keep changing the accounts; try again", "EditBook")


def is_set(ask: Ask, *names: str) -> bool:
    """Whether the query sets one of these flags (the documents name it differently in each version)."""
    return any(ask.query.get(name, "0").lower() not in ("0", "false", "no") for name in names)


def words(ask: Ask, name: str) -> tuple[str, ...]:
    """The items of a comma-separated query parameter."""
    return tuple(word for word in (ask.query.get(name) or "").split(",") if word)


def _view(book: Book, *, full: bool = True) -> View:
    return View(book, tres_of(book), full=full)


# -- rows for `presentation.json.associations`


def _account_rows(book: Book, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    selected = {name.lower() for name in names}
    above = {association.account: association.parent for association in book.associations if not association.user}
    rows = []
    for account in book.accounts:
        if selected and account.name not in selected:
            continue
        chain, at = {account.name}, account.name
        while above.get(at) and above[at] not in chain:
            at = above[at]
            chain.add(at)
        coordinators = sorted({coordinator.user for coordinator in book.coordinators if coordinator.account in chain})
        rows.append({"c": account, "coordinators": ",".join(coordinators)})
    return rows


def _user_rows(book: Book, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    selected = set(names)
    defaults = {
        association.user: association.account
        for association in book.associations
        if association.user and association.is_default
    }
    rows = []
    for user in book.users:
        if selected and user.name not in selected:
            continue
        accounts = {coordinator.account for coordinator in book.coordinators if coordinator.user == user.name}
        while accounts and (more := {a.account for a in book.associations if a.parent in accounts} - accounts):
            accounts |= more
        default = defaults.get(user.name, "")
        rows.append({"u": user, "default_account": default, "coordinators": ",".join(sorted(accounts))})
    return rows


def _association_rows(book: Book, associations: Iterable[Association], *, alone: bool = False) -> list[dict[str, Any]]:
    rules: dict[str, Rules] = {}
    rows = []
    for association in associations:
        if association.cluster not in rules:
            cluster_associations = tuple(other for other in book.associations if other.cluster == association.cluster)
            rules[association.cluster] = Rules(Policy(version=1, associations=cluster_associations, qos=book.qos))
        bounds = own_bounds(association) if alone else rules[association.cluster].bounds(association)
        rows.append({"a": association, "b": bounds})
    return rows


def _cluster_rows(book: Book, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    selected = {name.lower() for name in names}
    roots = {
        association.cluster: association
        for association in book.associations
        if association.account == "root" and not association.user
    }
    return [
        {"k": cluster, "a": roots.get(cluster.name), "rpc": 9728 if cluster.host else 0}
        for cluster in book.clusters
        if not selected or cluster.name in selected
    ]


# -- accounts


@operation("GET /slurmdb/accounts")
async def get_accounts(ask: Ask) -> Result:
    """The accounts that the caller may see."""
    book = await book_of(ask, deleted=is_set(ask, "DELETED"))
    rows = _account_rows(book)
    text = ask.query.get("description")
    if text:
        rows = [row for row in rows if row["c"].description == text]
    view = _view(book, full=is_set(ask, "WithAssociations"))
    return Answer(body=view.body("account", rows))


@operation("GET /slurmdb/account/{account_name}")
async def get_account(ask: Ask) -> Result:
    book = await book_of(ask, deleted=is_set(ask, "with_deleted"))
    rows = _account_rows(book, (ask.path["account_name"],))
    if not rows:
        raise Refused("ESLURM_REST_EMPTY_RESULT", f"no account {ask.path['account_name'][:80]}", "account_name")
    return Answer(body=_view(book).body("account", rows))


@operation("POST /slurmdb/accounts")
async def post_accounts(ask: Ask) -> Result:
    """Create accounts, or change existing ones. Associations hold their positions in the tree."""
    await change(ask, lambda book: (requests.accounts(book, ask.body.get("accounts") or []), [], None))
    return Answer()


@operation("DELETE /slurmdb/account/{account_name}")
async def delete_account(ask: Ask) -> Result:
    """Delete an account and everything below it."""
    name = ask.path["account_name"].lower()

    def make(book: Book) -> Edit:
        drops = requests.without_accounts(book, {name})
        return [], drops, sorted({record.name for record in drops if isinstance(record, Account)})

    return Answer(body={"removed_accounts": await change(ask, make)})


@operation("POST /slurmdb/accounts_association")
async def post_accounts_association(ask: Ask) -> Result:
    """`sacctmgr add account`: accounts, with their associations on every cluster."""
    condition, account = ask.body.get("association_condition") or {}, ask.body.get("account") or {}
    names = [name.lower() for name in condition.get("accounts") or () if name]
    if not names:
        raise bad("association_condition/accounts", "no accounts are named", "ESLURM_REST_INVALID_QUERY")
    added = await change(ask, lambda book: requests.add_accounts(book, names, condition, account))
    return Answer(body={"added_accounts": added})


# -- users


@operation("GET /slurmdb/users")
async def get_users(ask: Ask) -> Result:
    """The users that the caller may see."""
    book = await book_of(ask, deleted=is_set(ask, "with_deleted"))
    rows = _user_rows(book)
    level, account, key = (ask.query.get(name) for name in ("admin_level", "default_account", "default_wckey"))
    if level:
        rows = [row for row in rows if row["u"].admin in level.split(",")]
    if account:
        rows = [row for row in rows if row["default_account"] in account.split(",")]
    if key:
        rows = [row for row in rows if row["u"].default_wckey in key.split(",")]
    if is_set(ask, "without_defaults"):
        rows = [row for row in rows if not row["default_account"]]
    return Answer(body=_view(book, full=is_set(ask, "with_assocs")).body("user", rows))


@operation("GET /slurmdb/user/{name}")
async def get_user(ask: Ask) -> Result:
    book = await book_of(ask, deleted=is_set(ask, "with_deleted"))
    rows = _user_rows(book, (ask.path["name"],))
    if not rows:
        raise Refused("ESLURM_REST_EMPTY_RESULT", f"no user {ask.path['name'][:80]}", "name")
    return Answer(body=_view(book).body("user", rows))


@operation("POST /slurmdb/users")
async def post_users(ask: Ask) -> Result:
    """Create users, or change existing ones. Associations connect them with accounts."""
    await change(ask, lambda book: (requests.users(book, ask.body.get("users") or []), [], None))
    return Answer()


@operation("DELETE /slurmdb/user/{name}")
async def delete_user(ask: Ask) -> Result:
    """Delete a user and all of its associations."""
    name = ask.path["name"]

    def make(book: Book) -> Edit:
        if not any(user.name == name for user in book.users):
            raise Refused("ESLURM_REST_EMPTY_RESULT", f"no user {name[:80]}", "name")
        associations = [association for association in book.associations if association.user == name]
        return [], [*associations, *edits.delete_users(book, {name})], None

    await change(ask, make)
    return Answer()


@operation("POST /slurmdb/users_association")
async def post_users_association(ask: Ask) -> Result:
    """`sacctmgr add user`: users, with associations in these accounts."""
    condition, user = ask.body.get("association_condition") or {}, ask.body.get("user") or {}
    if not [name for name in condition.get("users") or () if name]:
        raise bad("association_condition/users", "no users are named", "ESLURM_REST_INVALID_QUERY")
    return Answer(body={"added_users": await change(ask, lambda book: requests.add_users(book, condition, user))})


# -- associations


def _chosen(ask: Ask, book: Book) -> list[Association]:
    """The associations that match all parameters of the query."""
    accounts = {name.lower() for name in words(ask, "account")}
    clusters = {name.lower() for name in words(ask, "cluster")}
    parents = {name.lower() for name in words(ask, "parent_account")}
    users, partitions = set(words(ask, "user")), set(words(ask, "partition"))
    numbers, qos, default = set(words(ask, "id")), set(words(ask, "qos")), set(words(ask, "default_qos"))
    if is_set(ask, "Include sub acct information"):
        while accounts and (more := {a.account for a in book.associations if a.parent in accounts} - accounts):
            accounts |= more
    return [
        association
        for association in book.associations
        if (not accounts or association.account in accounts)
        and (not clusters or association.cluster in clusters)
        and (not parents or association.parent in parents)
        and ("user" not in ask.query or (association.user in users if users else not association.user))
        and (not partitions or association.partition in partitions)
        and (not numbers or str(association.id) in numbers)
        and (not qos or qos & set((association.qos or "").split(",")))
        and (not default or association.default_qos in default)
        and (association.is_default or not is_set(ask, "Filter to only defaults"))
    ]


@operation("GET /slurmdb/associations", "GET /slurmdb/association")
async def get_associations(ask: Ask) -> Result:
    book = await book_of(ask, deleted=is_set(ask, "Include deleted associations"))
    rows = _association_rows(book, _chosen(ask, book), alone=is_set(ask, "Exclude limits from parents"))
    return Answer(body=_view(book).body("association", rows))


@operation("POST /slurmdb/associations")
async def post_associations(ask: Ask) -> Result:
    """Create associations, or change the limits of existing ones."""
    await change(ask, lambda book: (requests.associations(book, ask.body.get("associations") or []), [], None))
    return Answer()


@operation("DELETE /slurmdb/associations", "DELETE /slurmdb/association")
async def delete_associations(ask: Ask) -> Result:
    """Delete matching associations; for an account, also those below it. Root's associations stay."""
    if not any(ask.query.values()):
        raise Refused("ESLURM_REST_INVALID_QUERY", "the query selects no associations", "query")
    single = ask.operation.key.endswith("/association")

    def make(book: Book) -> Edit:
        chosen = [record for record in _chosen(ask, book) if record.user or record.account != "root"]
        if not chosen:
            raise Refused("ESLURM_REST_EMPTY_RESULT", "no association matches", "query")
        if single and len(chosen) > 1:
            raise Refused("ESLURM_REST_INVALID_QUERY", f"{len(chosen)} associations match instead of one", "query")
        drops = edits.delete_associations(book, chosen)
        labels = [requests.label(record) for record in drops if isinstance(record, Association)]
        return [], drops, labels

    return Answer(body={"removed_associations": await change(ask, make)})


# -- QOS


@operation("GET /slurmdb/qos")
async def get_all_qos(ask: Ask) -> Result:
    book = await book_of(ask, deleted=is_set(ask, "Include deleted QOS"))
    names, numbers, texts = set(words(ask, "name")), set(words(ask, "id")), set(words(ask, "description"))
    modes = {word.lower() for word in words(ask, "preempt_mode")}
    rows = [
        {"q": record}
        for record in book.qos
        if (not names or record.name in names)
        and (not numbers or str(record.id) in numbers)
        and (not texts or record.description in texts)
        and (not modes or (record.preempt_mode.lower() or "disabled") in modes)
    ]
    return Answer(body=_view(book).body("qos", rows))


@operation("GET /slurmdb/qos/{qos}")
async def get_qos(ask: Ask) -> Result:
    """A QOS, by name or number."""
    book = await book_of(ask, deleted=is_set(ask, "with_deleted"))
    word = ask.path["qos"]
    rows = [{"q": record} for record in book.qos if word.lower() == record.name or word == str(record.id)]
    if not rows:
        raise Refused("ESLURM_REST_EMPTY_RESULT", f"no QOS {word[:80]}", "qos")
    return Answer(body=_view(book).body("qos", rows))


@operation("POST /slurmdb/qos")
async def post_qos(ask: Ask) -> Result:
    """Create QOS, or change existing ones."""
    await change(ask, lambda book: (requests.qos(book, ask.body.get("qos") or []), [], None))
    return Answer()


@operation("DELETE /slurmdb/qos/{qos}")
async def delete_qos(ask: Ask) -> Result:
    """Delete a QOS, and remove it from all lists."""
    word = ask.path["qos"]

    def make(book: Book) -> Edit:
        doomed = [record for record in book.qos if word.lower() == record.name or word == str(record.id)]
        if not doomed:
            raise Refused("ESLURM_REST_EMPTY_RESULT", f"no QOS {word[:80]}", "qos")
        names = {record.name for record in doomed}
        return edits.remove_qos_from_lists(book, names), list[Record](doomed), sorted(names)

    return Answer(body={"removed_qos": await change(ask, make)})


# -- clusters


@operation("GET /slurmdb/clusters", "GET /slurmdb/cluster/{cluster_name}")
async def get_clusters(ask: Ask) -> Result:
    """All clusters, or the one in the path. Raises Refused if that one is unknown."""
    book = await book_of(ask, deleted=is_set(ask, "with_deleted"))
    name = ask.path.get("cluster_name")
    rows = _cluster_rows(book, (name,) if name else ())
    if name and not rows:
        raise Refused("ESLURM_REST_EMPTY_RESULT", f"no cluster {name[:80]}", "cluster_name")
    return Answer(body=_view(book).body("cluster", rows))


@operation("POST /slurmdb/clusters")
async def post_clusters(ask: Ask) -> Result:
    """Create clusters, each with the root of its associations."""
    names = [(cluster.get("name") or "").lower() for cluster in ask.body.get("clusters") or ()]
    if not names or not all(names):
        raise bad("clusters", "a cluster has no name", "ESLURM_REST_INVALID_QUERY")
    await change(ask, lambda book: (requests.clusters(book, names), [], None))
    return Answer()


@operation("DELETE /slurmdb/cluster/{cluster_name}")
async def delete_cluster(ask: Ask) -> Result:
    """Delete a cluster's associations; records of its jobs stay."""
    name = ask.path["cluster_name"].lower()

    def make(book: Book) -> Edit:
        drops = edits.delete_clusters(book, {name})
        if not drops:
            raise Refused("ESLURM_REST_EMPTY_RESULT", f"no cluster {name[:80]}", "cluster_name")
        return [], drops, [name]

    return Answer(body={"deleted_clusters": await change(ask, make)})


# -- wckeys


@operation("GET /slurmdb/wckeys", "GET /slurmdb/wckey/{id}")
async def get_wckeys(ask: Ask) -> Result:
    book = await book_of(ask, deleted=is_set(ask, "with_deleted"))
    clusters, names, users = set(words(ask, "cluster")), set(words(ask, "name")), set(words(ask, "user"))
    numbers = {ask.path["id"]} if "id" in ask.path else set(words(ask, "id"))
    rows = [
        {"w": wckey}
        for wckey in book.wckeys
        if (not clusters or wckey.cluster in clusters)
        and (not names or wckey.name in names)
        and (not users or wckey.user in users)
        and (not numbers or str(wckey.id) in numbers)
    ]
    if "id" in ask.path and not rows:
        raise Refused("ESLURM_REST_EMPTY_RESULT", f"no wckey {ask.path['id'][:80]}", "id")
    return Answer(body=_view(book).body("wckey", rows))


@operation("POST /slurmdb/wckeys")
async def post_wckeys(ask: Ask) -> Result:
    """Create wckeys of users; those that exist already are skipped."""
    given = ask.body.get("wckeys") or []

    def make(book: Book) -> Edit:
        there = {(wckey.cluster, wckey.name, wckey.user) for wckey in book.wckeys}
        wckeys = [
            WcKey(cluster=cluster, name=entry.get("name") or "", user=entry.get("user") or "")
            for entry in given
            for cluster in ([entry["cluster"]] if entry.get("cluster") else [k.name for k in book.clusters])
        ]
        return [entry for entry in wckeys if (entry.cluster, entry.name, entry.user) not in there], [], None

    await change(ask, make)
    return Answer()


@operation("DELETE /slurmdb/wckey/{id}")
async def delete_wckey(ask: Ask) -> Result:
    """Delete a wckey, by its number."""
    word = ask.path["id"]

    def make(book: Book) -> Edit:
        doomed = [wckey for wckey in book.wckeys if str(wckey.id) == word]
        if not doomed:
            raise Refused("ESLURM_REST_EMPTY_RESULT", f"no wckey {word[:80]}", "id")
        return [], list[Record](doomed), [entry.name for entry in doomed]

    return Answer(body={"deleted_wckeys": await change(ask, make)})


# -- TRES, instances, all of it


@operation("GET /slurmdb/tres")
async def get_tres(ask: Ask) -> Result:
    book = await book_of(ask)
    rows = [{"type": kind, "name": name, "id": number} for kind, name, number in tres_of(book)]
    return Answer(body=_view(book).body("tres", rows))


@operation("POST /slurmdb/tres")
async def post_tres(ask: Ask) -> Result:
    """Always refused: TRES come from AccountingStorageTRES of slurm.conf."""
    raise Refused(
        "ESLURM_NOT_SUPPORTED",
        "TRES are counted as AccountingStorageTRES of slurm.conf says; they are not added",
        "TRES",
    )


@operation("GET /slurmdb/instances", "GET /slurmdb/instance")
async def get_instances(ask: Ask) -> Result:
    """Cloud instances of nodes: none are recorded."""
    await ask.database.check()
    return Answer(body={"instances": []})


@operation("GET /slurmdb/config")
async def get_config(ask: Ask) -> Result:
    """The whole policy, in the form that `POST /slurmdb/config` accepts."""
    book = await book_of(ask)
    view = _view(book)
    tres = [{"type": kind, "name": name, "id": number} for kind, name, number in tres_of(book)]
    return Answer(
        body={
            **view.body("cluster", _cluster_rows(book)),
            "tres": view.body("tres", tres)["TRES"],
            **view.body("account", _account_rows(book)),
            **view.body("user", _user_rows(book)),
            **view.body("qos", [{"q": qos} for qos in book.qos]),
            **view.body("wckey", [{"w": wckey} for wckey in book.wckeys]),
            **view.body("association", _association_rows(book, book.associations, alone=True)),
        }
    )


@operation("POST /slurmdb/config")
async def post_config(ask: Ask) -> Result:
    """Create and change all records in the body, in a single transaction."""
    given = ask.body

    def make(book: Book) -> Edit:
        puts: list[Record] = []
        steps: tuple[tuple[str, Callable[[Book, Any], list[Record]]], ...] = (
            ("qos", requests.qos),
            ("accounts", requests.accounts),
            ("users", requests.users),
            ("associations", requests.associations),
        )
        names = [(entry.get("name") or "").lower() for entry in given.get("clusters") or ()]
        for puts_of, value in (
            (requests.clusters, [name for name in names if name]),
            *((step, given.get(name) or []) for name, step in steps),
        ):
            more = puts_of(book, value)
            puts = requests.merged(puts, more)
            book = requests.as_if(book, more)
        return puts, [], None

    await change(ask, make)
    return Answer()
