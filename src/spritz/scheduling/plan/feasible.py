"""Check whether a job could ever run, before it is accepted.

The core refuses submissions by simple sums; this asks placement itself. A refusal is final: all sets of nodes were
looked at. Where that would take too long (`placement.effort`), the job is accepted and may wait for ever.

Source: wording as slurmctld's refusals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.model.job.duties import FIELDS
from spritz.model.job.record import JobSpec
from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.place import place
from spritz.scheduling.plan.gangs import could_fit, fits_empty
from spritz.scheduling.view.findings import ANSWERS_MAX
from spritz.scheduling.view.parameters import parameters_of
from spritz.scheduling.view.resolve import boots_of, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.scheduling.view.findings import Memory
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.snapshot import Snapshot

    #: says what keeps the nodes from a request that they could never hold
    Why = Callable[[Snapshot, Request], str]

#: JobSpec fields that have no part in where a job could run, with their default values.
UNSEEN: dict[str, object] = {name: getattr(JobSpec(), name) for name, duty in FIELDS.items() if not duty.placed}

_UNAVAILABLE = "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE"

#: an ESLURM name, and a detail ("": Slurm's own text is enough)
Refusal = tuple[str, str]


class Checks:
    """`check_request` with memory: jobs that differ only in fields that placement ignores are checked once."""

    def __init__(self, projection: Projection, why: Why) -> None:
        self._projection = projection
        self._why = why
        #: The projection's memory when the answers were found. The projection replaces the object when they may be
        #: wrong.
        self._memory: Memory | None = None
        self._answers: dict[tuple[JobSpec, frozenset[str]], Refusal | None] = {}
        self._feasible: dict[Request, bool] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def check(self, spec: JobSpec, now: float) -> Refusal | None:
        """Check as `check_request` does. `now`: seconds since the epoch. Raises as `check_request` does."""
        projection = self._projection
        key = replace(spec, **UNSEEN), projection.rules.placing(spec.qos)
        if projection.is_current and projection.memory is self._memory and key in self._answers:
            return _unless_held(spec, self._answers[key])
        snapshot = projection.snapshot(now)
        if snapshot.memory is not self._memory:
            self._memory = snapshot.memory
            self._answers.clear()
            self._feasible.clear()
        for answers in (self._answers, self._feasible):
            if len(answers) >= ANSWERS_MAX:
                answers.clear()
        self._answers[key] = answer = check_request(spec, snapshot, self._feasible, self._why)
        return _unless_held(spec, answer)


def _unless_held(spec: JobSpec, answer: Refusal | None) -> Refusal | None:
    """None for a held job, which may wait: Slurm checks it only when it is released."""
    return None if spec.hold and answer is not None and answer[0] == _UNAVAILABLE else answer


def check_request(
    spec: JobSpec, snapshot: Snapshot, fits: dict[Request, bool] | None = None, why: Why | None = None
) -> Refusal | None:
    """None if the job could run in one of its partitions with the cluster empty and every node up; else why not.

    `fits`: requests tried on this cluster before, and whether they fitted. The function adds those it tries.
    """
    fits = {} if fits is None else fits
    refusal: Refusal | None = None
    for request in _requests(spec, snapshot):
        reason = _refusal(request, snapshot, fits)
        if reason is None:
            return None
        if why is not None and refusal is None and not reason[1]:
            reason = reason[0], why(snapshot, request)
        refusal = refusal or reason
    return refusal or ("ESLURM_INVALID_PARTITION_NAME", "")


def check_whole(specs: Sequence[JobSpec], snapshot: Snapshot) -> Refusal | None:
    """None if all components of a heterogeneous job may run at the same time; else why they never can."""
    fits: dict[Request, bool] = {}
    for spec in specs:
        refusal = check_request(spec, snapshot, fits)
        if refusal is not None:
            return refusal
    choices = [
        [
            replace(request, uid=spec.uid)
            for request in _requests(spec, snapshot)
            if _refusal(request, snapshot, fits) is None
        ]
        for spec in specs
    ]
    apart = parameters_of(snapshot.settings).components_apart
    table, eligibility = snapshot.ideal_table(), snapshot.eligibility
    if fits_empty(table, choices, eligibility, apart=apart) or could_fit(table, choices, eligibility, apart=apart):
        return None
    return (_UNAVAILABLE, "its components do not fit together")


def _requests(spec: JobSpec, snapshot: Snapshot) -> list[Request]:
    names = spec.partitions or tuple(name for name, home in snapshot.partitions.items() if home.default)
    homes = [snapshot.partitions[name] for name in names if name in snapshot.partitions]
    # --switches is no reason to refuse: the job waits for few switches only for a limited time. The same holds for
    # nodes that must be rebooted with other features.
    lifted = snapshot.rules.placing(spec.qos)
    boots = boots_of(spec, snapshot.settings) if spec.features else ()
    requests = [replace(resolve(spec, home, snapshot.settings, lifted), switches=0, boots=boots) for home in homes]
    if parameters_of(snapshot.settings).any_constraint:
        requests = [replace(request, features="") for request in requests]
    # Values that nodes report (--extra) may change at any time.
    requests = [replace(request, extra="") for request in requests]
    # The run time does not matter either: a floating reservation in its way may be deleted.
    requests = [replace(request, time_limit_minutes=0) for request in requests]
    return [replace(request, reservation=name) for request in requests for name in snapshot.reserved.names_for(spec)]


def _refusal(request: Request, snapshot: Snapshot, fits: dict[Request, bool]) -> Refusal | None:
    if request.refusal:
        return ("ESLURM_NOT_SUPPORTED", request.refusal)
    if request not in fits:
        effort = Effort()
        allocation = place(snapshot.ideal_table(), request, snapshot.eligibility, effort=effort)
        # What was not found within the effort may exist: such a job waits.
        fits[request] = allocation is not None or effort.unsure
    if fits[request]:
        return None
    return (_UNAVAILABLE, "")
