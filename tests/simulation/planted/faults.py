"""All planted faults."""

from __future__ import annotations

from tests.simulation.planted import accounting, client, controller, jobs, journal, node, scheduling
from tests.simulation.planted.entry import Planted

#: area -> its faults
AREAS: dict[str, tuple[Planted, ...]] = {
    "journal": journal.FAULTS,
    "controller": controller.FAULTS,
    "jobs": jobs.FAULTS,
    "node": node.FAULTS,
    "accounting": accounting.FAULTS,
    "scheduling": scheduling.FAULTS,
    "client": client.FAULTS,
}

FAULTS: tuple[Planted, ...] = tuple(fault for faults in AREAS.values() for fault in faults)

#: The ten defects that reading found in core and controller, put back.
DEFECTS = ("b1", "b2", "b3", "b4", "b5", "b6", "b7", "b10", "b14", "b16")
