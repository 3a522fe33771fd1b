"""The outbox's own faults: they are its own, and what it has to send stays in the journal."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

from spritz.controller.outbox import Outbox
from spritz.core.machine import Machine
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger
from spritz.runtime.tasks import Supervisor
from spritz_testing.memory_journal import MemoryJournal, MemoryStore
from tests.unit.controller.heard import Heard

USER = "root" if os.geteuid() == 0 else str(os.geteuid())


class QuickClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def context(tasks: Supervisor) -> Any:
    settings = SimpleNamespace(words=lambda name: (), integer=lambda name: 1, text=lambda name: "", cluster_name="c")
    return SimpleNamespace(
        configuration=SimpleNamespace(
            loaded=SimpleNamespace(settings=settings), path="", settings=SimpleNamespace(slurm_user=USER)
        ),
        events_needed=[],
        counters=[],
        writer=SimpleNamespace(listeners=Heard(), durable_sequence=0),
        recorded=SimpleNamespace(channel=None),
        machine=Machine(),
        journal=MemoryJournal(MemoryStore()),
        clock=QuickClock(),
        log=get_logger("test"),
        tasks=tasks,
    )


def test_a_fault_of_the_outbox_does_not_stop_the_controller_and_it_begins_again() -> None:
    async def main() -> None:
        begun, again = 0, asyncio.Event()

        class Faulty(Outbox):
            async def _serve(self) -> None:
                nonlocal begun
                begun += 1
                if begun < 3:
                    raise OverflowError("Python int too large to convert to SQLite INTEGER")
                again.set()
                await asyncio.Event().wait()

        async with asyncio.timeout(100), Supervisor() as tasks:
            made = context(tasks)
            Faulty(made)
            await again.wait()
            assert made.counters[0]()["failure.outbox"] == 2
            tasks.cancel_all()

    asyncio.run(main())
