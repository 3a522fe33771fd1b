"""Starts wait while a job is completing. Source: slurm.conf(5) CompleteWait, reduce_completing_frag."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.scheduling.site import SETTINGS, Site, node, partition, spec


def site_of(*words: str, wait: int = 32) -> Site:
    """Partitions of nodes 1-2, 2-3 and 4."""
    pairs = tuple((word, "") for word in words)
    nodes = [node(f"n{i}", 4) for i in range(1, 5)]
    homes = [
        partition("left", nodes[:2], default=True),
        partition("middle", nodes[1:3]),
        partition("alone", nodes[3:]),
    ]
    return Site(nodes, homes, replace(SETTINGS, complete_wait_seconds=wait, scheduler_parameters=pairs))


@pytest.mark.parametrize(
    ("words", "wait", "kept"),
    [((), 32, {"left", "middle", "alone"}), (("reduce_completing_frag",), 32, {"left", "middle"}), ((), 0, set())],
)
def test_no_job_starts_while_a_job_is_completing(words: tuple[str, ...], wait: int, kept: set[str]) -> None:
    site = site_of(*words, wait=wait)
    first = site.submit(spec(1))
    site.cycle()
    site.end(first, completing=("n1",))
    jobs = {name: site.submit(spec(1, partitions=(name,))) for name in ("left", "middle", "alone")}
    plan = site.cycle_plan()
    assert {name for name, job in jobs.items() if job not in {start.job_id for start in plan.starts}} == kept
    assert plan.look_again_at == (site.now + wait if kept else 0.0)
    site.now += 31
    assert not site.cycle()
    site.now += 1
    assert set(site.cycle()) == {jobs[name] for name in kept}


def test_they_start_when_it_is_gone() -> None:
    site = site_of()
    first = site.submit(spec(1))
    site.cycle()
    site.end(first, completing=("n1",))
    waits = site.submit_het(spec(1), spec(1))
    assert not site.cycle()
    site.gone(first, "n1")
    assert set(site.cycle()) == {waits, waits + 1}
