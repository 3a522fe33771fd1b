"""What is read at the end of a run, when all faults are healed, and what the simulated site permits.

Clients read it with the usual requests. Times that a daemon reports come from its own clock, which may be wrong by
`Final.clock_error_seconds`; all other times are virtual time.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.accounting.records import JobRecord
from spritz.model.job.record import Job
from spritz.model.node.record import Node
from spritz_testing.daemons.wanted import Reserved


class NodeShape(Struct, frozen=True, kw_only=True):
    """What a node has. Memory 0: jobs do not count memory."""

    name: str
    memory_mib: int = 0


class Limit(Struct, frozen=True, kw_only=True):
    """A limit of accounting. Empty selectors match every job; None: no limit.

    `account` is the job's own account: of a limit of a parent account name every account below it.
    """

    name: str
    accounts: frozenset[str] = frozenset()
    qos: str = ""
    uid: int | None = None
    #: each user has this limit alone (MaxJobsPerUser …)
    per_user: bool = False
    #: most jobs that run, and most jobs that wait or run
    jobs: int | None = None
    submitted: int | None = None
    #: most CPUs, GPUs and nodes of running jobs
    cpus: int | None = None
    gpus: int | None = None
    nodes: int | None = None
    #: QOS with a limit of their own on the same ("jobs", "submitted", "CPUs", "GPUs"): their jobs count, but are not
    #: bound. Source: https://slurm.schedmd.com/resource_limits.html: a QOS precedes associations
    preceded: dict[str, frozenset[str]] = {}


class Rules(Struct, frozen=True, kw_only=True):
    """What the simulated site permits, and how long things may take without a fault (seconds)."""

    nodes: tuple[NodeShape, ...] = ()
    licenses: dict[str, int] = {}
    limits: tuple[Limit, ...] = ()
    #: those of the configuration; reservations that users make are in the history
    reservations: tuple[Reserved, ...] = ()
    #: names of GRES whose instances may be shared (shard, mps)
    shared_gres: frozenset[str] = frozenset()
    #: hosts of slurmctld: faults there are restarts of the controller
    controllers: frozenset[str] = frozenset()
    #: hosts that controllers cannot lead without: of the database that has their journal
    journal_hosts: frozenset[str] = frozenset()
    #: PriorityType=priority/basic: of two jobs of a tier without a set priority the later is lower
    later_is_lower: bool = True
    #: a machine that lost power has another boot id; False: all share a kernel, and slurmd sees only dead processes
    boots_show: bool = True
    #: the cluster suspends jobs by itself: PreemptMode=SUSPEND or GANG
    suspends: bool = False
    #: nodes are powered up or rebooted for jobs, and the end of that is recorded as a job's start
    starts_move: bool = False
    kill_wait_seconds: float = 30.0
    over_time_limit_seconds: float = 0.0
    min_job_age_seconds: float = 300.0
    #: jobs must be forgotten by then
    forgets: bool = False
    #: from the controller's decision to processes on a node, or from their end to the controller's record of it
    order_seconds: float = 10.0
    #: how old planned starts may be that are shown: a full pass knows nothing of what has happened since it began
    plan_seconds: float = 0.0
    #: how long a full pass may take
    pass_seconds: float = 0.0
    #: after a fault until all orders and reports that it delayed have been carried out
    recovery_seconds: float = 180.0
    #: after an order of a newer term was accepted anywhere until no node may accept one of an older term; None: not
    #: checked
    stale_order_seconds: float | None = None
    #: all that may end a controller is in the history: faults, and requests of administrators
    takeovers_have_reasons: bool = False


class Final(Struct, kw_only=True):
    """The end of a run."""

    #: when it was read, seconds of virtual time
    read_at: float
    #: all that the controller knows
    jobs: tuple[Job, ...] = ()
    #: all lives in accounting's records; None: the cluster has no slurmdbd
    rows: tuple[JobRecord, ...] | None = None
    #: (association or QOS, usage as the controller has it for fair-share, and by accounting's records): CPU seconds
    usage: tuple[tuple[str, float, float], ...] = ()
    nodes: tuple[Node, ...] = ()
    #: script of each batch job in `jobs` as the controller returns it (`scontrol write batch_script`)
    scripts: dict[int, str] = {}
    #: jobs whose scripts are refused, since bits of them were flipped on the controller's disk
    damaged: frozenset[int] = frozenset()
    #: requests that a daemon still has parked, by kind
    parked: dict[str, int] = {}
    #: ids of operations whose client still waits for an answer
    waiting: tuple[int, ...] = ()
    #: end of the last fault
    last_fault_at: float = 0.0
    #: the cluster was given the time to run all that can run
    drained: bool = True
    #: what clocks of controllers may show instead of virtual time, either way
    clock_error_seconds: float = 0.0
    #: what they did show: (from, until, seconds ahead) of each controller's host; (): not known
    clocks: tuple[tuple[float, float, float], ...] = ()
    #: seconds since the epoch at virtual time 0, in the times of `jobs` and `rows`
    epoch: float = 0.0
    rules: Rules = Rules()
