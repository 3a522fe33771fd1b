"""Whom an edit of an account's association reaches besides it: users below that inherit what was set.

Pure. Source: what `sacctmgr modify account` and `modify cluster` of 22.05 list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.limits.records import Association, Book

#: Fields of an association that those below have as well, unless they set them themselves.
_INHERITED = (
    "default_qos",
    "max_jobs",
    "max_jobs_accrue",
    "max_submit",
    "max_tres",
    "max_tres_mins",
    "max_tres_per_node",
    "max_wall",
    "min_prio_threshold",
    "priority",
    "qos",
)


def inheriting_associations(book: Book, old: Association, new: Association) -> Iterator[Association]:
    """Users' associations below an account's that inherit a field that the edit changes; the newest first."""
    changed = frozenset(name for name in _INHERITED if getattr(old, name) != getattr(new, name))
    if changed:
        yield from _below(book, new, changed)


def _below(book: Book, account: Association, changed: frozenset[str]) -> Iterator[Association]:
    here = [association for association in book.associations if association.cluster == account.cluster]
    here.sort(key=lambda one: -one.id)
    yield from (one for one in here if one.user and one.account == account.account and _inherited(one, changed))
    for one in here:
        if not one.user and one.parent == account.account and (left := _inherited(one, changed)):
            yield from _below(book, one, left)


def _inherited(association: Association, names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if getattr(association, name) in (None, ""))
