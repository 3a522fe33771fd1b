"""The cluster that conformance cases run on: one that is running already, or our own, started once.

`CONFORMANCE_BIN` (directory of commands) and `CONFORMANCE_CONF` (slurm.conf) name a running cluster, Slurm's or ours.
Without them the commands next to this Python are used, with daemons started under a scratch directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from spritz.accounting.engine import open_engine, parse_url
from spritz.accounting.store import Store
from spritz.controller.journal.contract import Journal
from spritz.controller.journal.postgresql import PostgresJournal
from spritz.controller.journal.sqlite import SqliteJournal
from spritz_testing.memory_journal import MemoryJournal, MemoryStore
from tests.databases import put_tables

from . import databases
from .cluster import ACCOUNTED, PLAIN, SITE, Cluster, Shape, connect, started
from .journal_databases import JournalDatabases, RealDatabases, SimulatedDatabases

Open = Callable[[], Journal]

COMMANDS = ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster as slurm.conf in this directory describes it."""
    yield from _cluster(PLAIN)


@pytest.fixture(scope="session")
def accounted() -> Iterator[Cluster]:
    """The same with slurmdbd."""
    yield from _cluster(ACCOUNTED)


@pytest.fixture(scope="session")
def site() -> Iterator[Cluster]:
    """Eight nodes with host names of their own, users and accounts, as slurm.site.conf describes them."""
    if os.getuid():
        pytest.skip("host names of their own for nodes need root")
    yield from _cluster(SITE)


def _cluster(shape: Shape) -> Iterator[Cluster]:
    if "CONFORMANCE_BIN" in os.environ:
        yield connect(Path(os.environ["CONFORMANCE_BIN"]), Path(os.environ["CONFORMANCE_CONF"]))
        return
    binaries = Path(sys.executable).parent
    missing = [name for name in COMMANDS if find_spec(f"spritz.cli.{name}") is None or not (binaries / name).exists()]
    if missing:
        pytest.skip(f"not built or not installed next to this Python: {', '.join(missing)}")
    # Not tmp_path: other users' jobs have to reach it.
    directory = Path(tempfile.mkdtemp(prefix="conformance-"))
    directory.chmod(0o755)
    try:
        with started(binaries, directory, shape) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module", params=databases.KINDS)
def new_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Makes empty databases of one kind."""
    kind = str(request.param)
    missing = databases.reason(kind)
    if missing:
        if os.environ.get("SPRITZ_TEST_DATABASES") == "all":
            pytest.fail(missing)
        pytest.skip(missing)
    if kind == "sqlite":
        yield lambda: f"sqlite:///{tmp_path_factory.mktemp('database') / 'acct.db'}"
        return
    if os.environ.get("SPRITZ_TEST_DATABASES") != "all":
        pytest.skip("servers are started by `make databases`")
    with databases.server(kind) as server:
        yield server.url


@pytest.fixture
def make_store(new_url: Callable[[], str]) -> Iterator[Callable[[], Store]]:
    """Makes stores with tables, each on a database of its own."""
    made: list[Store] = []

    def make() -> Store:
        url = new_url()
        if url.startswith("sqlite:///"):
            put_tables(Path(url.removeprefix("sqlite:///")))
        store = Store(open_engine(parse_url(url)))
        store.migrate()
        made.append(store)
        return store

    yield make
    for store in made:
        store.engine.dispose()


@pytest.fixture
def store(make_store: Callable[[], Store]) -> Store:
    return make_store()


@pytest.fixture(scope="module")
def postgresql() -> Iterator[databases.Server]:
    """A private PostgreSQL for the tests of one file."""
    if why := databases.reason("postgresql"):
        pytest.skip(why)
    with databases.server("postgresql") as running:
        yield running


@pytest.fixture(params=[RealDatabases, SimulatedDatabases], ids=["postgresql", "simulated"])
def journal_databases(request: pytest.FixtureRequest) -> Iterator[JournalDatabases]:
    """PostgreSQL, and what stands for it in simulations."""
    if request.param is SimulatedDatabases:
        with SimulatedDatabases() as simulated:
            yield simulated
    else:
        with RealDatabases(request.getfixturevalue("postgresql")) as real:
            yield real


@pytest.fixture(params=["sqlite", "memory", "postgresql", "simulated"])
def open_journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same store again and again; whatever is left open is closed at the end."""
    store = MemoryStore()
    opened: list[Journal] = []
    url = ""
    ends = ExitStack()
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql").url()
    elif request.param == "simulated":
        url = ends.enter_context(SimulatedDatabases()).url()

    def opener() -> Journal:
        journal: Journal
        if request.param == "sqlite":
            journal = SqliteJournal(tmp_path / "state")
        elif request.param == "memory":
            journal = MemoryJournal(store)
        else:
            journal = PostgresJournal(url, "cluster")
        opened.append(journal)
        return journal

    yield opener
    for journal in opened:
        journal.close()
    ends.close()
