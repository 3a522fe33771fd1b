"""What `spritz join` says of the commands of this user."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from spritz.cli.local import join
from spritz.cli.local.paths import ClusterPaths
from spritz.client.trust.membership import Joined, Membership
from spritz.model.errors import SpritzError


def test_a_user_with_another_cluster_is_told_that_commands_still_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = ClusterPaths(str(tmp_path / "joined"))
    other = tmp_path / "other" / "slurm.conf"
    other.parent.mkdir()
    other.touch()
    export = f"  export SLURM_CONF={joined.slurm_conf} "
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SLURM_CONF", str(other))
    first, second = join._way_of_commands(joined).splitlines()
    assert first == f"Commands of this user still use another cluster, that of {other}:"
    assert second.startswith(export)
    joined.create()
    Path(joined.slurm_conf).touch()
    monkeypatch.setenv("SLURM_CONF", joined.slurm_conf)
    assert join._way_of_commands(joined) == ""


@pytest.mark.parametrize("foreground", [False, True])
def test_keys_of_a_node_of_slurm_conf_are_refused_but_in_containers(tmp_path: Path, foreground: bool) -> None:
    """A container's command is the same whether slurm.conf has its node (a NodeSet that scales) or not."""
    paths = ClusterPaths(str(tmp_path))
    paths.create()
    conf = "ClusterName=c\nSlurmctldHost=head\nNodeName=n1 CPUs=1\nPartitionName=p Nodes=ALL\n"
    Path(paths.slurm_conf).write_text(conf)
    joined = Joined(
        cluster="c",
        host="n1",
        role="node",
        certificate="",
        key="",
        authorities="",
        user_key=b"",
        launch_keys=(),
        controllers=(),
    )
    arguments = Namespace(conf="Features=a", foreground=foreground, systemd=False)
    membership = Membership(f"{paths.etc}/machine.json", joined=joined)
    if foreground:
        assert join._kept(arguments, paths, membership, joined).node_keys == "Features=a"
    else:
        with pytest.raises(SpritzError, match="slurm.conf has node n1"):
            join._kept(arguments, paths, membership, joined)
