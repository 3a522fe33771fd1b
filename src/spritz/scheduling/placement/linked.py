"""Which of a node's devices to allocate together: those with the strongest links to each other and the weakest to the
others.

A job thus gets GPUs of one NVLink group, and a small job the leftovers of a group that is broken already.

Source: gres.conf(5) Links, Cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from spritz.model.resources import mask_ids

if TYPE_CHECKING:
    from spritz.scheduling.view.hardware import GresPool

#: most sets of devices that are all compared; beyond that, sets grow from each device in turn
SETS_MAX = 500


def linked_devices(pool: GresPool, free: int, count: int, usable: int) -> int:
    """Mask of `count` of the `free` devices (there are at least as many). `usable`: CPUs that the job may have."""
    devices = list(mask_ids(free))

    def rank(chosen_set: Sequence[int]) -> tuple[int, int, int, int, tuple[int, ...]]:
        chosen = set(chosen_set)
        inside = sum(pool.link(device, other) for device, other in combinations(sorted(chosen_set), 2))
        outside = sum(pool.link(device, other) for device in chosen_set for other in devices if other not in chosen)
        busy = sum(bool(local) and not local & usable for local in (pool.local.get(device, 0) for device in chosen_set))
        places = len({pool.local.get(device, 0) for device in chosen_set})
        # Strong links inside come first: they are what the job computes with. Then free CPUs close by, then few
        # localities. Weak links to the rest come last: they decide between equal sets, so that a single GPU comes from
        # a group that is broken already.
        return (-inside, busy, places, outside, tuple(sorted(chosen_set)))

    sets: Iterable[Sequence[int]] = combinations(devices, count)
    if comb(len(devices), count) > SETS_MAX:
        sets = [_grown(pool, devices, first, count) for first in devices]
    return sum(1 << device for device in min(sets, key=rank))


def _grown(pool: GresPool, devices: list[int], first: int, count: int) -> list[int]:
    """Starting from this device, add the one with the strongest links to those chosen."""
    chosen = [first]
    candidates = [device for device in devices if device != first]
    while len(chosen) < count:
        best = max(candidates, key=lambda device: (sum(pool.link(device, other) for other in chosen), -device))
        candidates.remove(best)
        chosen.append(best)
    return chosen
