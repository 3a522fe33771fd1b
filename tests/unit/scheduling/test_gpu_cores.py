"""Cores that only jobs with GPUs get. Source: slurm.conf(5) RestrictedCoresPerGPU."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.job.record import Sharing
from spritz.model.resources import GresCapacity, NodeCapacity, mask_of
from spritz.model.rules.gpu_cores import gpu_cores
from tests.unit.scheduling.site import Site, gpus, node, partition, spec

#: two GPUs on each socket
NEAR = (gpus(2, cores="0-3"), gpus(2, first=2, cores="4-7"))


def site_of(each: int, gres: tuple[GresCapacity, ...] = NEAR, **fields: Any) -> Site:
    config = node("n1", 8, sockets=2, gres=gres, **fields)
    config = replace(config, capacity=replace(config.capacity, cores_per_gpu=each))
    return Site([config], [partition("debug", [config], default=True)])


def cpus_of(site: Site, job: int) -> int:
    allocation = site.jobs[job].allocation
    assert allocation is not None
    (share,) = allocation.nodes
    return mask_of(share.cpus)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gres": NEAR}, {0: 0b1, 1: 0b10, 2: 0b10000, 3: 0b100000}),
        ({"gres": (gpus(2),)}, {0: 0b1, 1: 0b10}),
        ({"gres": NEAR, "cpus": 16, "threads_per_core": 2}, {0: 0b11, 1: 0b1100, 2: 0b11 << 8, 3: 0b11 << 10}),
        ({"gres": (gpus(2, cores="0-3"),), "cpus_reserved": "1"}, {0: 0b10, 1: 0b100}),
        ({"gres": (gpus(2, cores="7"),)}, {0: 1 << 7, 1: 0}),
        ({"gres": NEAR, "cores_per_gpu": 0}, {}),
    ],
)
def test_each_gpu_has_cores_near_it(fields: dict[str, Any], expected: dict[int, int]) -> None:
    made = {"cpus": 8, "sockets": 2, "cores_per_socket": 4, "cores_per_gpu": 1, **fields}
    assert gpu_cores(NodeCapacity(**made)) == expected


def test_jobs_without_gpus_leave_the_cores_of_gpus() -> None:
    site = site_of(1)
    first, second = site.submit(spec(3)), site.submit(spec(2))
    with_gpu = site.submit(spec(1, gpus_per_node=2))
    assert site.cycle().keys() == {first, with_gpu}
    assert not cpus_of(site, first) & 0b00110011
    assert cpus_of(site, with_gpu) & 0b00110011
    assert site.reason(second) == "Resources"
    site.end(first)
    assert site.cycle().keys() == {second}


def test_jobs_that_exceed_every_node_without_its_gpu_cores_never_start() -> None:
    site = site_of(1)
    job, whole, shares = site.submit(spec(5)), site.submit(spec(5, sharing=Sharing.EXCLUSIVE)), site.submit(spec(8))
    assert site.cycle().keys() == {whole}
    assert {site.reason(job), site.reason(shares)} == {"PartitionConfig"}


def test_a_job_with_a_gpu_takes_the_cores_of_its_own_before_those_of_others() -> None:
    site = site_of(2, gres=(gpus(4),))
    config = site_of(1)
    job = site.submit(spec(2, gpus_per_node=1))
    assert site.cycle().keys() == {job}
    assert cpus_of(site, job) == 0b11
    other = config.submit(spec(3, gpus_per_node=1))
    assert config.cycle().keys() == {other}
    assert cpus_of(config, other) == 0b1101


def test_what_is_promised_to_a_job_without_gpus_is_none_of_those_cores() -> None:
    """A promise is kept by number only where any CPU would do."""
    site = site_of(1)
    first = site.submit(spec(4, time_limit_minutes=10))
    assert site.cycle().keys() == {first}
    second = site.submit(spec(4, time_limit_minutes=10))
    training = site.submit(spec(4, gpus_per_node=4, time_limit_minutes=60))
    assert site.cycle().keys() == {training}
    assert cpus_of(site, training) == 0b00110011
    site.end(first)
    assert site.cycle().keys() == {second}
