"""Jobs that wait while their association or their QOS is taken from them. Source: answers of Slurm 22.05."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from spritz.model.events.cluster import PolicyAmended
from spritz.model.limits.records import PolicyChange, Qos
from tests.unit.scheduling.site import Site
from tests.unit.scheduling.test_explain import bill, billed_site, told


def change(site: Site, **fields: object) -> None:
    """An edit of the policy."""
    version = site.projection.rules.version
    made = PolicyChange(base=version, version=version + 1, **fields)  # type: ignore[arg-type]  # fields of it
    site.apply(PolicyAmended(at=site.now, change=made))


@pytest.mark.parametrize(
    ("lost", "reason"),
    [({"gone_associations": (2,)}, "InvalidAccount"), ({"qos": "other"}, "InvalidQOS")],
)
def test_a_job_waits_whose_association_or_qos_is_gone_and_starts_when_it_is_back(
    lost: dict[str, object], reason: str
) -> None:
    site = billed_site(Qos(name="normal"))
    mine = next(association for association in site.projection.rules.policy.associations if association.user == "alice")
    job, other = site.submit(bill("alice")), site.submit(bill("bob"))
    if "qos" in lost:
        lost = {"associations": (replace(mine, qos="other"),)}
    change(site, **lost)
    assert site.cycle().keys() == {other}
    assert site.reason(job) == reason
    assert "alice" in told(site, job).summary
    change(site, associations=(mine,))
    assert site.cycle().keys() == {job}
