"""What the node daemon takes from cgroup.conf. Source: cgroup.conf(5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.config.load import load
from spritz.node.enforcement import enforcement_by_resource
from spritz.node.settings import CgroupDirectories, daemon_settings

CONF = "ClusterName=c\nSlurmctldHost=localhost\nNodeName=n1 CPUs=2\nPartitionName=p Nodes=n1 Default=YES\n"


@pytest.mark.parametrize(
    ("cgroup_conf", "directory", "unconfined"),
    [
        (None, "", False),
        ("ConstrainRAMSpace=no\n", "", False),
        ("ConstrainRAMSpace=yes\n", "", True),
        ("ConstrainRAMSpace=yes\n", "/sys/fs/cgroup/x", False),
    ],
)
def test_limits_that_were_asked_for_and_cannot_be_held_by_cgroups_are_noticed(
    tmp_path: Path, cgroup_conf: str | None, directory: str, unconfined: bool
) -> None:
    path = tmp_path / "slurm.conf"
    path.write_text(CONF)
    if cgroup_conf is not None:
        (tmp_path / "cgroup.conf").write_text(cgroup_conf)
    config = load(str(path))
    settings = daemon_settings(config, list(config.nodes), None, CgroupDirectories(memory=directory))
    assert settings.unconfined is unconfined
    assert settings.nodes["n1"].setup.cgroup_memory == directory


@pytest.mark.parametrize(
    ("cgroup_conf", "gather", "limit", "means"),
    [
        (None, "", 100, "sampling"),
        ("ConstrainRAMSpace=yes\n", "", 100, "sampling"),
        ("ConstrainCores=yes\n", "", 0, "nothing"),
        ("ConstrainCores=yes\n", "JobAcctGatherParams=OverMemoryKill\n", 100, "sampling"),
    ],
)
def test_memory_is_limited_as_cgroup_conf_says(
    tmp_path: Path, cgroup_conf: str | None, gather: str, limit: int, means: str
) -> None:
    """As in Slurm, a cgroup.conf without ConstrainRAMSpace limits no memory, unless OverMemoryKill does."""
    path = tmp_path / "slurm.conf"
    path.write_text(CONF.replace("CPUs=2", "CPUs=2 RealMemory=1000") + gather)
    if cgroup_conf is not None:
        (tmp_path / "cgroup.conf").write_text(cgroup_conf)
    config = load(str(path))
    setup = daemon_settings(config, list(config.nodes), None, CgroupDirectories()).nodes["n1"].setup
    assert setup.memory_rule.limits(100)[0] == limit
    assert enforcement_by_resource(setup)["memory"] == means


@pytest.mark.parametrize(
    ("plugin", "directory", "devices", "unheld"),
    [
        ("task/cgroup", "/sys/fs/cgroup/x", "/sys/fs/cgroup/x", ()),
        ("task/cgroup", "", "", ("ConstrainDevices", "ConstrainCores")),
        ("task/affinity", "/sys/fs/cgroup/x", "", ("ConstrainDevices", "ConstrainCores")),
    ],
)
def test_devices_and_cores_are_confined_by_task_cgroup(
    tmp_path: Path, plugin: str, directory: str, devices: str, unheld: tuple[str, ...]
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"ClusterName=c\nSlurmctldHost=h\nTaskPlugin={plugin}\nNodeName=n1\nPartitionName=p Nodes=n1\n")
    (tmp_path / "cgroup.conf").write_text("ConstrainDevices=yes\nConstrainCores=yes\n")
    config = load(str(conf))
    settings = daemon_settings(config, list(config.nodes), None, CgroupDirectories(devices=directory, cores=directory))
    setup = settings.nodes["n1"].setup
    assert (setup.cgroup_devices, setup.cgroup_cores) == (devices, devices)
    assert tuple(key for key, _ in settings.unheld) == unheld
    assert setup.facts.local_gpus is bool(devices)


def test_gpus_that_no_file_stands_for_are_said_to_be_open(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        "ClusterName=c\nSlurmctldHost=h\nTaskPlugin=task/cgroup\nGresTypes=gpu\n"
        "NodeName=n1 Gres=gpu:2\nPartitionName=p Nodes=n1\n"
    )
    (tmp_path / "cgroup.conf").write_text("ConstrainDevices=yes\n")
    (tmp_path / "gres.conf").write_text("Name=gpu Count=2\n")
    config = load(str(conf))
    settings = daemon_settings(config, list(config.nodes), None, CgroupDirectories(devices="/sys/fs/cgroup/x"))
    assert [key for key, detail in settings.unheld if "open to every job" in detail] == ["ConstrainDevices"]
    assert not settings.nodes["n1"].setup.facts.local_gpus, "its GPUs keep their own numbers"


@pytest.mark.parametrize(("given", "seconds"), [("", 60.0), ("HealthCheckTimeout=90\n", 90.0), ("0", 60.0)])
def test_the_health_check_has_a_time_limit(tmp_path: Path, given: str, seconds: float) -> None:
    """Slurm allows no 0: the default counts."""
    path = tmp_path / "slurm.conf"
    path.write_text(CONF + (f"HealthCheckTimeout={given}\n" if given == "0" else given))
    config = load(str(path))
    settings = daemon_settings(config, list(config.nodes), None, CgroupDirectories())
    assert settings.hooks.health_timeout_seconds == seconds
