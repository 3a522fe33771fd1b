"""Edits of accounting's book, made of what REST sends. Pure. Who may do what, and what must hold, is slurmdbd's.

Records of REST name what they mean (cluster, account, user, partition); numbers are slurmdbd's. Fields that are not
given keep their values. Source: OpenAPI slurmdbd; sacctmgr(1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from spritz.model.ids import INFINITE
from spritz.model.limits.bounds import AssocBounds
from spritz.model.limits.records import (
    Account,
    Association,
    Book,
    ClusterRow,
    Coordinator,
    Policy,
    Qos,
    Record,
    User,
    WcKey,
)
from spritz.model.limits.rules import Rules
from spritz.presentation.json.associations import QOS_FLAGS
from spritz.rest.operations import Refused
from spritz.rest.operations.job_fields import bad

Given = dict[str, Any]
#: what is put and dropped, and what the answer says
Edit = tuple[list[Record], list[Record], Any]
R = TypeVar("R", bound=Record)

#: Limits of associations: path in the record of REST -> field
_LIMITS = {
    "max/jobs/per/count": "grp_jobs",
    "max/jobs/per/accruing": "grp_jobs_accrue",
    "max/jobs/per/submitted": "grp_submit",
    "max/jobs/per/wall_clock": "max_wall",
    "max/jobs/active": "max_jobs",
    "max/jobs/accruing": "max_jobs_accrue",
    "max/jobs/total": "max_submit",
    "max/per/account/wall_clock": "grp_wall",
    "min/priority_threshold": "min_prio_threshold",
    "priority": "priority",
}
_TRES_LIMITS = {
    "max/tres/total": "grp_tres",
    "max/tres/group/minutes": "grp_tres_mins",
    "max/tres/group/active": "grp_tres_run_mins",
    "max/tres/minutes/per/job": "max_tres_mins",
    "max/tres/per/job": "max_tres",
    "max/tres/per/node": "max_tres_per_node",
}
_QOS_LIMITS = {
    "limits/max/active_jobs/accruing": "grp_jobs_accrue",
    "limits/max/active_jobs/count": "grp_jobs",
    "limits/max/jobs/active_jobs/per/account": "max_jobs_pa",
    "limits/max/jobs/active_jobs/per/user": "max_jobs_pu",
    "limits/max/jobs/per/account": "max_submit_pa",
    "limits/max/jobs/per/user": "max_submit_pu",
    "limits/max/jobs/count": "grp_submit",
    "limits/max/wall_clock/per/qos": "grp_wall",
    "limits/max/wall_clock/per/job": "max_wall",
    "limits/max/accruing/per/account": "max_jobs_accrue_pa",
    "limits/max/accruing/per/user": "max_jobs_accrue_pu",
    "limits/min/priority_threshold": "min_prio_threshold",
    "preempt/exempt_time": "preempt_exempt_seconds",
}
_QOS_TRES = {
    "limits/max/tres/total": "grp_tres",
    "limits/max/tres/minutes/total": "grp_tres_mins",
    "limits/max/tres/minutes/per/qos": "grp_tres_run_mins",
    "limits/max/tres/minutes/per/job": "max_tres_mins_pj",
    "limits/max/tres/minutes/per/account": "max_tres_run_mins_pa",
    "limits/max/tres/minutes/per/user": "max_tres_run_mins_pu",
    "limits/max/tres/per/account": "max_tres_pa",
    "limits/max/tres/per/job": "max_tres_pj",
    "limits/max/tres/per/node": "max_tres_pn",
    "limits/max/tres/per/user": "max_tres_pu",
    "limits/min/tres/per/job": "min_tres_pj",
}
#: Limits of `association_condition/association`
_CONDITION_LIMITS = {
    "grpjobs": "grp_jobs",
    "grpjobsaccrue": "grp_jobs_accrue",
    "grpsubmitjobs": "grp_submit",
    "grpwall": "grp_wall",
    "maxjobs": "max_jobs",
    "maxjobsaccrue": "max_jobs_accrue",
    "maxsubmitjobs": "max_submit",
    "maxwalldurationperjob": "max_wall",
    "minpriothresh": "min_prio_threshold",
    "priority": "priority",
}
_CONDITION_TRES = {
    "grptres": "grp_tres",
    "grptresmins": "grp_tres_mins",
    "grptresrunmins": "grp_tres_run_mins",
    "maxtresminsperjob": "max_tres_mins",
    "maxtresperjob": "max_tres",
    "maxtrespernode": "max_tres_per_node",
}
_QOS_WORDS = {word: name for name, word in QOS_FLAGS.items()}


def own_bounds(one: Association) -> AssocBounds:
    """What the association sets itself."""
    orphan = replace(one, parent="")
    return Rules(Policy(version=1, associations=(orphan,))).bounds(orphan)


def with_deleted(book: Book) -> Book:
    """The book as if nothing had been deleted; `deleted` still says what was."""

    def all_of(kind: type[R], there: tuple[R, ...]) -> tuple[R, ...]:
        return (*there, *(one for one in book.deleted if isinstance(one, kind)))

    clusters: tuple[ClusterRow, ...] = (*book.clusters, *book.deleted_clusters)
    return replace(
        book,
        clusters=tuple(sorted(clusters, key=lambda one: one.name)),
        accounts=all_of(Account, book.accounts),
        users=all_of(User, book.users),
        wckeys=all_of(WcKey, book.wckeys),
        associations=all_of(Association, book.associations),
        qos=all_of(Qos, book.qos),
    )


def label(one: Association) -> str:
    """As sacctmgr lists a deleted association."""
    part = f" P = {one.partition:<10}" if one.partition else ""
    return f"C = {one.cluster:<10} A = {one.account:<10}" + (f" U = {one.user:<9}{part}" if one.user else "")


def _at(given: Given, path: str) -> Any:
    value: Any = given
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _limits(given: Given, numbers: dict[str, str], tres: dict[str, str]) -> Given:
    """Fields that are given: a number, or None where it is infinite, which lifts the limit."""
    found: Given = {}
    for path, field in numbers.items():
        value = _at(given, path)
        if value is not None:
            found[field] = None if value >= INFINITE else _small(path, value)
    for path, field in tres.items():
        value = _at(given, path)
        if value:
            found[field] = tres_of(path, value)
    return found


def _small(path: str, value: Any) -> int:
    if not 0 <= value < 1 << 31:
        raise bad(path, f"{value} is out of range")
    return int(value)


def tres_of(path: str, given: Iterable[Given]) -> str:
    """`cpu=4,gres/gpu=2`."""
    words = []
    for one in given:
        kind, name, count = one.get("type") or "", one.get("name") or "", one.get("count")
        if not kind or not isinstance(count, int):
            raise bad(path, "a TRES has no type or count", "ESLURM_INVALID_TRES")
        words.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(words)


def merged(before: list[Record], more: Iterable[Record]) -> list[Record]:
    """The later one of records of the same thing counts."""
    found = {_key(one): one for one in before}
    found.update((_key(one), one) for one in more)
    return list(found.values())


def _key(one: Record) -> tuple[Any, ...]:
    if isinstance(one, Association):
        return ("Association", one.cluster, one.account, one.user, one.partition)
    if isinstance(one, Coordinator):
        return ("Coordinator", one.account, one.user)
    if isinstance(one, WcKey):
        return ("WcKey", one.cluster, one.name, one.user)
    return (type(one).__name__, one.name)


def as_if(book: Book, puts: Iterable[Record]) -> Book:
    """The book with these put, for what is made after them."""
    kinds: dict[type, str] = {
        Account: "accounts",
        User: "users",
        Qos: "qos",
        Association: "associations",
        Coordinator: "coordinators",
    }
    for kind, field in kinds.items():
        mine = [one for one in puts if isinstance(one, kind)]
        if mine:
            book = replace(book, **{field: tuple(merged(list(getattr(book, field)), mine))})
    known = {one.name for one in book.clusters}
    roots = {one.cluster for one in book.associations}.difference(known)
    return replace(book, clusters=(*book.clusters, *(ClusterRow(name=name) for name in sorted(roots))))


def accounts(book: Book, given: list[Given]) -> list[Record]:
    """Accounts, and their coordinators."""
    known = {one.name: one for one in book.accounts}
    puts: list[Record] = []
    for one in given:
        name = (one.get("name") or "").lower()
        if not name:
            raise bad("accounts/name", "an account has no name", "ESLURM_REST_INVALID_QUERY")
        old = known.get(name) or Account(name=name, description=name, organization=name)
        new = replace(
            old,
            description=one.get("description") or old.description,
            organization=one.get("organization") or old.organization,
        )
        if known.get(name) != new:
            puts.append(new)
        there = {each.user for each in book.coordinators if each.account == name}
        for each in one.get("coordinators") or ():
            user = each.get("name") or ""
            if user and each.get("direct", True) and user not in there:
                puts.append(Coordinator(account=name, user=user))
    return puts


def users(book: Book, given: list[Given]) -> list[Record]:
    """Users, and of which accounts they are coordinators."""
    known = {one.name: one for one in book.users}
    puts: list[Record] = []
    for one in given:
        name = one.get("name") or ""
        if not name:
            raise bad("users/name", "a user has no name", "ESLURM_REST_INVALID_QUERY")
        if one.get("old_name") and one["old_name"] != name:
            raise bad("users/old_name", "users are not renamed", "ESLURM_NOT_SUPPORTED")
        old = known.get(name) or User(name=name)
        level = [word for word in one.get("administrator_level") or () if word != "Not Set"]
        key = _at(one, "default/wckey")
        new = replace(old, admin=level[0] if level else old.admin, default_wckey=key or old.default_wckey)
        if known.get(name) != new:
            puts.append(new)
        there = {each.account for each in book.coordinators if each.user == name}
        for each in one.get("coordinators") or ():
            account = (each.get("name") or "").lower()
            if account and each.get("direct", True) and account not in there:
                puts.append(Coordinator(account=account, user=name))
        account = (_at(one, "default/account") or "").lower()
        if account:
            puts += _default_account(book, name, account)
    return puts


def _default_account(book: Book, user: str, account: str) -> list[Record]:
    mine = [one for one in book.associations if one.user == user]
    clusters = {one.cluster for one in mine if one.account == account}
    return [
        replace(one, is_default=one.account == account)
        for one in mine
        if one.cluster in clusters and one.is_default is not (one.account == account)
    ]


def associations(book: Book, given: list[Given]) -> list[Record]:
    """Associations of accounts and users."""
    puts: list[Record] = []
    for number, one in enumerate(given, 1):
        cluster, account = (one.get("cluster") or "").lower(), (one.get("account") or "").lower()
        user, partition = one.get("user") or "", one.get("partition") or ""
        if not account or not cluster:
            raise bad("associations", "an association has no cluster or account", "ESLURM_REST_INVALID_QUERY")
        key = (cluster, account, user, partition)
        old = next((a for a in book.associations if (a.cluster, a.account, a.user, a.partition) == key), None)
        if old is None:
            parent = "" if user or account == "root" else (one.get("parent_account") or "root").lower()
            old = Association(id=-number, cluster=cluster, account=account, user=user, partition=partition)
            first = bool(user) and not any(
                a.cluster == cluster and a.user == user and a.is_default for a in (*book.associations, *_made(puts))
            )
            old = replace(old, parent=parent, is_default=first)
        fields = _limits(one, _LIMITS, _TRES_LIMITS)
        if one.get("shares_raw"):
            fields["shares"] = one["shares_raw"]
        if one.get("qos"):
            fields["qos"] = ",".join(sorted(one["qos"]))
        if _at(one, "default/qos"):
            fields["default_qos"] = _at(one, "default/qos")
        if one.get("parent_account") and not user and account != "root":
            fields["parent"] = one["parent_account"].lower()
        if one.get("is_default"):
            fields["is_default"] = True
        new = replace(old, **fields)
        if new != old or old.id < 0:
            puts.append(new)
    return puts


def _made(puts: Iterable[Record]) -> list[Association]:
    return [one for one in puts if isinstance(one, Association)]


def qos(book: Book, given: list[Given]) -> list[Record]:
    """QOS with their limits."""
    known = {one.name: one for one in book.qos}
    by_number = {str(one.id): one.name for one in book.qos}
    puts: list[Record] = []
    for one in given:
        name = (one.get("name") or by_number.get(str(one.get("id")), "")).lower()
        if not name:
            raise bad("qos/name", "a QOS has no name", "ESLURM_REST_INVALID_QUERY")
        old = known.get(name) or Qos(name=name, description=name)
        fields = _limits(one, _QOS_LIMITS, _QOS_TRES)
        if one.get("description"):
            fields["description"] = one["description"]
        if one.get("priority") is not None:
            fields["priority"] = _small("priority", one["priority"])
        if _at(one, "limits/grace_time"):
            fields["grace_seconds"] = _small("limits/grace_time", _at(one, "limits/grace_time"))
        for path, field in (
            ("usage_factor", "usage_factor"),
            ("usage_threshold", "usage_threshold"),
            ("limits/factor", "limit_factor"),
        ):
            if _at(one, path) is not None:
                fields[field] = float(_at(one, path))
        flags = [word for word in one.get("flags") or () if word not in ("NOT_SET", "DELETED")]
        if flags:
            fields["flags"] = ",".join(sorted(map(_qos_flag, flags)))
        if _at(one, "preempt/list"):
            fields["preempt"] = ",".join(_at(one, "preempt/list"))
        modes = [word for word in _at(one, "preempt/mode") or () if word != "DISABLED"]
        if modes:
            fields["preempt_mode"] = ",".join(modes).lower()
        new = replace(old, **fields)
        if known.get(name) != new:
            puts.append(new)
    return puts


def _qos_flag(word: str) -> str:
    if word not in _QOS_WORDS:
        raise bad("qos/flags", f"{word} is not supported by Spritz", "ESLURM_NOT_SUPPORTED")
    return _QOS_WORDS[word]


def clusters(book: Book, names: list[str]) -> list[Record]:
    """The roots of new clusters."""
    known = {one.cluster for one in book.associations}
    puts: list[Record] = []
    for number, name in enumerate(dict.fromkeys(name for name in names if name not in known)):
        if not number:
            if not any(one.name == "root" for one in book.accounts):
                puts.append(Account(name="root", description="default root account", organization="root"))
            if not any(one.name == "root" for one in book.users):
                puts.append(User(name="root", admin="Administrator"))
            puts += book.lacking_qos(book.default_qos)
        low = -1_000_000 - 2 * number
        puts.append(Association(id=low, cluster=name, account="root", qos=book.default_qos))
        puts.append(Association(id=low - 1, cluster=name, account="root", user="root", is_default=True))
    return puts


def _conditions(book: Book, condition: Given) -> tuple[list[str], Given]:
    """Clusters, and fields of the new associations."""
    known = [one.name for one in book.clusters]
    wanted = [name.lower() for name in condition.get("clusters") or () if name] or known
    lost = [name for name in wanted if name not in known]
    if lost or not wanted:
        raise Refused("ESLURM_INVALID_CLUSTER_NAME", f"no cluster {', '.join(lost)}", "association_condition/clusters")
    given = condition.get("association") or {}
    fields = _limits(given, _CONDITION_LIMITS, _CONDITION_TRES)
    if given.get("maxtresrunmins"):
        raise bad("association/maxtresrunmins", "it is a limit of QOS here", "ESLURM_NOT_SUPPORTED")
    if given.get("fairshare"):
        fields["shares"] = given["fairshare"]
    if given.get("defaultqos"):
        fields["default_qos"] = given["defaultqos"]
    if given.get("qoslevel"):
        fields["qos"] = ",".join(sorted(given["qoslevel"]))
    return wanted, fields


def add_accounts(book: Book, names: list[str], condition: Given, account: Given) -> Edit:
    """Accounts on clusters, below `association/parent`."""
    wanted, fields = _conditions(book, condition)
    parent = (_at(condition, "association/parent") or "root").lower()
    known = {one.name for one in book.accounts}
    there = {(one.cluster, one.account) for one in book.associations if not one.user}
    new = [name for name in dict.fromkeys(names) if name not in known]
    puts: list[Record] = [
        Account(
            name=name,
            description=account.get("description") or name,
            organization=account.get("organization") or (parent if parent != "root" else name),
        )
        for name in new
    ]
    placed = [(cluster, name) for name in dict.fromkeys(names) for cluster in wanted if (cluster, name) not in there]
    for number, (cluster, name) in enumerate(placed, 1):
        if (cluster, parent) not in there:
            why = f"Parent account '{parent}' is not on cluster '{cluster}'"
            raise Refused("ESLURM_INVALID_ACCOUNT", why, "association/parent")
        puts.append(Association(id=-number, cluster=cluster, account=name, parent=parent, **fields))
    if not puts:
        return [], [], "Nothing new added."
    lines = [" Adding Account(s)", *(f"  {name}" for name in new)] if new else []
    lines += [" Associations", *(f"  A = {name:<10} C = {cluster:<10}" for cluster, name in placed)]
    return puts, [], "\n".join(lines) + "\n"


def add_users(book: Book, condition: Given, user: Given) -> Edit:
    """Users in accounts on clusters, with wckeys."""
    wanted, fields = _conditions(book, condition)
    names = list(dict.fromkeys(name for name in condition.get("users") or () if name))
    default = (user.get("defaultaccount") or "").lower()
    placed = [name.lower() for name in condition.get("accounts") or () if name]
    if default and default not in placed:
        placed.append(default)
    for name in placed:
        if name not in {one.name for one in book.accounts}:
            raise Refused("ESLURM_INVALID_ACCOUNT", f"This account '{name}' doesn't exist.", "accounts")
    keys = [word for word in condition.get("wckeys") or () if word]
    key = user.get("defaultwckey") or (keys[0] if keys else "")
    level = [word for word in user.get("adminlevel") or () if word != "Not Set"]
    known = {one.name for one in book.users}
    new = [name for name in names if name not in known]
    puts: list[Record] = [User(name=name, admin=level[0] if level else "None", default_wckey=key) for name in new]
    on = {(one.cluster, one.account) for one in book.associations if not one.user}
    there = {(one.cluster, one.account, one.user, one.partition) for one in book.associations}
    defaults = {(one.cluster, one.user) for one in book.associations if one.user and one.is_default}
    lines, number = [], 0
    for name in names:
        for account in placed:
            for cluster in wanted:
                for partition in condition.get("partitions") or [""]:
                    if (cluster, account) not in on or (cluster, account, name, partition) in there:
                        continue
                    number += 1
                    first = (cluster, name) not in defaults and account == (default or placed[0])
                    if first:
                        defaults.add((cluster, name))
                    made = Association(id=-number, cluster=cluster, account=account, user=name, partition=partition)
                    puts.append(replace(made, is_default=first, **fields))
                    lines.append(f"  U = {name:<9} A = {account:<10} C = {cluster:<10}")
    old = {(one.cluster, one.name, one.user) for one in book.wckeys}
    puts += [WcKey(cluster=c, name=k, user=n) for n in names for k in keys for c in wanted if (c, k, n) not in old]
    if not puts:
        return [], [], "Nothing new added."
    head = [" Adding User(s)", *(f"  {name}" for name in new)] if new else []
    return puts, [], "\n".join([*head, " Associations =", *lines]) + "\n"


def without_accounts(book: Book, names: set[str]) -> list[Record]:
    """Accounts with everything below them. Raises Refused."""
    if "root" in names:
        raise Refused("ESLURM_ACCESS_DENIED", "the root account is not removed", "account_name")
    if not names & {one.name for one in book.accounts}:
        raise Refused("ESLURM_REST_EMPTY_RESULT", f"no account {', '.join(sorted(names))[:80]}", "account_name")
    drops = without_associations(book, [one for one in book.associations if one.account in names])
    gone = {_key(one) for one in drops}
    drops += [one for one in book.accounts if one.name in names and _key(one) not in gone]
    return drops


def without_associations(book: Book, chosen: list[Association]) -> list[Record]:
    """Associations, all that stands below those of accounts, and accounts that stand nowhere then."""
    doomed = {one.id: one for one in chosen}
    while True:
        pairs = {(one.cluster, one.account) for one in doomed.values() if not one.user}
        more = [
            one
            for one in book.associations
            if one.id not in doomed and ((one.cluster, one.account) in pairs or (one.cluster, one.parent) in pairs)
        ]
        if not more:
            break
        doomed.update((one.id, one) for one in more)
    left = {one.account for one in book.associations if one.id not in doomed and not one.user}
    names = {one.account for one in doomed.values() if not one.user} - left
    drops: list[Record] = list(doomed.values())
    drops += [one for one in book.accounts if one.name in names]
    drops += [one for one in book.coordinators if one.account in names]
    return drops


def free_of_qos(book: Book, names: set[str]) -> list[Record]:
    """Associations and QOS that name these, without them."""
    puts: list[Record] = []
    for one in book.associations:
        listed = (one.qos or "").split(",")
        kept = [name for name in listed if name not in names]
        if one.default_qos in names or len(kept) != len(listed):
            text = ",".join(kept) if one.qos is not None else None
            puts.append(replace(one, qos=text, default_qos="" if one.default_qos in names else one.default_qos))
    for other in book.qos:
        preempted = ",".join(name for name in other.preempt.split(",") if name not in names)
        if other.name not in names and preempted != other.preempt:
            puts.append(replace(other, preempt=preempted))
    return puts
