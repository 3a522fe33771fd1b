"""`spritz doctor` looks at the cluster that commands find, and says what is accepted and lost."""

from __future__ import annotations

from pathlib import Path

from spritz.cli.local.doctor import _held
from spritz.cli.spritz import main
from spritz.model.commands.cluster import UpdateNode
from tests.unit.cli.site import Site


def add(site: Site, line: str) -> None:
    conf = site.directory / "slurm.conf"
    conf.write_text(conf.read_text() + line + "\n")


def test_the_cluster_that_slurm_conf_names_is_looked_at(site: Site) -> None:
    site.world.ok(UpdateNode(names=("n2",), state="DRAIN", reason="new disk"))
    said = site.run(main, "doctor").out
    assert "node n2 is drained: new disk" in said
    assert "spritz up" not in said


def test_mail_that_nobody_sends_is_told(site: Site, tmp_path: Path) -> None:
    mailer = tmp_path / "mailer"
    add(site, f"MailProg={mailer}")
    assert f"no mail is sent for --mail-type: {mailer} is missing" in site.run(main, "doctor").out
    mailer.write_text("#!/bin/sh\n")
    mailer.chmod(0o755)
    assert "no mail" not in site.run(main, "doctor").out


def test_cgroups_of_version_1_are_told_where_they_hold_limits() -> None:
    """What slurmd wrote when it started."""
    said = "daemon.confines root=True cgroups={} memory={} cores=cgroup devices=cgroup suspend=cgroup sessions=cgroup\n"
    (note,) = _held(said.format("v1", "cgroup"))
    assert "cgroups of version 1" in note.text
    assert not list(_held(said.format("v2", "cgroup")))
