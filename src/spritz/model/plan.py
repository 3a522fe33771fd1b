"""The proposals of a scheduling cycle. The core checks every item again against its present state.

A plan may be stale: items that no longer fit are dropped and counted, never forced.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.cluster.preemption import PreemptMode
from spritz.model.limits.guarantees import Guarantee
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation


class PlannedStart(Struct, frozen=True, kw_only=True):
    """Start this job (or this task of a pending array) now, on these resources."""

    job_id: int
    task_id: int | None = None
    allocation: Allocation
    #: minutes, where --time-min let the scheduler lower the limit (None: as asked)
    time_limit_minutes: int | None = None
    #: the choice of licenses that it takes, as `Job.licenses` (empty: the first that is free)
    licenses: tuple[tuple[str, int], ...] = ()
    #: priority in force at the start (0: the record's)
    priority: int = 0
    #: jobs before it in its partition cannot start yet
    backfilled: bool = False
    #: hash of the request that it is for, valid in this process and its forks: the job may have been changed since (0:
    #: not known)
    request: int = 0


class PlannedVictim(Struct, frozen=True, gc=False):
    """A running job that is preempted, and the mode. `priority`: in force (0: what it started with)."""

    job_id: int
    mode: PreemptMode
    priority: int = 0


class PlannedPreemption(Struct, frozen=True, kw_only=True):
    """Preempt the victims for this job (or array task): without them it can start on `allocation`.

    It starts immediately if all of them are suspended; else it waits until they have left. All or nothing. `others`:
    for the leader of a heterogeneous job, those of all other components, which need their resources as well.
    """

    job_id: int
    task_id: int | None = None
    allocation: Allocation
    victims: tuple[PlannedVictim, ...]
    time_limit_minutes: int | None = None
    #: the job's priority in force now (0: the record's)
    priority: int = 0
    others: tuple[PlannedPreemption, ...] = ()


class PendingNote(Struct, frozen=True, kw_only=True):
    """Why a job still waits, and, if known, when and where it is expected to start."""

    job_id: int
    reason: Reason
    detail: str = ""
    expected_start_at: float = 0.0
    expected_nodes: tuple[str, ...] = ()


class PlannedFutureStart(Struct, frozen=True, kw_only=True):
    """A planned start: the job will start at `start_at` (seconds since the epoch) on `allocation`, or earlier.

    Jobs with equal requests share their planned starts, the earliest for the first job: `job_id` is any of these jobs.
    `provisional`: made by a quick cycle, to be made again by a full one. `queued`: number of jobs that had joined the
    queue when it was made. `freed`: the partition's count of freed resources when it was last examined. `holder`: the
    job that it was made for (0: none). `place`: that job's position in the last full cycle (0: none). `request`: hash
    of its request, valid in this process and its forks; the job may have another one when the plan is adopted.
    """

    job_id: int
    start_at: float
    end_at: float
    allocation: Allocation
    provisional: bool = False
    queued: int = 0
    freed: int = 0
    holder: int = 0
    place: int = 0
    request: int = 0


class NoRoom(Struct, frozen=True, kw_only=True):
    """Preemption cannot make room for this job in this partition and reservation, nor for others with the same request
    and the same guarantee.

    `freed`: what had been freed there by then, at `at` (seconds since the epoch); `spared_until`: when the first exempt
    job loses its exemption (0.0: none is exempt); `priority`: the job's. `hopeless`: preempting every job that it may
    preempt would not be enough, so neither time nor priority will help.
    """

    job_id: int
    partition: str
    reservation: str
    guarantees: tuple[Guarantee, ...]
    freed: int
    at: float
    spared_until: float
    priority: int
    hopeless: bool


class Forecast(Struct, frozen=True, kw_only=True):
    """When and where waiting jobs are expected to start: arrays as bytes, in native byte order, since there may be a
    hundred thousand jobs.

    `job_ids` int64[job], ascending; `start_at` float64[job]; the nodes of job `i` are `nodes[ends[i-1]:ends[i]]`, int32
    positions in the configuration's order; `ends` int64[job].
    """

    job_ids: bytes
    start_at: bytes
    ends: bytes
    nodes: bytes


class Plan(Struct, frozen=True, kw_only=True):
    """Result of one cycle. `examined`: placements tried; `visited`: requests looked at; `complete`: no request was left
    out for lack of budget.

    `future_starts`: all planned starts that hold after it (None: as before); `forecast` comes with a full cycle.
    """

    starts: tuple[PlannedStart, ...] = ()
    preemptions: tuple[PlannedPreemption, ...] = ()
    notes: tuple[PendingNote, ...] = ()
    future_starts: tuple[PlannedFutureStart, ...] | None = None
    forecast: Forecast | None = None
    examined: int = 0
    visited: int = 0
    complete: bool = True
    #: jobs for which a full cycle found no set of jobs to preempt
    no_room: tuple[NoRoom, ...] = ()
    #: a quick cycle left the search for victims to a full one
    victims_wanted: bool = False
    #: when an exempt job may be preempted for a waiting job, or a planned start falls due (0.0: never)
    look_again_at: float = 0.0
