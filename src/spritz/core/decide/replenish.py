"""Replaces nodes of reservations that cannot be used: down and drained ones and, with REPLACE, those that jobs use, so
that the number of idle nodes stays the same.

Only for whole nodes that were requested by number and not by name. With STATIC_ALLOC, and without REPLACE or
REPLACE_DOWN, nodes stay as they are. If there is no other node, the old one stays.

Source: scontrol(1) RESERVATIONS: STATIC_ALLOC, REPLACE, REPLACE_DOWN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.reserve import candidates, counted
from spritz.core.decide.set_aside import is_ignored
from spritz.core.reservations import subject_of
from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as job_events
from spritz.model.events.reservation import ReservationUpdated
from spritz.model.rules.availability import takes_jobs

if TYPE_CHECKING:
    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.reservation import Reservation

#: events after which nodes may need replacing, or replacements may exist
_EVENTS = (
    cluster_events.NodeStateChanged,
    cluster_events.NodeRegistered,
    cluster_events.NodeUpdated,
    job_events.JobStarted,
    job_events.JobEnded,
    job_events.JobNodeGone,
)


def replenish(context: DecisionContext) -> None:
    """Replace nodes after the changes of this decision."""
    state = context.state
    if not state.reservations or not any(isinstance(event, _EVENTS) for event in context.events):
        return
    for reservation in list(state.reservations.values()):
        subject = subject_of(reservation)
        if _replaces(reservation) and not (state.set_aside and is_ignored(state, subject)):
            context.subject = subject
            better = _replenished(state, reservation, context.now)
            if better.nodes != reservation.nodes:
                context.record(ReservationUpdated(at=context.now, reservation=better))


def _replaces(reservation: Reservation) -> bool:
    flags = reservation.flags
    if not reservation.nodes or reservation.cpus or "SPEC_NODES" in flags or "ALL_NODES" in flags:
        return False
    return "STATIC" not in flags or "REPLACE" in flags or "REPLACE_DOWN" in flags


def _replenished(state: State, reservation: Reservation, now: float) -> Reservation:
    def fit(name: str) -> bool:
        node = state.nodes.get(name)
        if node is None or not takes_jobs(node, resumes=state.settings.power.resumes):
            return False
        return "REPLACE" not in reservation.flags or not reservation.active(now) or not state.uses[name].jobs

    left = [name for name in reservation.nodes if fit(name)]
    missing = len(reservation.nodes) - len(left)
    if not missing:
        return reservation
    spare = [
        node.name
        for node in candidates(state, reservation, now, whole=True)
        if node.name not in reservation.nodes and fit(node.name)
    ][:missing]
    # Nodes that cannot be replaced stay, those that are up before others.
    stay = sorted((name for name in reservation.nodes if name not in left), key=lambda name: not _is_up(state, name))
    kept = {*left, *spare, *stay[: missing - len(spare)]}
    return counted(state, replace(reservation, nodes=tuple(name for name in state.nodes if name in kept)))


def _is_up(state: State, name: str) -> bool:
    node = state.nodes.get(name)
    return node is not None and takes_jobs(node, resumes=state.settings.power.resumes)
