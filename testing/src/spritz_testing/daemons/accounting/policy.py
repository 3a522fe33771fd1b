"""The accounts, users and QOS of a simulated cluster, and the limits in them.

They are records as sacctmgr sends them; `limits` tells the checks the same limits, from these records alone. Every job
of the workload fits into the limits of its account and QOS if it is alone, so none waits for ever. Limits are low: one
that is never in full use is not tested (`checks.limits.reached` counts).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from spritz.model.limits.records import Account, Association, Book, EditBook, Qos, Record, User
from spritz_testing.daemons.checks.final import Limit
from spritz_testing.daemons.system.machine import USERS

CLUSTER = "sim"

#: Account -> the account above.
ACCOUNTS = {"science": "root", "physics": "science", "biology": "science"}

ALL_QOS = "normal,high,low"

#: CPUs of the largest job that fits into the limits of every account, and of every QOS but `low`, which is for small
#: jobs.
CPUS_MAX = 40

#: GPUs, likewise
GPUS_MAX = 20

QOS = (
    Qos(name="normal", description="usual jobs", priority=100, preempt="low"),
    Qos(
        name="high",
        description="few, and soon",
        priority=1000,
        preempt="low,normal",
        grp_tres="cpu=40,gres/gpu=20",
        max_jobs_pu=2,
        max_submit_pu=5,
    ),
    Qos(name="low", description="whatever is left", grp_jobs=7, max_tres_pu="cpu=24", preempt_mode="requeue"),
)

#: Numbers below 0 until slurmdbd assigns one.
ASSOCIATIONS = (
    Association(id=-1, cluster=CLUSTER, account="science", parent="root", qos=ALL_QOS, grp_submit=60),
    Association(
        id=-2,
        cluster=CLUSTER,
        account="physics",
        parent="science",
        shares=3,
        grp_jobs=6,
        grp_tres="cpu=44,gres/gpu=20",
        default_qos="normal",
    ),
    Association(
        id=-3,
        cluster=CLUSTER,
        account="biology",
        parent="science",
        grp_submit=30,
        grp_tres="cpu=40",
        default_qos="normal",
    ),
    Association(id=-4, cluster=CLUSTER, account="physics", user="alice", is_default=True, max_jobs=4),
    Association(id=-5, cluster=CLUSTER, account="physics", user="bob", is_default=True, max_submit=14),
    Association(id=-6, cluster=CLUSTER, account="biology", user="carol", is_default=True, max_jobs=3, max_submit=16),
    Association(id=-7, cluster=CLUSTER, account="biology", user="dave", is_default=True, grp_tres="cpu=40"),
    Association(id=-8, cluster=CLUSTER, account="biology", user="alice", max_jobs=3),
)


def edit_of(book: Book) -> EditBook | None:
    """The edit that brings a book up to this policy; None: nothing is missing, or the cluster is not known yet."""
    there = {
        (association.account, association.user) for association in book.associations if association.cluster == CLUSTER
    }
    if ("root", "") not in there:
        return None
    accounts = {account.name for account in book.accounts}
    users = {user.name for user in book.users}
    known = {qos.name: qos for qos in book.qos}
    puts: list[Record] = [
        Account(name=name, description=name, organization="sim") for name in ACCOUNTS if name not in accounts
    ]
    names = dict.fromkeys(association.user for association in ASSOCIATIONS if association.user)
    puts += [User(name=name) for name in names if name not in users]
    # "normal" is there from the start, without what it preempts.
    puts += [qos for qos in QOS if qos.name not in known or known[qos.name].preempt != qos.preempt]
    puts += [wanted for wanted in ASSOCIATIONS if (wanted.account, wanted.user) not in there]
    return EditBook(version=book.version, puts=tuple(puts)) if puts else None


def is_complete(book: Book) -> bool:
    """Whether the book has this policy."""
    return bool(book.accounts) and any(row.account == "physics" for row in book.associations) and edit_of(book) is None


#: Accounts of each user, one as likely as the other.
ACCOUNTS_OF = {
    "alice": ("physics", "physics", "biology"),
    "bob": ("physics",),
    "carol": ("biology",),
    "dave": ("biology",),
}


def draw_names(random: Random, user: str, *, is_small: bool) -> tuple[str, str]:
    """Account and QOS of a job. `is_small`: of 24 CPUs at most."""
    names = ("normal", "normal", "normal", "high", "low") if is_small else ("normal", "normal", "high")
    return random.choice(ACCOUNTS_OF[user]), random.choice(names)


def limits() -> tuple[Limit, ...]:
    """Every limit of `ASSOCIATIONS` and `QOS` as the checks have it."""
    return tuple(limit for limit in [*_of_associations(), *_of_qos()] if _is_limit(limit))


def _of_associations() -> Iterator[Limit]:
    for row in ASSOCIATIONS:
        accounts = frozenset([row.account]) if row.user else below(row.account)
        name = f"{row.account} {row.user}".strip()
        uid = USERS[row.user] if row.user else None
        cpus, gpus = _tres(row.grp_tres)
        yield Limit(
            name=f"Grp {name}",
            accounts=accounts,
            uid=uid,
            jobs=row.grp_jobs,
            submitted=row.grp_submit,
            cpus=cpus,
            gpus=gpus,
            preceded=_preceded({"jobs": "grp_jobs", "submitted": "grp_submit"}) | _preceded_tres(),
        )
        assert not row.max_jobs or row.user, "Max* of an account would be for each user below that has none itself"
        yield Limit(
            name=f"Max {name}",
            accounts=accounts,
            uid=uid,
            jobs=row.max_jobs,
            submitted=row.max_submit,
            preceded=_preceded({"jobs": "max_jobs_pu", "submitted": "max_submit_pu"}),
        )


def _preceded(fields: dict[str, str]) -> dict[str, frozenset[str]]:
    """QOS with a limit of their own, by what it bounds. `fields`: of `Qos`, by the same."""
    return {
        what: frozenset(qos.name for qos in QOS if getattr(qos, field) is not None) for what, field in fields.items()
    }


def _preceded_tres() -> dict[str, frozenset[str]]:
    """As `_preceded`, of GrpTRES."""
    return {
        what: frozenset(qos.name for qos in QOS if _tres(qos.grp_tres)[place] is not None)
        for place, what in enumerate(("CPUs", "GPUs"))
    }


def _of_qos() -> Iterator[Limit]:
    for row in QOS:
        cpus, gpus = _tres(row.grp_tres)
        yield Limit(
            name=f"Grp QOS {row.name}",
            qos=row.name,
            jobs=row.grp_jobs,
            submitted=row.grp_submit,
            cpus=cpus,
            gpus=gpus,
        )
        cpus, gpus = _tres(row.max_tres_pu)
        yield Limit(
            name=f"PU QOS {row.name}",
            qos=row.name,
            per_user=True,
            jobs=row.max_jobs_pu,
            submitted=row.max_submit_pu,
            cpus=cpus,
            gpus=gpus,
        )


def _is_limit(limit: Limit) -> bool:
    return any(value is not None for value in (limit.jobs, limit.submitted, limit.cpus, limit.gpus, limit.nodes))


def below(account: str) -> frozenset[str]:
    """The account and all accounts below it."""
    found = {account}
    while more := {name for name, parent in ACCOUNTS.items() if parent in found} - found:
        found |= more
    return frozenset(found)


def _tres(text: str) -> tuple[int | None, int | None]:
    """CPUs and GPUs of a list of TRES; None: no limit."""
    counts = dict(word.split("=") for word in text.split(",") if word)
    cpus, gpus = counts.pop("cpu", None), counts.pop("gres/gpu", None)
    assert not counts, f"the checks know no limit of {', '.join(counts)}"
    return (int(cpus) if cpus else None, int(gpus) if gpus else None)
