"""Reports of rolled-up usage: of clusters, and of accounts, users and wckeys.

Source: sreport(1) cluster and user reports; headings and orders of 22.05.
"""

from __future__ import annotations

from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from spritz.cli.call.options import Fatal
from spritz.model.accounting.usage import AskUsage, ClusterUsage, HolderUsage, UsageReport
from spritz.presentation.accounting.report_fields import Amount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spritz.cli.administration.report.conditions import Conditions
    from spritz.cli.administration.report.span import Span
    from spritz.cli.listings.acct.connect import DatabaseConnection
    from spritz.model.limits.records import Book

    Row = dict[str, object]

#: TRES of every cluster, in Slurm's order.
TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")


class Answer:
    """slurmdbd's answer. `holders`: also query the usage of accounts, users and wckeys."""

    def __init__(self, connection: DatabaseConnection, clusters: tuple[str, ...], span: Span, *, holders: bool) -> None:
        #: cluster -> TRES -> seconds allocated, down, planned …
        self.clusters: dict[str, dict[str, ClusterUsage]] = {}
        self.holders: list[HolderUsage] = []
        query = AskUsage(clusters=clusters, starts_at=span.start, ends_at=span.end, holders=holders)
        for piece in connection.stream(query, UsageReport, timeout=None):
            for cluster in piece.clusters:
                self.clusters.setdefault(cluster.cluster, {})[cluster.tres] = cluster
            self.holders += piece.holders

    def tres(self, words: str | None) -> list[str]:
        """The TRES to report. Raises Fatal if none of the requested TRES is known."""
        if words is None:
            return ["cpu"]
        known = dict.fromkeys(TRES) | {name: None for cluster in self.clusters.values() for name in cluster}
        known |= {holder.tres: None for holder in self.holders}
        if words.strip().lower() == "all":
            return list(known)
        wanted = [word.strip().lower() for word in words.split(",")]
        names = [name for word in dict.fromkeys(wanted) for name in known if name.lower() == word]
        # Slurm knows the TRES of AccountingStorageTRES from the start; Spritz knows a GRES once a job has used it.
        names = names or [word for word in wanted if word.startswith("gres/")]
        if not names:
            raise Fatal("No valid TRES given")
        return names

    def whole(self, cluster: str, tres: str) -> int:
        """TRES seconds of the whole cluster in the period."""
        usage = self.clusters.get(cluster, {}).get(tres)
        return usage.reported if usage is not None else 0


def utilization(answer: Answer, names: list[str], *, all_tres: bool) -> list[Row]:
    """A row for each TRES of each cluster. Raises Fatal for the TRES node, because jobs share nodes."""
    if "node" in names and not all_tres:
        raise Fatal(
            "TRES node usage is no longer reported in the Cluster Utilization report.  Please use TRES CPU instead."
        )
    rows: list[Row] = []
    for cluster, by_tres in answer.clusters.items():
        for name in names if by_tres else ():
            usage = by_tres.get(name) or _nothing(cluster, name)
            if name == "node":
                continue
            row: Row = {"cluster": cluster, "tres": name, "count": usage.count}
            for key in ("allocated", "down", "planned_down", "idle", "planned", "over", "reported"):
                row[key] = Amount(getattr(usage, key), usage.reported, timed=name != "energy")
            rows.append(row)
    return rows


def _nothing(cluster: str, tres: str) -> ClusterUsage:
    return ClusterUsage(
        cluster=cluster, tres=tres, count=0, allocated=0, down=0, planned_down=0, idle=0, planned=0, over=0
    )


Sums = dict[str, int]


def _summed(
    holders: Iterable[HolderUsage], key: Callable[[HolderUsage], tuple[str, ...]]
) -> dict[tuple[str, ...], Sums]:
    totals: dict[tuple[str, ...], Sums] = {}
    for holder in holders:
        sums = totals.setdefault(key(holder), {})
        sums[holder.tres] = sums.get(holder.tres, 0) + holder.seconds
    return totals


class Reporter:
    """Makes rows of users' usage. `names`: the TRES to report. `proper(user)`: the user's full name."""

    def __init__(
        self, answer: Answer, book: Book, names: list[str], asked: Conditions, proper: Callable[[str], str]
    ) -> None:
        self._answer = answer
        self._book = book
        self._names = names
        self._asked = asked
        self._proper = cache(proper)

    def rows(self, report: str, top: int) -> list[Row]:
        """The rows of `report`. `top`: number of users in TopUsage."""
        if report.startswith("AccountUtilization"):
            by_qos = report == "AccountUtilizationByQOS"
            return [row for cluster in self._answer.clusters for row in self._tree(cluster, by_qos=by_qos)]
        if report == "UserUtilizationByAccount":
            return [row for cluster in self._answer.clusters for row in self._users(cluster)]
        if report == "TopUsage":
            grouped = self._grouped if self._asked.group else self._users
            return [row for cluster in self._answer.clusters for row in grouped(cluster)[: top * len(self._names)]]
        return self._by_wckey(by_user=report == "UserUtilizationByWckey")

    def _lines(self, cluster: str, sums: Sums, **what: str) -> list[Row]:
        row: Row = {
            "cluster": cluster,
            "account": "",
            "login": "",
            "proper": "",
            "wckey": "",
            "qos": "",
            "count": 0,
            **what,
        }
        row["energy"] = Amount(sums.get("energy", 0), self._answer.whole(cluster, "energy"), timed=False)
        return [
            row
            | {
                "tres": name,
                "used": Amount(sums.get(name, 0), self._answer.whole(cluster, name), timed=name != "energy"),
            }
            for name in self._names
        ]

    def _person(self, user: str) -> dict[str, str]:
        return {"login": user, "proper": self._proper(user) if user else ""}

    def _of(self, cluster: str) -> list[HolderUsage]:
        return [holder for holder in self._answer.holders if holder.cluster == cluster]

    def _by_size(self, totals: dict[tuple[str, ...], Sums]) -> list[tuple[tuple[str, ...], Sums]]:
        return sorted(totals.items(), key=lambda item: (-item[1].get(self._names[0], 0), item[0]))

    # -- users

    def _chosen(self, cluster: str) -> dict[tuple[str, ...], Sums]:
        users, accounts = set(self._asked.users), {name.lower() for name in self._asked.accounts}
        return _summed(
            (
                holder
                for holder in self._of(cluster)
                if holder.user and (not users or holder.user in users) and (not accounts or holder.account in accounts)
            ),
            lambda holder: (holder.user, holder.account),
        )

    def _users(self, cluster: str) -> list[Row]:
        return [
            line
            for (user, account), sums in self._by_size(self._chosen(cluster))
            for line in self._lines(cluster, sums, account=account, **self._person(user))
        ]

    def _grouped(self, cluster: str) -> list[Row]:
        """A row for each user, with the names of all its accounts."""
        order = {
            (association.account, association.user): association.id
            for association in self._book.associations
            if association.cluster == cluster and association.user
        }
        merged: dict[tuple[str, ...], Sums] = {}
        accounts: dict[str, list[str]] = {}
        for (user, account), sums in self._chosen(cluster).items():
            into = merged.setdefault((user,), {})
            for name, seconds in sums.items():
                into[name] = into.get(name, 0) + seconds
            accounts.setdefault(user, []).append(account)
        rows: list[Row] = []
        for (user,), sums in self._by_size(merged):
            names = sorted(accounts[user], key=lambda account: (order.get((account, user), 1 << 60), account))
            rows += self._lines(cluster, sums, account=", ".join(names), **self._person(user))
        return rows

    # -- wckeys

    def _by_wckey(self, *, by_user: bool) -> list[Row]:
        users, wckeys = set(self._asked.users), set(self._asked.wckeys)
        rows: list[Row] = []
        for cluster in self._answer.clusters:
            totals = _summed(
                (
                    holder
                    for holder in self._of(cluster)
                    if holder.wckey and (not wckeys or holder.wckey in wckeys) and (not users or holder.user in users)
                ),
                lambda holder: (holder.wckey, holder.user),
            )
            if by_user:
                for (wckey, user), sums in self._by_size(totals):
                    rows += self._lines(cluster, sums, wckey=wckey, **self._person(user))
                continue
            for wckey, keys in groupby(sorted(totals), key=lambda key: key[0]):
                wckey_keys = list(keys)
                rows += self._lines(cluster, _added(totals[key] for key in wckey_keys), wckey=wckey)
                for key in wckey_keys:
                    rows += self._lines(cluster, totals[key], wckey=wckey, **self._person(key[1]))
        return rows

    # -- the tree of accounts

    def _tree(self, cluster: str, *, by_qos: bool) -> list[Row]:
        """A row for each account, followed by its users, or by the QOS of its jobs."""
        users, qos = set(self._asked.users), set(self._asked.qos)
        if by_qos:
            chosen = [
                holder
                for holder in self._of(cluster)
                if (not users or holder.user in users) and (not qos or holder.qos in qos)
            ]
            used = _summed(chosen, lambda holder: (holder.account, holder.qos))
            users = set()
        else:
            used = _summed(self._of(cluster), lambda holder: (holder.account, holder.user))
        above = parents(self._book, cluster, {key[0] for key in used})
        below: dict[str, list[str]] = {}
        for account, parent in sorted(above.items()):
            if account != "root":
                below.setdefault(parent, []).append(account)
        wanted = {name.lower() for name in self._asked.accounts}
        keys_by_account: dict[str, list[tuple[str, ...]]] = {}
        for key in sorted(used):
            keys_by_account.setdefault(key[0], []).append(key)
        totals: dict[str, Sums] = {}

        def total(account: str) -> Sums:
            parts = [total(child) for child in below.get(account, ())]
            totals[account] = _added([*(used[key] for key in keys_by_account.get(account, ())), *parts])
            return totals[account]

        total("root")
        rows: list[Row] = []

        def walk(account: str, depth: int, *, shown: bool) -> None:
            shown = shown or account in wanted
            if shown:
                sums = totals[account]
                if not sums:
                    return
                if not users:
                    rows.extend(self._lines(cluster, sums, account=self._indented(account, depth)))
                for key in keys_by_account.get(account, ()):
                    if key[1] and (not users or key[1] in users):
                        name = self._indented(account, depth + 1)
                        who = {"qos": key[1]} if by_qos else self._person(key[1])
                        rows.extend(self._lines(cluster, used[key], account=name, **who))
            for child in below.get(account, ()):
                walk(child, depth + shown, shown=shown)

        walk("root", 0, shown=not wanted)
        return rows

    def _indented(self, account: str, depth: int) -> str:
        return " " * depth + account if self._asked.tree else account


def parents(book: Book, cluster: str, used: set[str]) -> dict[str, str]:
    """Parent of each account; accounts that are in no tree get the parent root."""
    above = {
        association.account: association.parent or "root"
        for association in book.associations
        if association.cluster == cluster and not association.user
    }
    known = {"root", *above, *used}
    return (
        dict.fromkeys(used, "root")
        | {name: parent if parent in known else "root" for name, parent in above.items()}
        | {"root": ""}
    )


def _added(several: Iterable[Sums]) -> Sums:
    totals: Sums = {}
    for sums in several:
        for name, seconds in sums.items():
            totals[name] = totals.get(name, 0) + seconds
    return totals
