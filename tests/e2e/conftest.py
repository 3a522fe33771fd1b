"""Clusters for end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.launched import COMPILER, IMPATIENT, Launched, build, install


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that are ended, jobs included, with the test. None is started."""
    made: list[Cluster] = []

    def make(**options: object) -> Cluster:
        cluster = Cluster(**options)  # type: ignore[arg-type]  # by name
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two nodes with eight CPUs each, running."""
    return make_cluster().start()


@pytest.fixture
def no_jobs_left(cluster: Cluster) -> Iterator[None]:
    """The test's jobs have ended before the next test of a module that shares a cluster begins."""
    yield
    cluster.end_jobs()


@pytest.fixture(scope="session")
def launching() -> None:
    """A launcher can be built here, and may start a server."""
    if os.nice(0) > 0:
        pytest.skip("no server is started with a lower priority (docs/decisions/0168)")
    if not COMPILER:
        pytest.skip("no C compiler")


@pytest.fixture(scope="session")
def launcher(launching: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands' launcher, built from its sources."""
    return _built(tmp_path_factory.mktemp("launcher") / "launcher")


def _built(path: Path, **options: Sequence[str]) -> Path:
    if not build(path, ["-static"], **options):
        build(path, **options)
    return path


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spritz as it is installed by pip."""
    path = tmp_path_factory.mktemp("lib") / "site-packages"
    install(path)
    return path


@pytest.fixture
def launched(launcher: Path, packages: Path, tmp_path: Path) -> Iterator[Launched]:
    """Commands through a launcher, and a command server of their own that ends with the test."""
    found = Launched(tmp_path, launcher, packages)
    yield found
    found.close()


@pytest.fixture
def impatient(launching: None, packages: Path, tmp_path: Path) -> Iterator[Launched]:
    """As `launched`, with launchers that soon do without a server that does not answer."""
    found = Launched(tmp_path, _built(tmp_path / "launcher", patience=IMPATIENT), packages)
    yield found
    found.close()
