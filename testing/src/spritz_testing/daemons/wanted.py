"""What users ask for in a simulated day, as far as the checks depend on it. `Operation.wanted` is one of these.

Fields that `JobSpec` has too have its names and its types, so that an update of a field is read in the same way. A
workload may derive its own records from these and add what it needs.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

#: kinds of `Operation` that make a job
SUBMISSIONS = frozenset({"submit", "allocate", "external"})


class Condition(Struct, frozen=True, kw_only=True):
    """One dependency. `kind`: after, afterany, afterok, afternotok, aftercorr or singleton."""

    kind: str
    job_id: int = 0
    task_id: int | None = None
    minutes: int = 0


class Wanted(Struct, kw_only=True):
    """A job as it was submitted. 0, "" and None: not asked for."""

    #: different for each submission; in the job's comment, or else its name. Accounting keeps comments only with
    #: AccountingStoreFlags=job_comment, which the simulated site must have
    tag: str
    name: str = ""
    account: str = ""
    qos: str = ""
    partition: str = ""
    batch: bool = True
    script: str = ""
    #: variables that must reach the script unchanged
    environment: dict[str, str] = {}
    hold: bool = False
    #: seconds of virtual time
    begin_at: float = 0.0
    deadline_at: float = 0.0
    time_limit_minutes: int | None = None
    #: the scheduler may have given it less than its limit, down to this
    time_min_minutes: int | None = None
    #: --signal: number, seconds before the end, whether to the batch script alone
    end_signal: tuple[int, int, bool] | None = None
    dependencies: tuple[Condition, ...] = ()
    dependency_mode: str = "all"
    array_tasks: tuple[int, ...] = ()
    #: `%N`
    array_limit: int = 0
    #: number of components of a heterogeneous job
    het_size: int = 0
    licenses: str = ""
    reservation: str = ""
    #: "exclusive": no other job on its nodes; "user": no job of another user
    sharing: str = ""
    requeue: bool = True
    #: PriorityTier of its partition, and a priority that an operator has set
    tier: int = 0
    priority: int | None = None
    #: --nice: lowers its priority
    nice: int = 0
    #: fewest nodes; of a heterogeneous job those of all components, which do not share nodes
    nodes_min: int = 1
    #: it is accepted, and no set of nodes will ever suffice
    never_fits: bool = False


class Change(Struct, kw_only=True):
    """What a request changes in a job that exists: cancel, hold, release, update, requeue …"""

    #: of an array: these tasks alone; empty: all
    tasks: tuple[int, ...] = ()
    #: of an update: new values by field of JobSpec, or `array_limit`
    fields: dict[str, Any] = field(default_factory=dict)
    #: `scontrol requeuehold`
    hold: bool = False


class Triggered(Struct, frozen=True, kw_only=True):
    """A trigger, by the name that its program is told."""

    name: str
    event: str
    #: its program runs so long after the event
    offset_seconds: int = 0


class Reserved(Struct, frozen=True, kw_only=True):
    """A reservation of whole nodes. `uids` and `accounts`: who may use it; if both are given, both must hold."""

    name: str
    start_at: float
    end_at: float
    nodes: frozenset[str]
    uids: frozenset[int] = frozenset()
    accounts: frozenset[str] = frozenset()
    #: its jobs may run before and after it and on other nodes, too
    flexible: bool = False
    #: jobs that run when it is made do not prevent it, and may go on
    ignore_jobs: bool = False
