"""Before a job waits: could it ever run, and if it were alone with the running jobs, when and where?

For submissions: the core refuses by simple sums; this asks placement itself, and so is exact.

Source: sbatch(1) --test-only; wording as slurmctld's refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.resources import Allocation
from spritz.scheduling.backfill import earliest
from spritz.scheduling.placement.place import place
from spritz.scheduling.profile import Profile
from spritz.scheduling.request import resolve
from spritz.scheduling.snapshot import Snapshot

if TYPE_CHECKING:
    from spritz.model.job import JobSpec
    from spritz.scheduling.request import Request

#: an ESLURM name, and what stands in the way ("": Slurm's own text says it)
Refusal = tuple[str, str]


class Expected(Struct, frozen=True):
    """Earliest start (seconds since the epoch) and what would be given then."""

    start_at: float
    allocation: Allocation


def check_request(spec: JobSpec, snapshot: Snapshot) -> Refusal | None:
    """None if the job could run in one of its partitions were the cluster empty and every node up; else why not."""
    refusal: Refusal | None = None
    for request in _requests(spec, snapshot):
        found = _refusal(request, snapshot)
        if found is None:
            return None
        refusal = refusal or found
    return refusal or ("ESLURM_INVALID_PARTITION_NAME", "")


def will_run(spec: JobSpec, snapshot: Snapshot) -> Expected | None:
    """When and where the job could start if nothing waited before it; None if no end of a running job lets it start.

    Of several partitions the one with the earliest start; the first of equals.
    """
    best: Expected | None = None
    for request in _requests(spec, snapshot):
        found = _expected(request, snapshot)
        if found is not None and (best is None or found.start_at < best.start_at):
            best = found
    return best


def _requests(spec: JobSpec, snapshot: Snapshot) -> list[Request]:
    names = spec.partitions or tuple(name for name, home in snapshot.partitions.items() if home.default)
    homes = [snapshot.partitions[name] for name in names if name in snapshot.partitions]
    # However few switches a job asks for: it waits for them only so long.
    found = [replace(resolve(spec, home, snapshot.settings), switches=0) for home in homes]
    return [replace(one, reservation=name) for one in found for name in snapshot.reserved.names_for(spec)]


def _refusal(request: Request, snapshot: Snapshot) -> Refusal | None:
    if request.refusal:
        return ("ESLURM_NOT_SUPPORTED", request.refusal)
    if request not in snapshot.memo.feasible:
        snapshot.memo.feasible[request] = place(snapshot.ideal_table(), request, snapshot.eligibility) is not None
    if snapshot.memo.feasible[request]:
        return None
    return ("ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE", "")


def _expected(request: Request, snapshot: Snapshot) -> Expected | None:
    allocation = place(snapshot.table, request, snapshot.eligibility)
    if allocation is not None:
        return Expected(snapshot.now, allocation)
    found = earliest(Profile(snapshot.table.fork()), request, snapshot.eligibility, snapshot.now)
    return None if found is None else Expected(*found)
