"""Controllers of other releases. Source: docs/stored-formats.md."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from spritz.accounting.api import Api
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.events import UnreadableEvents
from spritz.accounting.store import Store
from spritz.model.accounting.records import EventGroup, RegisterCluster
from spritz.model.errors import SpritzError
from spritz.model.stored import FORMAT
from spritz.runtime.clock import SystemClock
from spritz.runtime.log import get_logger

CLUSTER = RegisterCluster(cluster="c1", journal=1, last_sequence=7)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(open_engine(parse_url(f"sqlite:///{tmp_path}/acct.db")))
    made.migrate()
    yield made
    made.engine.dispose()


def test_a_newer_controller_is_refused_by_name_when_it_registers(store: Store) -> None:
    """What it would send is not lost: it stays in the controller's journal."""

    async def register() -> None:
        api = Api(store, SystemClock(), get_logger("test"), 999_999)
        root: Any = SimpleNamespace(caller=SimpleNamespace(uid=0))
        try:
            await api.register(replace(CLUSTER, format=FORMAT + 1), root)
        finally:
            await asyncio.to_thread(api.close)

    text = f"slurmctld of cluster c1 writes events of format {FORMAT + 1}; this slurmdbd reads up to format {FORMAT}"
    with pytest.raises(SpritzError, match=text) as caught:
        asyncio.run(register())
    assert caught.value.code == "SLURM_PROTOCOL_VERSION_ERROR"
    assert "upgrade slurmdbd first" in caught.value.hint
    assert store.register(replace(CLUSTER, format=1), 0.0).sequence == 0, "an older controller is accepted"


@pytest.mark.parametrize("payload", [(FORMAT + 1, 1, []), (FORMAT, 1, [{"kind": "JobBeamedUp"}]), "nonsense"])
def test_events_that_cannot_be_read_are_neither_stored_nor_set_aside(store: Store, payload: object) -> None:
    store.register(CLUSTER, 0.0)
    with pytest.raises(UnreadableEvents, match="events 1 to 1"):
        store.ingest("c1", 1, [EventGroup(1, 1, msgpack.encode(payload))])
    assert store.cluster("c1").sequence == 0
    assert store.take_set_aside() == []
