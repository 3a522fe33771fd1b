"""Two releases with two formats of stored records: what an upgrade finds is read, and going back is refused.

Source: docs/stored-formats.md.
"""

from __future__ import annotations

import pytest

from spritz.model.errors import UnsupportedFormat
from spritz.model.events import codec
from spritz_testing.daemons import site as site  # its seam has two releases
from spritz_testing.daemons.controller import releases
from spritz_testing.daemons.history import Began
from spritz_testing.daemons.system.world import Process
from spritz_testing.daemons.units import Unit
from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.cluster import Cluster


def _install(cluster: Cluster, unit: Unit, *, is_next: bool) -> None:
    unit.stop()
    cluster.wait(lambda: not unit.is_running)
    unit.host.has_next_release = is_next
    unit.start()


def _goes_back(seed: int, daemon: str) -> None:
    cluster = Cluster(seed)
    cluster.world.run(5)
    unit = cluster.controller if daemon == "slurmctld" else cluster.daemons["n1"]
    first = cluster.submit("seconds=300", node_list=("n1",), memory_mib_per_node=1000)
    cluster.wait(lambda: cluster.of(first, Began))
    _install(cluster, unit, is_next=True)
    second = cluster.submit("seconds=300", node_list=("n1",), memory_mib_per_node=1000)
    cluster.wait(lambda: cluster.of(second, Began))
    cluster.world.run(20)
    assert unit.is_running, "what this release wrote is read by the next one"
    starts = unit.starts
    _install(cluster, unit, is_next=False)
    cluster.world.run(30)
    assert unit.starts > starts + 2, "it refuses, at every attempt"
    assert not cluster.world.violations, "and stores nothing"
    _install(cluster, unit, is_next=True)
    cluster.ends(first, "COMPLETED", seconds=400)
    cluster.ends(second, "COMPLETED", seconds=100)
    assert [len(cluster.of(job, Began)) for job in (first, second)] == [1, 1]
    cluster.check()
    cluster.close()


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd"])
def test_a_daemon_that_is_set_back_refuses_until_the_next_release_returns(daemon: str) -> None:
    apart(_goes_back, 1, daemon)


def _goes_on(seed: int) -> list[str]:
    cluster = Cluster(seed)
    process = Process(cluster.controller.host, "daemon")
    process.is_next_release = True
    cluster.world.current = process
    payload = codec.encode_events([])
    process.is_next_release = False
    with pytest.raises(UnsupportedFormat):
        codec.decode_events(payload)
    codec.encode_events([])
    cluster.close()
    return [rule for rule, _, _ in cluster.world.violations]


def test_one_that_stores_something_after_a_refusal_is_seen() -> None:
    assert apart(_goes_on, 1) == [releases.OLDER_STOPS]
