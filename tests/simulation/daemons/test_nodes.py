"""The real slurmd on simulated machines: jobs run, and survive what happens to daemons and machines."""

from __future__ import annotations

from spritz.sim.daemons.history import Began, Ended
from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.cluster import Cluster


def _runs_once(seed: int) -> list[str]:
    cluster = Cluster(seed)
    cluster.world.run(5)
    job = cluster.submit("seconds=5 exit=3")
    cluster.wait(lambda: cluster.of(job, Ended))
    cluster.world.run(20)
    assert len(cluster.of(job, Began)) == 1
    (ended,) = cluster.of(job, Ended)
    assert (ended.exit_code, ended.signal) == (3, 0)
    cluster.check()
    cluster.close()
    return cluster.lines()


def test_a_batch_job_runs_once_in_virtual_time() -> None:
    apart(_runs_once, 1)
