"""What the node daemon takes from cgroup.conf. Source: cgroup.conf(5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.config.load import load
from spritz.node.settings import daemon_settings

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
    settings = daemon_settings(config, list(config.nodes), None, directory)
    assert settings.unconfined is unconfined
    assert settings.nodes["n1"].setup.cgroup_memory == directory
