"""The parts of a job's priority as sprio shows them, and those that come from accounting.

Source: sprio(1); slurm.conf(5) PriorityWeight*, PriorityFlags; https://slurm.schedmd.com/priority_multifactor.html.
"""

from __future__ import annotations

from msgspec import Struct

PRIORITY_MAX = 0xFFFFFFFF


class PriorityPolicy(Struct, frozen=True, kw_only=True):
    """Weights and rules of PriorityType=priority/multifactor, other than those for age, size and partition."""

    weight_assoc: int = 0
    weight_fairshare: int = 0
    weight_qos: int = 0
    #: (TRES, weight): cpu, mem, node, gres/gpu …
    weight_tres: tuple[tuple[str, float], ...] = ()
    favor_small: bool = False
    #: age accrues from submission on, even while a job may not start
    accrue_always: bool = False
    #: age accrues while jobs run
    calculate_running: bool = False
    #: no job's priority decreases
    incr_only: bool = False
    #: size is CPUs over time limit
    relative_to_time: bool = False
    #: those of ASSOC, PART, QOS and TRES that are used as they are, not as a fraction of the largest
    not_normal: tuple[str, ...] = ()
    calc_period_seconds: float = 300.0
    #: PriorityDecayHalfLife (0.0: usage does not decay)
    half_life_seconds: float = 0.0
    #: PriorityUsageResetPeriod: NONE, NOW, DAILY …
    reset_period: str = "NONE"
    #: NO_FAIR_TREE and DEPTH_OBLIVIOUS: the classic formula, and the depth-oblivious one
    classic: bool = False
    depth_oblivious: bool = False
    #: FairShareDampeningFactor
    dampening: int = 1
    #: MAX_TRES "node", MAX_TRES_GRES "gres": what is billed (model.limits.usage.billable)
    largest: str = ""


class PriorityInputs(Struct, frozen=True, kw_only=True):
    """Accounting's part of priorities: computed there, and given to the scheduler when it changes.

    `fairshare`: (account, user) -> factor 0..1; `partition_fairshare`: (account, user, partition) -> factor of an
    association with one partition; `associations`: (account, user) -> Priority; `qos`: name -> Priority. Missing keys
    mean 0.
    """

    fairshare: dict[tuple[str, str], float] = {}
    partition_fairshare: dict[tuple[str, str, str], float] = {}
    associations: dict[tuple[str, str], int] = {}
    qos: dict[str, int] = {}

    def fair_share(self, account: str, user: str, partition: str) -> float:
        """The fair-share factor of such a job."""
        if self.partition_fairshare:
            factor = self.partition_fairshare.get((account, user, partition))
            if factor is not None:
                return factor
        return self.fairshare.get((account, user), 0.0)


class PriorityFactors(Struct, frozen=True, kw_only=True):
    """One job in one partition: factors before their weights (0..1, unless PriorityFlags say otherwise), and the sum. A
    priority set by an administrator has no factors.
    """

    job_id: int
    partition: str
    user: str
    account: str
    qos: str
    age: float = 0.0
    assoc: float = 0.0
    fairshare: float = 0.0
    job_size: float = 0.0
    partition_factor: float = 0.0
    qos_factor: float = 0.0
    tres: tuple[tuple[str, float], ...] = ()
    site: int = 0
    nice: int = 0
    by_hand: bool = False
    priority: int = 0


class PriorityWeights(Struct, frozen=True, kw_only=True):
    """The weights of the factors. `multifactor` False: there are no factors."""

    multifactor: bool = True
    age: int = 0
    assoc: int = 0
    fairshare: int = 0
    job_size: int = 0
    partition: int = 0
    qos: int = 0
    tres: tuple[tuple[str, float], ...] = ()
