"""The resources in use, by everything that may have a limit: an association, a QOS, a user or an account under a QOS.

Keys without use have no entry, so an empty cluster has an empty ledger. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

#: ("a", association), ("q", QOS), ("qu", QOS, user), ("qa", QOS, account)
LedgerKey = tuple[str | int, ...]
Pairs = Iterable[tuple[str, int]]


class Use:
    """Running jobs; jobs submitted and not ended; pending jobs that accrue age; TRES of the running jobs. `nodes`:
    number of jobs by node, if a limit needs it.
    """

    __slots__ = ("accruing", "jobs", "nodes", "submitted", "tres")

    def __init__(
        self,
        jobs: int = 0,
        submitted: int = 0,
        tres: dict[str, int] | None = None,
        accruing: int = 0,
        nodes: dict[str, int] | None = None,
    ) -> None:
        self.jobs = jobs
        self.submitted = submitted
        self.accruing = accruing
        self.tres = tres if tres is not None else {}
        self.nodes = nodes if nodes is not None else {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Use):
            return NotImplemented
        return (self.jobs, self.submitted, self.accruing, self.tres, self.nodes) == (
            other.jobs,
            other.submitted,
            other.accruing,
            other.tres,
            other.nodes,
        )

    def __hash__(self) -> int:
        raise TypeError("a Use changes")

    def __repr__(self) -> str:
        return f"Use(jobs={self.jobs}, submitted={self.submitted}, tres={self.tres}, accruing={self.accruing})"


_NOTHING = Use()


class Ledger:
    """Use by key. A fork reads its origin's entries and changes only copies."""

    __slots__ = ("_origin", "uses")

    def __init__(self, origin: Ledger | None = None) -> None:
        self.uses: dict[LedgerKey, Use] = {}
        self._origin = origin

    def fork(self) -> Ledger:
        """A ledger for trials. Its origin must not change in the meantime."""
        return Ledger(self)

    def use(self, key: LedgerKey) -> Use:
        """The use of a key, to be read only."""
        use = self.uses.get(key)
        if use is None and self._origin is not None:
            return self._origin.use(key)
        return use if use is not None else _NOTHING

    def add(
        self,
        keys: Iterable[LedgerKey],
        *,
        jobs: int = 0,
        submitted: int = 0,
        accruing: int = 0,
        tres: Pairs = (),
        nodes: Collection[str] = (),
        sign: int = 1,
    ) -> None:
        """Count one job under every key; `sign` -1 takes it back."""
        pairs = tuple(tres)
        for key in keys:
            use = self.uses.get(key)
            if use is None:
                seen = self.use(key)
                use = self.uses[key] = Use(seen.jobs, seen.submitted, dict(seen.tres), seen.accruing, dict(seen.nodes))
            use.jobs += sign * jobs
            use.submitted += sign * submitted
            use.accruing += sign * accruing
            for name, count in pairs:
                _count(use.tres, name, sign * count)
            for name in nodes:
                _count(use.nodes, name, sign)
            if self._origin is None and not (use.jobs or use.submitted or use.tres or use.accruing):
                del self.uses[key]


def _count(counts: dict[str, int], name: str, more: int) -> None:
    total = counts.get(name, 0) + more
    if total:
        counts[name] = total
    else:
        counts.pop(name, None)
