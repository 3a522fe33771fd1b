"""Replaces nodes of reservations that cannot be used: down and drained ones and, with REPLACE, those that jobs use, so
that the number of idle nodes stays the same.

Only for whole nodes that were requested by number and not by name. With STATIC_ALLOC, and without REPLACE or
REPLACE_DOWN, nodes stay as they are. If there is no other node, the old one stays.

A reservation that lacks nodes is looked at again when a node that it could have has changed, and now and then, since
time alone may make a node free. So an event costs the same however many nodes the cluster and its reservations have.

Source: scontrol(1) RESERVATIONS: STATIC_ALLOC, REPLACE, REPLACE_DOWN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.core.decide.reservations.reserve import counted, may_have
from spritz.core.reservations import subject_of
from spritz.model.events import cluster as cluster_events
from spritz.model.events import job as job_events
from spritz.model.events import reservation as reservation_events
from spritz.model.events.reservation import ReservationUpdated
from spritz.model.rules.availability import takes_jobs
from spritz.notation import features as notation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from spritz.core.decision import DecisionContext
    from spritz.core.state import State
    from spritz.model.events import Event
    from spritz.model.job.record import Job
    from spritz.model.node.reservation import Reservation

#: Seconds after which all nodes are tried again for a reservation that lacks some.
AGAIN_SECONDS = 60.0

#: Nodes times reservations that are tried in one decision. After an event about more, all nodes are tried again for one
#: reservation a decision.
_TRIED_MAX = 1000

#: "all nodes are to be tried for it as soon as possible", as a time
_AT_ONCE = float("-inf")


def _nodes_of_job(state: State, job: Job | None) -> Iterable[str]:
    return job.allocation.names if job is not None and job.allocation is not None else ()


#: events after which nodes may need replacing, or replacements may exist, and the nodes. Any: each function takes its
#: own kind of event.
_NODES: dict[type[Event], Callable[[State, Any], Iterable[str]]] = {
    cluster_events.NodeStateChanged: lambda state, event: (event.name,),
    cluster_events.NodeRegistered: lambda state, event: (event.name,),
    cluster_events.NodeUpdated: lambda state, event: (event.node.name,),
    job_events.JobStarted: lambda state, event: event.allocation.names,
    job_events.JobEnded: lambda state, event: _nodes_of_job(state, state.jobs.get(event.job_id)),
    job_events.JobUpdated: lambda state, event: _nodes_of_job(state, event.job),
    job_events.JobNodeGone: lambda state, event: (event.node,),
}

#: events that may change which nodes any reservation could have
_WIDE = (
    cluster_events.ClusterConfigured,
    cluster_events.NodesCreated,
    cluster_events.NodesDeleted,
    cluster_events.PartitionCreated,
    cluster_events.PartitionUpdated,
    cluster_events.PartitionDeleted,
    reservation_events.ReservationCreated,
    reservation_events.ReservationUpdated,
    reservation_events.ReservationBegan,
    reservation_events.ReservationDeleted,
)


def replenish(context: DecisionContext) -> None:
    """Replace nodes after the changes of this decision."""
    state = context.state
    if not state.reservations:
        return
    touched: dict[str, None] = {}
    if state.memory.lacking is None:
        _look_at_all(state)
    for event in context.events:
        nodes = _NODES.get(type(event))
        if nodes is not None:
            touched |= dict.fromkeys(nodes(state, event))
        elif type(event) in _WIDE:
            _look_at_all(state)
    if not touched:
        return
    for name in _due(state, touched, context.now):
        reservation = state.reservations[name]
        subject = subject_of(reservation)
        if state.memory.ignores(subject):
            continue
        context.subject = subject
        better = _replenished(state, reservation, context.now)
        if better.nodes != reservation.nodes:
            context.record(ReservationUpdated(at=context.now, reservation=better))


def _look_at_all(state: State) -> None:
    names = (name for name, reservation in state.reservations.items() if _replaces(reservation))
    state.memory.lacking = dict.fromkeys(names, _AT_ONCE)


def _due(state: State, touched: Collection[str], now: float) -> list[str]:
    """Reservations that these nodes may make worse or better; and one of those that are due to be looked at again."""
    lacking, reserved = state.memory.lacking, state.reserved
    assert lacking is not None, "replenish sets it"
    due: dict[str, None] = {}
    for node in touched:
        for name in reserved.get(node, ()):
            # One that lacks nodes after all nodes were tried gets no replacement by losing a further one.
            if lacking.get(name, _AT_ONCE) != _AT_ONCE:
                continue
            reservation = state.reservations[name]
            if _replaces(reservation) and not _fits(state, reservation, node, now):
                due[name] = None
    if len(lacking) * len(touched) > _TRIED_MAX:
        lacking.update(dict.fromkeys(lacking, _AT_ONCE))
    again = None
    for name, looked_at in list(lacking.items()):
        record = state.reservations.get(name)
        if record is None:
            del lacking[name]
        elif name in due:
            continue
        elif looked_at != _AT_ONCE and any(_is_spare(state, record, node, now) for node in touched):
            due[name] = None
        elif now - looked_at >= AGAIN_SECONDS and (again is None or looked_at < lacking[again]):
            again = name
    return [*due, *([again] if again is not None else [])]


def _replaces(reservation: Reservation) -> bool:
    flags = reservation.flags
    if not reservation.nodes or reservation.cpus or "SPEC_NODES" in flags or "ALL_NODES" in flags:
        return False
    return "STATIC" not in flags or "REPLACE" in flags or "REPLACE_DOWN" in flags


def _fits(state: State, reservation: Reservation, name: str, now: float) -> bool:
    """Whether the node serves the reservation."""
    node = state.nodes.get(name)
    if node is None or not takes_jobs(node, resumes=state.settings.power.resumes):
        return False
    return "REPLACE" not in reservation.flags or not reservation.active(now) or not state.uses[name].jobs


def _is_spare(state: State, reservation: Reservation, name: str, now: float) -> bool:
    """Whether the node could replace one of the reservation."""
    return (
        reservation.name not in state.reserved.get(name, ())
        and reservation.partition in state.node_partitions.get(name, ())
        and _fits(state, reservation, name, now)
        and may_have(state, reservation, notation.parse(reservation.features), state.nodes[name], now, whole=True)
    )


def _replenished(state: State, reservation: Reservation, now: float) -> Reservation:
    """The reservation with as many nodes that fit as there are. Notes whether it lacks some."""
    assert state.memory.lacking is not None, "replenish sets it"
    state.memory.lacking.pop(reservation.name, None)
    fit = {name: None for name in reservation.nodes if _fits(state, reservation, name, now)}
    missing = len(reservation.nodes) - len(fit)
    if not missing:
        return reservation
    spare = _spare(state, reservation, missing, now)
    if len(spare) < missing:
        state.memory.lacking[reservation.name] = now
    if not spare:
        return reservation
    # Nodes that cannot be replaced stay, those that are up before others.
    stay = sorted((name for name in reservation.nodes if name not in fit), key=lambda name: not _is_up(state, name))
    kept = {*fit, *spare, *stay[: missing - len(spare)]}
    return counted(state, replace(reservation, nodes=tuple(name for name in state.nodes if name in kept)))


def _spare(state: State, reservation: Reservation, count: int, now: float) -> list[str]:
    """At most `count` nodes that could be added, best first: of less weight, then by the order of the configuration."""
    partition = state.partitions.get(reservation.partition)
    names = (name for name in partition.nodes if name in state.nodes) if partition is not None else ()
    constraint = notation.parse(reservation.features)
    spare: list[str] = []
    for name in sorted(names, key=lambda name: state.nodes[name].config.weight):
        if (
            reservation.name not in state.reserved.get(name, ())
            and _fits(state, reservation, name, now)
            and may_have(state, reservation, constraint, state.nodes[name], now, whole=True)
        ):
            spare.append(name)
            if len(spare) == count:
                break
    return spare


def _is_up(state: State, name: str) -> bool:
    node = state.nodes.get(name)
    return node is not None and takes_jobs(node, resumes=state.settings.power.resumes)
