"""Reservations as `scontrol show reservation` and `sinfo -T` print them. Source: recorded output of Slurm 22.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.record import NULL, hosts, join, moment, or_null

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.node.reservation import Reservation


def times(reservation: Reservation, now: float) -> tuple[float, float]:
    """Start and end; for a floating reservation as of now."""
    if not reservation.floating:
        return reservation.start_at, reservation.end_at
    start_at = now + reservation.float_seconds
    return start_at, start_at + reservation.duration


def duration(reservation: Reservation) -> str:
    """`1-02:03:04`; hours always have two digits."""
    total = round(reservation.duration)
    days, seconds = divmod(total, 86_400)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{days}-{clock}" if days else clock


def state(reservation: Reservation, now: float) -> str:
    return "ACTIVE" if reservation.active(now) else "INACTIVE"


def _clock(seconds: int) -> str:
    days, seconds_left = divmod(seconds, 86_400)
    clock = f"{seconds_left // 3600:02}:{seconds_left // 60 % 60:02}:{seconds_left % 60:02}"
    return f"{days}-{clock}" if days else clock


def flags(reservation: Reservation) -> str:
    """Flags with their values, as in `scontrol show reservation`: `MAINT,PURGE_COMP=00:05:00`."""
    words = [
        f"{flag}={_clock(reservation.purge_seconds)}" if flag == "PURGE_COMP" else flag for flag in reservation.flags
    ]
    return ",".join(words)


def names(words: Sequence[str], denied: bool) -> str:
    """Names of users or accounts: `a,b`, or `-a,-b` for those who are denied."""
    return ",".join(f"-{word}" if denied else word for word in words)


def record_text(reservation: Reservation, now: float, oneliner: bool = False) -> str:
    """A record of `scontrol show reservation`; `now` decides State, epoch seconds."""
    start_at, end_at = times(reservation, now)
    delay = reservation.max_start_delay_seconds
    lines = [
        f"ReservationName={reservation.name} StartTime={moment(start_at)} EndTime={moment(end_at)} "
        f"Duration={duration(reservation)}",
        f"Nodes={or_null(hosts(reservation.nodes))} NodeCnt={len(reservation.nodes)} CoreCnt={reservation.core_count} "
        f"Features={or_null(reservation.features)} PartitionName={or_null(reservation.partition)} "
        f"Flags={flags(reservation)}",
        f"TRES={or_null(tres(reservation))}",
        f"Users={or_null(names(reservation.users, reservation.users_denied))} "
        f"Groups={or_null(','.join(reservation.groups))} "
        f"Accounts={or_null(names(reservation.accounts, reservation.accounts_denied))} "
        f"Licenses={or_null(','.join(f'{name}:{count}' for name, count in reservation.licenses))} "
        f"State={state(reservation, now)} BurstBuffer={NULL} Watts=n/a",
        f"MaxStartDelay={_clock(delay) if delay else NULL}",
    ]
    if reservation.comment:
        lines.append(f"Comment={reservation.comment}")
    return join(lines, oneliner)


def tres(reservation: Reservation) -> str:
    """CPUs and GRES that the reservation holds, by name: `cpu=8,gres/gpu=2`."""
    counts = {"cpu": reservation.cpu_count} if reservation.cpu_count else {}
    for _node, gres in reservation.gres:
        for held in gres:
            for name in {f"gres/{held.name}", f"gres/{held.name}:{held.type}" if held.type else f"gres/{held.name}"}:
                counts[name] = counts.get(name, 0) + held.count
    return ",".join(f"{name}={counts[name]}" for name in sorted(counts))


def table(reservations: Sequence[Reservation], now: float, header: bool) -> str:
    """The lines of `sinfo -T`, with columns as wide as the longest name."""
    width = max((len(item.name) for item in reservations), default=0)
    width = max(width, len("RESV_NAME"))
    rows = []
    if header:
        rows.append(("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"))
    for item in reservations:
        start_at, end_at = times(item, now)
        rows.append(
            (
                item.name,
                state(item, now),
                moment(start_at),
                moment(end_at),
                duration(item),
                or_null(hosts(item.nodes)),
            )
        )
    return "".join(
        f"{name:<{width}}  {word:>8}  {start:>19}  {end:>19}  {length:>11}  {nodes}\n"
        for name, word, start, end, length, nodes in rows
    )
