"""Partitions that are closed to accounts and QOS, as long as a job waits. Source: slurm.conf(5) AllowAccounts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.model.events.cluster import PartitionUpdated
from tests.unit.scheduling.site import Site, node, partition, spec


@pytest.mark.parametrize(
    ("rule", "kind", "why"),
    [
        ({"allow_accounts": ("art",)}, "account", "allows art not chem"),
        (
            {"deny_accounts": ("chem",)},
            "account",
            "denies chem including chem",
        ),
        ({"allow_qos": ("high",)}, "QOS", "allows high not low"),
        ({"deny_qos": ("low",)}, "QOS", "denies low including low"),
    ],
)
def test_a_job_waits_from_when_its_partition_closes_until_it_opens(rule: dict[str, Any], kind: str, why: str) -> None:
    nodes = [node("n1", 4)]
    site = Site(nodes, [partition("debug", nodes, default=True)])
    site.submit(spec(4))
    site.cycle()
    job = site.submit(spec(4, account="chem", qos="low"))
    (open_to_all,) = site.partitions
    site.apply(PartitionUpdated(at=site.now, partition=replace(open_to_all, **rule)))
    site.end(1)
    assert site.cycle() == {}
    assert site.reason(job).endswith(f"Job's {kind} not permitted to use this partition (debug {why})")
    site.apply(PartitionUpdated(at=site.now, partition=open_to_all))
    assert site.cycle().keys() == {job}


def test_an_allowed_user_is_not_denied() -> None:
    """slurm.conf(5): if AllowAccounts is used then DenyAccounts will not be enforced."""
    nodes = [node("n1", 4)]
    rules = {"allow_accounts": ("chem",), "deny_accounts": ("chem",), "allow_qos": ("low",), "deny_qos": ("low",)}
    site = Site(nodes, [partition("debug", nodes, default=True, **rules)])
    job = site.submit(spec(4, account="chem", qos="low"))
    assert site.cycle().keys() == {job}
