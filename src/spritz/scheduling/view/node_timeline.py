"""What happens on one node over time: jobs end, holds begin and end.

Owns the order of these changes (`Timeline`) and the least of what is free across several of them (`Least`). Most holds
are planned starts that need a number of CPUs and devices and not particular ones. A flexible hold takes its own if they
are free when it begins, and others if not; so a job may start on any of them as long as there are enough at all times.
That is safe: requests for whole cores and single devices can be served from first start to last if at no time more is
asked for than there is. (Interval graphs are perfect: as many colours suffice as there are intervals at the busiest
moment, given out greedily in order of start. A device is a colour, a planned start an interval.) It would not be safe
for GPUs of one socket, for shares of a device, or for single threads of cores: `is_flexible` excludes them.

Source: colouring of interval graphs; the profile is `profile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spritz.model.resources import GresAllocation, lowest_bits, mask_of, mask_text
from spritz.scheduling.view.nodes import Holder, NodeRow

if TYPE_CHECKING:
    from spritz.scheduling.view.hardware import Hardware
    from spritz.scheduling.view.nodes import Holder, NodeRow


class Timeline:
    """All changes of one node in order of time: `breakpoints` ascending. At equal times, releases come before new
    holds.
    """

    __slots__ = ("_at", "_avoid", "breakpoints", "flexible")

    def __init__(self, row: NodeRow, holds: Iterable[tuple[FutureHold, Holder]]) -> None:
        at: dict[float, tuple[list[int], list[tuple[FutureHold, Holder]]]] = {}
        for holder in row.holders.values():
            at.setdefault(holder.ends_at, ([], []))[0].append(holder.job_id)
        self._avoid = 0
        #: every hold here is flexible, and devices are given out whole
        self.flexible = not row.overlaps and not row.shares_free
        for hold, holder in holds:
            at.setdefault(hold.start_at, ([], []))[1].append((hold, holder))
            at.setdefault(holder.ends_at, ([], []))[0].append(holder.job_id)
            if not hold.flexible:
                self._avoid |= holder.cpus
                self.flexible = False
        self._at = at
        self.breakpoints = sorted(at)

    def make(self, row: NodeRow, at: float) -> None:
        """Carry out the changes at time `at` on a row on which everything before has happened."""
        gone, begun = self._at[at]
        for job_id in gone:
            holder = row.holders.get(job_id)
            if holder is not None and holder.ends_at <= at:
                row.release(job_id)
        for hold, holder in begun:
            row.charge(_moved(row, holder, self._avoid) if hold.flexible else holder)


def events_ahead(
    row: NodeRow, holds: Sequence[tuple[FutureHold, Holder]], kinds: tuple[tuple[str, str], ...]
) -> list[tuple[float, int, tuple[int, ...]]] | None:
    """Changes as (time, 1 for a release or -1 for a hold, amounts as `Holder.taken`), unordered. None where the free
    resources do not follow by addition.
    """
    hardware = row.hardware
    if row.overlaps or row.shares_free or hardware.threads > 1:
        return None
    events = [(holder.ends_at, 1, holder.taken(kinds, hardware)) for holder in row.holders.values()]
    for hold, holder in holds:
        if not hold.flexible:
            return None
        taken = holder.taken(kinds, hardware)
        events += ((hold.start_at, -1, taken), (holder.ends_at, 1, taken))
    return events


def counts_ahead(
    row: NodeRow, holds: Sequence[tuple[FutureHold, Holder]], kinds: tuple[tuple[str, str], ...]
) -> tuple[list[float], list[tuple[int, ...]]] | None:
    """Times of changes, and the counts (`NodeRow.counts`) now and from each of them on. The result is that of
    `Timeline`, found by addition alone; None where addition may not be exact.
    """
    events = events_ahead(row, holds, kinds)
    if events is None:
        return None
    changes: dict[float, list[tuple[int, tuple[int, ...]]]] = {}
    for at, sign, taken in events:
        changes.setdefault(at, []).append((sign, taken))
    now = row.counts(kinds)
    breakpoints, counts = sorted(changes), [tuple(now)]
    # CPUs, memory, minus the number of jobs on the node, and GRES. No job is there after the last change, so that
    # number now is what all changes add up to.
    state = [now[0], now[2], -sum(sign * taken[2] for _at, sign, taken in events), *now[4:]]
    for at in breakpoints:
        for sign, taken in changes[at]:
            state = [have + sign * count for have, count in zip(state, taken, strict=True)]
        if state[0] < 0 or min(state[3:], default=0) < 0:
            # More is planned than there is (a job's end has moved): only rows can say what is left.
            return None
        counts.append((state[0], state[0], state[1], not state[2], *state[3:]))
    return breakpoints, counts


class Least:
    """What is free on a node at all of several times."""

    __slots__ = ("_begin", "_cores", "_devices", "_flexible", "_row")

    def __init__(self, row: NodeRow, *, flexible: bool) -> None:
        self._row = row.copy()
        self._flexible = flexible
        if flexible:
            hardware = row.hardware
            self._begin = row.free_cpus, dict(row.gres_free)
            self._cores = hardware.whole_cores(row.free_cpus).bit_count()
            self._devices = {kind: (row.gres_free[kind[0]] & mask).bit_count() for kind, mask in _kinds(hardware)}

    def meet(self, row: NodeRow) -> None:
        """Add one more time, at which `row` is free."""
        least = self._row
        least.free_cpus &= row.free_cpus
        least.free_memory_mib = min(least.free_memory_mib, row.free_memory_mib)
        for name in least.gres_free:
            least.gres_free[name] &= row.gres_free[name]
        for kind in least.counts_free:
            least.counts_free[kind] = min(least.counts_free[kind], row.counts_free[kind])
        for name, shares in least.shares_free.items():
            for device in shares:
                shares[device] = min(shares[device], row.shares_free[name][device])
        for job_id, holder in row.holders.items():
            least.holders.setdefault(job_id, holder)
        if self._flexible:
            self._flexible = not row.overlaps
            self._cores = min(self._cores, row.hardware.whole_cores(row.free_cpus).bit_count())
            for kind, mask in _kinds(row.hardware):
                self._devices[kind] = min(self._devices[kind], (row.gres_free[kind[0]] & mask).bit_count())

    def row(self) -> NodeRow:
        """The row. Where holds are flexible, it has as many CPUs and devices as are free at every time, chosen from
        those free at the first.
        """
        least = self._row
        if self._flexible:
            hardware = least.hardware
            cpus, devices = self._begin
            least.free_cpus |= _cores_from(hardware, cpus, least.free_cpus, self._cores) & cpus
            for (name, kind), mask in _kinds(hardware):
                kept = least.gres_free[name] & mask
                missing = self._devices[name, kind] - kept.bit_count()
                least.gres_free[name] |= lowest_bits(devices[name] & mask & ~kept, missing)
        return least


def _kinds(hardware: Hardware) -> Sequence[tuple[tuple[str, str], int]]:
    """((name, type), devices of exactly this type)."""
    return hardware.device_kinds


def _cores_from(hardware: Hardware, cpus: int, first: int, count: int) -> int:
    """Up to `count` whole cores of `cpus`, preferring those in `first`."""
    cores = hardware.whole_cores(cpus)
    preferred = cores & hardware.whole_cores(first)
    chosen = lowest_bits(preferred, count) if preferred.bit_count() > count else preferred
    chosen |= lowest_bits(cores & ~preferred, count - chosen.bit_count())
    return hardware.core_cpus(chosen)


def _moved(row: NodeRow, holder: Holder, avoid: int) -> Holder:
    """The holder moved to free CPUs and devices; unchanged if its own are free. If too few are, it has those that jobs
    leave first: they are late.
    """
    taken = bool(holder.cpus & (~row.free_cpus | avoid))
    if not taken and not any(mask_of(gres.indexes) & ~row.gres_free.get(gres.name, -1) for gres in holder.gres):
        return holder
    cpus, gres = holder.cpus, holder.gres
    if taken:
        hardware = row.hardware
        cores = hardware.whole_cores(cpus)
        if hardware.core_cpus(cores) != cpus:
            return holder
        # First from CPUs that no inflexible hold will want; if these are too few, from all that are free.
        open_cpus = row.free_cpus & ~avoid
        cpus_chosen = _cores_from(hardware, open_cpus, cpus, cores.bit_count())
        if cpus_chosen.bit_count() < cpus.bit_count():
            cpus_chosen = _cores_from(hardware, row.free_cpus, cpus_chosen or cpus, cores.bit_count())
        if cpus_chosen.bit_count() != cpus.bit_count():
            cpus_chosen = _first_free(row, cores.bit_count())
        if cpus_chosen.bit_count() != cpus.bit_count():
            return holder
        cpus = cpus_chosen
    moved = holder.until(holder.ends_at)
    moved.cpus = cpus
    moved.gres = _moved_gres(row, gres)
    return moved


def _first_free(row: NodeRow, count: int) -> int:
    """CPUs of so many cores: those that are free, and then those that are left first."""
    # With others, such as those of a job that stays, the hold would share CPUs, and as many would seem to be free.
    hardware, open_cpus, cores = row.hardware, 0, 0
    for cpus in (row.free_cpus, *_by_end(row, lambda holder: holder.cpus)):
        open_cpus |= cpus
        cores |= lowest_bits(hardware.whole_cores(open_cpus) & ~cores, count - cores.bit_count())
    return hardware.core_cpus(cores)


def _by_end(row: NodeRow, mask_of_holder: Callable[[Holder], int]) -> list[int]:
    """What holders leave, the first to end first. What several have is left by the last of them."""
    kept, masks = 0, []
    for holder in sorted(row.holders.values(), key=lambda holder: holder.ends_at, reverse=True):
        mask = mask_of_holder(holder)
        masks.append(mask & ~kept)
        kept |= mask
    return masks[::-1]


def _moved_gres(row: NodeRow, gres: tuple[GresAllocation, ...]) -> tuple[GresAllocation, ...]:
    if row.shares_free:
        return gres
    free = dict(row.gres_free)
    moved = []
    for item in gres:
        if item.name in free:
            pool = row.hardware.pools[item.name]
            mask = mask_of(item.indexes)
            if mask & ~free[item.name]:
                count, usable = mask.bit_count(), pool.typed_mask(item.type)
                kept = mask & free[item.name]
                for devices in (free[item.name], *_by_end(row, partial(_devices, name=item.name))):
                    kept |= lowest_bits(devices & usable & ~kept, count - kept.bit_count())
                if kept.bit_count() == count:
                    mask = kept
                    item = GresAllocation(name=item.name, type=item.type, count=item.count, indexes=mask_text(mask))
            free[item.name] &= ~mask
        moved.append(item)
    return tuple(moved)


def _devices(holder: Holder, *, name: str) -> int:
    """Mask of the devices of this name that it holds."""
    mask = 0
    for gres in holder.gres:
        if gres.name == name:
            mask |= mask_of(gres.indexes)
    return mask


class FutureHold:
    """Something that will take `parts` (node index, holder) from `start_at` to `end_at` (seconds since the epoch).

    `flexible`: any CPUs and devices of the same kind will do; it takes those of `parts` if they are free.
    """

    __slots__ = ("end_at", "flexible", "parts", "start_at")

    def __init__(self, start_at: float, end_at: float, parts: Sequence[tuple[int, Holder]]) -> None:
        self.start_at = start_at
        self.end_at = end_at
        self.parts = parts
        self.flexible = False
