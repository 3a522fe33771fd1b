"""Usage reckoned from the records of jobs is what the controller has kept of the same events."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spritz.accounting.associations.recompute_usage import reckon
from spritz.model.accounting.records import EventGroup, RegisterCluster
from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.job import ResumeJob, SuspendJob
from spritz.model.events.codec import encode_events
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import Association, Policy, Qos, ReckonUsage, SetPolicy
from spritz.model.node.partition import Partition
from spritz.model.states import JobState
from spritz_testing.builders import World, capacity
from tests.databases import open_store

HALF_LIFE = 3600.0
POLICY = Policy(
    version=1,
    associations=(
        Association(id=1, cluster="cluster", account="root", qos="normal"),
        Association(id=2, cluster="cluster", account="science", parent="root"),
        Association(id=3, cluster="cluster", account="chem", parent="science"),
        Association(id=4, cluster="cluster", account="chem", user="alice", is_default=True),
        Association(id=5, cluster="cluster", account="phys", parent="science"),
        Association(id=6, cluster="cluster", account="phys", user="alice"),
    ),
    qos=(Qos(name="normal", id=1), Qos(name="half", id=2, usage_factor=0.5), Qos(name="kept", id=3, flags="NoDecay")),
)
NODES = ("n1", "n2", "n3", "n4")
WEIGHTS = (("cpu", 1.25), ("mem", 0.25 / 1024), ("node", 0.1))


def busy_day(seed: int) -> World:
    """Jobs that start, stop, go on, end, are requeued and run still."""
    draw = random.Random(seed)
    weighed = Partition(name="debug", nodes=NODES, default=True, billing_weights=WEIGHTS)
    settings = ClusterSettings(priority_policy=PriorityPolicy(half_life_seconds=HALF_LIFE), min_job_age_seconds=0)
    made = World(settings=settings, hardware=capacity(cpus=8), partitions=(weighed,))
    made.ok(SetPolicy(policy=POLICY))
    running: list[int] = []
    for _ in range(60):
        made.advance(draw.uniform(1, 600))
        running = [job for job in running if made.job(job).state.active]
        choice = draw.random()
        node = draw.choice(NODES)
        free = 8 - made.state.uses[node].cpus.bit_count()
        if choice < 0.5 and free:
            account, qos = draw.choice(("chem", "phys")), draw.choice(("normal", "half", "kept"))
            job = made.submit(account=account, qos=qos)
            made.start(job, node, cpus=draw.randint(1, free))
            running.append(job)
        elif running:
            job = draw.choice(running)
            suspended = made.job(job).state is JobState.SUSPENDED
            if choice < 0.7:
                made.do((ResumeJob if suspended else SuspendJob)(target=JobTarget(job)))
            elif not suspended:
                made.finished(job)
    made.now += 123.0
    return made


@pytest.mark.parametrize("seed", range(4))
def test_the_records_give_the_same_figures(tmp_path: Path, seed: int) -> None:
    made = busy_day(seed)
    store = open_store(tmp_path / "book.db")
    store.register(RegisterCluster(cluster="cluster", journal=1, last_sequence=0), 0.0)
    store.ingest("cluster", 1, [EventGroup(1, len(made.events), encode_events(made.events))])
    request = ReckonUsage(cluster="cluster", at=made.now, half_life_seconds=HALF_LIFE, weights={"debug": WEIGHTS})
    found = {tuple(row.key): row.amounts for row in reckon(store.engine, request, POLICY).rows}
    kept = {key: dict(made.state.usage.amounts(key, made.now)) for key in made.state.usage.entries}
    assert found.keys() == {key for key, amounts in kept.items() if amounts}
    for key, amounts in found.items():
        assert amounts == pytest.approx(kept[key], rel=1e-9), key
    store.engine.dispose()


def test_what_ran_before_a_reset_counts_no_longer(tmp_path: Path) -> None:
    made = busy_day(1)
    store = open_store(tmp_path / "book.db")
    store.register(RegisterCluster(cluster="cluster", journal=1, last_sequence=0), 0.0)
    store.ingest("cluster", 1, [EventGroup(1, len(made.events), encode_events(made.events))])
    found = reckon(store.engine, ReckonUsage(cluster="cluster", at=made.now, since=made.now), POLICY)
    assert {row.key[1] for row in found.rows} <= {"kept"}
    assert reckon(store.engine, ReckonUsage(cluster="nowhere", at=made.now), POLICY).rows == ()
    store.engine.dispose()
