"""What a standby controller and the leader must have in common."""

from __future__ import annotations

import asyncio
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from spritz.client.trust.membership import Membership
from spritz.controller.configuration import read_configuration
from spritz.controller.journal.contract import JournalFailed
from spritz.controller.lead.agreement import Agreement, agreement_of, decoded, record

CONF = """\
ClusterName=c
SlurmctldHost=ctl1
SlurmctldHost=ctl2
SlurmUser=root
StateSaveLocation=/var/a
NodeName=n[1-2] CPUs=1
PartitionName=p Nodes=ALL
"""

OLD, NEW, OTHER = b"o" * 64, b"n" * 64, b"x" * 64


def agreement(directory: Path, text: str = CONF, *keys: bytes) -> Agreement:
    conf = directory / "slurm.conf"
    conf.write_text(text)
    return agreement_of(read_configuration(str(conf)), Membership(str(conf), cluster_keys=keys) if keys else None)


def test_a_key_that_both_have_is_enough(tmp_path: Path) -> None:
    """Keys are replaced one machine after the other (docs/how-to/several-machines.md)."""
    leader = agreement(tmp_path, CONF, OLD, NEW)
    for own, other in ((OLD,), False), ((NEW,), False), ((NEW, OTHER), False), ((OTHER,), True), ((), False):
        assert agreement(tmp_path, CONF, *own).has_other_key(leader) == other, own
    assert not agreement(tmp_path, CONF, OTHER).has_other_key(agreement(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("/var/a", "/var/b", []),
        ("n[1-2]", "n[1-3]", ["NodeName"]),
        ("n[1-2]", "n2,n1", []),
        ("PartitionName=p", "PartitionName=q", ["PartitionName"]),
        ("ctl2", "ctl3", ["SlurmctldHost"]),
        ("SlurmUser=root", "SlurmUser=root\nSlurmctldPort=7000", ["SlurmctldPort"]),
    ],
)
def test_settings_that_differ_are_named(tmp_path: Path, old: str, new: str, keys: list[str]) -> None:
    leader = agreement(tmp_path)
    assert agreement(tmp_path, CONF.replace(old, new)).other_settings(leader) == keys


def test_a_record_of_a_later_release_is_compared_in_what_both_know(tmp_path: Path) -> None:
    own = agreement(tmp_path)
    stored = msgspec.json.encode(own).replace(b'"settings":{', b'"more":[1],"settings":{"Other":"0",')
    leader = decoded(stored)
    assert leader is not None
    assert own.other_settings(leader) == []
    assert decoded(b"[]") is None
    assert decoded(None) is None


def test_a_record_that_cannot_be_stored_stops_no_reconfiguration(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(CONF)
    configuration = read_configuration(str(tmp_path / "slurm.conf"))
    journal, log = Mock(term=3), Mock()
    journal.keep.side_effect = JournalFailed("no space left")
    asyncio.run(record(journal, configuration, None, log))
    log.error.assert_called_once_with("leader.not_recorded", error="no space left")
