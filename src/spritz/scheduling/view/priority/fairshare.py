"""Fair-share factors from shares and usage: Fair Tree, the classic formula and the depth-oblivious formula. Pure.

    Fair Tree   level fair share LF = S / U, each a share of the siblings'; children in the order of LF, depth first;
                users are ranked as they are met, and factor = rank / users
    classic     F = 2 ** (-UE / S / damping), UE = U + (UE of the parent - U) * shares / shares of all siblings
    oblivious   the same with UE = R * S, R = R of the parent * (r / r of all siblings) ** k, r = U / S

An account with Fairshare=parent takes no part: its children compete at the level of the first account above that does.

Source: https://slurm.schedmd.com/fair_tree.html, https://slurm.schedmd.com/classic_fair_share.html; sshare(1).
"""

from __future__ import annotations

from math import inf, log
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.limits.records import SHARES_PARENT, Association

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.cluster.priority import PriorityPolicy

#: weight of the parent's usage in the depth-oblivious formula: the manual's constant
_OBLIVIOUS = 5.0


class Share(Struct, kw_only=True):
    """One association. `norm_shares`, `norm_usage`, `effective_usage`, `factor` and `level` as sshare(1) names them:
    Norm Shares, Norm Usage, Effectv Usage, FairShare, Level FS (Fair Tree alone).
    """

    association: Association
    usage: float = 0.0
    norm_shares: float = 0.0
    norm_usage: float = 0.0
    effective_usage: float = 0.0
    factor: float = 0.0
    level: float = 0.0
    #: shares of all associations that compete with it, its own included
    siblings: int = 1


class _Tree:
    """Associations of one cluster as a tree of competitors for shares."""

    def __init__(self, associations: Iterable[Association], usage: Mapping[int, float]) -> None:
        self.shares = {item.id: Share(association=item, usage=usage.get(item.id, 0.0)) for item in associations}
        accounts = {share.association.account: share for share in self.shares.values() if not share.association.user}
        self.root: Share | None = None
        #: by id: the association whose share it and its siblings divide
        self.above: dict[int, Share] = {}
        self.children: dict[int, list[Share]] = {}
        #: by id of the association above: sum of the siblings' shares
        self.level: dict[int, int] = {}
        for share in self.shares.values():
            record = share.association
            above = accounts.get(record.account) if record.user else accounts.get(record.parent)
            if above is None or above is share:
                if not record.user and self.root is None:
                    self.root = share
                continue
            # Fairshare=parent passes an account over: its children compete one level up. The number of accounts bounds
            # the walk even if parents form a circle.
            for _ in range(len(accounts)):
                parent = accounts.get(above.association.parent)
                if above.association.shares != SHARES_PARENT or parent is None or parent is above:
                    break
                above = parent
            self.above[record.id] = above
            self.children.setdefault(above.association.id, []).append(share)
            if record.shares != SHARES_PARENT:
                self.level[above.association.id] = self.level.get(above.association.id, 0) + record.shares

    def depth_first(self) -> list[Share]:
        """All below root, parents before children."""
        ordered: list[Share] = []
        waiting = [self.root] if self.root is not None else []
        while waiting:
            share = waiting.pop()
            children = self.children.get(share.association.id, [])
            ordered += children
            waiting += children
        return ordered

    def part(self, share: Share) -> float:
        """Its part of the siblings' shares."""
        every = self.level.get(self.above[share.association.id].association.id, 0)
        return share.association.shares / every if every else 0.0


def fair_shares(
    associations: Iterable[Association], usage: Mapping[int, float], policy: PriorityPolicy
) -> dict[int, Share]:
    """The figures of every association, by id. `usage`: RawUsage by id."""
    tree = _Tree(associations, usage)
    root = tree.root
    if root is None:
        return tree.shares
    root.effective_usage, root.norm_usage = 1.0, 1.0 if root.usage else 0.0
    for share in tree.depth_first():
        share.norm_usage = share.usage / root.usage if root.usage else 0.0
        share.siblings = tree.level.get(tree.above[share.association.id].association.id, 0)
    if policy.classic:
        _classic(tree, root, policy)
    else:
        _fair_tree(tree, root)
    return tree.shares


# -- Fair Tree


def _fair_tree(tree: _Tree, root: Share) -> None:
    below = tree.depth_first()
    for share in below:
        above = tree.above[share.association.id]
        share.effective_usage = share.usage / above.usage if above.usage else 0.0
        if share.association.shares == SHARES_PARENT:
            share.norm_shares = above.norm_shares
            share.level = inf
            continue
        share.norm_shares = tree.part(share)
        if share.norm_shares:
            share.level = share.norm_shares / share.effective_usage if share.effective_usage else inf
    users = sum(1 for share in below if share.association.user)
    _Ranks(tree, users).rank(tree.children.get(root.association.id, []), tied=False)


class _Ranks:
    """Users get ranks from `users` downwards; users that tie have equal ranks, and the next rank skips as many."""

    def __init__(self, tree: _Tree, users: int) -> None:
        self._tree = tree
        self._users = users
        self._rank = self._next = users

    def rank(self, siblings: list[Share], *, tied: bool) -> None:
        """Rank all users below these. `tied`: the first of them ties with the previous user."""
        # At equal level users come before accounts: the best user of the account ties with them.
        ordered = sorted(siblings, key=lambda share: (-share.level, not share.association.user, share.association.id))
        place = 0
        before: float | None = None
        while place < len(ordered):
            share = ordered[place]
            same = tied if before is None else share.level == before
            before = share.level
            if share.association.user:
                if not same:
                    self._rank = self._next
                share.factor = self._rank / self._users
                self._next -= 1
                place += 1
                continue
            # Accounts that tie have their children ranked together.
            merged: list[Share] = []
            while place < len(ordered) and not ordered[place].association.user and ordered[place].level == before:
                merged += self._tree.children.get(ordered[place].association.id, [])
                place += 1
            if merged:
                self.rank(merged, tied=same)


# -- the classic formula


def _classic(tree: _Tree, root: Share, policy: PriorityPolicy) -> None:
    root.norm_shares = 1.0
    root.factor = _factor(root, policy.dampening)
    for share in tree.depth_first():
        above = tree.above[share.association.id]
        inherits = share.association.shares == SHARES_PARENT
        share.norm_shares = above.norm_shares if inherits else above.norm_shares * tree.part(share)
        if above is root:
            share.effective_usage = share.norm_usage
        elif inherits:
            share.effective_usage = above.effective_usage
        elif policy.depth_oblivious:
            share.effective_usage = _oblivious(tree, share, above)
        else:
            share.effective_usage = share.norm_usage + (above.effective_usage - share.norm_usage) * tree.part(share)
        share.factor = _factor(share, policy.dampening)


def _factor(share: Share, dampening: int) -> float:
    if share.norm_shares <= 0.0:
        return 0.0
    exponent = share.effective_usage / share.norm_shares / max(1, dampening)
    return 2.0**-exponent if exponent < 1100.0 else 0.0


def _oblivious(tree: _Tree, share: Share, above: Share) -> float:
    """R * S. The parent's imbalance counts less, the closer the association itself is to its share."""
    siblings = tree.children[above.association.id]
    used = sum(other.norm_usage for other in siblings if other.association.shares != SHARES_PARENT)
    if not (share.norm_shares and share.norm_usage and above.effective_usage):
        return 0.0
    ratio = above.effective_usage / above.norm_shares
    # All siblings together have the shares of the one above.
    local = (share.norm_usage / share.norm_shares) / (used / above.norm_shares)
    # Positive if the association and those above it are on the same side of their shares: then the local imbalance
    # counts in full. Otherwise it is dampened, the more so the farther those above are from theirs.
    product = log(ratio) * log(local)
    weight = 1.0 if product >= 0.0 else 1.0 / (1.0 + (_OBLIVIOUS * log(ratio)) ** 2)
    effective: float = ratio * local**weight * share.norm_shares
    return effective
