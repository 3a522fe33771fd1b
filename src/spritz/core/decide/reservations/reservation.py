"""CreateReservation, UpdateReservation, DeleteReservation; and what falls due: starts, ends, next occurrences.

Source: scontrol(1) create, update, delete ReservationName; order of complaints and words as slurmctld 22.05's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decide.access import is_operator, need_operator
from spritz.core.decide.reservations.reserve import WantedResources, candidates, counted, meet
from spritz.core.decide.reservations.reserve_gres import check_parts, place
from spritz.core.decide.submission.spec import check_features
from spritz.core.decision import DecisionContext, Refused
from spritz.core.reservations import due_at, subject_of, users_of
from spritz.model.commands.job import Done
from spritz.model.commands.reservation import ReservationMade
from spritz.model.events.job import JobHeld
from spritz.model.events.reservation import (
    ReservationBegan,
    ReservationCreated,
    ReservationDeleted,
    ReservationUpdated,
)
from spritz.model.job.cron import is_zone
from spritz.model.job.record import Hold
from spritz.model.node.reservation import FLAGS, PERIODS, Reservation
from spritz.model.reasons import Reason
from spritz.model.rules.licenses import stock
from spritz.model.rules.reservation_use import names_of
from spritz.model.states import JobState

if TYPE_CHECKING:
    from spritz.core.state import State
    from spritz.model.cluster.settings import Caller
    from spritz.model.commands.reservation import (
        CreateReservation,
        DeleteReservation,
        ReservationRequest,
        UpdateReservation,
    )

#: A start this little in the past means now (seconds): the command read its clock before the controller.
LATE_SECONDS = 60.0
YEAR_SECONDS = 365 * 86_400.0
#: flags with which unusable nodes are replaced
REPLACING = ("REPLACE", "REPLACE_DOWN")
#: PURGE_COMP without a time (seconds)
PURGE_SECONDS = 300


def create_reservation(context: DecisionContext, command: CreateReservation) -> ReservationMade:
    """Make a reservation whose nodes no other reservation has during its time."""
    need_operator(context)
    state, request = context.state, command.request
    number = state.next_reservation_id
    name = request.name or _invented_name(request, number)
    if "," in name or not name.isprintable() or " " in name or len(name) > 255 or name[0] == "-":
        raise Refused(
            "ESLURM_RESERVATION_INVALID", hint="a name must not contain commas or blanks, nor begin with a dash"
        )
    if not (request.users or request.accounts or request.groups):
        raise Refused("ESLURM_RESERVATION_EMPTY")
    flags = _ordered(request.flags or ())
    if not is_zone(request.utc_offset_seconds, request.utc_offset_changes):
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint="no time zone has these offsets from UTC")
    start_at, end_at = _times(request, flags, context.now)
    draft = Reservation(
        name=name,
        id=number,
        start_at=start_at,
        end_at=end_at,
        flags=flags,
        float_seconds=(request.float_seconds or 0.0) if "TIME_FLOAT" in flags else 0.0,
        utc_offset_seconds=request.utc_offset_seconds,
        utc_offset_changes=request.utc_offset_changes,
        partition=request.partition or "",
        features=request.features or "",
        max_start_delay_seconds=request.max_start_delay_seconds or 0,
        comment=request.comment or "",
        licenses=request.licenses or (),
    )
    _check_licenses(state, draft, context.now)
    draft = _with_people(state, draft, request)
    draft = _with_purge(draft, request)
    draft, wanted = _with_place(state, draft, request)
    if name in state.reservations:
        # As in Slurm: the check for free nodes comes first, even if the name is taken as well.
        place(state, replace(draft, name=""), wanted, context.now)
        raise Refused("ESLURM_RESERVATION_NAME_DUP")
    draft = place(state, draft, wanted, context.now)
    context.record(ReservationCreated(at=context.now, reservation=draft))
    _advance(context, context.state.reservations[name])
    return ReservationMade(name=name)


def _invented_name(request: ReservationRequest, number: int) -> str:
    first = (request.accounts or request.users or request.groups or ("resv",))[0]
    return f"{first}_{number}"


def _ordered(flags: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [flag for flag in flags if flag not in FLAGS]
    if unknown:
        raise Refused("ESLURM_NOT_SUPPORTED", hint=f"the reservation flag {unknown[0]} is not supported")
    return tuple(flag for flag in FLAGS if flag in flags)


def _times(request: ReservationRequest, flags: tuple[str, ...], now: float) -> tuple[float, float]:
    start_at = request.start_at if request.start_at is not None else now
    if request.float_seconds is not None and "TIME_FLOAT" in flags:
        start_at = now + request.float_seconds
    forced = "FORCE_START" in flags
    if forced and not any(flag in PERIODS for flag in flags):
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint="FORCE_START works only for recurring reservations")
    if start_at < now - LATE_SECONDS and not forced:
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint="the start time is in the past")
    if request.end_at is not None:
        end_at = request.end_at
    elif request.duration_seconds is not None:
        end_at = start_at + request.duration_seconds
    else:
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint="EndTime or Duration is required")
    if forced and end_at > start_at:
        start_at, end_at = _present(start_at, end_at, flags, request, now)
    _check_end(start_at, end_at, flags, now)
    return start_at, end_at


def _present(
    start_at: float, end_at: float, flags: tuple[str, ...], request: ReservationRequest, now: float
) -> tuple[float, float]:
    """The occurrence that has not ended yet: FORCE_START accepts a start in the past."""
    first = Reservation(
        name="",
        id=0,
        start_at=start_at,
        end_at=end_at,
        flags=flags,
        utc_offset_seconds=request.utc_offset_seconds,
        utc_offset_changes=request.utc_offset_changes,
    )
    if end_at <= now:
        first = _next(first, now)
    return first.start_at, first.end_at


def _check_end(start_at: float, end_at: float, flags: tuple[str, ...], now: float) -> None:
    if end_at <= start_at or end_at <= now:
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint="the end time is before the start time, or in the past")
    period = min((seconds for flag, seconds in PERIODS.items() if flag in flags), default=end_at - start_at)
    if end_at - start_at > period:
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint="the reservation would overlap its own next occurrence")


def _with_people(state: State, draft: Reservation, request: ReservationRequest) -> Reservation:
    """The draft with users, accounts and groups as asked; lists with += and -= change the present ones."""
    users, users_denied = draft.users, draft.users_denied
    if request.users is not None:
        users, users_denied = request.users, request.users_denied
    users = _changed(users, request.users_added, request.users_removed)
    accounts, accounts_denied = draft.accounts, draft.accounts_denied
    if request.accounts is not None:
        accounts, accounts_denied = request.accounts, request.accounts_denied
    accounts = _changed(accounts, request.accounts_added, request.accounts_removed)
    unknown = [name for name in accounts if not state.rules.has_account(name)] if state.rules.known else []
    if unknown:
        raise Refused("ESLURM_INVALID_ACCOUNT", hint=f"there is no account {unknown[0]}")
    groups, gids = draft.groups, draft.gids
    if request.groups is not None:
        groups, gids = request.groups, request.gids
    if groups and users:
        raise Refused("ESLURM_RESERVATION_USER_GROUP")
    if not (users or accounts or groups):
        raise Refused("ESLURM_RESERVATION_EMPTY")
    return replace(
        draft,
        users=users,
        users_denied=users_denied and bool(users),
        accounts=accounts,
        accounts_denied=accounts_denied and bool(accounts),
        groups=groups,
        gids=gids,
    )


def _changed(names: tuple[str, ...], added: tuple[str, ...], removed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys((*names, *added)) if name not in removed)


def _with_purge(draft: Reservation, request: ReservationRequest) -> Reservation:
    if "PURGE_COMP" not in draft.flags:
        return replace(draft, purge_seconds=0)
    seconds = request.purge_seconds if request.purge_seconds is not None else draft.purge_seconds
    return replace(draft, purge_seconds=seconds or PURGE_SECONDS)


def _with_place(state: State, draft: Reservation, request: ReservationRequest) -> tuple[Reservation, WantedResources]:
    """The draft with partition and features checked and node names expanded."""
    if request.partition and request.partition not in state.partitions:
        raise Refused("ESLURM_INVALID_PARTITION_NAME")
    check_features(state, request.features or "", "ESLURM_INVALID_FEATURE")
    nodes = request.nodes
    flags = set(draft.flags)
    _check_replacing(flags, request)
    placed = (nodes, request.node_count, request.core_counts, request.cpu_count, request.gres, request.gres_per_node)
    if all(item is None for item in placed):
        # Only licenses: without ANY_NODES Slurm asks for nodes.
        if "ANY_NODES" not in flags or not draft.licenses:
            raise Refused("ESLURM_INVALID_NODE_NAME", hint="a reservation of licenses alone needs Flags=ANY_NODES")
        return draft, WantedResources(nothing=True)
    if nodes == ("ALL",):
        if "PART_NODES" in flags:
            if draft.partition not in state.partitions:
                raise Refused("ESLURM_INVALID_PARTITION_NAME", hint="PART_NODES needs PartitionName and Nodes=ALL")
            nodes = state.partitions[draft.partition].nodes
        else:
            home = state.partitions.get(draft.partition)
            nodes = home.nodes if home is not None else tuple(state.nodes)
            flags |= {"ALL_NODES"} if home is None else {"PART_NODES"}
    elif "PART_NODES" in flags:
        raise Refused("ESLURM_INVALID_PARTITION_NAME", hint="PART_NODES needs PartitionName and Nodes=ALL")
    if nodes is not None:
        if not nodes:
            raise Refused("ESLURM_INVALID_NODE_NAME", hint="no nodes are named")
        nodes = tuple(dict.fromkeys(nodes))
        flags |= {"SPEC_NODES"}
    elif not draft.partition:
        default = next((partition.name for partition in state.partitions.values() if partition.default), "")
        if not default:
            raise Refused("ESLURM_DEFAULT_PARTITION_NOT_SET")
        draft = replace(draft, partition=default)
    draft = replace(draft, flags=tuple(flag for flag in FLAGS if flag in flags))
    return draft, WantedResources(
        nodes=nodes,
        node_count=request.node_count,
        core_counts=request.core_counts,
        cpu_count=request.cpu_count,
        gres=request.gres,
        gres_per_node=request.gres_per_node,
    )


def _check_replacing(flags: set[str], request: ReservationRequest) -> None:
    """Only nodes that are not named, and only whole ones, can be replaced."""
    if not flags & set(REPLACING):
        return
    if request.nodes is not None:
        raise Refused("ESLURM_INVALID_NODE_NAME", hint="nodes that are named cannot be replaced")
    if request.core_counts is not None or request.cpu_count is not None or request.gres or request.gres_per_node:
        raise Refused("ESLURM_INVALID_CPU_COUNT", hint="only whole nodes can be replaced, not cores or devices")


def _check_licenses(state: State, draft: Reservation, now: float) -> None:
    """Check the number of each license, less what overlapping reservations hold and what jobs will still use then."""
    available = stock(state.settings.licenses, state.rules.licenses)
    start_at = now + draft.float_seconds if draft.floating else draft.start_at
    for job_id in state.running if "IGNORE_JOBS" not in draft.flags and draft.licenses else ():
        job = state.jobs[job_id]
        inside = job.allocation is not None and job.allocation.reservation == draft.name
        if not inside and (not job.ends_at or job.ends_at > start_at):
            for name, count in job.licenses:
                available[name] = available.get(name, 0) - count
    for other in state.reservations.values():
        if other.name == draft.name or not other.licenses or "OVERLAP" in (*draft.flags, *other.flags):
            continue
        if meet(draft, other):
            for name, count in other.licenses:
                available[name] = available.get(name, 0) - count
    for name, count in draft.licenses:
        if count < 1 or count > available.get(name, 0):
            raise Refused(
                "ESLURM_INVALID_LICENSES",
                hint=f"{max(0, available.get(name, 0))} of license {name} are free at that time",
            )


# -- update


def update_reservation(context: DecisionContext, command: UpdateReservation) -> Done:
    """Change a reservation; all or nothing."""
    need_operator(context)
    state, request = context.state, command.request
    old = state.reservations.get(request.name)
    if old is None:
        raise Refused("ESLURM_RESERVATION_INVALID")
    if request.skip:
        return _skip(context, old)
    draft = replace(
        old,
        flags=_ordered(_changed(_kept(old, request), request.flags_added, request.flags_removed)),
        partition=old.partition if request.partition is None else request.partition,
        features=old.features if request.features is None else request.features,
        comment=old.comment if request.comment is None else request.comment,
        licenses=old.licenses if request.licenses is None else request.licenses,
        max_start_delay_seconds=(
            old.max_start_delay_seconds if request.max_start_delay_seconds is None else request.max_start_delay_seconds
        ),
    )
    draft = _with_purge(_with_people(state, draft, request), request)
    draft = _moved(context, draft, request)
    if (draft.licenses, draft.start_at, draft.end_at) != (old.licenses, old.start_at, old.end_at):
        _check_licenses(state, draft, context.now)
    draft = _replaced(context, old, draft, request)
    if draft != old:
        ends = draft.end_at != old.end_at or draft.flexible != old.flexible
        context.record(ReservationUpdated(at=context.now, reservation=draft, moves_jobs=ends))
        _advance(context, draft)
    return Done()


def _kept(old: Reservation, request: ReservationRequest) -> tuple[str, ...]:
    """Flags= of an update replaces the flags that users choose; how the nodes were chosen stays."""
    if request.flags is None:
        return old.flags
    return (*request.flags, *(flag for flag in old.flags if flag in ("SPEC_NODES", "ALL_NODES")))


def _moved(context: DecisionContext, draft: Reservation, request: ReservationRequest) -> Reservation:
    """The draft with changed times."""
    start_at, end_at = draft.start_at, draft.end_at
    if request.start_at is not None:
        if draft.began and not draft.floating:
            raise Refused("ESLURM_RSV_ALREADY_STARTED")
        if request.start_at < context.now - LATE_SECONDS:
            raise Refused("ESLURM_INVALID_TIME_VALUE", hint="the start time is in the past")
        end_at += request.start_at - start_at
        start_at = request.start_at
    if request.duration_seconds is not None:
        end_at = start_at + request.duration_seconds
    if request.end_at is not None:
        end_at = request.end_at
    if (start_at, end_at) != (draft.start_at, draft.end_at):
        _check_end(start_at, end_at, draft.flags, context.now)
    float_seconds = draft.float_seconds
    if draft.floating and request.start_at is not None:
        float_seconds = max(0.0, request.float_seconds or request.start_at - context.now)
    return replace(draft, start_at=start_at, end_at=end_at, float_seconds=float_seconds)


def _replaced(
    context: DecisionContext, old: Reservation, draft: Reservation, request: ReservationRequest
) -> Reservation:
    """The draft with other nodes, if some are asked for; otherwise its nodes are checked at the new times."""
    state = context.state
    placed = (
        request.nodes,
        request.node_count,
        request.core_counts,
        request.cpu_count,
        request.gres,
        request.gres_per_node,
    )
    if any(item is not None for item in placed):
        if (draft.cpus or request.core_counts is not None or request.cpu_count is not None) and old.cpus:
            raise Refused("ESLURM_CORE_RESERVATION_UPDATE")
        if request.node_count is not None and request.nodes is None:
            return _resized(context, draft, request.node_count)
        fresh = replace(draft, flags=tuple(f for f in draft.flags if f not in ("SPEC_NODES", "ALL_NODES")))
        if request.nodes == ():
            # Any nodes will do from now on, including the present ones.
            return _resized(context, fresh, len(old.nodes) if request.node_count is None else request.node_count)
        fresh, wanted = _with_place(state, fresh, request)
        return place(state, fresh, wanted, context.now)
    if request.partition and request.partition not in state.partitions:
        raise Refused("ESLURM_INVALID_PARTITION_NAME")
    # A reservation that only shrinks in time still has all its nodes. One that grows may meet jobs and other
    # reservations in the time that it gains.
    grows = draft.start_at < old.start_at or draft.end_at > old.end_at
    if grows and draft.cpus:
        check_parts(state, draft, context.now)
    elif grows and draft.nodes:
        place(state, draft, WantedResources(nodes=draft.nodes), context.now)
    if not draft.nodes and not draft.licenses:
        raise Refused("ESLURM_INVALID_LICENSES", hint="the reservation would be empty: delete it instead")
    return draft


def _resized(context: DecisionContext, draft: Reservation, count: int) -> Reservation:
    """NodeCnt= of an update: nodes are added or released, the last first; nodes in use by its jobs stay."""
    state = context.state
    if count < 1:
        raise Refused("ESLURM_INVALID_NODE_COUNT")
    if count >= len(draft.nodes):
        home = draft.partition or next((item.name for item in state.partitions.values() if item.default), "")
        if count == len(draft.nodes):
            return draft
        other = replace(draft, partition=home)
        more = [name for name in _others(state, other, context.now) if name not in draft.nodes]
        names = (*draft.nodes, *more[: count - len(draft.nodes)])
        if len(names) < count:
            raise Refused("ESLURM_NODES_BUSY")
        return place(state, draft, WantedResources(nodes=names), context.now)
    used = {
        name
        for job in users_of(state, draft.name)
        if job.allocation is not None and job.state.active
        for name in job.allocation.names
    }
    # The sort is stable: nodes in use first, then in their order, so that the last free ones are released.
    keep = sorted(draft.nodes, key=lambda name: name not in used)[:count]
    if used - set(keep):
        raise Refused("ESLURM_NODES_BUSY", hint="jobs of the reservation run on more nodes")
    return counted(state, replace(draft, nodes=tuple(name for name in draft.nodes if name in keep)))


def follow_partitions(context: DecisionContext) -> None:
    """With PART_NODES a reservation has the nodes of its partition, whatever they become."""
    state = context.state
    for item in tuple(state.reservations.values()):
        home = state.partitions.get(item.partition)
        if "PART_NODES" not in item.flags or item.cpus or home is None or not home.nodes:
            continue
        if state.memory.ignores(subject_of(item)):
            continue
        context.subject = subject_of(item)
        if set(home.nodes) != set(item.nodes):
            fresh = counted(state, replace(item, nodes=home.nodes))
            context.record(ReservationUpdated(at=context.now, reservation=fresh))


def _others(state: State, draft: Reservation, now: float) -> list[str]:
    """Nodes that it could have in addition to its own."""
    return [node.name for node in candidates(state, draft, now, whole=True)]


def _skip(context: DecisionContext, old: Reservation) -> Done:
    if not old.recurring:
        raise Refused("ESLURM_RESERVATION_NO_SKIP")
    if users_of(context.state, old.name):
        raise Refused("ESLURM_RESERVATION_BUSY")
    context.record(ReservationUpdated(at=context.now, reservation=_next(old, old.start_at)))
    return Done()


def _next(old: Reservation, after: float) -> Reservation:
    """The reservation at its first later occurrence that has not ended at `after`."""
    start_at = old.following(old.start_at)
    while start_at + old.duration <= after:
        start_at = old.following(start_at)
    return replace(old, start_at=start_at, end_at=start_at + old.duration, began=False, used_at=0.0)


# -- delete


def delete_reservation(context: DecisionContext, command: DeleteReservation) -> Done:
    """Remove a reservation that no job uses or waits for."""
    reservation = context.state.reservations.get(command.name)
    caller = context.caller
    by_users = context.state.settings.user_deletes_reservations
    if reservation is None or not (by_users or "USER_DELETE" in reservation.flags):
        need_operator(context)
    elif not is_operator(context) and not _may_use(context.state, reservation, caller):
        raise Refused("ESLURM_ACCESS_DENIED", hint=f"you may not use reservation {command.name}")
    if reservation is None:
        raise Refused("ESLURM_RESERVATION_INVALID")
    if users_of(context.state, command.name):
        raise Refused("ESLURM_RESERVATION_BUSY")
    context.record(ReservationDeleted(at=context.now, name=command.name))
    return Done()


def _may_use(state: State, reservation: Reservation, caller: Caller) -> bool:
    """Whether the caller may use the reservation, through any account of the caller."""
    accounts = {
        association.account for association in state.rules.policy.associations if association.user == caller.user
    } | {""}
    gids = (caller.gid, *caller.groups)
    return any(reservation.admits(user=caller.user, gids=gids, account=account) for account in sorted(accounts))


# -- time


def look_at_reservations(context: DecisionContext) -> None:
    """Start, end and repeat the reservations that are due; called by every Tick."""
    for reservation in list(context.state.reservations.values()):
        subject = subject_of(reservation)
        if due_at(context.state, reservation) > context.now or context.state.memory.ignores(subject):
            continue
        context.subject = subject
        _advance(context, reservation)


def _advance(context: DecisionContext, reservation: Reservation) -> None:
    if due_at(context.state, reservation) > context.now:
        return
    if not reservation.began:
        context.record(ReservationBegan(at=context.now, name=reservation.name))
        reservation = context.state.reservations[reservation.name]
        if due_at(context.state, reservation) > context.now:
            return
    if reservation.recurring:
        # A controller that was away for a while goes on with today's occurrence.
        context.record(ReservationUpdated(at=context.now, reservation=_next(reservation, context.now)))
        _advance(context, context.state.reservations[reservation.name])
        return
    _finish(context, reservation)


def _finish(context: DecisionContext, reservation: Reservation) -> None:
    """The reservation is over for good. Jobs that wait for it are held; running ones have deadlines of their own."""
    context.record(ReservationDeleted(at=context.now, name=reservation.name))
    if "NO_HOLD_JOBS_AFTER_END" in reservation.flags:
        return
    for job in users_of(context.state, reservation.name):
        existing = [name for name in names_of(job.spec) if name in context.state.reservations]
        if job.state is JobState.PENDING and job.hold is Hold.NONE and not existing:
            context.record(
                JobHeld(
                    at=context.now,
                    job_id=job.id,
                    hold=Hold.ADMIN,
                    reason=Reason.RESERVATION_DELETED,
                    detail=f"Reservation {reservation.name} was deleted",
                )
            )
