"""What today's code makes of golden files, as plain data that JSON can hold."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from msgspec.msgpack import Decoder
from sqlalchemy import select

from spritz.accounting import archive
from spritz.accounting import schema as tables
from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.store import Store
from spritz.controller.journal.recovery import recover
from spritz.controller.journal.sqlite import SqliteJournal
from spritz.core.image import Image
from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model import stored
from spritz.model.accounting.records import EventGroup, RegisterCluster
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events.codec import decode_events
from spritz.node import stored_job
from spritz.stepd import record

_images = Decoder(Image)


def all_of(directory: Path) -> dict[str, Any]:
    """What the golden files of a format are read as, by the name of the `.json` file that says what is expected."""
    found: dict[str, Any] = {path.stem: state(path) for path in sorted(directory.glob("*.db"))}
    for path in directory.glob("image.0*"):
        assert state(directory / "journal.db", path) == found["journal"], "from the image in its middle on"
    found["accounting"] = accounting(directory / "journal.db")
    for name, read in (("events", events), ("image", image), ("step", step)):
        found[name] = read(directory / name)
    return found


def state(database: Path, *images: Path) -> Any:
    """What slurmctld recovers from a journal, with images next to it."""
    return plain(stored.decode(recovered(database, *images).image(), _images))


def recovered(database: Path, *images: Path) -> Machine:
    """The machine after a journal, with images next to it."""
    with TemporaryDirectory() as temporary:
        shutil.copy(database, Path(temporary) / "journal.db")
        for path in images:
            shutil.copy(path, temporary)
        journal = SqliteJournal(temporary)
        try:
            found = recover(journal, ClusterSettings())
        finally:
            journal.close()
    assert bool(found.image_sequence) is bool(images)
    assert breaches(found.machine.state) == []
    return found.machine


def accounting(journal: Path) -> dict[str, list[dict[str, Any]]]:
    """What slurmdbd stores of a journal, by table."""
    with database() as store:
        ingest(store, journal)
        return _rows(store)


def archives(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """What loading archives into an empty database leads to, by table."""
    with database() as store:
        for path in sorted(directory.iterdir()):
            if path.suffix != ".json":
                archive.load(store.engine, str(path), 0.0)
        return _rows(store)


@contextmanager
def database() -> Iterator[Store]:
    """An empty database of slurmdbd."""
    with TemporaryDirectory() as temporary:
        store = Store(open_engine(parse_url(f"sqlite:///{temporary}/acct.db")))
        try:
            store.migrate()
            yield store
        finally:
            store.engine.dispose()


def ingest(store: Store, path: Path) -> None:
    """Have all of a journal stored."""
    with TemporaryDirectory() as temporary:
        shutil.copy(path, Path(temporary) / "journal.db")
        journal = SqliteJournal(temporary)
        groups = [EventGroup(group.first, group.last, group.payload) for group in journal.groups(0)]
        journal.close()
    store.register(RegisterCluster(cluster="golden", journal=1, last_sequence=groups[-1].last), 0.0)
    store.ingest("golden", 1, groups)


def _rows(store: Store) -> dict[str, list[dict[str, Any]]]:
    """All rows that events have led to; columns that are empty or 0 are left out."""
    found: dict[str, list[dict[str, Any]]] = {}
    with store.engine.connect() as connection:
        for table in tables.metadata.sorted_tables:
            if table.name != "clusters":
                rows = connection.execute(select(table).order_by(*table.primary_key))
                found[table.name] = [{key: value for key, value in row._mapping.items() if value} for row in rows]
    return {name: plain(rows) for name, rows in found.items() if rows}


def events(path: Path) -> Any:
    """The events of a group's payload."""
    return plain(decode_events(path.read_bytes()))


def image(path: Path) -> Any:
    """The records of an image's payload."""
    return plain(stored.decode(path.read_bytes(), _images))


def step(path: Path) -> Any:
    """The record of a step in slurmd's spool."""
    found = record.read(str(path))
    assert found is not None
    job = stored_job.unpack(found.spec)
    spec = msgspec.structs.replace(found.spec, job=b"")
    return plain({"spec": spec, "pids": found.pids, "result": found.result, "job": job})


def plain(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(msgspec.to_builtins(value), default=lambda data: base64.b64encode(data).decode()))
