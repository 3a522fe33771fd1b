"""Slurm's numbers of TRES, as in `sacctmgr show tres` and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation import tres

if TYPE_CHECKING:
    from spritz.model.limits.records import Book

#: type, name and number of the TRES of every cluster
TRES: tuple[tuple[str, str, int], ...] = (
    ("cpu", "", 1),
    ("mem", "", 2),
    ("energy", "", 3),
    ("node", "", 4),
    ("billing", "", 5),
    ("fs", "disk", 6),
    ("vmem", "", 7),
    ("pages", "", 8),
)

#: `cpu`, `fs/disk` … -> number
NUMBERS = {f"{kind}/{name}" if name else kind: number for kind, name, number in TRES}


def tres_of(book: Book) -> list[tuple[str, str, int]]:
    """Type, name and number of the TRES of every cluster, and of those named in limits."""
    texts = [
        text
        for association in book.associations
        for text in (association.grp_tres, association.max_tres, association.max_tres_per_node)
    ]
    texts += [t for q in book.qos for t in (q.grp_tres, q.max_tres_pj, q.max_tres_pn, q.max_tres_pu, q.max_tres_pa)]
    named = {name for text in texts for name, _ in tres.parse(text) if "/" in name} - {"fs/disk"}
    named |= {f"license/{resource.name}@{resource.server}" for resource in book.resources}
    names = list(TRES)
    for number, name in enumerate(dict.fromkeys((*book.tres, *sorted(named))), 1001):
        kind, _, resource_name = name.partition("/")
        names.append((kind, resource_name, number))
    return names
