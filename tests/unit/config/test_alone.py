"""One file by itself: its kind by its name, and its own mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.config.alone import examine, kind_of
from spritz.model.errors import SpritzError


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc/slurm/slurm.conf", "slurm.conf"),
        ("slurm.conf.new", "slurm.conf"),
        ("slurm-test.conf", "slurm.conf"),
        ("/etc/slurm/slurmdbd.conf", "slurmdbd.conf"),
        ("gres.conf", "gres.conf"),
        ("topology.yaml", "topology.yaml"),
    ],
)
def test_the_kind_is_told_by_the_name(path: str, kind: str) -> None:
    assert kind_of(path) == kind
    assert kind_of("nodes.inc", kind) == kind


@pytest.mark.parametrize(
    ("path", "given", "message"),
    [
        ("nodes.conf", "", "nodes.conf: its name does not say what kind of file it is"),
        ("acct_gather.conf", "", "acct_gather.conf is not supported by Spritz"),
        ("x", "plugstack.conf", "plugstack.conf is not supported by Spritz"),
        ("x", "grs.conf", "--kind=grs.conf: no such kind of file"),
    ],
)
def test_other_kinds_are_refused_in_words(path: str, given: str, message: str) -> None:
    with pytest.raises(SpritzError, match=message):
        kind_of(path, given)


@pytest.mark.parametrize(
    ("name", "good", "bad", "message"),
    [
        ("slurmdbd.conf", "StorageType=accounting_storage/sqlite\n", "PurgeJobAfter=soon\n", "PurgeJobAfter"),
        ("gres.conf", "Name=gpu File=/dev/nvidia0\n", "File=/dev/nvidia0\n", "Name is missing"),
        ("cgroup.conf", "ConstrainCores=yes\n", "ConstrainCors=yes\n", "ConstrainCors"),
        ("topology.conf", "SwitchName=s Nodes=n[1-2]\n", "Nodes=n1\n", "SwitchName or BlockName is missing"),
        ("topology.yaml", "- topology: one\n  flat: true\n", "[", "this is no YAML"),
        ("job_container.conf", "BasePath=/x Dirs=/tmp,/y\n", "Dirs=tmp\n", "Dirs=tmp"),
        ("oci.conf", "RunTimeRun=a RunTimeKill=b RunTimeDelete=c\n", "RunTimeRun=%x\n", "unknown pattern %x"),
        ("helpers.conf", "Feature=a Helper=/bin/true\n", "Fature=a\n", "Fature"),
    ],
)
def test_each_kind_is_read_by_its_own_rules(tmp_path: Path, name: str, good: str, bad: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(good)
    words, found = examine(str(path), name)
    assert words
    assert not found
    path.write_text(bad)
    words, found = examine(str(path), name)
    assert not words
    assert message in found[0].text


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for name in ("slurm.conf", "gres.conf", "topology.yaml"):
        words, found = examine(str(tmp_path / name), name)
        assert not words
        assert "cannot be read" in found[0].text
