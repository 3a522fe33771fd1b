"""Parse a report's words into conditions. Names may be abbreviated and written in any case.

Source: sreport(1) OPTIONS FOR ALL REPORT TYPES and the sections after it; words that 22.05 accepts. Differs: an unknown
word is an error; Slurm ignores it and reports something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.cli.call.already_reported import AlreadyReported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.call.context import Context

#: Condition -> field of `Conditions`, in the order in which abbreviations are resolved.
_ANY = {
    "all_clusters": "all",
    "clusters": "clusters",
    "cluster": "clusters",
    "end": "end",
    "format": "format",
    "start": "start",
}
_PEOPLE = {"accounts": "accounts", "acct": "accounts", "users": "users"}
CONDITIONS: dict[str, dict[str, str]] = {
    "AccountUtilizationByUser": {**_ANY, **_PEOPLE, "tree": "tree"},
    "AccountUtilizationByQOS": {**_ANY, **_PEOPLE, "qos": "qos", "tree": "tree"},
    "UserUtilizationByAccount": {**_ANY, **_PEOPLE},
    "UserUtilizationByWckey": {**_ANY, "users": "users", "wckeys": "wckeys"},
    "WCKeyUtilizationByUser": {**_ANY, "users": "users", "wckeys": "wckeys"},
    "Utilization": {**_ANY, "names": "clusters"},
    "Sizes": {
        **_ANY,
        **_PEOPLE,
        "acctasparent": "as_parent",
        "flatview": "flat",
        "gid": "groups",
        "grouping": "grouping",
        "jobs": "jobs",
        "nodes": "nodes",
        "partitions": "partitions",
        "printjobcount": "count",
        "wckeys": "wckeys",
    },
    "Reservation": {**_ANY, "names": "names", "nodes": "nodes"},
    "TopUsage": {**_ANY, **_PEOPLE, "group": "group", "topcount": "top"},
}
_FLAGS = frozenset({"all", "tree", "as_parent", "flat", "count", "group"})
_LISTS = frozenset({"clusters", "accounts", "users", "wckeys", "groups", "jobs", "nodes", "partitions", "names", "qos"})


class Conditions(Struct, kw_only=True):
    """The conditions of a report. An empty field is no condition."""

    clusters: list[str] = []
    accounts: list[str] = []
    users: list[str] = []
    wckeys: list[str] = []
    groups: list[str] = []
    jobs: list[str] = []
    nodes: list[str] = []
    partitions: list[str] = []
    names: list[str] = []
    qos: list[str] = []
    start: str = ""
    end: str = ""
    format: str = ""
    grouping: str = ""
    top: str = ""
    all: bool = False
    tree: bool = False
    as_parent: bool = False
    flat: bool = False
    count: bool = False
    group: bool = False


def read(words: Sequence[str], table: str, context: Context) -> Conditions:
    """Parse the words. Raises AlreadyReported after Slurm's lines for an unknown condition."""
    known = CONDITIONS[table]
    read_conditions = Conditions()
    for word in words:
        key, equals, value = word.partition("=")
        key = key.strip().lower()
        target = _named(key, known)
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        if key == "withdeleted":
            context.error("withdeleted is not supported by Spritz: usage of what was deleted is always shown")
            raise AlreadyReported
        if not equals:
            if target in _FLAGS:
                setattr(read_conditions, target, True)
            elif key not in ("where", "set"):
                # A bare word is a name: of a cluster, or of a reservation.
                (read_conditions.names if table == "Reservation" else read_conditions.clusters).extend(_list(word))
        elif target is None or target in _FLAGS:
            context.err(f" Unknown condition: {word}\nUse keyword set to modify value\n")
            raise AlreadyReported
        elif target in _LISTS:
            getattr(read_conditions, target).extend(_list(value))
        else:
            setattr(read_conditions, target, value)
    return read_conditions


def _named(key: str, known: dict[str, str]) -> str | None:
    if key in known:
        return known[key]
    # `a` is ambiguous; all other conditions can be abbreviated to a single letter.
    targets = (target for name, target in known.items() if name.startswith(key) and len(key) > (name[0] == "a"))
    return next(targets, None) if key else None


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
