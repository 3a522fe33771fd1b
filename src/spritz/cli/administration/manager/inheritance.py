"""Find the users' associations that inherit an edit of an account's association.

Pure. Source: the lists that `sacctmgr modify account` and `modify cluster` of 22.05 print.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.model.limits.records import Association, Book

#: Fields that associations inherit from their account unless they set them themselves.
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
    """Users' associations below the account that inherit a field changed by the edit, the newest first."""
    changed = frozenset(name for name in _INHERITED if getattr(old, name) != getattr(new, name))
    if changed:
        yield from _below(book, new, changed)


def _below(book: Book, account: Association, changed: frozenset[str]) -> Iterator[Association]:
    here = [association for association in book.associations if association.cluster == account.cluster]
    here.sort(key=lambda association: -association.id)
    yield from (
        association
        for association in here
        if association.user and association.account == account.account and _inherited(association, changed)
    )
    for child in here:
        if not child.user and child.parent == account.account and (inherited := _inherited(child, changed)):
            yield from _below(book, child, inherited)


def _inherited(association: Association, names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if getattr(association, name) in (None, ""))
