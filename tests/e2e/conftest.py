"""Clusters for end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.cluster import Cluster


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
