"""A controller in front of a slurmdbd of an earlier release: nothing is sent, nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from spritz.accounting import store
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.store import Store
from spritz.model import stored
from spritz.runtime.tasks import Supervisor
from tests.simulation.accounting_world import World


def test_events_wait_in_the_journal_until_slurmdbd_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, seed=1)
    Store(engine := open_engine(parse_url(f"sqlite:///{world.path}"))).migrate()
    engine.dispose()
    world.append(20)

    async def run() -> None:
        with monkeypatch.context() as older:
            # What slurmdbd reads; the outbox has the real one.
            older.setattr(store, "stored", SimpleNamespace(FORMAT=stored.FORMAT - 1, encode=stored.encode))
            daemon = await world._started()
            async with Supervisor(lambda name, error: None) as tasks:
                outbox, _ = world._outbox(tasks)
                async with asyncio.timeout(60):
                    while not daemon.api.links._kept_out:  # noqa: ASYNC110 - nothing tells when that moves
                        await asyncio.sleep(0.001)
                assert "slurmctld of cluster c1 writes events of format" in daemon.api.links._kept_out["c1"]
                assert (outbox.acknowledged, outbox.needed_after()) == (0, 0)
                await daemon.bury()
                older.undo()
                daemon = await world._started()
                while outbox.acknowledged < world.journal.last_sequence:
                    await world._progress(outbox)
                tasks.cancel_all()
            await daemon.bury()

    asyncio.run(run())
    assert world.stored() == world.journal.last_sequence
