"""What DebugFlags add to the log. Source: slurm.conf(5) DebugFlags."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spritz.config.schema.status import HONOURED
from spritz.controller.debug_flags import EVENTS, DebugFlags
from spritz.controller.diagnostics import Counting
from spritz.model.errors import SpritzError
from spritz.model.events.job import JobAccrued
from spritz.model.events.step import StepOpened
from spritz_testing.builders import World

#: shown by those who count requests and cycles
COUNTED = {"AuditRPCs", "Protocol", "Backfill"}


class _Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))


def made() -> tuple[DebugFlags, _Log, Counting]:
    log, counting = _Log(), Counting(0.0)
    context: Any = SimpleNamespace(log=log, counting=counting)
    return DebugFlags(context), log, counting


def test_every_flag_shows_something() -> None:
    assert set(EVENTS) | COUNTED == HONOURED["DebugFlags"]


def test_events_of_the_subject_are_told_and_no_others() -> None:
    world = World()
    job = world.submit()
    world.start(job)
    step = world.step(job, environment=(b"SECRET=1",))
    flags, log, _ = made()
    events = [StepOpened(at=1.0, step=step), JobAccrued(at=1.0, job_id=job)]
    flags.listen(events)
    assert log.lines == []
    flags.put(("Steps", "Data"))
    flags.listen(events)
    assert log.lines == [("debug.StepOpened", {"job_id": job, "step_id": 0, "nodes": "n1"})]
    flags.change("Steps", False)
    flags.change("Accrue", True)
    flags.listen(events)
    assert log.lines[1:] == [("debug.JobAccrued", {"job_id": job})]


def test_requests_and_full_cycles_are_told_while_the_flag_is_on() -> None:
    flags, log, counting = made()
    flags.put(("AuditRPCs", "Backfill"))
    counting.calls.note("Ping", 1000, 0.001)
    counting.full.note(0.0, 0.5, depth=3, tried=2, queue=7)
    counting.quick.note(0.0, 0.5, depth=3, tried=2, queue=7)
    flags.put(())
    counting.calls.note("Ping", 1000, 0.001)
    counting.full.note(0.0, 0.5, depth=3, tried=2, queue=7)
    assert log.lines == [
        ("debug.request", {"kind": "Ping", "uid": 1000, "milliseconds": 1.0}),
        ("debug.full_cycle", {"seconds": 0.5, "depth": 3, "tried": 2, "pending": 7}),
    ]


def test_a_flag_that_shows_nothing_is_refused() -> None:
    flags, _, _ = made()
    with pytest.raises(SpritzError, match="DebugFlags=Data is not supported"):
        flags.change("Data", True)
