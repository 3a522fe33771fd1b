"""`scontrol show assoc_mgr`: the controller's own view of users, associations and QOS, their limits and what counts
towards them. Source: scontrol(1) show assoc_mgr.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.limits.records import Association, Qos

KINDS = ("users", "assoc", "qos")


class ListStandings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records of these kinds, for these users, accounts and QOS (empty: all). Reply: `Standings`."""

    kinds: tuple[str, ...] = KINDS
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()


class Standing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The totals of one key: jobs running, submitted, and accruing age; TRES in use; TRES seconds used, and those that
    running jobs may still use; billed seconds, and seconds of wall clock.
    """

    jobs: int = 0
    submitted: int = 0
    accruing: int = 0
    tres: dict[str, int] = {}
    used: dict[str, float] = {}
    ahead: dict[str, float] = {}
    usage: float = 0.0
    wall: float = 0.0


class UserStanding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user who has associations, with default account, default wckey and admin level."""

    name: str
    default_account: str = ""
    default_wckey: str = ""
    #: None, Operator or Administrator
    admin: str = "None"


class AssocStanding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One association; its Max* limits and priority include those that it inherits. The figures of its share are
    sshare's.

    `siblings`: sum of the shares at its level. `left`: its number in the tree (associations below it lie between two
    such numbers).
    """

    record: Association
    standing: Standing
    left: int
    parent_id: int = 0
    siblings: int = 1
    norm_shares: float = 0.0
    factor: float = 0.0
    norm_usage: float = 0.0
    effective_usage: float = 0.0


class QosStanding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One QOS, with what its jobs count by account and by user."""

    record: Qos
    standing: Standing
    accounts: tuple[tuple[str, Standing], ...] = ()
    users: tuple[tuple[str, Standing], ...] = ()


class Standings(Struct, frozen=True, kw_only=True):
    """Reply to ListStandings: limits and what is used of them. `tres`: names in AccountingStorageTRES."""

    cluster: str
    tres: tuple[str, ...]
    users: list[UserStanding]
    associations: list[AssocStanding]
    qos: list[QosStanding]
