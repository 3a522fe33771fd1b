"""Which reservations a job may run in, and which keep it off nodes, devices or licenses.

Source: scontrol(1) RESERVATIONS; https://slurm.schedmd.com/reservations.html; sbatch(1) --reservation, --signal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.resources import mask_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spritz.model.job.record import JobRequest, JobSpec
    from spritz.model.node.reservation import Reservation
    from spritz.model.resources import NodeAllocation

#: Occurrences of a recurring reservation to check: the present one and the next. A job that starts now cannot run into
#: a later one without running into the next.
OCCURRENCES = 2


def names_of(spec: JobRequest) -> tuple[str, ...]:
    """Names in --reservation=a,b; each once, in order of preference."""
    return tuple(dict.fromkeys(name for name in spec.reservation.split(",") if name))


def admits(reservation: Reservation, spec: JobSpec) -> bool:
    """Whether this job's user, groups or account may use it."""
    return reservation.admits(user=spec.user, gids=(spec.gid, *spec.groups), account=spec.account)


def asks_for(spec: JobRequest, reservation: Reservation) -> bool:
    """Whether the job names the reservation. A job that names none asks for magnetic ones."""
    names = names_of(spec)
    return reservation.name in names if names else reservation.magnetic


def accepts(reservation: Reservation, spec: JobSpec) -> bool:
    """Whether the job may run in it while it is active."""
    return asks_for(spec, reservation) and admits(reservation, spec)


def starts_jobs(reservation: Reservation, now: float) -> bool:
    """Whether jobs of the reservation may start now. With FLEX they also start before and after its time."""
    return reservation.flexible or reservation.active(now)


def gives_way(other: Reservation, own_reservation: Reservation | None, leaving: int) -> bool:
    """Whether jobs of `own_reservation` (None: of no reservation) use the nodes of `other` as if it did not exist.

    `leaving`: how soon the job leaves on request, in seconds (`reservation.leaving_seconds`).
    """
    return other.gives_way_to(own_reservation) or other.lets_in(leaving)


def outlasts(seconds: float, floating: Reservation) -> bool:
    """Whether a job of this length ends after the start of a floating reservation (TIME_FLOAT), which is
    always ahead.
    """
    return seconds > floating.float_seconds


def overlaps(span: tuple[float, float], since: float, seconds: float) -> bool:
    """Whether a job that starts at `since` and lasts `seconds` runs into this (start, end)."""
    return span[0] < since + seconds and span[1] > since


def meets(reservation: Reservation, since: float, seconds: float) -> bool:
    """Whether a job that starts at `since` and lasts `seconds` runs into it."""
    if reservation.floating:
        return outlasts(seconds, reservation)
    return any(overlaps(span, since, seconds) for span in reservation.spans(OCCURRENCES))


def takes_of(reservation: Reservation, share: NodeAllocation) -> bool:
    """Whether the reservation holds some of the CPUs or devices of this share. The node must be one of its own."""
    mask = reservation.mask_on(share.node)
    if mask is None or mask & mask_of(share.cpus):
        return True
    devices = reservation.devices_on(share.node)
    return any(mask_of(gres.indexes) & devices.get(gres.name, 0) for gres in share.gres)


def has_all_of(reservation: Reservation, share: NodeAllocation) -> bool:
    """Whether the reservation holds all CPUs of this share and, of each GRES that it reserves on the node, all its
    devices.
    """
    if share.node not in reservation.nodes:
        return False
    mask, devices = reservation.mask_on(share.node), reservation.devices_on(share.node)
    if mask is not None and mask_of(share.cpus) & ~mask:
        return False
    return not any(mask_of(gres.indexes) & ~devices[gres.name] for gres in share.gres if gres.name in devices)


def is_confined(reservation: Reservation) -> bool:
    """Whether jobs of the reservation run only on its nodes."""
    return not reservation.flexible and not (reservation.any_nodes and not reservation.nodes)


def licenses_kept(
    reservations: Iterable[Reservation],
    own_reservation: Reservation | None,
    since: float,
    seconds: float,
    used_by: Callable[[str], Mapping[str, int]],
) -> dict[str, int]:
    """Licenses that reservations keep from a job of `own_reservation` (None: of no reservation).

    The job starts at `since` and lasts `seconds`. Kept is what the reservations' own jobs (`used_by` gives their use)
    do not use now.
    """
    kept: dict[str, int] = {}
    for other in reservations:
        if not other.licenses or other.gives_way_to(own_reservation) or not meets(other, since, seconds):
            continue
        used = used_by(other.name)
        for name, count in other.licenses:
            kept[name] = kept.get(name, 0) + max(0, count - used.get(name, 0))
    return kept
