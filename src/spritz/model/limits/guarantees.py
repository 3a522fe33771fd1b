"""Guarantee and borrow: shares that accounts can have whenever they need them, and that others may use until then.

A guarantee is an amount of TRES for all jobs of an account and of the accounts below it. The jobs that have run longest
count as guaranteed, up to that amount. All other jobs borrow, and can be preempted for an account that asks for no more
than its guarantee. Preempting any choice of borrowing jobs therefore never cuts into another guarantee.

The guarantee of a parent account does not protect jobs from the account's own children: among these only the children's
guarantees count. Pure. See docs/decisions/0036.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Guarantee(Struct, frozen=True):
    """The guarantee of one account. `id`: its association; `depth`: number of accounts above it.

    `reclaim_seconds`: how long a job may keep what it has borrowed of it.
    """

    id: int
    account: str
    depth: int
    tres: tuple[tuple[str, int], ...]
    reclaim_seconds: int = 0

    def has_room(self, used: Mapping[str, int], wanted: Mapping[str, int]) -> bool:
        """Whether `wanted` fits in the guarantee together with what is in use; False if the job wants none of it."""
        limits = [(name, most) for name, most in self.tres if wanted.get(name)]
        return bool(limits) and all(used.get(name, 0) + wanted[name] <= most for name, most in limits)


class GuaranteedJob(Struct, frozen=True, gc=False):
    """A running job: the guarantees of its account and the accounts above, nearest first, and what it holds."""

    job_id: int
    guarantees: tuple[Guarantee, ...]
    tres: tuple[tuple[str, int], ...]
    started_at: float


class GuaranteeUse:
    """Which running jobs count as guaranteed, and under which guarantees."""

    def __init__(self, jobs: Iterable[GuaranteedJob]) -> None:
        self._within: dict[int, frozenset[int]] = {}
        below: dict[Guarantee, list[GuaranteedJob]] = {}
        for job in jobs:
            for guarantee in job.guarantees:
                below.setdefault(guarantee, []).append(job)
        # Deepest accounts first: jobs within a child's guarantee are within the parent's before all others.
        for guarantee in sorted(below, key=lambda guarantee: (-guarantee.depth, guarantee.id)):
            used: dict[str, int] = {}
            for job in sorted(below[guarantee], key=self._order):
                held = dict(job.tres)
                if guarantee.has_room(used, held):
                    self._within[job.job_id] = self._within.get(job.job_id, frozenset()) | {guarantee.id}
                    for name, _most in guarantee.tres:
                        used[name] = used.get(name, 0) + held.get(name, 0)

    def _order(self, job: GuaranteedJob) -> tuple[bool, float, int]:
        return job.job_id not in self._within, job.started_at, job.job_id

    def within(self, job_id: int) -> frozenset[int]:
        """Ids of the guarantees within which the job counts."""
        return self._within.get(job_id, frozenset())


def lender(
    open_guarantees: Iterable[Guarantee],
    own_guarantees: tuple[Guarantee, ...],
    others: tuple[Guarantee, ...],
    within: frozenset[int],
) -> Guarantee | None:
    """The guarantee under which a job may reclaim another's resources; None if it may not.

    `open_guarantees`: guarantees that have room for the job, out of `own_guarantees`, all those of its account.
    `others`: guarantees of the other job, which is `within` some of them.
    """
    if within.difference(guarantee.id for guarantee in own_guarantees):
        return None
    their_ids = {guarantee.id for guarantee in others}
    return next((guarantee for guarantee in open_guarantees if guarantee.id not in their_ids), None)


def overpromised(
    guarantees: Mapping[str, Mapping[str, int]], parents: Mapping[str, str]
) -> list[tuple[str, str, int, int]]:
    """Accounts that guarantee more to the accounts below than they have: (account, TRES, sum below, own).

    `guarantees`: TRES by account; `parents`: the account above each ("": none).
    """
    below: dict[str, dict[str, int]] = {}
    for account, tres in guarantees.items():
        for name, count in tres.items():
            # Count it for the next account above that guarantees some of it as well.
            above, seen = parents.get(account, ""), {account}
            while above and above not in seen and name not in guarantees.get(above, {}):
                seen.add(above)
                above = parents.get(above, "")
            sums = below.setdefault(above, {})
            sums[name] = sums.get(name, 0) + count
    return [
        (account, name, total, guarantees[account][name])
        for account, sums in sorted(below.items())
        for name, total in sorted(sums.items())
        if account in guarantees and total > guarantees[account].get(name, total)
    ]
