"""Why a job waits, in figures and plain words: the answer of `scontrol explain`.

Everything here is a fact about one plan of the scheduler; nothing here decides. Times are seconds since the epoch (0.0:
not known), node lists are hostlists. `text` fields are for people; the other fields say the same to programs.

Source: squeue(1) JOB REASON CODES, sprio(1).
"""

from __future__ import annotations

from msgspec import Struct


class NodeTest(Struct, frozen=True, kw_only=True, gc=False):
    """How many nodes fail this test first, in the order of tests; `able` counts nodes that pass all.

    `test`: partition, excluded, reservation, features, too_small, state, not_named, busy, reserved, kept, able. `what`:
    the resources that are short (cpus, memory, gres/gpu …). For the first of them, `needed` is what each node must
    give, and `most` the most that one of these nodes has.
    """

    test: str
    count: int
    nodes: str
    text: str
    what: tuple[str, ...] = ()
    needed: int = 0
    most: int = 0


class PartitionView(Struct, frozen=True, kw_only=True):
    """The nodes of one partition (and reservation) in which the job waits; the counts of `tests` add up to `total`.

    `total`: nodes of the cluster; `able`: nodes that could carry a part of the job now.
    """

    partition: str
    total: int
    nodes_needed: int
    able: int
    tests: tuple[NodeTest, ...] = ()
    reservation: str = ""


class Limit(Struct, frozen=True, kw_only=True):
    """A limit or rule that applies to the job, with its figures. `holds`: it holds the job back now.

    `kind`: MaxTime, MaxNodes, MinNodes, Licenses, ArrayTaskLimit, Dependency, BeginTime, Held … `subject`: the
    partition, license, array or job concerned. `users`: (user, amount), largest first.
    """

    kind: str
    subject: str
    text: str
    holds: bool = False
    asked: int = 0
    used: int = 0
    limit: int = 0
    users: tuple[tuple[str, int], ...] = ()
    #: when it changes at the latest
    at: float = 0.0


class Blocker(Struct, frozen=True, kw_only=True):
    """A job that must end before this one can start. It ends at `ends_at` at the latest.

    `state`: running, suspended, completing, preempted, starting (in this very plan). `why`: nodes, licenses, limit,
    array, preemption.
    """

    job: str
    user: str
    ends_at: float
    nodes: str
    holds: str
    state: str = "running"
    why: str = "nodes"


class AheadJob(Struct, frozen=True, kw_only=True):
    """A waiting job that is considered first, and why. `start_at`: its expected start."""

    job: str
    user: str
    partition: str
    priority: int
    because: str
    start_at: float = 0.0


class Ahead(Struct, frozen=True, kw_only=True):
    """Waiting jobs that rank higher and could use a node that this one could use. `first`: the first few of them.

    `users`: (user, jobs), largest first. `priority`: this job's own.
    """

    count: int = 0
    priority: int = 0
    users: tuple[tuple[str, int], ...] = ()
    first: tuple[AheadJob, ...] = ()


class Expected(Struct, frozen=True, kw_only=True):
    """When the job starts. `sure`: now, promise (exact to limits: at the latest then), forecast (coarse), unknown."""

    sure: str
    text: str
    start_at: float = 0.0
    nodes: str = ""


class Alternative(Struct, frozen=True, kw_only=True):
    """Another request that the same planner would start sooner. `change` describes it; `update`: the `scontrol update`
    keys that make it so ("": only a new job can).
    """

    change: str
    start_at: float
    now: bool = False
    update: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """The whole explanation of one job.

    `verdict`: starts, waits, never (as things are), runs, ended. `summary`: one or two sentences. `job`: the id as
    squeue prints it.
    """

    job: str
    job_id: int
    name: str
    user: str
    state: str
    verdict: str
    summary: str
    reason: str = ""
    reason_detail: str = ""
    partition: str = ""
    #: start of a job that runs or has run; `ends_at`: its end, or the end of its time limit while it runs
    started_at: float = 0.0
    ends_at: float = 0.0
    nodes: str = ""
    asks: tuple[str, ...] = ()
    partitions: tuple[PartitionView, ...] = ()
    limits: tuple[Limit, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    #: enough is free, but planned for jobs ahead
    room_is_kept: bool = False
    ahead: Ahead = Ahead()
    expected: Expected | None = None
    #: expected start if the job were released, or had no dependencies, now
    once_free: Expected | None = None
    alternatives: tuple[Alternative, ...] = ()
    #: requests that were tried for `alternatives`
    tried: int = 0
