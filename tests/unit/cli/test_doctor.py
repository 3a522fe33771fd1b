"""`spritz doctor` looks at the cluster that commands find, and says what is accepted and lost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.cli.local.doctor.cluster import CAUSES, _node
from spritz.cli.local.doctor.command import _held
from spritz.cli.spritz import main
from spritz.core.decide.node.registration import config_shortage
from spritz.model.commands.cluster import UpdateNode
from spritz.model.resources import GresCapacity, NodeCapacity
from tests.unit.cli.site import Site


def add(site: Site, line: str) -> None:
    conf = site.directory / "slurm.conf"
    conf.write_text(conf.read_text() + line + "\n")


def test_the_cluster_that_slurm_conf_names_is_looked_at(site: Site) -> None:
    site.world.ok(UpdateNode(names=("n2",), state="DRAIN", reason="new disk"))
    said = site.run(main, "doctor").out
    assert "node n2 is drained: new disk" in said
    assert "spritz up" not in said


def test_mail_without_a_mail_program_is_reported(site: Site, tmp_path: Path) -> None:
    mailer = tmp_path / "mailer"
    add(site, f"MailProg={mailer}")
    assert f"no mail is sent for --mail-type: {mailer} is missing" in site.run(main, "doctor").out
    mailer.write_text("#!/bin/sh\n")
    mailer.chmod(0o755)
    assert "no mail" not in site.run(main, "doctor").out


def test_a_site_is_told_what_the_kernel_does_not_enforce(site: Site, tmp_path: Path) -> None:
    add(site, f"SlurmdLogFile={tmp_path}/slurmd-%n.log")
    said = "daemon.confines root=True cgroups=v2 memory=cgroup cores=affinity devices=nothing suspend=cgroup\n"
    (tmp_path / "slurmd-n1.log").write_text(said + "another line\n" * 10_000)
    (told,) = [line for line in site.run(main, "doctor").out.splitlines() if "not enforced by the kernel" in line]
    assert "jobs can leave their cores; jobs can open GPUs that they were not given" in told


def test_cgroups_of_version_1_are_told_where_they_hold_limits() -> None:
    """What slurmd wrote when it started."""
    said = "daemon.confines root=True cgroups={} memory={} cores=cgroup devices=cgroup suspend=cgroup sessions=cgroup\n"
    (note,) = _held(said.format("v1", "cgroup"))
    assert "cgroups of version 1" in note.text
    assert not list(_held(said.format("v2", "cgroup")))


def _program(directory: Path, name: str, text: str) -> None:
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)


def test_what_runs_containers_is_tried(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no --container-image here: bwrap is not installed" in site.run(main, "doctor").out
    _program(tmp_path, "bwrap", "echo setting up uid map: Permission denied >&2; exit 1")
    said = site.run(main, "doctor").out
    assert "bwrap does not work: setting up uid map: Permission denied" in said
    _program(tmp_path, "bwrap", "true")
    _program(tmp_path, "podman", "echo no runtime directory >&2; exit 125")
    said = site.run(main, "doctor").out
    assert "images from directories, .tar, no .sqsh (unsquashfs is missing), no names" in said
    assert "images cannot be pulled by podman: no runtime directory" in said


def test_the_runtime_of_oci_conf_is_tried(site: Site, tmp_path: Path) -> None:
    conf = site.directory / "oci.conf"
    conf.write_text(f"RunTimeRun={tmp_path}/crun RunTimeKill=true\n")
    assert "RunTimeRun and RunTimeCreate/RunTimeStart are mutually exclusive" in site.run(main, "doctor").out
    conf.write_text(f'RunTimeRun="{tmp_path}/crun run %j"\nRunTimeKill=true\nRunTimeDelete=true\n')
    assert f"{tmp_path}/crun of oci.conf is not installed" in site.run(main, "doctor").out
    spec = 'test "$1" = spec && { echo "{\\"process\\": {}}" > config.json; exit; };'
    _program(tmp_path, "crun", f"{spec} echo cgroups in hybrid mode not supported >&2; exit 1")
    assert "runs no container: cgroups in hybrid mode not supported" in site.run(main, "doctor").out
    _program(tmp_path, "crun", f"{spec} echo executable file spritz-no-such-program not found >&2; exit 1")
    assert f"--container: {tmp_path}/crun as oci.conf says" in site.run(main, "doctor").out


def test_jobs_that_get_all_memory_of_a_node_are_told(site: Site) -> None:
    told = "jobs that ask for no memory get all of their nodes' in partition big"
    add(site, "NodeName=m1 RealMemory=1000\nPartitionName=big Nodes=m1")
    assert told in site.run(main, "doctor").out
    add(site, "DefMemPerNode=100")
    assert told not in site.run(main, "doctor").out


def test_a_missing_library_of_pmix_is_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spritz.cli.local.doctor.command.PMIX", "libpmix-that-is-nowhere.so")
    told = "no --mpi=pmix here: libpmix-that-is-nowhere.so is missing"
    assert f"[ note ] {told}" in site.run(main, "doctor").out
    add(site, "MpiDefault=pmix")
    assert f"[ note ] {told}" in site.run(main, "doctor").out, "no job runs on this machine"
    add(site, "NodeName=here NodeAddr=127.0.0.1\nPartitionName=all Nodes=here")
    assert f"[WRONG ] {told}" in site.run(main, "doctor").out


def test_a_log_that_is_a_link_to_nothing_is_no_reason_to_end(site: Site, tmp_path: Path) -> None:
    (tmp_path / "slurmd-n1.log").symlink_to(tmp_path / "nothing")
    (tmp_path / "slurmd-n2.log").write_text("")
    add(site, f"SlurmdLogFile={tmp_path}/slurmd-%n.log")
    assert "Spritz" in site.run(main, "doctor").out


def test_nodes_that_are_away_on_purpose_are_no_fault() -> None:
    def view(*states: str) -> SimpleNamespace:
        return SimpleNamespace(state_names=states, node=SimpleNamespace(name="c1", reason=""), refused="")

    away: Any = [
        view("IDLE", "CLOUD", "POWERING_UP", "NOT_RESPONDING"),
        view("IDLE", "REBOOT_ISSUED", "NOT_RESPONDING"),
        view("IDLE", "CLOUD", "POWERED_DOWN"),
    ]
    assert [_node(each) for each in away] == [None, None, None]
    failed: Any = view("DOWN", "CLOUD", "POWERED_DOWN")
    assert _node(failed) is not None


#: what daemons drain a node for, as they say it
DRAINS = (
    "Prolog error",
    "Epilog error",
    "Kill task failed",
    "batch job complete failure: No space left on device",
    "the clock of n2 is 150 s ahead of the controller's",
    "SlurmdSpoolDir is full",
    "health-check: gpu: GPU 3 has fallen off the bus",
    "jobs fail at once: 10 in a row within 10 seconds",
    config_shortage(NodeCapacity(cpus=4, memory_mib=1000), NodeCapacity(cpus=4, memory_mib=500)),
    config_shortage(NodeCapacity(cpus=4, memory_mib=1), NodeCapacity(cpus=2, memory_mib=1)),
    config_shortage(
        NodeCapacity(cpus=1, memory_mib=1, gres=(GresCapacity(name="gpu", count=8),)),
        NodeCapacity(cpus=1, memory_mib=1, gres=(GresCapacity(name="gpu", count=7),)),
    ),
)


@pytest.mark.parametrize("reason", DRAINS)
def test_a_drain_by_a_fault_is_wrong_and_comes_with_its_remedy(site: Site, reason: str) -> None:
    site.world.ok(UpdateNode(names=("n2",), state="DRAIN", reason=reason))
    lines = site.run(main, "doctor").out.splitlines()
    place = lines.index(f"[WRONG ] node n2 is drained: {reason}")
    advice = lines[place + 1]
    assert advice.startswith("         → ")
    assert "{" not in advice
    assert "n2" in advice or reason.startswith("health-check")


def test_a_node_that_the_controller_does_not_let_in_is_wrong_and_says_why(site: Site) -> None:
    why = "n3 heard another slurmctld of this cluster, of term 7 (ours is 2), 4 s ago: stop the one that is not to lead"
    site.refusals["n3"] = why
    out = site.run(main, "doctor").out
    assert f"[WRONG ] node n3 is not let in: {why}\n         → see SlurmdLogFile on n3\n" in out


def test_every_cause_in_the_table_is_tried() -> None:
    assert {words for words in CAUSES if not any(reason.startswith(words) for reason in DRAINS)} == set()
