"""Limits of production code that are made small in some runs, so that small runs meet what happens at them.

Five thousand events between two images, 64 groups in a page of the journal, 200 jobs from which rows are kept: a run of
an hour reaches none of these. With other values the code does the same, only sooner, so every rule holds with them.

Source: FoundationDB's simulation draws such limits from its seed
(https://apple.github.io/foundationdb/testing.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.client.channel import channel
from spritz.controller.api import deferred
from spritz.controller.api.queue import jobs, row_cache
from spritz.controller.journal import blobs, images
from spritz.controller.journal import postgresql as journal_postgresql
from spritz.controller.journal import reader as journal_reader
from spritz.controller.scheduler import driver as scheduler
from spritz.core.job import timers
from spritz.node.supervisors import pool

if TYPE_CHECKING:
    from types import ModuleType

    from spritz_testing.daemons.system.world import World

#: (module, name, small values), one of which is drawn
_LIMITS: tuple[tuple[ModuleType, str, tuple[Any, ...]], ...] = (
    (images, "EVENTS_BETWEEN", (20, 100)),
    (images, "EVENTS_KEPT", (0, 50)),
    (blobs, "COLLECT_SECONDS", (2.0, 10.0)),
    (blobs, "SLICE", (3,)),
    (blobs, "REMOVED_BLOBS_MAX", (1,)),
    (channel, "STREAM_ITEMS_MAX", (2,)),
    (deferred, "RETRIES_MAX", (1,)),
    (deferred, "ANSWERS_MAX", (1,)),
    (jobs, "_MANY_JOBS", (1,)),
    (jobs, "ROWS_PER_SLICE", (3,)),
    (journal_postgresql, "_PAGE_GROUPS", (1, 2)),
    (journal_reader, "READ_GROUPS", (3,)),
    (journal_reader, "EVENTS_GROUPS", (3,)),
    (row_cache, "ROWS_MAX", (10,)),
    (timers, "SUPERSEDED_MAX", (0, 4)),
    (scheduler, "QUICK_PLACEMENTS", (1, 3)),
    (pool, "STARTS_MIN", (1, 2)),
    (pool, "START_SECONDS", (3.0,)),
)

#: Chance that a run has small limits at all, and of each limit then.
_RUN_CHANCE, _CHANCE = 0.7, 0.5


def draw(world: World) -> None:
    """Set them for this process, which runs nothing else."""
    pool.STARTS_PER_CPU = 0  # the same on every machine that simulates
    random = world.random("small limits")
    is_drawn = random.random() < _RUN_CHANCE
    for module, name, values in _LIMITS:
        if is_drawn and random.random() < _CHANCE:
            assert hasattr(module, name), f"{module.__name__} has no {name}"
            setattr(module, name, random.choice(values))
