"""`sacctmgr --json show` of association records. Source: Slurm's OpenAPI specification of slurmdbd, v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.flags import FLAGS
from spritz.notation.tres import parse
from spritz.presentation.json.values import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from spritz.model.limits.records import Association, Book, ClusterRow, Qos, Record
    from spritz.presentation.accounting.association_fields import Row

    Json = dict[str, Any]


class View:
    """Turns rows of `show` into records. `tres`: (type, name, number) of each TRES; `full`: include associations."""

    def __init__(self, book: Book, tres: Iterable[tuple[str, str, int]], *, full: bool) -> None:
        self._book = book
        self._full = full
        self._deleted = frozenset(book.deleted)
        self._deleted_clusters = frozenset(book.deleted_clusters)
        self._numbers = {f"{kind}/{name}" if name else kind: at for kind, name, at in tres}

    def body(self, entity: str, rows: Iterable[Row]) -> Json:
        """The records as a list under the entity's name."""
        name, record = _LISTS[entity]
        return {name: [record(self, row) for row in rows]}

    def _tres(self, value: str | Iterable[tuple[str, int]]) -> list[Json]:
        items = []
        for key, count in parse(value) if isinstance(value, str) else value:
            kind, _, name = key.partition("/")
            items.append({"type": kind, "name": name, "id": self._numbers.get(key, 0), "count": count})
        return items

    def _flags(self, record: Record | ClusterRow, words: Iterable[str] = ()) -> list[str]:
        return [*words, *(["DELETED"] if record in self._deleted or record in self._deleted_clusters else [])]

    def tres(self, row: Row) -> Json:
        """One TRES; `count`, its usage, is 0 here."""
        return {"type": row["type"], "name": row["name"], "id": row["id"], "count": 0}

    def account(self, row: Row) -> Json:
        """Only direct coordinators, not those of parent accounts."""
        account = row["c"]
        direct = {coordinator.user for coordinator in self._book.coordinators if coordinator.account == account.name}
        return {
            "associations": self._associations(lambda association: association.account == account.name),
            "coordinators": [{"name": name, "direct": name in direct} for name in _words(row["coordinators"])],
            "description": account.description,
            "name": account.name,
            "organization": account.organization,
            "flags": self._flags(account),
        }

    def user(self, row: Row) -> Json:
        """`coordinators`: the accounts that the user coordinates."""
        user = row["u"]
        return {
            "administrator_level": [user.admin],
            "old_name": "",
            "associations": self._associations(lambda association: association.user == user.name),
            "coordinators": [{"name": name, "direct": True} for name in _words(row["coordinators"])],
            "default": {"account": row["default_account"], "wckey": user.default_wckey},
            "flags": self._flags(user),
            "name": user.name,
            "wckeys": [self.wckey({"w": wckey}) for wckey in self._book.wckeys if wckey.user == user.name],
        }

    def cluster(self, row: Row) -> Json:
        """The cluster with its controller's registration."""
        cluster, root = row["k"], row.get("a")
        return {
            "controller": {"host": cluster.host, "port": cluster.port},
            "flags": self._flags(cluster),
            "name": cluster.name,
            "nodes": "",
            "select_plugin": "",
            "associations": {"root": _short(root) if root is not None else {}},
            "rpc_version": row["rpc"],
            "tres": [],
        }

    def wckey(self, row: Row) -> Json:
        """The record of a wckey; its id is 0, since wckeys have no numbers here."""
        wckey = row["w"]
        return {
            "accounting": [],
            "cluster": wckey.cluster,
            "id": 0,
            "name": wckey.name,
            "user": wckey.user,
            "flags": self._flags(wckey),
        }

    def association(self, row: Row) -> Json:
        """Max* limits and QOS in force, inherited ones included."""
        association, bounds = row["a"], row["b"]
        jobs = {
            "per": {
                "count": number(association.grp_jobs),
                "accruing": number(association.grp_jobs_accrue),
                "submitted": number(association.grp_submit),
                "wall_clock": number(bounds.max_wall),
            },
            "active": number(bounds.max_jobs),
            "accruing": number(bounds.max_accrue),
            "total": number(bounds.max_submit),
        }
        tres = {
            "total": self._tres(association.grp_tres),
            "group": {
                "minutes": self._tres(association.grp_tres_mins),
                "active": self._tres(association.grp_tres_run_mins),
            },
            "minutes": {"total": [], "per": {"job": self._tres(bounds.mins_per_job)}},
            "per": {"job": self._tres(bounds.per_job), "node": self._tres(bounds.per_node)},
        }
        return {
            "accounting": [],
            **_short(association),
            "comment": "",
            "default": {"qos": bounds.default_qos},
            "flags": self._flags(association),
            "max": {"jobs": jobs, "tres": tres, "per": {"account": {"wall_clock": number(association.grp_wall)}}},
            "is_default": association.is_default,
            "min": {"priority_threshold": number(bounds.min_prio_threshold)},
            "parent_account": association.parent,
            "priority": number(association.priority),
            "qos": sorted(bounds.qos),
            "shares_raw": association.shares,
        }

    def qos(self, row: Row) -> Json:
        """A QOS in the form of `v0.0.43_qos`; its limits are grouped by their scope."""
        qos: Qos = row["q"]
        minutes = {
            "total": self._tres(qos.grp_tres_mins),
            "per": {
                "qos": self._tres(qos.grp_tres_run_mins),
                "job": self._tres(qos.max_tres_mins_pj),
                "account": self._tres(qos.max_tres_run_mins_pa),
                "user": self._tres(qos.max_tres_run_mins_pu),
            },
        }
        per = {
            "account": self._tres(qos.max_tres_pa),
            "job": self._tres(qos.max_tres_pj),
            "node": self._tres(qos.max_tres_pn),
            "user": self._tres(qos.max_tres_pu),
        }
        most = {
            "active_jobs": {"accruing": number(qos.grp_jobs_accrue), "count": number(qos.grp_jobs)},
            "jobs": {
                "active_jobs": {"per": {"account": number(qos.max_jobs_pa), "user": number(qos.max_jobs_pu)}},
                "per": {"account": number(qos.max_submit_pa), "user": number(qos.max_submit_pu)},
                "count": number(qos.grp_submit),
            },
            "tres": {"total": self._tres(qos.grp_tres), "minutes": minutes, "per": per},
            "wall_clock": {"per": {"qos": number(qos.grp_wall), "job": number(qos.max_wall)}},
            "accruing": {"per": {"account": number(qos.max_jobs_accrue_pa), "user": number(qos.max_jobs_accrue_pu)}},
        }
        return {
            "description": qos.description,
            "flags": self._flags(qos, [FLAGS[name].json for name in _words(qos.flags)]),
            "id": qos.id,
            "limits": {
                "grace_time": qos.grace_seconds,
                "max": most,
                "factor": number(qos.limit_factor),
                "min": {
                    "priority_threshold": number(qos.min_prio_threshold),
                    "tres": {"per": {"job": self._tres(qos.min_tres_pj)}},
                },
            },
            "name": qos.name,
            "preempt": {
                "exempt_time": number(qos.preempt_exempt_seconds),
                "list": _words(qos.preempt),
                "mode": _words(qos.preempt_mode.upper()) or ["DISABLED"],
            },
            "priority": number(qos.priority),
            "usage_factor": number(qos.usage_factor),
            "usage_threshold": number(qos.usage_threshold),
        }

    def _associations(self, wanted: Callable[[Association], bool]) -> list[Json]:
        return (
            [_short(association) for association in self._book.associations if wanted(association)]
            if self._full
            else []
        )


def _short(association: Association) -> Json:
    """The fields that identify an association."""
    return {
        "account": association.account,
        "cluster": association.cluster,
        "partition": association.partition,
        "user": association.user,
        "id": association.id,
    }


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


#: entity -> (name of the list, function for a record)
_LISTS: Mapping[str, tuple[str, Callable[[View, Row], Json]]] = {
    "account": ("accounts", View.account),
    "association": ("associations", View.association),
    "cluster": ("clusters", View.cluster),
    "qos": ("qos", View.qos),
    "tres": ("TRES", View.tres),
    "user": ("users", View.user),
    "wckey": ("wckeys", View.wckey),
}
ENTITIES = tuple(_LISTS)
#: entity -> the REST operation with the same answer
OPERATIONS = {entity: f"GET /slurmdb/{entity if entity in ('qos', 'tres') else entity + 's'}" for entity in ENTITIES}
