"""Convert REST's accounts, users, associations and QOS to edits of accounting's records. Pure.

This module reads REST's fields; `model.limits.edits`, shared with sacctmgr, derives the records of an edit, and
slurmdbd checks permissions and validity. REST identifies records by names (cluster, account, user, partition); slurmdbd
assigns numbers. Absent fields keep their values. Source: OpenAPI slurmdbd; sacctmgr(1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from spritz.model.ids import INFINITE
from spritz.model.limits import edits
from spritz.model.limits.flags import FLAGS
from spritz.model.limits.records import (
    Account,
    Association,
    Book,
    ClusterRow,
    Coordinator,
    FederationMember,
    Qos,
    Record,
    User,
    WcKey,
)
from spritz.rest.answers import Refused
from spritz.rest.operations.job_fields import bad

Given = dict[str, Any]
#: (records to add or replace, records to delete, text of the answer)
Edit = tuple[list[Record], list[Record], Any]

#: Limits of associations: path in REST's record -> field.
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
_QOS_WORDS = {flag.json: name for name, flag in FLAGS.items()}


def label(association: Association) -> str:
    """The line in which sacctmgr lists a deleted association."""
    part = f" P = {association.partition:<10}" if association.partition else ""
    return f"C = {association.cluster:<10} A = {association.account:<10}" + (
        f" U = {association.user:<9}{part}" if association.user else ""
    )


def _at(given: Given, path: str) -> Any:
    value: Any = given
    for name in path.split("/"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _limits(given: Given, numbers: dict[str, str], tres: dict[str, str]) -> Given:
    """The limits that REST's record contains, by field. Infinity becomes None, which removes the limit."""
    limits: Given = {}
    for path, field in numbers.items():
        value = _at(given, path)
        if value is not None:
            limits[field] = None if value >= INFINITE else _small(path, value)
    for path, field in tres.items():
        value = _at(given, path)
        if value:
            limits[field] = tres_of(path, value)
    return limits


def _small(path: str, value: Any) -> int:
    if not 0 <= value < 1 << 31:
        raise bad(path, f"{value} is out of range")
    return int(value)


def tres_of(path: str, given: Iterable[Given]) -> str:
    """A list of TRES as text: `cpu=4,gres/gpu=2`. Raises Refused. `path`: for the error."""
    words = []
    for pair in given:
        kind, name, count = pair.get("type") or "", pair.get("name") or "", pair.get("count")
        if not kind or not isinstance(count, int):
            raise bad(path, "a TRES has no type or count", "ESLURM_INVALID_TRES")
        words.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(words)


def merged(before: list[Record], more: Iterable[Record]) -> list[Record]:
    """Both lists without duplicates: of records with the same key, the last wins."""
    by_key = {_key(record): record for record in before}
    by_key.update((_key(record), record) for record in more)
    return list(by_key.values())


def _key(record: Record) -> tuple[Any, ...]:
    if isinstance(record, Association):
        return ("Association", record.cluster, record.account, record.user, record.partition)
    if isinstance(record, Coordinator):
        return ("Coordinator", record.account, record.user)
    if isinstance(record, WcKey):
        return ("WcKey", record.cluster, record.name, record.user)
    return (type(record).__name__, record.cluster if isinstance(record, FederationMember) else record.name)


def as_if(book: Book, puts: Iterable[Record]) -> Book:
    """The policy with these records, as the base of further edits."""
    kinds: dict[type, str] = {
        Account: "accounts",
        User: "users",
        Qos: "qos",
        Association: "associations",
        Coordinator: "coordinators",
    }
    for kind, field in kinds.items():
        records = [record for record in puts if isinstance(record, kind)]
        if records:
            book = replace(book, **{field: tuple(merged(list(getattr(book, field)), records))})
    known = {cluster.name for cluster in book.clusters}
    roots = {association.cluster for association in book.associations}.difference(known)
    return replace(book, clusters=(*book.clusters, *(ClusterRow(name=name) for name in sorted(roots))))


def accounts(book: Book, given: list[Given]) -> list[Record]:
    """Records of accounts and of their coordinators."""
    known = {account.name: account for account in book.accounts}
    puts: list[Record] = []
    for entry in given:
        name = (entry.get("name") or "").lower()
        if not name:
            raise bad("accounts/name", "an account has no name", "ESLURM_REST_INVALID_QUERY")
        old = known.get(name) or Account(name=name, description=name, organization=name)
        new = replace(
            old,
            description=entry.get("description") or old.description,
            organization=entry.get("organization") or old.organization,
        )
        if known.get(name) != new:
            puts.append(new)
        there = {coordinator.user for coordinator in book.coordinators if coordinator.account == name}
        for coordinator_entry in entry.get("coordinators") or ():
            user = coordinator_entry.get("name") or ""
            if user and coordinator_entry.get("direct", True) and user not in there:
                puts.append(Coordinator(account=name, user=user))
    return puts


def users(book: Book, given: list[Given]) -> list[Record]:
    """Records of users, of the accounts that they coordinate, and of their default accounts."""
    known = {user.name: user for user in book.users}
    puts: list[Record] = []
    for entry in given:
        name = entry.get("name") or ""
        if not name:
            raise bad("users/name", "a user has no name", "ESLURM_REST_INVALID_QUERY")
        if entry.get("old_name") and entry["old_name"] != name:
            raise bad("users/old_name", "users are not renamed", "ESLURM_NOT_SUPPORTED")
        old = known.get(name) or User(name=name)
        level = [word for word in entry.get("administrator_level") or () if word != "Not Set"]
        key = _at(entry, "default/wckey")
        new = replace(old, admin=level[0] if level else old.admin, default_wckey=key or old.default_wckey)
        if known.get(name) != new:
            puts.append(new)
        there = {coordinator.account for coordinator in book.coordinators if coordinator.user == name}
        for coordinated in entry.get("coordinators") or ():
            account = (coordinated.get("name") or "").lower()
            if account and coordinated.get("direct", True) and account not in there:
                puts.append(Coordinator(account=account, user=name))
        account = (_at(entry, "default/account") or "").lower()
        if account:
            puts += _default_account(book, name, account)
    return puts


def _default_account(book: Book, user: str, account: str) -> list[Record]:
    associations = [association for association in book.associations if association.user == user]
    clusters = {record.cluster for record in associations if record.account == account}
    return [
        replace(record, is_default=record.account == account)
        for record in associations
        if record.cluster in clusters and record.is_default is not (record.account == account)
    ]


def associations(book: Book, given: list[Given]) -> list[Record]:
    """Records of associations of accounts and users."""
    puts: list[Record] = []
    for number, entry in enumerate(given, 1):
        cluster, account = (entry.get("cluster") or "").lower(), (entry.get("account") or "").lower()
        user, partition = entry.get("user") or "", entry.get("partition") or ""
        if not account or not cluster:
            raise bad("associations", "an association has no cluster or account", "ESLURM_REST_INVALID_QUERY")
        key = (cluster, account, user, partition)
        old = next((a for a in book.associations if (a.cluster, a.account, a.user, a.partition) == key), None)
        if old is None:
            parent = "" if user or account == "root" else (entry.get("parent_account") or "root").lower()
            old = Association(id=-number, cluster=cluster, account=account, user=user, partition=partition)
            first = bool(user) and not any(
                a.cluster == cluster and a.user == user and a.is_default for a in (*book.associations, *_made(puts))
            )
            old = replace(old, parent=parent, is_default=first)
        fields = _limits(entry, _LIMITS, _TRES_LIMITS)
        if entry.get("shares_raw"):
            fields["shares"] = entry["shares_raw"]
        if entry.get("qos"):
            fields["qos"] = ",".join(sorted(entry["qos"]))
        if _at(entry, "default/qos"):
            fields["default_qos"] = _at(entry, "default/qos")
        if entry.get("parent_account") and not user and account != "root":
            fields["parent"] = entry["parent_account"].lower()
        if entry.get("is_default"):
            fields["is_default"] = True
        new = replace(old, **fields)
        if new != old or old.id < 0:
            puts.append(new)
    return puts


def _made(puts: Iterable[Record]) -> list[Association]:
    return [record for record in puts if isinstance(record, Association)]


def qos(book: Book, given: list[Given]) -> list[Record]:
    """Records of QOS with their limits."""
    known = {record.name: record for record in book.qos}
    by_number = {str(record.id): record.name for record in book.qos}
    puts: list[Record] = []
    for entry in given:
        name = (entry.get("name") or by_number.get(str(entry.get("id")), "")).lower()
        if not name:
            raise bad("qos/name", "a QOS has no name", "ESLURM_REST_INVALID_QUERY")
        old = known.get(name) or Qos(name=name, description=name)
        fields = _limits(entry, _QOS_LIMITS, _QOS_TRES)
        if entry.get("description"):
            fields["description"] = entry["description"]
        if entry.get("priority") is not None:
            fields["priority"] = _small("priority", entry["priority"])
        if _at(entry, "limits/grace_time"):
            fields["grace_seconds"] = _small("limits/grace_time", _at(entry, "limits/grace_time"))
        for path, field in (
            ("usage_factor", "usage_factor"),
            ("usage_threshold", "usage_threshold"),
            ("limits/factor", "limit_factor"),
        ):
            if _at(entry, path) is not None:
                fields[field] = float(_at(entry, path))
        flags = [word for word in entry.get("flags") or () if word not in ("NOT_SET", "DELETED")]
        if flags:
            fields["flags"] = ",".join(sorted(map(_qos_flag, flags)))
        if _at(entry, "preempt/list"):
            fields["preempt"] = ",".join(_at(entry, "preempt/list"))
        modes = [word for word in _at(entry, "preempt/mode") or () if word != "DISABLED"]
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
    """Root associations of new clusters, with negative ids that the commit replaces."""
    # Start below the ids that `associations` assigns, since both may be in the same edit.
    return edits.new_clusters(book, names, Association(id=0, cluster="", account=""), first_id=-1_000_000)


def _conditions(book: Book, condition: Given) -> tuple[list[str], Given]:
    """(clusters, fields of the new associations) of a condition. Raises Refused."""
    known = [cluster.name for cluster in book.clusters]
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


def _template(fields: Given) -> edits.Template:
    """A function that makes associations with these fields; `edits` sets cluster, account and user."""
    return lambda _cluster, _account: Association(id=0, cluster="", account="", **fields)


def add_accounts(book: Book, names: list[str], condition: Given, account: Given) -> Edit:
    """Add accounts on clusters, below `association/parent`. Raises Refused."""
    wanted, fields = _conditions(book, condition)
    parent = (_at(condition, "association/parent") or "root").lower()
    description, organization = account.get("description") or "", account.get("organization") or ""
    new = edits.new_accounts(book, names, parent, description, organization)
    placed = edits.account_associations(book, names, wanted, parent, _template(fields))
    places = edits.account_places(book)
    for entry in placed:
        if (entry.cluster, parent) not in places:
            why = f"Parent account '{parent}' is not on cluster '{entry.cluster}'"
            raise Refused("ESLURM_INVALID_ACCOUNT", why, "association/parent")
    if not (new or placed):
        return [], [], "Nothing new added."
    lines = [" Adding Account(s)", *(f"  {record.name}" for record in new)] if new else []
    lines += [" Associations", *(f"  A = {record.account:<10} C = {record.cluster:<10}" for record in placed)]
    return [*new, *placed], [], "\n".join(lines) + "\n"


def add_users(book: Book, condition: Given, user: Given) -> Edit:
    """Add users to accounts on clusters, with wckeys. Raises Refused."""
    wanted, fields = _conditions(book, condition)
    names = list(dict.fromkeys(name for name in condition.get("users") or () if name))
    default = (user.get("defaultaccount") or "").lower()
    placed = [name.lower() for name in condition.get("accounts") or () if name]
    if default and default not in placed:
        placed.append(default)
    for name in placed:
        if name not in {account.name for account in book.accounts}:
            raise Refused("ESLURM_INVALID_ACCOUNT", f"This account '{name}' doesn't exist.", "accounts")
    keys = [word for word in condition.get("wckeys") or () if word]
    key = user.get("defaultwckey") or (keys[0] if keys else "")
    level = [word for word in user.get("adminlevel") or () if word != "Not Set"]
    new = edits.new_users(book, names, level[0] if level else "None", key)
    partitions = condition.get("partitions") or [""]
    first = default or min(placed, default="")  # as sacctmgr of 22.05: the first by name
    new_associations = edits.user_associations(book, names, placed, wanted, partitions, first, _template(fields))
    puts: list[Record] = [*new, *new_associations, *edits.new_wckeys(book, names, keys, wanted)]
    if not puts:
        return [], [], "Nothing new added."
    lines = [" Adding User(s)", *(f"  {record.name}" for record in new)] if new else []
    lines.append(" Associations =")
    lines += [
        f"  U = {record.user:<9} A = {record.account:<10} C = {record.cluster:<10}" for record in new_associations
    ]
    return puts, [], "\n".join(lines) + "\n"


def without_accounts(book: Book, names: set[str]) -> list[Record]:
    """The records to delete for these accounts, with everything below them. Raises Refused."""
    if "root" in names:
        raise Refused("ESLURM_ACCESS_DENIED", "the root account is not removed", "account_name")
    if not names & {account.name for account in book.accounts}:
        raise Refused("ESLURM_REST_EMPTY_RESULT", f"no account {', '.join(sorted(names))[:80]}", "account_name")
    return edits.delete_associations(
        book, [association for association in book.associations if association.account in names], names
    )
