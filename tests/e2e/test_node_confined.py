"""Jobs kept to their devices and cores by cgroups. Source: cgroup.conf(5) ConstrainDevices, ConstrainCores.

The devices are files of the test's own with the numbers of /dev/full and /dev/zero, which do no harm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from spritz.model.job.record import Job
from spritz.model.resources import GresAllocation, NodeAllocation
from spritz.node.cgroup import prepare_cores, prepare_devices, remove
from spritz.node.hardware.detection import detect

from .node_harness import NodeCluster, wait_until

#: (major, minor) of /dev/full and /dev/zero
NUMBERS = ((1, 7), (1, 5))
TRY = """for one in 0 1; do (: <$DEVICES/gpu$one) 2>/dev/null && echo open $one; done
echo ${CUDA_VISIBLE_DEVICES-none}
"""


def made(tmp_path: Path, cgroup_conf: str) -> NodeCluster:
    """A slurmd with two GPUs that are device files in its directory."""
    cluster = NodeCluster(tmp_path, nodes=1, extra="TaskPlugin=task/cgroup")
    cluster.conf.write_text(cluster.conf.read_text().replace("CPUs=64", "CPUs=1").replace("gpu:4", "gpu:2"))
    (cluster.root / "gres.conf").write_text(f"Name=gpu File={cluster.root}/gpu[0-1]\n")
    (cluster.root / "cgroup.conf").write_text(cgroup_conf)
    return cluster


def begun(cluster: NodeCluster) -> NodeCluster:
    """With its controller and daemon."""
    cluster.controller.start()
    cluster.start()
    return cluster


def with_devices(cluster: NodeCluster) -> None:
    """Make the device files, or skip the test where that is not permitted."""
    for number, (major, minor) in enumerate(NUMBERS):
        path = cluster.root / f"gpu{number}"
        try:
            os.mknod(path, 0o020666, os.makedev(major, minor))
            path.chmod(0o666)
            path.open().close()
        except OSError as error:
            pytest.skip(f"no device file can be made and opened here: {error}")


@pytest.fixture
def devices_usable() -> None:
    """Skip where no group of the controller may be made."""
    usable(prepare_devices(f"spritz_test_{os.getpid()}"))


@pytest.fixture
def cores_usable() -> None:
    """As `devices_usable`."""
    usable(prepare_cores(f"spritz_test_{os.getpid()}"))


def usable(directory: str) -> None:
    """Skip the test if it is none."""
    if not directory:
        pytest.skip("no such cgroup may be made here")
    remove(directory)


@pytest.fixture
def confined(tmp_path: Path, devices_usable: None) -> Iterator[NodeCluster]:
    """Devices are confined."""
    cluster = made(tmp_path, "ConstrainDevices=yes\n")
    try:
        with_devices(cluster)
        yield begun(cluster)
    finally:
        cluster.close()


def job_with(cluster: NodeCluster, gpus: int, *, cpus: str = "1") -> Job:
    """A job with the GPUs of this mask on the first node."""
    gres = (GresAllocation(name="gpu", count=gpus.bit_count(), indexes=f"{gpus:x}"),) if gpus else ()
    share = NodeAllocation(node=cluster.names[0], cpus=cpus, gres=gres)
    job = cluster.job()
    assert job.allocation is not None
    return replace(job, allocation=replace(job.allocation, nodes=(share,)))


def lines(cluster: NodeCluster, job: Job, script: str = TRY) -> list[str]:
    """What the batch script prints."""
    cluster.batch(f"#!/bin/sh\nDEVICES={cluster.root}\n{script}", job)
    assert cluster.finished(job).tasks[0].status == 0
    return cluster.output(job).splitlines()


def groups(controller: str, pid: int) -> str:
    """The group of a process in a hierarchy of version 1, or of version 2."""
    found = ""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") or (not controllers and not found):
            found = path
    return found


def test_a_job_opens_its_own_device_and_no_other(confined: NodeCluster) -> None:
    # One supervisor runs them all, one after the other: each step's devices are its own.
    assert lines(confined, job_with(confined, 0b01)) == ["open 0", "0"]
    # CUDA sees one GPU, the first there is.
    assert lines(confined, job_with(confined, 0b10)) == ["open 1", "0"]
    assert lines(confined, job_with(confined, 0)) == ["none"]
    assert lines(confined, job_with(confined, 0b11)) == ["open 0", "open 1", "0,1"]
    # Devices that gres.conf does not name are not denied.
    rest = "(: </dev/null) && (: </dev/random) && echo fine\n"
    assert lines(confined, job_with(confined, 0), rest) == ["fine"]


def test_a_step_has_the_devices_of_its_own(confined: NodeCluster) -> None:
    job = job_with(confined, 0b10)
    script = f"DEVICES={confined.root}\n{TRY}"
    confined.step(job, 0, ("/bin/sh", "-c", script), stdout=f"{confined.work}/step")
    confined.finished(job, 0)
    assert (confined.work / "step").read_text() == "open 1\n0\n"


def test_devices_stay_denied_while_slurmd_is_away_and_groups_go_with_the_job(confined: NodeCluster) -> None:
    job = job_with(confined, 0b01)
    confined.batch(
        f"#!/bin/sh\nDEVICES={confined.root}\nuntil [ -e {confined.work}/go ]; do sleep 0.02; done\n{TRY}", job
    )
    supervisor, task = confined.pids(job)
    group = groups("devices", task)
    assert group.endswith(f"/slurmstepd_{supervisor}")
    confined.kill()
    confined.start()
    (confined.work / "go").touch()
    confined.finished(job)
    assert confined.output(job).splitlines() == ["open 0", "0"]
    assert lines(confined, job_with(confined, 0b10)) == ["open 1", "0"], "confined by the daemon that came back"
    confined.terminate(job)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    left = [line.split()[4] for line in mounts if "devices" in line or " - cgroup2 " in line]
    assert left
    wait_until(lambda: not any(Path(f"{where}{group}").exists() for where in left), "the group is removed")


def test_tasks_stay_on_the_cores_of_their_job(tmp_path: Path, cores_usable: None) -> None:
    topology = detect(0.0, gpus=False).topology
    if len(topology.order) < 2 or not set(topology.order) <= os.sched_getaffinity(0):
        pytest.skip("takes a second CPU, and all that there are")
    cluster = made(tmp_path, "ConstrainCores=yes\n")
    cluster.conf.write_text(cluster.conf.read_text().replace("CPUs=1 ", f"CPUs={len(topology.order)} "))
    try:
        begun(cluster)
        everywhere = ",".join(map(str, sorted(topology.order)))
        script = f"taskset -pc {everywhere} $$ >/dev/null; grep Cpus_allowed_list /proc/self/status | cut -f2\n"
        for place, cpu in enumerate(topology.order[:2]):
            assert lines(cluster, job_with(cluster, 0, cpus=f"{1 << place:x}"), script) == [str(cpu)]
        every = job_with(cluster, 0, cpus=f"{(1 << len(topology.order)) - 1:x}")
        assert lines(cluster, every, "nproc\n") == [str(len(topology.order))]
    finally:
        cluster.close()


def test_what_cannot_be_confined_is_said_and_jobs_run(tmp_path: Path) -> None:
    """Warned of is what no group can be made for, and nothing else."""
    cluster = made(tmp_path, "ConstrainDevices=yes\nConstrainCores=yes\n")
    try:
        begun(cluster)
        held = (prepare_devices(f"spritz_test_{os.getpid()}"), prepare_cores(f"spritz_test_{os.getpid()}"))
        for directory in held:
            remove(directory)
        said = [f"key={key}" in cluster.log() for key in ("ConstrainDevices", "ConstrainCores")]
        assert said == [not directory for directory in held]
        assert lines(cluster, job_with(cluster, 0b01), "echo ran\n") == ["ran"]
    finally:
        cluster.close()
